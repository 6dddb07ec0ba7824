//! Polling workflow code: with a waker of its own, outside any executor, panics caught.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::context::Shared;
use crate::event::RunFailure;
use crate::registry::{Code, Implementation};
use crate::{Payload, WorkflowContext};

/// How often code may wake itself within one turn before it counts as stuck.
const SELF_WAKES_MAX: u32 = 100_000;

thread_local! {
    /// The waker whose machine is at work on this thread; 0 if none is.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// What polling the code came to.
#[derive(Debug)]
pub(super) enum Polled {
    /// It waits for something the engine knows.
    Waiting,
    /// It has ended.
    Finished(Result<Payload, RunFailure>),
    /// It waits for something the engine does not know, or was woken by it.
    Stuck(String),
    /// It panicked, and its future is gone.
    Panicked(String),
}

/// A run's future and the waker at its root.
pub(super) struct RunningCode {
    future: Option<Code>,
    root: Arc<Root>,
    waker: Waker,
}

impl std::fmt::Debug for RunningCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunningCode")
    }
}

/// Notes that the code was woken, and whether by something inside it.
#[derive(Debug, Default)]
struct Root {
    is_woken: AtomicBool,
    is_foreign: AtomicBool,
}

impl Wake for Root {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if INSIDE.get() == identity(self) {
            self.is_woken.store(true, Ordering::Relaxed);
        } else {
            self.is_foreign.store(true, Ordering::Relaxed);
        }
    }
}

fn identity(root: &Arc<Root>) -> usize {
    Arc::as_ptr(root).addr()
}

/// Says which machine is at work, as long as it lives.
struct Inside(usize);

impl Inside {
    fn enter(root: &Arc<Root>) -> Self {
        Self(INSIDE.replace(identity(root)))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

impl RunningCode {
    pub(super) fn new(implementation: &Implementation, shared: &Arc<Shared>, input: Payload) -> Self {
        let root = Arc::new(Root::default());
        let future = implementation.start(WorkflowContext::new(Arc::clone(shared)), input);
        Self {
            future: Some(future),
            waker: Waker::from(Arc::clone(&root)),
            root,
        }
    }

    /// Wakes what an event concerns, in order, then polls until nothing is woken any more.
    pub(super) fn poll(&mut self, shared: &Shared, wakers: Vec<Waker>, is_first: bool) -> Polled {
        let _inside = Inside::enter(&self.root);
        wakers.into_iter().for_each(Waker::wake);
        if !self.root.is_woken.swap(false, Ordering::Relaxed) && !is_first {
            return self.check_waiting(shared);
        }
        shared.lock().is_polled = true;
        let polled = self.poll_until_quiet();
        shared.lock().is_polled = false;
        match polled {
            Ok(Some(result)) => {
                self.discard();
                Polled::Finished(result)
            }
            Ok(None) => self.check_waiting(shared),
            Err(stopped) => {
                self.discard();
                stopped
            }
        }
    }

    fn poll_until_quiet(&mut self) -> Result<Option<Result<Payload, RunFailure>>, Polled> {
        let future = self
            .future
            .as_mut()
            .expect("the future is there until it has ended");
        let mut cx = Context::from_waker(&self.waker);
        for _ in 0..SELF_WAKES_MAX {
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx))) {
                Ok(Poll::Ready(result)) => return Ok(Some(result)),
                Ok(Poll::Pending) if self.root.is_woken.swap(false, Ordering::Relaxed) => {}
                Ok(Poll::Pending) => return Ok(None),
                Err(panic) => return Err(Polled::Panicked(panic_message(panic.as_ref()))),
            }
        }
        Err(Polled::Stuck(format!(
            "the code woke itself {SELF_WAKES_MAX} times in one turn without an end"
        )))
    }

    /// The code waits: is it for something that can come?
    fn check_waiting(&self, shared: &Shared) -> Polled {
        if self.root.is_foreign.swap(false, Ordering::Relaxed) {
            return Polled::Stuck(
                "the code was woken from outside: it awaits a timer, task or channel that is not the workflow's own"
                    .into(),
            );
        }
        if shared.lock().is_waiting() {
            return Polled::Waiting;
        }
        Polled::Stuck("the code awaits something that no operation of the workflow context can wake".into())
    }

    /// Drops the future now; a panic in its `Drop` ends here.
    fn discard(&mut self) {
        let future = self.future.take();
        // What a destructor had to say after the end changes nothing any more.
        drop(catch_unwind(AssertUnwindSafe(|| drop(future))));
    }
}

impl Drop for RunningCode {
    fn drop(&mut self) {
        self.discard();
    }
}

/// The text of a panic.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}
