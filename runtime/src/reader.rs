//! Reads histories off the shards' threads: for instances that are woken, and for results of
//! finished runs.

use std::sync::Arc;

use millrun_broker::mailbox::{Mailbox, MailboxConfig};
use millrun_core::{Bell, Next, Part, RunId, Timestamp};
use millrun_persistence::{Journal, ReadError, Record};
use millrun_workflow::{Event, Outcome, wire};
use tokio::sync::oneshot;

use crate::RunError;
use crate::shard::{ShardDoors, ShardMessage, Standing, Target};

/// Something to be read.
#[derive(Debug)]
enum ReadRequest {
    /// The history of a run that is woken; it goes to the run's shard.
    Load(RunId),
    /// How a finished run ended.
    Outcome(Target, oneshot::Sender<Result<Standing, RunError>>),
}

/// The door of the reader. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct ReaderDoor {
    requests: Mailbox<ReadRequest>,
}

impl ReaderDoor {
    pub(crate) fn new(bell: Bell) -> Self {
        let requests =
            Mailbox::new(MailboxConfig::default(), bell).expect("the default configuration is valid");
        Self { requests }
    }

    /// Asks for a history; the shard bounds how many are under way.
    pub(crate) fn load(&self, run: RunId) {
        // Refused only when the runtime has stopped.
        drop(self.requests.push_reserved(ReadRequest::Load(run)));
    }

    /// Asks how a finished run ended; waits for room. `None` if the runtime has stopped.
    pub(crate) async fn outcome(&self, target: Target) -> Option<Result<Standing, RunError>> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .push(ReadRequest::Outcome(target, reply))
            .await
            .ok()?;
        answer.await.ok()
    }

    pub(crate) fn close(&self) {
        drop(self.requests.close_discarding());
    }
}

/// The part; it may wait for the disk.
#[derive(Debug)]
pub(crate) struct Reader {
    door: ReaderDoor,
    shards: ShardDoors,
    journal: Arc<dyn Journal>,
}

impl Reader {
    pub(crate) fn new(door: ReaderDoor, shards: ShardDoors, journal: Arc<dyn Journal>) -> Self {
        Self {
            door,
            shards,
            journal,
        }
    }

    fn load(&self, run: RunId) -> Result<Vec<(Event, Timestamp)>, RunError> {
        let history = self.journal.history(run)?;
        let id = history.id.as_str();
        let events = history
            .records
            .iter()
            .map(|record| decode(record, id).map(|event| (event, record.time)));
        events.collect()
    }

    fn outcome(&self, target: &Target) -> Result<Standing, RunError> {
        let run = match target {
            Target::Run(run) => *run,
            Target::Id(id) => self.journal.finished(id)?.ok_or(RunError::NotFound)?.run,
        };
        let history = match self.journal.history(run) {
            Ok(history) => history,
            Err(ReadError::UnknownRun { .. }) => return Err(RunError::NotFound),
            Err(error) => return Err(error.into()),
        };
        let last = history.records.last().ok_or(RunError::NotFound)?;
        let event = decode(last, history.id.as_str())?;
        Outcome::of(&event).map(Standing::Ended).ok_or(RunError::NotFound)
    }
}

fn decode(record: &Record, id: &str) -> Result<Event, RunError> {
    let opens = (record.sequence.get() == 1).then_some(id);
    wire::decode(record.kind, &record.body, opens)
        .map_err(|error| RunError::History(format!("event {}: {error}", record.sequence)))
}

impl Part for Reader {
    fn turn(&mut self, _now: Timestamp, budget: usize) -> Next {
        let mut hand = self.door.requests.take();
        for request in hand.by_ref().take(budget) {
            match request {
                ReadRequest::Load(run) => {
                    let history = self.load(run);
                    self.shards.push(run, ShardMessage::Loaded { run, history });
                }
                // Whoever asked may have gone away.
                ReadRequest::Outcome(target, reply) => drop(reply.send(self.outcome(&target))),
            }
        }
        drop(hand);
        if self.door.requests.is_finished() {
            Next::Stop
        } else {
            Next::Idle
        }
    }
}
