//! The [`Host`] of one life of a world.

use std::fmt;
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use millrun_core::{
    Bell, CrashCheck, Host, OnExit, Part, PartHandle, Placement, SpawnError, Task, TaskHandle, Timestamp,
};

use super::sleep::Sleep;
use super::world::{Body, Number, PartBody, Readier, SimWorld, Stopper};

/// Given out by [`SimHost::host`](crate::SimHost::host); of no use after the next crash.
pub(super) struct Seam {
    pub(super) world: Arc<SimWorld>,
    pub(super) life: u64,
}

impl Seam {
    fn readier(&self, number: Number) -> Readier {
        Readier {
            world: Arc::downgrade(&self.world),
            number,
        }
    }

    /// Adds something that runs; `None` and the body back if this life is over.
    fn add(&self, name: &str, body: Body) -> Result<Number, Body> {
        let mut state = self.world.lock();
        if state.life == self.life {
            Ok(state.add(name, body))
        } else {
            Err(body)
        }
    }
}

impl fmt::Debug for Seam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHost")
            .field("seed", &self.world.config.seed)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

impl Host for Seam {
    fn now(&self) -> Timestamp {
        self.world.lock().now
    }

    fn elapsed(&self) -> Duration {
        self.now().saturating_since(self.world.config.starts_at)
    }

    fn random(&self) -> u64 {
        self.world.lock().values.roll()
    }

    fn spawn(&self, name: &'static str, task: Task) -> TaskHandle {
        // After its life has ended, a host starts nothing; no task has the number 0.
        let number = self.add(name, Body::Task(task)).unwrap_or_default();
        TaskHandle::new(Stopper(self.readier(number)))
    }

    fn sleep_until(&self, deadline: Timestamp) -> Task {
        Box::pin(Sleep::new(Arc::clone(&self.world), self.life, deadline))
    }

    fn crash_check(&self) -> Option<CrashCheck> {
        let (world, life) = (Arc::downgrade(&self.world), self.life);
        Some(Box::new(move || {
            // Without its world nothing runs.
            world.upgrade().is_none_or(|world| world.lock().life != life)
        }))
    }

    /// Both placements share the one thread.
    fn spawn_part(
        &self,
        name: &str,
        _: Placement,
        bell: Bell,
        part: Box<dyn Part>,
        on_exit: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        let body = PartBody {
            part,
            bell: bell.clone(),
            on_exit,
            timer: None,
        };
        let Ok(number) = self.add(name, Body::Part(body)) else {
            let cause = "the world has crashed".to_owned();
            return Err(SpawnError {
                part: name.to_owned(),
                cause,
            });
        };
        let readier = Arc::new(self.readier(number));
        bell.connect(move || readier.wake_by_ref());
        Ok(PartHandle::new(Stopper(self.readier(number))))
    }
}
