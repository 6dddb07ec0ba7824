//! The thread that takes starts, writes turns, and acknowledges what is durable.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use millrun_core::{RunId, Timestamp};
use tokio::sync::oneshot;

use super::log::{Log, Segment};
use super::template::Template;

/// A run that a client starts.
pub(super) struct Request {
    pub(super) number: u32,
    /// Told when the start is durable.
    pub(super) started: oneshot::Sender<()>,
    /// Told the result when it is durable.
    pub(super) ended: oneshot::Sender<u32>,
}

/// A run whose first turn is on its way to the disk.
pub(super) struct Begun {
    request: Request,
    run: RunId,
    /// Where the turn stands in the log.
    at: u64,
}

/// A run whose second turn is on its way to the disk.
pub(super) struct Ended {
    result: u32,
    ended: oneshot::Sender<u32>,
}

/// What waits for the shard. Its bound is the number of clients.
#[derive(Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: Vec<Request>,
    durable: Vec<Segment>,
    is_asleep: bool,
    is_closing: bool,
    /// The writer has failed: nothing will become durable any more.
    is_over: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, put: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.lock();
        put(&mut waiting);
        let is_asleep = mem::take(&mut waiting.is_asleep);
        drop(waiting);
        if is_asleep {
            self.came.notify_one();
        }
    }

    /// Asks for a run. Where the floor has ended, the request is dropped, which its client notices.
    pub(super) fn push(&self, request: Request) {
        self.put(|waiting| {
            if !waiting.is_over {
                waiting.requests.push(request);
            }
        });
    }

    /// Says that a segment is durable.
    pub(super) fn push_durable(&self, segment: Segment) {
        self.put(|waiting| waiting.durable.push(segment));
    }

    /// Ends the shard after what is queued.
    pub(super) fn close(&self) {
        self.put(|waiting| waiting.is_closing = true);
    }

    /// Ends the shard at once.
    pub(super) fn fail(&self) {
        self.put(|waiting| {
            waiting.is_over = true;
            waiting.requests.clear();
        });
    }

    /// Takes all that waits; waits itself if `may_wait` and nothing does. `false` when the shard is to end.
    fn take(&self, requests: &mut Vec<Request>, durable: &mut Vec<Segment>, may_wait: bool) -> bool {
        let mut waiting = self.lock();
        while may_wait && waiting.requests.is_empty() && waiting.durable.is_empty() {
            if waiting.is_closing || waiting.is_over {
                return false;
            }
            waiting.is_asleep = true;
            waiting = self.came.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        mem::swap(&mut waiting.requests, requests);
        durable.append(&mut waiting.durable);
        !waiting.is_over
    }
}

/// The shard.
pub(super) struct Shard {
    template: Template,
    log: Log,
    inbox: Arc<Inbox>,
}

impl Shard {
    pub(super) fn new(template: Template, log: Log, inbox: Arc<Inbox>) -> Self {
        Self { template, log, inbox }
    }

    /// Sweeps until the floor ends.
    pub(super) fn run(mut self) {
        let (mut requests, mut durable) = (Vec::new(), Vec::new());
        let (mut started, mut ended) = (Vec::new(), Vec::new());
        // A log in memory is durable at once.
        loop {
            let may_wait = durable.is_empty();
            if !self.inbox.take(&mut requests, &mut durable, may_wait) {
                break;
            }
            let time = now();
            let template = &self.template;
            let kept = self.log.sweep(&mut durable, |segment, durable| {
                for done in durable {
                    for Begun { request, run, at } in done.begun.drain(..) {
                        let result = request.number + 1;
                        template.end(&mut segment.bytes, (run, at), result, time);
                        started.push(request.started);
                        segment.ended.push(Ended {
                            result,
                            ended: request.ended,
                        });
                    }
                    ended.append(&mut done.ended);
                }
                for request in requests.drain(..) {
                    let at = segment.end();
                    let run = template.begin(&mut segment.bytes, request.number, time);
                    segment.begun.push(Begun { request, run, at });
                }
            });
            durable.extend(kept);
            // A client that has gone away needs no answer.
            for started in started.drain(..) {
                started.send(()).ok();
            }
            for Ended { result, ended } in ended.drain(..) {
                ended.send(result).ok();
            }
        }
        self.log.close();
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
