//! Polls workflow code: with a waker of its own, outside of any executor, catching panics.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use millrun_core::panic_message;

use crate::context::{After, Decision, Shared, Table, Wakers};
use crate::event::Name;
use crate::machine::Limits;
use crate::program::{CodeFailure, Program};
use crate::registry::Implementation;
use crate::{Payload, WorkflowContext};

/// The result of polling the code.
#[derive(Debug)]
pub(super) enum Polled {
    /// It waits for something that the engine knows, and has made these decisions.
    Waiting(Vec<Decision>),
    /// It has ended.
    Finished(Result<Payload, CodeFailure>),
    /// It begins again, from this state.
    Checkpointed {
        state: Payload,
        location: &'static Location<'static>,
    },
    /// It continues in another run.
    Continued {
        workflow: Name,
        input: Payload,
        location: &'static Location<'static>,
    },
    /// It waits for something that the engine does not know, or something foreign has touched it.
    Stuck(String),
    /// It panicked, and its state is dropped.
    Panicked(String),
}

/// A run's code.
#[derive(Debug)]
pub(super) struct RunningCode {
    program: Box<dyn Program>,
}

impl RunningCode {
    /// Memory for code, which runs once it has [begun](Self::begin).
    pub(super) fn new(implementation: &Implementation) -> Self {
        Self {
            program: implementation.program(),
        }
    }

    /// Begins a run.
    pub(super) fn begin(&mut self, shared: &Arc<Shared>, input: Payload) {
        let context = WorkflowContext::new(Arc::clone(shared));
        self.program.begin(context, input);
    }

    /// Wakes the futures that an event concerns, in order, then polls until nothing is woken any more.
    pub(super) fn poll(
        &mut self,
        shared: &Shared,
        wakers: Wakers,
        is_first: bool,
        limits: &Limits,
    ) -> Polled {
        let self_wakes_max = limits.self_wakes_max;
        let pulse = shared.pulse();
        if pulse.is_foreign() {
            // A poll now could show the code something that no replay will.
            return foreign();
        }
        let _inside = pulse.enter();
        let woken = match wakers {
            Wakers::Nobody => Ok(()),
            Wakers::Root => {
                shared.waker().wake_by_ref();
                Ok(())
            }
            // A waker may be the user's own code, and may panic.
            Wakers::One(waker) => catch_unwind(AssertUnwindSafe(|| waker.wake())),
            Wakers::Many(wakers) => {
                catch_unwind(AssertUnwindSafe(|| wakers.into_iter().for_each(Waker::wake)))
            }
        };
        if let Err(panic) = woken {
            self.discard();
            return Polled::Panicked(panic_message(panic));
        }
        let is_woken = pulse.take_woken();
        if !is_woken && !is_first {
            return check_waiting(shared, &mut shared.lock(), limits);
        }
        shared.set_polled(true);
        let polled = self.poll_until_quiet(shared, self_wakes_max);
        shared.set_polled(false);
        if shared.is_full() {
            self.discard();
            return Polled::Stuck(format!(
                "the code decided more than {self_wakes_max} things in one turn, its limit"
            ));
        }
        match polled {
            Ok(None) => {
                let mut table = shared.lock();
                match table.take_next() {
                    Some(_) if pulse.is_foreign() => foreign(),
                    Some(next) => {
                        drop(table);
                        self.discard();
                        match next {
                            After::Run(workflow, input, location) => Polled::Continued {
                                workflow,
                                input,
                                location,
                            },
                            After::Checkpoint(state, location) => Polled::Checkpointed { state, location },
                        }
                    }
                    None => check_waiting(shared, &mut table, limits),
                }
            }
            Ok(Some(_)) if pulse.is_foreign() => foreign(),
            Ok(Some(result)) => {
                self.discard();
                Polled::Finished(result)
            }
            Err(stopped) => {
                self.discard();
                stopped
            }
        }
    }

    fn poll_until_quiet(
        &mut self,
        shared: &Shared,
        self_wakes_max: u32,
    ) -> Result<Option<Result<Payload, CodeFailure>>, Polled> {
        let program = &mut self.program;
        let mut cx = Context::from_waker(shared.waker());
        for _ in 0..=self_wakes_max {
            match catch_unwind(AssertUnwindSafe(|| program.poll(&mut cx))) {
                Ok(Poll::Ready(result)) => return Ok(Some(result)),
                Ok(Poll::Pending) if shared.pulse().take_woken() => {}
                Ok(Poll::Pending) => return Ok(None),
                Err(panic) => return Err(Polled::Panicked(panic_message(panic))),
            }
        }
        Err(Polled::Stuck(format!(
            "the code woke itself more than {self_wakes_max} times in one turn, its limit"
        )))
    }

    /// The code's memory in bytes, except what is behind further pointers.
    pub(super) fn memory_bytes(&self) -> usize {
        self.program.memory_bytes()
    }

    /// Drops the run's state. A panic in a destructor of the code is caught.
    fn discard(&mut self) {
        let program = &mut self.program;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| program.clear())) {
            // A panic of a destructor after the end has no effect.
            drop(panic_message(panic));
        }
    }
}

impl Drop for RunningCode {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Checks that the code, which waits, waits for something that can come.
fn check_waiting(shared: &Shared, table: &mut Table, limits: &Limits) -> Polled {
    if shared.pulse().is_foreign() {
        return foreign();
    }
    if !table.is_waiting() {
        return Polled::Stuck(
            "the code awaits something that no operation of the workflow context can wake".into(),
        );
    }
    let (outstanding, len_max) = (table.outstanding_len(), table.bounds.pending_len_max);
    if outstanding > len_max {
        return Polled::Stuck(format!(
            "the run has {outstanding} operations outstanding, its limit is {len_max}: await some first"
        ));
    }
    let (waits, len_max) = (table.waits_len(), limits.waits_len_max);
    if waits > len_max {
        return Polled::Stuck(format!(
            "the run has {waits} waits for signals, conditions and a cancel, its limit is {len_max}: drop or \
             finish some first"
        ));
    }
    Polled::Waiting(table.take_decisions())
}

/// The reason for parking code that was touched from outside its run.
pub(super) const TOUCHED: &str = "the code was touched from outside its run: it awaits a timer, task or channel that \
     is not the workflow's own, or another task uses its context";

fn foreign() -> Polled {
    Polled::Stuck(TOUCHED.into())
}
