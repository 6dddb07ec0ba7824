//! The code of an entity: its commands and queries, with their types erased, and the workflow that it is.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use millrun_core::{InstanceId, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::Wishes;
use super::definition::key_of;
use super::{EntityAct, EntityContext, EntitySnapshot, EntityState, StartRefused};
use crate::context::Cell;
use crate::event::CommandPerformed;
use crate::expected::decoded;
use crate::handlers::{AnyState, HandlerError, Handlers, guarded, typed};
use crate::registry::{EntityWorkflow, Implementation};
use crate::{
    Entity, EntityCommand, Payload, Query, Signal, TypedError, Workflow, WorkflowContext, WorkflowError,
};

type DecideFn =
    dyn Fn(&mut AnyState, &Payload, &Situation<'_>) -> Result<EntityDecided, HandlerError> + Send + Sync;
type FoldFn = fn(&mut AnyState, &CommandPerformed) -> Result<(), String>;
type SnapshotFn = fn(&mut AnyState, Vec<(u32, String)>) -> Result<Payload, HandlerError>;

/// The outside conditions while a command is decided.
#[derive(Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) id: &'a InstanceId,
    pub(crate) now: Timestamp,
    /// The host's clock, which may have been set back.
    pub(crate) host_now: Timestamp,
    /// How many operations may still begin.
    pub(crate) operations_left: usize,
    pub(crate) seed: u64,
    pub(crate) payload_bytes_max: usize,
}

impl Situation<'_> {
    /// Encodes a value for the history; or says why it cannot.
    pub(super) fn encode<T: Serialize>(&self, what: &str, value: &T) -> Result<Payload, String> {
        let encoded = Payload::encode(value).map_err(|error| error.to_string())?;
        let (bytes, bytes_max) = (encoded.len(), self.payload_bytes_max);
        if bytes > bytes_max {
            return Err(format!(
                "a {what} has {bytes} bytes, a payload may have {bytes_max}: pass a reference instead"
            ));
        }
        Ok(encoded)
    }
}

/// What a command has decided, encoded.
#[derive(Debug)]
pub(crate) struct EntityDecided {
    pub(crate) version: u32,
    pub(crate) events: Vec<Payload>,
    pub(crate) answer: Payload,
    pub(crate) acts: Vec<EntityAct>,
}

/// The value of an entity's state cell while it is in memory.
struct EntityCell<S: EntityState> {
    state: S,
    /// The events of the command that is about to be folded, as its handler returned them.
    decided: Option<Vec<S::Event>>,
}

/// What performs the commands of an entity.
#[derive(Clone)]
pub(crate) struct EntityHandlers {
    commands: BTreeMap<&'static str, Arc<DecideFn>>,
    on_start_refused: Option<&'static str>,
    snapshot_every: u32,
    begin: fn(&str) -> Cell,
    fold: FoldFn,
    snapshot: SnapshotFn,
}

impl fmt::Debug for EntityHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.commands.keys()).finish()
    }
}

impl EntityHandlers {
    /// After how many commands a snapshot is made; `None` for never.
    pub(crate) fn snapshot_every(&self) -> Option<u32> {
        (self.snapshot_every > 0).then_some(self.snapshot_every)
    }

    /// The command that is performed when a start was refused.
    pub(crate) fn on_start_refused(&self) -> Option<&'static str> {
        self.on_start_refused
    }

    /// Whether there is a command of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.commands.contains_key(name)
    }

    /// The names of the commands, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.commands.keys().copied()
    }

    /// The state of the entity with this key, before its first event.
    pub(crate) fn begin(&self, key: &str) -> Cell {
        (self.begin)(key)
    }

    /// Lets a handler decide a command. The state does not change; this command must be folded next.
    pub(crate) fn decide(
        &self,
        cell: Option<&Cell>,
        name: &str,
        input: &Payload,
        situation: &Situation<'_>,
    ) -> Result<EntityDecided, HandlerError> {
        let decide = self.commands.get(name).ok_or(HandlerError::Unknown)?;
        guarded(cell, |state| decide(state, input, situation))
    }

    /// Folds what a command has decided.
    pub(crate) fn fold(&self, cell: Option<&Cell>, performed: &CommandPerformed) -> Result<(), HandlerError> {
        guarded(cell, |state| {
            (self.fold)(state, performed).map_err(HandlerError::Undoable)
        })
    }

    /// The state and these timers, as a checkpoint holds them.
    pub(crate) fn snapshot(
        &self,
        cell: Option<&Cell>,
        timers: Vec<(u32, String)>,
    ) -> Result<Payload, HandlerError> {
        guarded(cell, |state| (self.snapshot)(state, timers))
    }
}

/// After how many commands an entity makes a snapshot, unless its code says otherwise.
pub const ENTITY_SNAPSHOT_EVERY: u32 = 256;

/// The code of an entity, for a runtime; made by [`Entity::command`] and [`Entity::query`].
pub struct EntityCode<S> {
    entity: Entity<S>,
    commands: BTreeMap<&'static str, Arc<DecideFn>>,
    handlers: Handlers,
    on_start_refused: Option<&'static str>,
    snapshot_every: u32,
    state: PhantomData<fn() -> S>,
}

impl<S> Clone for EntityCode<S> {
    fn clone(&self) -> Self {
        Self {
            entity: self.entity,
            commands: self.commands.clone(),
            handlers: self.handlers.clone(),
            on_start_refused: self.on_start_refused,
            snapshot_every: self.snapshot_every,
            state: PhantomData,
        }
    }
}

impl<S> fmt::Debug for EntityCode<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntityCode")
            .field("entity", &self.entity)
            .field("commands", &self.commands.keys())
            .finish_non_exhaustive()
    }
}

impl<S: EntityState> EntityCode<S> {
    pub(super) fn new(entity: Entity<S>) -> Self {
        Self {
            entity,
            commands: BTreeMap::new(),
            handlers: Handlers::default(),
            on_start_refused: None,
            snapshot_every: ENTITY_SNAPSHOT_EVERY,
            state: PhantomData,
        }
    }

    /// Makes a snapshot of the state after this many commands, [256](ENTITY_SNAPSHOT_EVERY) by default: at most that many are
    /// folded when the entity is brought into memory. A state that does not encode, or is larger than a payload may be, gets
    /// no snapshot: its history grows, and at [`history_len_max`](crate::Limits::history_len_max) commands are refused. Zero
    /// makes no snapshots.
    #[must_use]
    pub const fn snapshot_every(mut self, commands: u32) -> Self {
        self.snapshot_every = commands;
        self
    }

    /// Performs this command for each [start](EntityContext::start) of the entity that is refused: because its id belongs to
    /// a live instance, or because there are too many live instances. By default a refusal is ignored. The end of a run that
    /// an entity has started is not reported to it.
    #[must_use]
    pub const fn on_start_refused<A, E>(mut self, command: EntityCommand<S, StartRefused, A, E>) -> Self {
        self.on_start_refused = Some(command.name());
        self
    }

    /// The definition.
    #[must_use]
    pub const fn entity(&self) -> Entity<S> {
        self.entity
    }

    /// Performs a command: the handler sees the state, decides [events](EntityContext::emit) and returns the answer, or
    /// rejects the command with an error; then nothing is recorded. It is called once for each command, never again in a
    /// replay, and may use [the time](EntityContext::now) and [random numbers](EntityContext::random) of its context. It must
    /// be quick: the other entities of its shard wait meanwhile. If it panics, nothing is recorded, and its caller is told. A
    /// second handler for the same name replaces the first.
    #[must_use]
    pub fn command<I, A, E, F>(mut self, command: EntityCommand<S, I, A, E>, handler: F) -> Self
    where
        I: DeserializeOwned + 'static,
        A: Serialize + 'static,
        E: TypedError,
        F: Fn(&S, I, &mut EntityContext<'_, S>) -> Result<A, E> + Send + Sync + 'static,
    {
        let (entity, name) = (self.entity.name(), command.name());
        let decide = move |state: &mut AnyState, input: &Payload, situation: &Situation<'_>| {
            let cell: &mut EntityCell<S> = typed(state)?;
            let input = decoded(input, || format!("the command {name:?}"))?;
            let id = situation.id.as_str();
            let mut cx = EntityContext::new(key_of(entity, id).unwrap_or(id), situation);
            let answer = handler(&cell.state, input, &mut cx).map_err(rejected)?;
            let undoable = HandlerError::Undoable;
            let Wishes { events, acts } = cx.finish().map_err(undoable)?;
            let encoded = events.iter().map(|event| situation.encode("event", event));
            let decided = EntityDecided {
                version: S::VERSION,
                events: encoded.collect::<Result<_, _>>().map_err(undoable)?,
                answer: situation.encode("answer", &answer).map_err(undoable)?,
                acts,
            };
            cell.decided = Some(events);
            Ok(decided)
        };
        self.commands.insert(name, Arc::new(decide));
        // A signal with the command's name is handled as the command.
        self.handlers.add_signal(Signal::<I>::named(name));
        self
    }

    /// Answers a query from the state. The handler must be quick. A second handler for the same name replaces the
    /// first.
    #[must_use]
    pub fn query<Q, A, F>(mut self, query: Query<S, Q, A>, answer: F) -> Self
    where
        Q: DeserializeOwned,
        A: Serialize,
        F: Fn(&S, Q) -> A + Send + Sync + 'static,
    {
        self.handlers
            .add_query_of(query, |cell: &EntityCell<S>| &cell.state, answer);
        self
    }

    /// The entity as the engine runs it: a workflow that waits and whose inputs are commands.
    #[must_use]
    pub fn implementation(self) -> Implementation {
        let workflow = Workflow::<(), ()>::named(self.entity.name());
        let entity = EntityHandlers {
            commands: self.commands,
            on_start_refused: self.on_start_refused,
            snapshot_every: self.snapshot_every,
            begin: |key| Cell::new(begun::<S>(key)),
            fold: fold::<S>,
            snapshot: snapshot::<S>,
        };
        let name = self.entity.name();
        let code = move |cx: WorkflowContext, (): ()| live::<S>(cx, name);
        EntityWorkflow::new(workflow, self.handlers, entity).bind(code)
    }
}

/// The code of an entity's run: it makes the state, and waits. The machine handles the commands.
async fn live<S: EntityState>(cx: WorkflowContext, name: &'static str) -> Result<(), WorkflowError> {
    let id = cx.instance_id();
    let key = key_of(name, id.as_str()).unwrap_or(id.as_str());
    let state = match cx.checkpointed::<EntitySnapshot>() {
        None => S::begin(key),
        Some(snapshot) => {
            let EntitySnapshot {
                version,
                state,
                timers,
            } = snapshot?;
            let stored = Payload::from_bytes(state.into());
            let state = up_to_date(version, S::VERSION, "state", |is_old| match is_old {
                true => S::upcast_state(version, &stored),
                false => stored.decode(),
            });
            cx.shared_ref().lock().desk().restore(timers);
            state.map_err(WorkflowError::failed)?
        }
    };
    let cell = EntityCell::<S> { state, decided: None };
    // The machine handles a request to cancel.
    let cell = cx.shielded().state(cell);
    cell.until(|_| false).await?;
    Ok(())
}

fn begun<S: EntityState>(key: &str) -> EntityCell<S> {
    EntityCell {
        state: S::begin(key),
        decided: None,
    }
}

/// Converts a stored value of an earlier version to the present one.
fn up_to_date<T, E: fmt::Display>(
    stored: u32,
    today: u32,
    what: &str,
    read: impl FnOnce(bool) -> Result<T, E>,
) -> Result<T, String> {
    if stored > today {
        return Err(format!(
            "the {what} of the entity was stored by version {stored} of its code, and this is version {today}"
        ));
    }
    read(stored < today).map_err(|error| {
        format!(
            "the {what} of the entity, of version {stored}, is none for its code, of version {today}: {error}"
        )
    })
}

fn fold<S: EntityState>(state: &mut AnyState, performed: &CommandPerformed) -> Result<(), String> {
    let cell: &mut EntityCell<S> =
        typed(state).map_err(|_| "the run has no state of its type".to_string())?;
    if let Some(events) = cell.decided.take() {
        events.into_iter().for_each(|event| cell.state.apply(event));
        return Ok(());
    }
    let version = performed.version;
    for stored in &performed.events {
        let event = up_to_date(version, S::VERSION, "event", |is_old| match is_old {
            true => S::upcast_event(version, stored),
            false => stored.decode(),
        })?;
        cell.state.apply(event);
    }
    Ok(())
}

fn snapshot<S: EntityState>(
    state: &mut AnyState,
    timers: Vec<(u32, String)>,
) -> Result<Payload, HandlerError> {
    let cell: &mut EntityCell<S> = typed(state)?;
    let snapshot = EntitySnapshot {
        version: S::VERSION,
        state: Payload::encode(&cell.state)?.as_bytes().to_vec(),
        timers,
    };
    Ok(Payload::encode(&snapshot)?)
}

fn rejected<E: TypedError>(error: E) -> HandlerError {
    match Payload::encode(&error) {
        Ok(encoded) => HandlerError::Rejected {
            error: encoded,
            message: error.to_string(),
        },
        Err(error) => HandlerError::Payload(error),
    }
}
