//! Waiting until nothing moves any more.
//!
//! Only the mailboxes know the truth; the tap's reports only say when to check again. One check of several inboxes, one after
//! the other, could miss an envelope that moves from an unchecked inbox to a checked one. So there are two checks: if both
//! find everything idle and all counters, which only ever grow, are the same in both, then everything was idle at once
//! between the two.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::book::Book;
use super::recorder::FlowRecorder;

/// Why a broker is not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsettled {
    /// A line for each thing that has not finished yet.
    pub reasons: Vec<String>,
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the broker is not settled:")?;
        for reason in &self.reasons {
            write!(f, "\n  {reason}")?;
        }
        f.write_str("\nan inbox that nobody but the test reads is left out with `set_aside`")
    }
}

impl std::error::Error for Unsettled {}

/// What has happened until a check; equal if nothing has happened between two checks.
#[derive(PartialEq, Eq)]
struct Activity {
    moved: u64,
    begun: u64,
}

impl Book {
    fn look(&mut self, waiting: usize) -> Result<Activity, Unsettled> {
        let mut reasons = Vec::new();
        let mut moved = 0_u64;
        for (id, known) in &mut self.subscriptions {
            let Some(probe) = &known.probe else { continue };
            if self.aside.contains(id) {
                continue;
            }
            let stats = probe.stats();
            moved = moved
                .wrapping_add(stats.pushed)
                .wrapping_add(stats.taken)
                .wrapping_add(stats.displaced)
                .wrapping_add(stats.discarded);
            let left = stats.queued + stats.in_hand;
            if left > 0 && stats.taken == 0 && !stats.hand_out {
                reasons.push(format!("{}: {left} queued, none taken so far", known.label(*id)));
            } else if left > 0 {
                reasons.push(format!("{}: {left} queued or in hand", known.label(*id)));
            } else if stats.hand_out {
                reasons.push(format!(
                    "{}: its consumer has not come back since it took the last",
                    known.label(*id)
                ));
            } else if probe.is_finished() {
                // Finished inboxes do not change any more; what they moved is in both checks or in none.
                known.probe = None;
            }
        }
        let labels = self
            .at_work
            .keys()
            .filter(|(subscription, _)| !self.aside.contains(subscription));
        for (subscription, envelope) in labels {
            reasons.push(format!(
                "{}: {envelope} is being handled",
                self.label(*subscription)
            ));
        }
        if waiting > 0 {
            reasons.push(format!("publishes that wait for room: {waiting}"));
        }
        if reasons.is_empty() {
            Ok(Activity {
                moved,
                begun: self.begun,
            })
        } else {
            Err(Unsettled { reasons })
        }
    }
}

impl FlowRecorder {
    /// What has not finished yet; `None` if at one moment during the call nothing moved.
    #[must_use]
    pub fn unsettled(&self) -> Option<Unsettled> {
        let waiting = || self.broker().waiting();
        let mut former = match self.book().look(waiting()) {
            Ok(activity) => activity,
            Err(unsettled) => return Some(unsettled),
        };
        loop {
            match self.book().look(waiting()) {
                Ok(activity) if activity == former => return None,
                // An envelope has passed through meanwhile, and everything is idle again.
                Ok(activity) => former = activity,
                Err(unsettled) => return Some(unsettled),
            }
        }
    }
}

/// See [`FlowRecorder::settle`](crate::FlowRecorder::settle).
pub(super) struct Settle<'a>(pub(super) &'a FlowRecorder);

impl Future for Settle<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // First the waker, then the check: whatever ends after the check finds the waker.
        self.0.book().call_back(cx.waker());
        if self.0.unsettled().is_none() {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}
