//! Graceful shutdown, within one time limit.
//!
//! ```text
//!   close the doors ──► activities ──► reports ──► shards ──► actors ──► journal ──► broker ──► parts and threads
//!                       grace           1/4         1/2        1/2        1/2                    the rest
//! ```
//!
//! Each stage may use a share of the time that is left: activities up to their grace; a quarter until their reports have
//! reached their runs; half each for the shards, the user's actors and the journal; the parts all of it. What has not ended
//! by then is left behind and named in the report.
//!
//! Left out on purpose: ending code that blocks its thread, which Rust cannot do. Its callers are answered.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use millrun_core::{Host, RunId};
use millrun_persistence::FailureKind;

use crate::inner::Inner;
use crate::ownership::partition_set::PartitionSet;
use crate::shard::ShardRest;
use crate::{Runtime, StopCause};

/// What a shutdown cut short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Activities that were still running when the grace was over. They run again when the store is next opened.
    pub activities_cut: u64,
    /// Parts that had not ended when the time was over, and may hold their threads until the process ends: a shard whose code
    /// blocks, or a blocking activity that ignores its end. Everything acknowledged is in the file. A
    /// [supervised](Runtime::supervise) actor that did not end in time is named too; it is killed, and ends at its next
    /// await.
    pub left_behind: Vec<LeftBehind>,
}

/// A part that a shutdown stopped waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftBehind {
    /// The part's name, as in [`Runtime::parts`], or that of a blocking activity.
    pub part: String,
    /// If it is a shard in the middle of a turn: the run whose code was running.
    pub run: Option<RunId>,
}

/// How often a node that shuts down checks which of its partitions have no attempt under way: those are given back first.
const GIVEN_BACK_EVERY: Duration = Duration::from_millis(250);

/// The time that a shutdown has left.
struct TimeLeft {
    host: Arc<dyn Host>,
    /// On the host's monotonic clock.
    end: Duration,
}

impl TimeLeft {
    fn new(host: &Arc<dyn Host>, wait_max: Duration) -> Self {
        let end = host.elapsed().saturating_add(wait_max);
        let host = Arc::clone(host);
        Self { host, end }
    }

    fn get(&self) -> Duration {
        self.end.saturating_sub(self.host.elapsed())
    }

    /// Checks the condition every millisecond, up to this time. Only a shutdown polls like this.
    async fn wait_until(&self, wait_max: Duration, condition: impl Fn() -> bool) {
        let end = self.host.elapsed().saturating_add(wait_max.min(self.get()));
        while !condition() && self.host.elapsed() < end {
            let next = self.host.now() + Duration::from_millis(1);
            self.host.sleep_until(next).await;
        }
    }
}

/// Waits until everything reported so far is told to its runs and queued at the journal. False if that took too long.
async fn rest(inner: &Inner, time: &TimeLeft, wait_max: Duration) -> bool {
    let (rests, doors) = (&inner.shared.rests, inner.doors.all());
    let asked: Vec<_> = rests.iter().map(ShardRest::ask).collect();
    doors.iter().for_each(|door| door.mailbox.bell().ring());
    let have_come = || {
        rests
            .iter()
            .zip(&asked)
            .all(|(rest, number)| rest.has_come(*number))
    };
    // If the runtime fails meanwhile, or another call has shut it down, no shard answers.
    let is_over = || inner.stop.get().is_some() || inner.tree.shards_running() == 0;
    time.wait_until(wait_max, || have_come() || is_over()).await;
    have_come()
}

/// Waits until no attempt is under way, up to the grace of activities. Meanwhile a node gives back partitions without
/// attempts.
async fn drain(inner: &Inner, time: &TimeLeft) {
    let shared = &inner.shared;
    let grace = shared.config.shutdown_grace;
    let end = shared.host.elapsed().saturating_add(grace);
    let look_every = if shared.cluster.is_some() {
        GIVEN_BACK_EVERY
    } else {
        grace
    };
    loop {
        let left = end.saturating_sub(shared.host.elapsed());
        time.wait_until(left.min(look_every), || inner.running_len() == 0)
            .await;
        if inner.running_len() == 0 || left <= look_every {
            return;
        }
        give_back_idle(inner, time).await;
    }
}

/// Gives back the partitions without attempts under way: their runs continue elsewhere while others are waited for.
async fn give_back_idle(inner: &Inner, time: &TimeLeft) {
    let shared = &inner.shared;
    let mut busy = PartitionSet::default();
    let are_sent = shared.pools.iter().all(|pool| pool.note_busy(&mut busy));
    // All other attempts have ended; their reports have to be recorded first.
    if !are_sent || !rest(inner, time, GIVEN_BACK_EVERY).await {
        return;
    }
    let owned = shared.claims.owned().owned();
    let idle: Vec<_> = owned.filter(|partition| !busy.contains(*partition)).collect();
    if !idle.is_empty() {
        tracing::info!(
            partitions = idle.len(),
            "a node that is shut down gives partitions back"
        );
        shared.claims.release(inner.journal.as_ref(), &idle);
    }
}

impl Inner {
    /// The number of attempts under way, in all queues.
    fn running_len(&self) -> u64 {
        let pools = self.shared.pools.iter();
        pools.map(|pool| pool.running_len() as u64).sum()
    }
}

impl Runtime {
    /// Stops gracefully: refuses new requests, starts no further activity, waits for running ones up to the configured grace,
    /// flushes the journal, closes the file. All clones and handles return [`StopCause::Shutdown`] from then on. It may be
    /// awaited on any executor.
    ///
    /// It takes no longer than [`shutdown_wait_max`](crate::RuntimeConfig::shutdown_wait_max). Workflow code that blocks its
    /// thread is left behind then, and so is a blocking activity that ignores its end: the
    /// [report](ShutdownReport::left_behind) names them, and their callers get [`StopCause::Shutdown`].
    ///
    /// Subscriptions of the runtime's own [broker](Self::broker) end: consumers get what is in their inboxes, and then the
    /// end. A broker that the runtime was [given](crate::RuntimeBuilder::broker) is not changed:
    /// [close](millrun_broker::Broker::close) it to end its subscriptions.
    ///
    /// # Errors
    /// When the runtime had failed before, the journal fails during the flush, or the disk does not answer in time, so that
    /// the file is not closed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the runtime closed to requests; call it again to finish.
    pub async fn shutdown(&self) -> Result<ShutdownReport, StopCause> {
        let inner = self.inner();
        let failed = inner.settled_cause();
        inner.stop.begin_closing();
        let shared = &inner.shared;
        if let Some(cluster) = &shared.cluster {
            cluster.leave();
        }
        let time = TimeLeft::new(&shared.host, shared.config.shutdown_wait_max);
        for pool in &shared.pools {
            pool.stop_starting();
        }
        if failed.is_none() {
            drain(inner, &time).await;
        }
        let activities_cut = inner.running_len();
        if failed.is_none() {
            // Reports that have not reached their runs in that time are lost, and the attempts run again.
            rest(inner, &time, time.get() / 4).await;
        }
        for door in inner.doors.all() {
            door.mailbox.close();
        }
        let shards_time = time.get() / 2;
        time.wait_until(shards_time, || inner.tree.shards_running() == 0)
            .await;
        let mut left_behind = inner.tree.shards_left_behind();
        let actors_end = shared.host.elapsed().saturating_add(time.get() / 2);
        for seat in inner.actors.close() {
            seat.drain();
            let actor_time = actors_end.saturating_sub(shared.host.elapsed());
            time.wait_until(actor_time, || seat.has_ended()).await;
            if !seat.has_ended() {
                left_behind.push(LeftBehind {
                    part: seat.part_name(),
                    run: None,
                });
            }
        }
        shared.reader.close();
        inner.tree.abandon();
        // If a shard is left behind, nothing else answers its requests.
        inner.doors.close_discarding();
        inner.journal.begin_close();
        let journal_time = time.get() / 2;
        time.wait_until(journal_time, || inner.journal.is_closed()).await;
        let is_closed = inner.journal.is_closed();
        // If the journal failed during the flush, it has stopped the runtime.
        let failure = inner.journal.failure();
        if let Some(failure) = failure.filter(|failure| failure.kind() != FailureKind::Closed) {
            inner.tree.fail(StopCause::Journal(failure));
        }
        inner.stop.set(StopCause::Shutdown);
        inner.stop.tell();
        inner.presence.abort();
        let owner = inner
            .tokio_host
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(owner) = owner
            && let Err(running) = owner.shutdown(time.get()).await
        {
            for part in running.parts {
                if left_behind.iter().all(|left| left.part != part.name) {
                    left_behind.push(LeftBehind {
                        part: part.name,
                        run: None,
                    });
                }
            }
        }
        inner.tree.close_broker();
        if !left_behind.is_empty() || !is_closed {
            // Parts that were left behind answer no caller. Otherwise all answers are on their way.
            inner.stop.answer_nobody();
        }
        if !left_behind.is_empty() {
            tracing::warn!(?left_behind, "the shutdown ran out of time");
        }
        match inner.stop.get() {
            Some(StopCause::Shutdown) | None if is_closed => Ok(ShutdownReport {
                activities_cut,
                left_behind,
            }),
            Some(StopCause::Shutdown) | None => Err(StopCause::Part {
                part: "journal".into(),
                message: "it did not close the store in time".into(),
            }),
            Some(cause) => Err(cause.clone()),
        }
    }
}
