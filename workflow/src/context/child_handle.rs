//! Handles to children that were started.
//!
//! ```text
//!   child(..).start() ──► ChildHandle ── awaited ──► the end of the child
//!                             │
//!                             └─ control() ──► signal ──► an operation of its own
//!                                              cancel ──► a decision; the end is still waited for
//! ```
//!
//! A signal and a cancel name the call of the child, and not just its id: an instance that has the id before or after the
//! child gets neither.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::child::{Child, UntypedChild};
use crate::context::Shared;
use crate::context::scope::Scope;
use crate::event::{Name, RunFailure};
use crate::{ChildError, OperationId, Payload, Signal, SignalInstance, TypedError};

/// A child that was started; made by [`Child::start`]. Awaiting it gives the child's end, as awaiting the call does; it can
/// also be awaited by reference, as a branch of a [race](crate::WorkflowContext::race) or a `select!`.
///
/// # Cancel safety
/// Dropping it before it has given the end treats the child as [`on_close`](Child::on_close) says: an
/// [abandoned](crate::ParentClose::Abandon) child goes on. What was started is asked for again after a crash only while the handle is
/// held: an abandoned child is sure to begin if a signal to it was awaited before the handle is dropped.
///
/// # Panics
/// If it is awaited again after it has given the end.
#[derive(Debug)]
#[must_use = "a child whose handle is dropped is closed as its call says"]
pub struct ChildHandle<O, E> {
    child: Child<O, E>,
    control: ChildControl,
}

/// As [`ChildHandle`], of a child that was started by its name; made by [`UntypedChild::start`].
///
/// # Cancel safety
/// As [`ChildHandle`].
#[derive(Debug)]
#[must_use = "a child whose handle is dropped is closed as its call says"]
pub struct UntypedChildHandle {
    child: UntypedChild,
    control: ChildControl,
}

/// Signals and cancels a child that was started, while other code of the run waits for its end; made by
/// [`ChildHandle::control`]. A cheap clone.
#[derive(Clone, Debug)]
pub struct ChildControl(Arc<Controlled>);

#[derive(Debug)]
struct Controlled {
    shared: Arc<Shared>,
    scope: Scope,
    call: OperationId,
    workflow: Name,
    id: String,
    /// Whether the child was asked to cancel. Set and read only by the code of one run, which is on one thread at a time.
    is_cancelled: AtomicBool,
}

impl ChildControl {
    pub(super) fn new(
        shared: Arc<Shared>,
        scope: Scope,
        call: OperationId,
        workflow: Name,
        id: String,
    ) -> Self {
        Self(Arc::new(Controlled {
            shared,
            scope,
            call,
            workflow,
            id,
            is_cancelled: AtomicBool::new(false),
        }))
    }

    /// The id of the child's instance.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Sends the child a signal, as [`signal_instance`](crate::WorkflowContext::signal_instance) does, but to this child
    /// only: if its id belongs to another instance, before it was started or after it ended, that one does not get it.
    ///
    /// The signal may be sent at once. It is recorded behind the beginning of the child, and if the child continues as new,
    /// its latest run gets it. A child that has ended, or could not be started, gives
    /// [`Finished`](crate::SignalInstanceError::Finished) or [`NotFound`](crate::SignalInstanceError::NotFound).
    ///
    /// Once the run is asked to cancel it gives [`Cancelled`](crate::SignalInstanceError::Cancelled), unless the child was started by
    /// `cx.shielded().child(..)`.
    #[track_caller]
    pub fn signal<T: Serialize>(&self, signal: Signal<T>, value: T) -> SignalInstance {
        let Controlled {
            shared,
            scope,
            call,
            workflow,
            id,
            ..
        } = &*self.0;
        let (shared, scope) = (Arc::clone(shared), scope.clone());
        let (workflow, id) = (workflow.clone(), id.clone());
        let location = Location::caller();
        SignalInstance::new(shared, scope, location, workflow, id, signal.name(), &value).for_child(*call)
    }

    /// Asks the child to cancel, and goes on waiting for its end: [`ChildError::WasCancelled`] if it ends for that reason. It
    /// is decided in this turn and sent after its commit, also to a child that has not begun yet.
    ///
    /// As long as the handle is held it is sent again after a crash, and after the partition of either run has moved. So a child that goes on
    /// in another run without ending (continued as new, reset or tried again) may be asked again.
    ///
    /// Returns whether the child is asked: not if it was asked before, has ended, or is waited for no longer. The reason is
    /// cut to [`text_bytes_max`](crate::Limits::text_bytes_max).
    #[track_caller]
    pub fn cancel(&self, reason: impl Into<String>) -> bool {
        let Some(mut table) = self.0.shared.lock_polled() else {
            // Only the running code itself decides anything.
            return false;
        };
        if self.0.is_cancelled.swap(true, Ordering::Relaxed) {
            return false;
        }
        table.cancel_child(self.0.call, reason.into(), Location::caller())
    }
}

impl<O, E> ChildHandle<O, E> {
    pub(super) fn new(child: Child<O, E>, control: ChildControl) -> Self {
        Self { child, control }
    }

    /// The id of the child's instance.
    #[must_use]
    pub fn id(&self) -> &str {
        self.control.id()
    }

    /// What signals and cancels the child while this handle is awaited elsewhere.
    #[must_use]
    pub fn control(&self) -> ChildControl {
        self.control.clone()
    }

    /// As [`ChildControl::signal`].
    #[track_caller]
    pub fn signal<T: Serialize>(&self, signal: Signal<T>, value: T) -> SignalInstance {
        self.control.signal(signal, value)
    }

    /// As [`ChildControl::cancel`].
    #[track_caller]
    pub fn cancel(&self, reason: impl Into<String>) -> bool {
        self.control.cancel(reason)
    }
}

impl<O: DeserializeOwned, E: TypedError> Future for ChildHandle<O, E> {
    type Output = Result<O, ChildError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.child).poll(cx)
    }
}

impl UntypedChildHandle {
    pub(super) fn new(child: UntypedChild, control: ChildControl) -> Self {
        Self { child, control }
    }

    /// The id of the child's instance.
    #[must_use]
    pub fn id(&self) -> &str {
        self.control.id()
    }

    /// As [`ChildHandle::control`].
    #[must_use]
    pub fn control(&self) -> ChildControl {
        self.control.clone()
    }

    /// As [`ChildControl::signal`].
    #[track_caller]
    pub fn signal<T: Serialize>(&self, signal: Signal<T>, value: T) -> SignalInstance {
        self.control.signal(signal, value)
    }

    /// As [`ChildControl::cancel`].
    #[track_caller]
    pub fn cancel(&self, reason: impl Into<String>) -> bool {
        self.control.cancel(reason)
    }
}

impl Future for UntypedChildHandle {
    type Output = Result<Payload, ChildError<RunFailure>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.child).poll(cx)
    }
}
