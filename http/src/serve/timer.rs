//! The timer of one connection.
//!
//! A request has two deadlines, one for its headers and one for its answer, and usually neither passes. Setting and
//! cancelling a tokio timer each takes a lock that all connections share. So a connection has one tokio sleep: it is set when
//! it is first needed, stays when a deadline is cancelled, and is set again if it fires before the present deadline.
//!
//! Invariant: all waits belong to the connection's task, and are polled whenever the task is. The sleep wakes the task for
//! the earliest of them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

/// The timer of one connection. A cheap clone.
#[derive(Clone, Default)]
pub(super) struct ConnectionTimer(Arc<Mutex<Option<Armed>>>);

/// The tokio sleep, and the time at which it fires.
struct Armed {
    sleep: Pin<Box<dyn Sleep>>,
    at: Instant,
}

impl ConnectionTimer {
    /// Completes at the deadline.
    pub(super) fn until(&self, deadline: Instant) -> ConnectionSleep {
        ConnectionSleep {
            timer: self.clone(),
            deadline,
        }
    }

    fn poll(&self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let mut armed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let armed = armed.get_or_insert_with(|| Armed {
            sleep: TokioTimer::new().sleep_until(deadline),
            at: deadline,
        });
        if armed.at > deadline {
            armed.set(deadline);
        }
        ready!(armed.sleep.as_mut().poll(cx));
        if armed.at >= deadline || self.now() >= deadline {
            return Poll::Ready(());
        }
        armed.set(deadline);
        armed.sleep.as_mut().poll(cx)
    }
}

impl Armed {
    fn set(&mut self, at: Instant) {
        TokioTimer::new().reset(&mut self.sleep, at);
        self.at = at;
    }
}

impl Timer for ConnectionTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(self.until(deadline))
    }

    fn now(&self) -> Instant {
        TokioTimer::new().now()
    }
}

/// A deadline of a connection.
pub(super) struct ConnectionSleep {
    timer: ConnectionTimer,
    deadline: Instant,
}

impl Future for ConnectionSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.poll(self.deadline, cx)
    }
}

impl Sleep for ConnectionSleep {}
