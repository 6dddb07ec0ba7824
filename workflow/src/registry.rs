//! Workflow code, with its types erased.

use std::any::type_name;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millrun_core::{InstanceId, panic_message};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::entity::EntityHandlers;
use crate::expected::{Expected, WrongType};
use crate::handlers::{Handlers, Unanswered};
use crate::program::{Program, Typed};
use crate::{
    Payload, Query, Signal, TopicRenames, TypedError, Update, VersionPolicy, Workflow, WorkflowContext,
    WorkflowError,
};

type MakeProgram = dyn Fn() -> Box<dyn Program> + Send + Sync;

/// The code of one workflow, ready to be run by an [`Instance`](crate::Instance). A cheap clone.
#[derive(Clone)]
pub struct Implementation(Arc<Parts>);

struct Parts {
    name: &'static str,
    version: u32,
    policy: VersionPolicy,
    input: Expected,
    result_type: &'static str,
    program: Arc<MakeProgram>,
    handlers: Handlers,
    /// The handlers of commands, if it is an entity.
    entity: Option<EntityHandlers>,
    /// The former names of topics that histories of its runs may use, if there are any.
    renamed: Option<Arc<TopicRenames>>,
}

impl Implementation {
    /// Binds code to a definition. One with queries, updates or declared signals is an [`AnsweringWorkflow`].
    pub fn new<I, O, E, F, Fut>(workflow: Workflow<I, O, E>, code: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: TypedError,
        F: Fn(WorkflowContext, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        AnsweringWorkflow::new(workflow).bind(code)
    }

    /// The same code, for histories with former names of durable topics: a decision with a former name equals one with the
    /// present name, and a run keeps its place in the topic.
    #[must_use]
    pub fn with_renamed_topics(&self, renamed: &Arc<TopicRenames>) -> Self {
        let Parts {
            name,
            version,
            policy,
            input,
            result_type,
            program,
            handlers,
            entity,
            renamed: _,
        } = &*self.0;
        Self(Arc::new(Parts {
            name,
            version: *version,
            policy: *policy,
            input: *input,
            result_type,
            program: Arc::clone(program),
            handlers: handlers.clone(),
            entity: entity.clone(),
            renamed: (!renamed.is_empty()).then(|| Arc::clone(renamed)),
        }))
    }

    /// The former names of topics that histories may use, if there are any.
    pub(crate) fn renamed_topics(&self) -> Option<&Arc<TopicRenames>> {
        self.0.renamed.as_ref()
    }

    pub(crate) fn handlers(&self) -> &Handlers {
        &self.0.handlers
    }

    /// The handlers of commands, if it is an entity.
    #[inline]
    pub(crate) fn entity(&self) -> Option<&EntityHandlers> {
        self.0.entity.as_ref()
    }

    /// Answers a query for an [entity](crate::Entity) with this id that has no event yet.
    ///
    /// # Errors
    /// When it does not answer this query, or is no entity.
    pub fn query_begun(
        &self,
        id: &InstanceId,
        name: &str,
        question: &Payload,
    ) -> Result<Payload, Unanswered> {
        let unknown = || Unanswered::Unknown { name: name.into() };
        let entity = self.entity().ok_or_else(unknown)?;
        let key = crate::entity::key_of(self.name(), id.as_str()).unwrap_or(id.as_str());
        let cell = catch_unwind(AssertUnwindSafe(|| entity.begin(key)))
            .map_err(|panic| Unanswered::Panicked(panic_message(panic)))?;
        self.handlers()
            .query(Some(&cell), name, question)
            .map_err(|error| error.unanswered(name))
    }

    /// Whether it is an [entity](crate::Entity).
    #[must_use]
    pub fn is_entity(&self) -> bool {
        self.0.entity.is_some()
    }

    /// The names of the commands that it performs, in order; empty unless it is an [entity](crate::Entity).
    pub fn commands(&self) -> impl Iterator<Item = &'static str> {
        self.0.entity.iter().flat_map(EntityHandlers::names)
    }

    /// The workflow's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// The [version](Workflow::version) of the workflow that it is the code of.
    #[must_use]
    #[inline]
    pub fn version(&self) -> u32 {
        self.0.version
    }

    /// What happens to live runs of earlier versions, if this is the newest version.
    #[must_use]
    pub fn version_policy(&self) -> VersionPolicy {
        self.0.policy
    }

    /// The type of its input, as the compiler names it: for people.
    #[must_use]
    pub fn input_type(&self) -> &'static str {
        self.0.input.name()
    }

    /// The type of its result; as [`input_type`](Self::input_type).
    #[must_use]
    pub fn result_type(&self) -> &'static str {
        self.0.result_type
    }

    /// The names of the queries that it answers, in order.
    pub fn queries(&self) -> impl Iterator<Item = &'static str> {
        self.0.handlers.queries()
    }

    /// The names of the updates that it takes, in order.
    pub fn updates(&self) -> impl Iterator<Item = &'static str> {
        self.0.handlers.updates()
    }

    /// The signals that it [declares](AnsweringWorkflow::signal), in order, each with the type of its value as the
    /// compiler names it.
    pub fn signals(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.0.handlers.signals()
    }

    /// Checks that this is an input that the code takes, for callers with encoded values.
    ///
    /// # Errors
    /// When it has another type.
    pub fn check_input(&self, input: &Payload) -> Result<(), WrongType> {
        self.0
            .input
            .check(input, || format!("the workflow {:?}", self.0.name))
    }

    /// Checks the value of a [declared](AnsweringWorkflow::signal) signal; other signals may have any value.
    ///
    /// # Errors
    /// When it has another type.
    pub fn check_signal(&self, name: &str, value: &Payload) -> Result<(), WrongType> {
        self.0.handlers.check_signal(name, value)
    }

    /// Memory for a run of the code.
    pub(crate) fn program(&self) -> Box<dyn Program> {
        (self.0.program)()
    }

    /// Whether both are clones of the same code.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Implementation").field(&self.0.name).finish()
    }
}

/// The definition of a workflow together with the [queries](Query) that it answers and the [updates](Update)
/// that it takes, and the [signals](Signal) that it declares; made by [`Workflow::query`], [`Workflow::update`] and
/// [`Workflow::signal`]. Code is bound to it as to a plain
/// definition.
///
/// ```
/// # use millrun_workflow::{Update, Workflow, WorkflowContext, WorkflowError};
/// # const COUNT: Workflow<(), u64> = Workflow::named("count");
/// const ADD: Update<u64, u64, u64> = Update::named("add");
///
/// # async fn count(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
/// #     let sum = cx.state(0);
/// #     sum.until(|sum| *sum > 9).await?;
/// #     Ok(sum.read(|sum| *sum))
/// # }
/// let answering = COUNT
///     .update(ADD)
///     .validate(|_, more| if *more > 0 { Ok(()) } else { Err(WorkflowError::failed("nothing")) })
///     .change(|sum, more| {
///         *sum += more;
///         *sum
///     });
/// # assert_eq!(answering.bind(count).name(), "count");
/// ```
pub struct AnsweringWorkflow<I, O, E = WorkflowError> {
    workflow: Workflow<I, O, E>,
    handlers: Handlers,
}

/// An entity as a workflow, before its code is bound.
pub(crate) struct EntityWorkflow {
    workflow: AnsweringWorkflow<(), ()>,
    entity: EntityHandlers,
}

impl EntityWorkflow {
    pub(crate) const fn new(workflow: Workflow<(), ()>, handlers: Handlers, entity: EntityHandlers) -> Self {
        let workflow = AnsweringWorkflow { workflow, handlers };
        Self { workflow, entity }
    }

    pub(crate) fn bind<F, Fut>(self, code: F) -> Implementation
    where
        F: Fn(WorkflowContext, ()) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), WorkflowError>> + Send + 'static,
    {
        self.workflow.bind_with(Some(self.entity), code)
    }
}

impl<I, O, E> Workflow<I, O, E> {
    /// Adds a query, which is answered from the run's [state](crate::State). See [`AnsweringWorkflow::query`].
    pub fn query<S, Q, A, F>(self, query: Query<S, Q, A>, answer: F) -> AnsweringWorkflow<I, O, E>
    where
        S: 'static,
        Q: DeserializeOwned,
        A: Serialize,
        F: Fn(&S, Q) -> A + Send + Sync + 'static,
    {
        AnsweringWorkflow::new(self).query(query, answer)
    }

    /// Declares a signal that the code receives. See [`AnsweringWorkflow::signal`].
    pub fn signal<T: DeserializeOwned>(self, signal: Signal<T>) -> AnsweringWorkflow<I, O, E> {
        AnsweringWorkflow::new(self).signal(signal)
    }

    /// Adds an update of the run's [state](crate::State), once its [change](UpdateBuilder::change) is given.
    pub fn update<S, U, A, R>(
        self,
        update: Update<S, U, A, R>,
    ) -> UpdateBuilder<AnsweringWorkflow<I, O, E>, S, U, A, R>
    where
        S: 'static,
        U: DeserializeOwned,
        A: Serialize,
        R: TypedError,
    {
        AnsweringWorkflow::new(self).update(update)
    }
}

impl<I, O, E> AnsweringWorkflow<I, O, E> {
    fn new(workflow: Workflow<I, O, E>) -> Self {
        Self {
            workflow,
            handlers: Handlers::default(),
        }
    }

    /// Adds a query, which is answered from the run's [state](crate::State). The handler sees only the state; it must be
    /// quick, since the run waits meanwhile. A second handler for the same name replaces the first.
    #[must_use]
    pub fn query<S, Q, A, F>(mut self, query: Query<S, Q, A>, answer: F) -> Self
    where
        S: 'static,
        Q: DeserializeOwned,
        A: Serialize,
        F: Fn(&S, Q) -> A + Send + Sync + 'static,
    {
        self.handlers.add_query(query, answer);
        self
    }

    /// Declares a signal that the code receives: it is listed in a program's catalogue, and a value of another type that is
    /// sent by name is refused before anything is recorded. The code can receive signals that are not declared too, with
    /// values of any type.
    #[must_use]
    pub fn signal<T: DeserializeOwned>(mut self, signal: Signal<T>) -> Self {
        self.handlers.add_signal(signal);
        self
    }

    /// Adds an update of the run's [state](crate::State): with a [change](UpdateBuilder::change), and perhaps a
    /// [validation](UpdateBuilder::validate) before it. A second handler for the same name replaces the first.
    pub fn update<S, U, A, R>(self, update: Update<S, U, A, R>) -> UpdateBuilder<Self, S, U, A, R>
    where
        S: 'static,
        U: DeserializeOwned,
        A: Serialize,
        R: TypedError,
    {
        UpdateBuilder {
            workflow: self,
            update,
            validate: None,
        }
    }

    /// Binds code, for an [`Instance`](crate::Instance).
    pub fn bind<F, Fut>(self, code: F) -> Implementation
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: TypedError,
        F: Fn(WorkflowContext, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        self.bind_with(None, code)
    }

    fn bind_with<F, Fut>(self, entity: Option<EntityHandlers>, code: F) -> Implementation
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: TypedError,
        F: Fn(WorkflowContext, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let code = Arc::new(code);
        let program =
            move || -> Box<dyn Program> { Box::new(Typed::<I, O, E, F, Fut>::new(Arc::clone(&code))) };
        Implementation(Arc::new(Parts {
            input: Expected::of::<I>(),
            result_type: type_name::<O>(),
            name: self.workflow.name(),
            version: self.workflow.version_number(),
            policy: self.workflow.version_policy(),
            program: Arc::new(program),
            handlers: self.handlers,
            entity,
            renamed: None,
        }))
    }
}

impl<I, O, E> Clone for AnsweringWorkflow<I, O, E> {
    fn clone(&self) -> Self {
        Self {
            workflow: self.workflow,
            handlers: self.handlers.clone(),
        }
    }
}

impl<I, O, E> fmt::Debug for AnsweringWorkflow<I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnsweringWorkflow")
            .field("workflow", &self.workflow)
            .field("handlers", &self.handlers)
            .finish()
    }
}

type Validate<S, I, E> = dyn Fn(&S, &I) -> Result<(), E> + Send + Sync;

/// An update that is being added to a definition; made by [`Workflow::update`].
#[must_use = "an update is handled once its change is given"]
pub struct UpdateBuilder<W, S, I, O, E> {
    workflow: W,
    update: Update<S, I, O, E>,
    validate: Option<Box<Validate<S, I, E>>>,
}

impl<WI, WO, WE, S, I, O, E> UpdateBuilder<AnsweringWorkflow<WI, WO, WE>, S, I, O, E>
where
    S: 'static,
    I: DeserializeOwned + 'static,
    O: Serialize + 'static,
    E: TypedError,
{
    /// Rejects an update that must not be performed: if this returns an error, nothing is recorded. Without it, all updates
    /// are accepted. If it is called twice, the second one counts.
    pub fn validate<V>(mut self, validate: V) -> Self
    where
        V: Fn(&S, &I) -> Result<(), E> + Send + Sync + 'static,
    {
        self.validate = Some(Box::new(validate));
        self
    }

    /// Performs an update that was accepted, and returns its answer. It is called live and in each replay, so it must depend
    /// on its arguments alone.
    #[must_use]
    pub fn change<F>(self, change: F) -> AnsweringWorkflow<WI, WO, WE>
    where
        F: Fn(&mut S, I) -> O + Send + Sync + 'static,
    {
        let Self {
            mut workflow,
            update,
            validate,
        } = self;
        let validate = validate.unwrap_or_else(|| Box::new(|_, _| Ok(())));
        workflow.handlers.add_update(update, validate, change);
        workflow
    }
}

impl<W, S, I, O, E> fmt::Debug for UpdateBuilder<W, S, I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdateBuilder")
            .field("update", &self.update)
            .finish_non_exhaustive()
    }
}
