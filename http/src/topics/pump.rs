//! What all tails of one topic share: a ring, and the task that fills the ring while a tail listens, and for a minute longer,
//! so that a client that returns finds what it has missed.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use millrun::Runtime;
use millrun::broker::SubscribeError;
use millrun::host::Host;
use tokio::sync::watch;

use super::exposed::{Carries, Listens};
use super::ring::Ring;

/// How long the task listens to a topic after the last tail has gone.
const LINGER: Duration = Duration::from_secs(60);

/// The tail of one topic.
pub(crate) struct Tail {
    carried: Box<dyn Carries>,
    /// Distinguishes the numbers of this process from those of others.
    life: u64,
    state: Mutex<State>,
}

struct State {
    ring: Ring,
    /// The notification of the task that fills the ring, while there is one.
    told: Weak<watch::Sender<()>>,
    /// How many envelopes had been published when the ring was last filled.
    heard: Option<u64>,
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail").finish_non_exhaustive()
    }
}

impl Tail {
    pub(super) fn new(carried: Box<dyn Carries>, life: u64) -> Self {
        let state = State {
            ring: Ring::default(),
            told: Weak::new(),
            heard: None,
        };
        Self {
            carried,
            life,
            state: Mutex::new(state),
        }
    }

    /// The topic.
    pub(crate) fn carried(&self) -> &dyn Carries {
        self.carried.as_ref()
    }

    pub(super) const fn life(&self) -> u64 {
        self.life
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives access to the ring.
    pub(super) fn with_ring<R>(&self, look: impl FnOnce(&Ring) -> R) -> R {
        look(&self.lock().ring)
    }

    /// Listens to the topic; the first listener starts the task that fills the ring. Messages from here on are in the ring
    /// behind the returned number. The receiver is notified of them, and of the end of the task by an error.
    pub(super) fn join(
        self: &Arc<Self>,
        runtime: &Runtime,
    ) -> Result<(watch::Receiver<()>, u64), SubscribeError> {
        if let Some(joined) = joined(&self.lock()) {
            return Ok(joined);
        }
        // Not under the lock, since the broker has locks of its own. If another caller is quicker, this inbox is dropped
        // again.
        let published = self.carried.published();
        let inbox = self.carried.listen()?;
        let (told, changed) = watch::channel(());
        let told = Arc::new(told);
        let last = {
            let mut state = self.lock();
            if let Some(joined) = joined(&state) {
                return Ok(joined);
            }
            let unheard = state.heard.map_or(0, |heard| published.saturating_sub(heard));
            state.ring.begin_anew(unheard);
            state.told = Arc::downgrade(&told);
            state.ring.last()
        };
        let host = Arc::clone(runtime.host());
        let task = Arc::clone(self).fill(inbox, told, Arc::clone(&host));
        drop(host.spawn("millrun-http-tail", Box::pin(task)));
        Ok((changed, last))
    }

    /// Fills the ring while a tail listens.
    async fn fill(
        self: Arc<Self>,
        mut inbox: Box<dyn Listens>,
        told: Arc<watch::Sender<()>>,
        host: Arc<dyn Host>,
    ) {
        let mut dropped_before = 0;
        let mut ends_at = None;
        loop {
            let dropped = inbox.dropped();
            let next = pin!(poll_fn(|cx| inbox.poll_next(cx)));
            let nobody = match ends_at {
                None => Either::Left(told.closed()),
                Some(at) => Either::Right(host.sleep_until(at)),
            };
            match select(next, pin!(nobody)).await {
                Either::Left((Some(text), _)) => {
                    let lost = dropped - dropped_before;
                    self.lock().ring.push(lost, text);
                    dropped_before = dropped;
                    told.send_replace(());
                    if told.receiver_count() > 0 {
                        ends_at = None;
                    }
                }
                Either::Left((None, _)) => return,
                Either::Right(_) if ends_at.is_none() => ends_at = Some(host.now() + LINGER),
                Either::Right(_) => {
                    let published = self.carried.published();
                    if self.end(&told, published) {
                        return;
                    }
                    ends_at = None;
                }
            }
        }
    }

    /// Stops listening, unless a tail has come.
    fn end(&self, told: &watch::Sender<()>, published: u64) -> bool {
        let mut state = self.lock();
        if told.receiver_count() > 0 {
            return false;
        }
        state.ring.begin_anew(0);
        state.told = Weak::new();
        state.heard = Some(published);
        true
    }
}

/// Joins the running task, if there is one.
fn joined(state: &State) -> Option<(watch::Receiver<()>, u64)> {
    let told = state.told.upgrade()?;
    Some((told.subscribe(), state.ring.last()))
}
