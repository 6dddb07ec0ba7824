//! A tap sees each attempt of each activity begin and end. The testkit's world uses it to record calls, and to crash the
//! process between the effect of an attempt and its report.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use millrun_workflow::Payload;

use super::code::{AnySeat, Seat};
use super::{ActivityContext, AttemptOutcome};

/// Sees attempts of activities begin and end, on the thread that runs them.
#[doc(hidden)]
pub trait ActivityTap: Send + Sync + fmt::Debug + 'static {
    /// An attempt is about to begin. If this returns `false`, its code is not called, and the attempt does not end by itself:
    /// for a simulated process that has crashed, and must have no further effect.
    fn begins(&self, cx: &ActivityContext, input: &Payload) -> bool;

    /// The attempt has ended: with a value, with the message of an error, or (`None`) with a panic. The runtime does not know
    /// yet. An attempt that is cut off by a timeout, a cancel or a crash is not reported.
    fn has_ended(&self, cx: &ActivityContext, end: Option<Result<&Payload, String>>);
}

/// A seat that tells the tap of its attempts.
pub(super) struct TappedSeat {
    seat: AnySeat,
    tap: Arc<dyn ActivityTap>,
    /// The context of the attempt under way.
    cx: Option<ActivityContext>,
}

impl TappedSeat {
    pub(super) fn new(seat: AnySeat, tap: Arc<dyn ActivityTap>) -> Self {
        let cx = None;
        Self { seat, tap, cx }
    }

    fn told(
        &mut self,
        poll: impl FnOnce(Pin<&mut dyn Seat>) -> Poll<AttemptOutcome>,
    ) -> Poll<AttemptOutcome> {
        let polled = catch_unwind(AssertUnwindSafe(|| poll(self.seat.as_mut())));
        let end = match &polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(value))) => Some(Ok(value)),
            Ok(Poll::Ready(Err(failed))) => Some(Err(failed.failure.to_string())),
            Err(_) => None,
        };
        if let Some(cx) = self.cx.take() {
            self.tap.has_ended(&cx, end);
        }
        polled.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Seat for TappedSeat {
    fn begin(mut self: Pin<&mut Self>, cx: ActivityContext, task: &mut Context<'_>) -> Poll<AttemptOutcome> {
        if !self.tap.begins(&cx, &cx.task().scheduled.input) {
            self.cx = None;
            return Poll::Pending;
        }
        self.cx = Some(cx.clone());
        self.told(|seat| seat.begin(cx, task))
    }

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<AttemptOutcome> {
        if self.cx.is_none() {
            // The tap did not let it begin.
            return Poll::Pending;
        }
        self.told(|seat| seat.poll(task))
    }
}
