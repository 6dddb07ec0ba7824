//! Typed names: one constant registers an implementation and calls it.

use std::fmt;
use std::marker::PhantomData;

use crate::{ActivityError, WorkflowError};

/// The longest name of a workflow, activity, signal or task queue, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The task queue of activities that name none.
pub const DEFAULT_QUEUE: &str = "default";

macro_rules! definition {
    ($(#[$doc:meta])* $name:ident<$($parameter:ident $(= $default:ty)?),+>) => {
        $(#[$doc])*
        pub struct $name<$($parameter $(= $default)?),+> {
            name: &'static str,
            types: PhantomData<fn($($parameter),+)>,
        }

        impl<$($parameter),+> $name<$($parameter),+> {
            /// A definition with this name, which is stored: it must not change while runs that
            /// use it are alive.
            ///
            /// # Panics
            /// When the name is empty or longer than [`NAME_BYTES_MAX`]; in a constant this is a
            /// compile error.
            #[must_use]
            pub const fn named(name: &'static str) -> Self {
                assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX, "a name has 1 to 255 bytes");
                Self { name, types: PhantomData }
            }

            /// The stored name.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                self.name
            }
        }

        impl<$($parameter),+> Clone for $name<$($parameter),+> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($parameter),+> Copy for $name<$($parameter),+> {}

        impl<$($parameter),+> fmt::Debug for $name<$($parameter),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.name).finish()
            }
        }
    };
}

definition! {
    /// A message from outside into a running workflow, carrying a `T`.
    Signal<T>
}
definition! {
    /// A topic of the broker whose envelopes carry a `T`: dot-separated words, as in
    /// `orders.eu.placed`.
    Topic<T>
}
definition! {
    /// A stream of `T` that the activities of a run write while they work, and that readers of the run follow: tokens of a
    /// language model, rows, progress. Each run has its own stream under a name. It is kept in memory.
    ///
    /// ```
    /// use millrun_workflow::OutputStream;
    ///
    /// const TOKENS: OutputStream<String> = OutputStream::named("tokens");
    /// assert_eq!(TOKENS.name(), "tokens");
    /// ```
    OutputStream<T>
}
definition! {
    /// A question `Q` about the [state](crate::State) `S` of a run, answered by an `A`. It changes nothing and is not
    /// recorded.
    Query<S, Q, A>
}
definition! {
    /// A request `I` to change the [state](crate::State) `S` of a run: rejected with an `E`, or
    /// recorded, performed once, and answered by an `O`.
    Update<S, I, O, E = WorkflowError>
}
definition! {
    /// A state machine with a key, whose state is an `S`: durable, one command at a time per key, in memory while it is in
    /// use. It needs no start: before its first command it is as [`EntityState::begin`](crate::EntityState::begin) makes it.
    ///
    /// ```
    /// use millrun_workflow::{Entity, EntityCommand, EntityContext, EntityState, Query, WorkflowError};
    /// use serde::{Deserialize, Serialize};
    ///
    /// const CART: Entity<Cart> = Entity::named("cart");
    /// const ADD: EntityCommand<Cart, String, usize> = EntityCommand::named("add");
    /// const LEN: Query<Cart, (), usize> = Query::named("len");
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Cart(Vec<String>);
    ///
    /// #[derive(Serialize, Deserialize)]
    /// enum CartEvent {
    ///     Added(String),
    /// }
    ///
    /// impl EntityState for Cart {
    ///     type Event = CartEvent;
    ///
    ///     fn begin(_key: &str) -> Self {
    ///         Self(Vec::new())
    ///     }
    ///
    ///     fn apply(&mut self, event: CartEvent) {
    ///         let CartEvent::Added(item) = event;
    ///         self.0.push(item);
    ///     }
    /// }
    ///
    /// fn add(cart: &Cart, item: String, cx: &mut EntityContext<'_, Cart>) -> Result<usize, WorkflowError> {
    ///     if item.is_empty() {
    ///         return Err(WorkflowError::failed("no name"));
    ///     }
    ///     cx.emit(CartEvent::Added(item));
    ///     Ok(cart.0.len() + 1)
    /// }
    ///
    /// let code = CART.command(ADD, add).query(LEN, |cart, ()| cart.0.len());
    /// assert_eq!(code.entity().name(), "cart");
    /// ```
    Entity<S>
}
definition! {
    /// A request `I` to an [entity](Entity) whose state is an `S`: rejected with an `E`, or performed, recorded as the
    /// events that it decides, and answered by an `A`.
    EntityCommand<S, I, A, E = WorkflowError>
}

/// A workflow: durable code that takes an `I` and ends with an `O` or an `E`.
///
/// ```
/// use millrun_workflow::Workflow;
///
/// const GREET: Workflow<String, String> = Workflow::named("greet");
/// assert_eq!(GREET.name(), "greet");
///
/// // Code that decides otherwise than before, beside the code of version 1.
/// const CHECKOUT: Workflow<u64, String> = Workflow::named("checkout").version(2);
/// assert_eq!(CHECKOUT.version_number(), 2);
/// ```
pub struct Workflow<I, O, E = WorkflowError> {
    name: &'static str,
    version: u32,
    policy: VersionPolicy,
    types: PhantomData<fn(I, O, E)>,
}

/// What happens to live runs of a workflow when code of a newer [version](Workflow::version) is registered. The policy of the
/// newest version counts, for runs of all earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionPolicy {
    /// Runs keep their version, and so do the runs in which they [continue as new](crate::WorkflowContext::continue_as_new).
    /// A run whose version is not registered is parked.
    #[default]
    Pinned,
    /// A run moves to the newest version if the newest code, replayed, makes the same decisions as the run's kept history.
    /// Otherwise the run keeps its version, and is parked if that is not registered. A run that continues as new continues
    /// with the newest version.
    MoveIfFits,
    /// As [`MoveIfFits`](Self::MoveIfFits), but a run that the newest code does not fit is parked, with the difference.
    MustMove,
}

impl<I, O, E> Workflow<I, O, E> {
    /// A definition with this name, which is stored: it must not change while runs that use it are alive. Unless a
    /// [version](Self::version) is set, its code has version 0, as have runs of earlier releases.
    ///
    /// # Panics
    /// When the name is empty or longer than [`NAME_BYTES_MAX`]; in a constant this is a compile
    /// error.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        assert!(
            !name.is_empty() && name.len() <= NAME_BYTES_MAX,
            "a name has 1 to 255 bytes"
        );
        Self {
            name,
            version: 0,
            policy: VersionPolicy::Pinned,
            types: PhantomData,
        }
    }

    /// The same workflow in this version. Code of several versions of a workflow can be registered: a new run gets the newest
    /// one, which has the greatest number, and records it.
    #[must_use]
    pub const fn version(self, version: u32) -> Self {
        Self { version, ..self }
    }

    /// The same workflow with a policy for live runs of earlier versions.
    #[must_use]
    pub const fn policy(self, policy: VersionPolicy) -> Self {
        Self { policy, ..self }
    }

    /// The stored name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The number of the version.
    #[must_use]
    pub const fn version_number(&self) -> u32 {
        self.version
    }

    /// What happens to live runs of earlier versions.
    #[must_use]
    pub const fn version_policy(&self) -> VersionPolicy {
        self.policy
    }
}

impl<I, O, E> Clone for Workflow<I, O, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O, E> Copy for Workflow<I, O, E> {}

impl<I, O, E> fmt::Debug for Workflow<I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_tuple("Workflow");
        shown.field(&self.name);
        if self.version > 0 {
            shown.field(&self.version);
        }
        shown.finish()
    }
}

/// An activity: a step with side effects that takes an `I` and gives an `O` or an `E`. It runs
/// at least once.
///
/// ```
/// use millrun_workflow::Activity;
///
/// const RENDER: Activity<String, Vec<u8>> = Activity::named("render").on_queue("gpu");
/// assert_eq!((RENDER.name(), RENDER.queue()), ("render", "gpu"));
/// ```
pub struct Activity<I, O, E = ActivityError> {
    name: &'static str,
    queue: &'static str,
    types: PhantomData<fn(I, O, E)>,
}

impl<I, O, E> Activity<I, O, E> {
    /// An activity with this name on the [default queue](DEFAULT_QUEUE). The name is stored: it
    /// must not change while runs that use it are alive.
    ///
    /// # Panics
    /// When the name is empty or longer than [`NAME_BYTES_MAX`]; in a constant this is a compile
    /// error.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        assert!(
            !name.is_empty() && name.len() <= NAME_BYTES_MAX,
            "a name has 1 to 255 bytes"
        );
        Self {
            name,
            queue: DEFAULT_QUEUE,
            types: PhantomData,
        }
    }

    /// The same activity on another task queue, which has a concurrency limit of its own.
    ///
    /// # Panics
    /// When the name is empty or longer than [`NAME_BYTES_MAX`].
    #[must_use]
    pub const fn on_queue(self, queue: &'static str) -> Self {
        assert!(
            !queue.is_empty() && queue.len() <= NAME_BYTES_MAX,
            "a name has 1 to 255 bytes"
        );
        Self {
            name: self.name,
            queue,
            types: PhantomData,
        }
    }

    /// The stored name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The task queue it waits in.
    #[must_use]
    pub const fn queue(&self) -> &'static str {
        self.queue
    }
}

impl<I, O, E> Clone for Activity<I, O, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O, E> Copy for Activity<I, O, E> {}

impl<I, O, E> fmt::Debug for Activity<I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Activity")
            .field("name", &self.name)
            .field("queue", &self.queue)
            .finish()
    }
}
