//! Waiting for a bell on a thread of a test.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use millrun_core::Bell;

/// Whether a bell has rung.
#[derive(Debug, Default)]
pub(super) struct Rung {
    has_rung: Mutex<bool>,
    changed: Condvar,
}

impl Rung {
    /// A bell, and what waits for it.
    pub(super) fn new() -> (Bell, Arc<Self>) {
        let (bell, rung) = (Bell::new(), Arc::<Self>::default());
        let (answer, told) = (bell.clone(), Arc::clone(&rung));
        bell.connect(move || {
            answer.answer();
            *told.has_rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
            told.changed.notify_all();
        });
        (bell, rung)
    }

    /// Returns when the bell has rung since this was called last.
    pub(super) fn wait(&self) {
        let mut has_rung = self.has_rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !std::mem::take(&mut *has_rung) {
            has_rung = self
                .changed
                .wait(has_rung)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
