//! The run in which another of the instance goes on: because its code says so, or because it has failed and is tried again.
//!
//! ```text
//!   ContinuedAsNew ──► another workflow or argument, the signals that were not taken, the places in topics
//!   the same, failed, or TimedOut ──► the argument and all else that the run began with, the signals since, and a time to begin at
//! ```
//!
//! Invariant: whether a run is tried again follows from its beginning, its failure and the time of that, so that a replay
//! decides it again.

use millrun_core::{RunId, Timestamp};

use super::Instance;
use crate::event::{Event, Name, Origin, RunFailure, RunTry, Started};
use crate::ledger::{ANSWERS_CARRIED_BYTES_MAX, SENDERS_CARRIED_LEN_MAX};
use crate::retry::mix;
use crate::{OperationId, Payload};

impl Instance {
    /// The run in which this one goes on. It follows from this one, so that the same inputs give
    /// the same turns.
    pub(super) fn next_run(&self, now: Timestamp) -> RunId {
        let unique = u64::try_from(self.run.bits() & u128::from(u64::MAX)).expect("masked to 64 bits");
        RunId::new(self.run.partition(), now, mix(unique))
    }

    /// Which try follows if the run fails now, and when it begins; `None` if none does.
    pub(super) fn next_try(&self, now: Timestamp) -> Option<(RunTry, Timestamp)> {
        let tried = self.ledger.started()?.run_try()?;
        if self.ledger.is_cancel_requested() {
            // It is to end.
            return None;
        }
        let since = tried.since.unwrap_or_else(|| self.ledger.started_at());
        let step = (self.run, OperationId::new(0));
        let at = tried.retry.retry_at(tried.number, None, step, since, now)?;
        let timeouts = self.ledger.started().and_then(Started::timeouts);
        let chain_ends = timeouts.and_then(|timeouts| timeouts.chain_ends);
        // One that would begin when the time of the chain is over is no try.
        let in_time = chain_ends.is_none_or(|ends| at.max(now) < ends);
        in_time.then(|| (tried.again(since), at))
    }

    /// How a run ends that is tried again.
    pub(super) fn failed_to_try_again(&self, error: RunFailure, now: Timestamp) -> Event {
        let started = self.ledger.started().expect("only a run that began can fail");
        Event::ContinuedAsNew {
            run: self.next_run(now),
            workflow: started.workflow.clone(),
            input: started.input.clone(),
            failed: Some(Box::new(error)),
        }
    }

    /// The beginning of the run in which this one, which has failed without an error of its code, is tried again.
    pub(super) fn beginning_again(&self, now: Timestamp) -> Started {
        let started = self.ledger.started().expect("only a run that began can end");
        self.next_beginning(&started.workflow, &started.input, true, now)
    }

    /// The beginning of the run in which this one goes on.
    pub(super) fn next_beginning(
        &self,
        workflow: &Name,
        input: &Payload,
        has_failed: bool,
        now: Timestamp,
    ) -> Started {
        let former = self.ledger.started().expect("only a run that began can end");
        let began_as = former.began_as();
        let mut origin = Origin {
            parent: former.parent(),
            continued: Some(self.run),
            cause: former.origin.as_ref().and_then(|origin| origin.cause),
            triggered_by: None,
            trace: former.trace().copied(),
            began_as: (began_as != workflow).then(|| began_as.clone()),
            answers: self
                .ledger
                .answers(ANSWERS_CARRIED_BYTES_MAX.min(self.limits.payload_bytes_max / 2)),
            senders: self.ledger.senders(SENDERS_CARRIED_LEN_MAX),
            signal_requests: self.ledger.signal_requests(),
            timeouts: (former.timeouts()).map(|timeouts| Box::new(timeouts.of_next())),
            ..Origin::default()
        };
        let mut table = self.shared.lock();
        if has_failed {
            let next = self.next_try(now);
            let (mut run_try, at) = next.expect("it was decided at this time that it is tried again");
            if let Some(former) = &former.origin {
                origin.signals = run_try.first_signals(&former.signals).to_vec();
                origin.taken.clone_from(&former.taken);
            }
            let first_len = origin.signals.len();
            origin.signals.extend(table.take_later_signals());
            let has_later = origin.signals.len() > first_len;
            run_try.signals_len = has_later.then(|| u32::try_from(first_len).ok()).flatten();
            origin.start_at = (at > now).then_some(at);
            origin.run_try = Some(Box::new(run_try));
        } else {
            origin.signals = table.take_signals();
            origin.taken = table.taken();
            // What it goes on with is another beginning.
            origin.run_try = (former.run_try()).map(|tried| Box::new(RunTry::first(tried.retry)));
        }
        let ahead = table.time.ahead();
        Started {
            origin: Some(origin.into()),
            not_before: Some(ahead.unwrap_or(Timestamp::EPOCH)),
            ..Started::new(workflow.clone(), former.id.clone(), input.clone())
        }
    }
}
