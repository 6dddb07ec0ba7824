//! The state of a run that others may look at: queries, updates, and waits for a condition.
//!
//! ```text
//!   workflow code ── change, read, until ──► cell ◄── &S ────── query      (decides nothing)
//!                                             ▲
//!                                             └────── &mut S ── update     (an input of the history)
//! ```
//!
//! The state itself is not stored: a replay rebuilds it from the same inputs.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll};

use millrun_core::panic_message;

use crate::Cancelled;
use crate::context::Shared;
use crate::context::scope::Scope;

/// The run's state, whatever its type.
pub(crate) struct Cell(Mutex<Box<dyn Any + Send>>);

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cell")
    }
}

impl Drop for Cell {
    /// The state's own destructor may panic; the shard that drops the run must not.
    fn drop(&mut self) {
        let state = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let state = std::mem::replace(state, Box::new(()));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(state))) {
            drop(panic_message(panic));
        }
    }
}

impl Cell {
    pub(crate) fn new(state: impl Any + Send) -> Self {
        Self(Mutex::new(Box::new(state)))
    }

    /// Passes the state to `look`.
    ///
    /// # Panics
    /// If it is called again from within `look`.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut (dyn Any + Send)) -> R) -> R {
        match self.0.try_lock() {
            Ok(mut state) => look(&mut **state),
            // The closure that panicked has parked the run, and its state is rebuilt.
            Err(TryLockError::Poisoned(poisoned)) => look(&mut **poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => panic!("the run's state was used from inside its own closure"),
        }
    }
}

/// A run's state, seen by the run's code; made by
/// [`WorkflowContext::state`](crate::WorkflowContext::state). A cheap clone: all clones are the
/// same state.
///
/// ```
/// use millrun_workflow::{Query, Update, Workflow, WorkflowContext, WorkflowError};
///
/// const CART: Workflow<usize, Vec<String>> = Workflow::named("cart");
/// const ITEMS: Query<Vec<String>, (), usize> = Query::named("items");
/// const ADD: Update<Vec<String>, String, usize> = Update::named("add");
///
/// async fn cart(cx: WorkflowContext, full: usize) -> Result<Vec<String>, WorkflowError> {
///     let items = cx.state(Vec::new());
///     items.until(move |items| items.len() >= full).await?;
///     Ok(items.read(Vec::clone))
/// }
///
/// let code = CART
///     .query(ITEMS, |items, ()| items.len())
///     .update(ADD)
///     .validate(|_, item| if item.is_empty() { Err(WorkflowError::failed("no name")) } else { Ok(()) })
///     .change(|items, item| {
///         items.push(item);
///         items.len()
///     })
///     .bind(cart);
/// assert_eq!(code.name(), "cart");
/// ```
pub struct State<S> {
    shared: Arc<Shared>,
    cell: Arc<Cell>,
    scope: Scope,
    state: PhantomData<fn() -> S>,
}

impl<S> Clone for State<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            cell: Arc::clone(&self.cell),
            scope: self.scope.clone(),
            state: PhantomData,
        }
    }
}

impl<S> fmt::Debug for State<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl<S: Send + 'static> State<S> {
    pub(crate) fn new(shared: Arc<Shared>, scope: Scope, initial: S) -> Self {
        let cell = Arc::new(Cell::new(initial));
        let before = shared.lock().cell.replace(Arc::clone(&cell));
        assert!(before.is_none(), "a run has one state: clone its handle instead");
        Self {
            shared,
            cell,
            scope,
            state: PhantomData,
        }
    }

    /// Looks at the state.
    ///
    /// # Panics
    /// If it is called again from within `look`.
    pub fn read<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        self.cell.with(|state| look(typed(state)))
    }

    /// Changes the state, and wakes the branches that wait for a [condition](Self::until).
    ///
    /// # Panics
    /// If it is called from within a closure that has the state.
    pub fn change<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        // A change from another task would not be repeated by a replay, so it parks the run.
        self.shared.pulse().check_inside();
        let result = self.cell.with(|state| change(typed(state)));
        let wakers = self.shared.lock().wake_state();
        wakers.into_iter().for_each(std::task::Waker::wake);
        result
    }

    /// Waits until the state meets a condition, which is checked after each change. With many waiting branches, each change
    /// checks each of them.
    #[track_caller]
    pub fn until<F: FnMut(&S) -> bool + Unpin>(&self, condition: F) -> Until<S, F> {
        Until {
            state: self.clone(),
            location: Location::caller(),
            condition,
            waiter: None,
        }
    }
}

fn typed<S: 'static>(state: &mut (dyn Any + Send)) -> &mut S {
    state
        .downcast_mut()
        .expect("the handle was made with the state's type")
}

/// A wait for a condition; made by [`State::until`].
///
/// # Cancel safety
/// Dropping it changes nothing.
#[must_use = "a wait does nothing until it is awaited"]
pub struct Until<S, F> {
    state: State<S>,
    location: &'static Location<'static>,
    condition: F,
    waiter: Option<u64>,
}

impl<S, F> fmt::Debug for Until<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Until")
    }
}

impl<S: Send + 'static, F: FnMut(&S) -> bool + Unpin> Future for Until<S, F> {
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.state.shared.lock_polled().is_none() {
            return Poll::Pending;
        }
        let is_met = this.state.read(&mut this.condition);
        let mut table = this.state.shared.lock();
        let ended = match is_met {
            true => Ok(()),
            false => match table.cancelled(&this.state.scope) {
                Some(cancelled) => Err(cancelled),
                None => {
                    this.waiter =
                        Some(table.wait_state(this.waiter, &this.state.scope, cx.waker(), this.location));
                    return Poll::Pending;
                }
            },
        };
        if let Some(waiter) = this.waiter.take() {
            table.forget_state(waiter);
        }
        Poll::Ready(ended)
    }
}

impl<S, F> Drop for Until<S, F> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.state.shared.lock().forget_state(waiter);
        }
    }
}
