//! Waiting in virtual time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use millrun_core::Timestamp;

use super::world::{SimWorld, Timer, TimerKey};

/// Completes at its deadline. In a world that has crashed since it was made, never.
pub(super) struct Sleep {
    world: Arc<SimWorld>,
    life: u64,
    deadline: Timestamp,
    timer: Option<TimerKey>,
}

impl Sleep {
    pub(super) const fn new(world: Arc<SimWorld>, life: u64, deadline: Timestamp) -> Self {
        Self {
            world,
            life,
            deadline,
            timer: None,
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let world = Arc::clone(&self.world);
        let mut state = world.lock();
        let former = self.timer.take().and_then(|key| state.timers.remove(&key));
        let poll = if state.life != self.life {
            Poll::Pending
        } else if state.now >= self.deadline {
            Poll::Ready(())
        } else {
            self.timer = Some(state.set_timer(self.deadline, Timer::Sleeper(cx.waker().clone())));
            Poll::Pending
        };
        drop(state);
        drop(former);
        poll
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let timer = self
            .timer
            .take()
            .and_then(|key| self.world.lock().timers.remove(&key));
        drop(timer);
    }
}
