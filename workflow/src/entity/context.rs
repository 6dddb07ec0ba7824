//! The engine as the handler of a command sees it.

use std::fmt;
use std::time::Duration;

use millrun_core::{InstanceId, Timestamp};
use serde::Serialize;

use super::code::Situation;
use super::desk::TimerAt;
use super::{EntityAct, EntityState};
use crate::event::{Name, RECORD_TEXT_BYTES_MAX, RecordTexts};
use crate::names::{is_reserved_name, reserved_name};
use crate::retry::mix;
use crate::{Entity, EntityCommand, NAME_BYTES_MAX, Payload, PublishTarget, Signal, Workflow};

/// Collects what a command decides beside its answer: events, and acts that follow once they are recorded.
///
/// All of it is in one commit with the command, or nothing is: if the handler rejects the command, its acts are dropped. The
/// end of an act is not reported to the entity; it stands in the history.
///
/// If a value does not encode, is too large, or has an invalid id or name, the command is not performed: its caller is told,
/// as a [refusal](crate::InputRefused::Act).
pub struct EntityContext<'a, S: EntityState> {
    key: &'a str,
    situation: &'a Situation<'a>,
    drawn_len: u64,
    events: Vec<S::Event>,
    acts: Vec<EntityAct>,
    fault: Option<String>,
}

/// A publish of a command, to which texts can be added; made by [`EntityContext::publish`].
#[derive(Debug)]
pub struct EntityPublish<'c> {
    /// The texts of the act; `None` if there is no act, because the value did not encode.
    texts: Option<&'c mut Option<Box<RecordTexts>>>,
    fault: &'c mut Option<String>,
}

impl EntityPublish<'_> {
    /// As [`PublishStep::key`](crate::PublishStep::key); by default, the key is the id of the entity, `name/key`. If it is
    /// too long, the command is not performed.
    pub fn key(self, key: impl Into<Box<str>>) -> Self {
        self.say(|texts| texts.key = Some(key.into()))
    }

    /// As [`PublishStep::correlation`](crate::PublishStep::correlation). If it is too long, the command is not performed.
    pub fn correlation(self, correlation: impl Into<Box<str>>) -> Self {
        self.say(|texts| texts.correlation = Some(correlation.into()))
    }

    /// As [`PublishStep::content_type`](crate::PublishStep::content_type). If it is too long, the command is not performed.
    pub fn content_type(self, content_type: impl Into<Box<str>>) -> Self {
        self.say(|texts| texts.content_type = Some(content_type.into()))
    }

    fn say(mut self, change: impl FnOnce(&mut RecordTexts)) -> Self {
        if let Some(texts) = &mut self.texts {
            let texts = texts.get_or_insert_default();
            change(texts);
            if let Some((field, bytes)) = texts.too_long() {
                self.fault.get_or_insert_with(|| {
                    format!("the {field} of a record has {bytes} bytes, it may have {RECORD_TEXT_BYTES_MAX}")
                });
            }
        }
        self
    }
}

/// What a handler has decided, when it has ended.
pub(super) struct Wishes<E> {
    pub(super) events: Vec<E>,
    pub(super) acts: Vec<EntityAct>,
}

impl<S: EntityState> fmt::Debug for EntityContext<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntityContext")
            .field("key", &self.key)
            .field("events", &self.events.len())
            .field("acts", &self.acts)
            .finish_non_exhaustive()
    }
}

impl<'a, S: EntityState> EntityContext<'a, S> {
    pub(super) fn new(key: &'a str, situation: &'a Situation<'a>) -> Self {
        Self {
            key,
            situation,
            drawn_len: 0,
            events: Vec::new(),
            acts: Vec::new(),
            fault: None,
        }
    }

    /// The decisions, or what is wrong with them.
    pub(super) fn finish(self) -> Result<Wishes<S::Event>, String> {
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(Wishes {
                events: self.events,
                acts: self.acts,
            }),
        }
    }

    /// Decides an event. When the handler has returned, its events are folded into the state in order.
    pub fn emit(&mut self, event: S::Event) {
        self.events.push(event);
    }

    /// The key of the entity.
    #[must_use]
    pub const fn key(&self) -> &str {
        self.key
    }

    /// The time. It never goes back from one command of an entity to the next.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.situation.now
    }

    /// The host's clock. Unlike [`now`](Self::now) it goes back when that clock is set back; [timers](Self::set_timer) use
    /// it.
    #[must_use]
    pub const fn host_now(&self) -> Timestamp {
        self.situation.host_now
    }

    /// How many operations (starts, signals, publishes, timers) this command may still begin, given
    /// [`pending_len_max`](crate::Limits::pending_len_max) and the outstanding ones. A command that asks for more is not
    /// performed.
    #[must_use]
    pub fn operations_left(&self) -> usize {
        let begun_len = self.acts.iter().filter(|act| act.begins()).count();
        self.situation.operations_left.saturating_sub(begun_len)
    }

    /// 64 random bits, different each time. Not for cryptography. What depends on them must be recorded in the events.
    #[must_use]
    pub fn random(&mut self) -> u64 {
        self.drawn_len += 1;
        mix(mix(self.situation.seed) ^ self.drawn_len)
    }

    /// Publishes to a topic, of the broker or durable. In a durable topic, the record is in the commit of the command unless
    /// its batch is full, and is there exactly once; for a topic of the broker see
    /// [`WorkflowContext::publish`](crate::WorkflowContext::publish). The returned value is only needed to add texts.
    pub fn publish<P>(&mut self, topic: P, value: P::Payload) -> EntityPublish<'_>
    where
        P: PublishTarget<Payload: Serialize>,
    {
        let value = self.encode(&value);
        let is_encoded = value.is_some();
        if let Some(value) = value {
            let (topic, texts) = (topic.name().into(), None);
            self.acts.push(EntityAct::Publish { topic, value, texts });
        }
        let texts = match self.acts.last_mut() {
            Some(EntityAct::Publish { texts, .. }) if is_encoded => Some(texts),
            _ => None,
        };
        EntityPublish {
            texts,
            fault: &mut self.fault,
        }
    }

    /// Starts a workflow under this id, exactly once, unless the id is taken. Its end is not waited for.
    pub fn start<I: Serialize, O, E>(
        &mut self,
        workflow: Workflow<I, O, E>,
        id: impl Into<String>,
        input: I,
    ) {
        if let (Some(input), Some(id)) = (self.encode(&input), self.id(&id.into())) {
            let workflow = workflow.name().into();
            self.acts.push(EntityAct::Start { workflow, id, input });
        }
    }

    /// As [`start`](Self::start), with the workflow's name and the encoded input: for entities that learn them at run time. A
    /// name that begins with `millrun.` is refused, and so is a value that is too large.
    pub fn start_untyped(&mut self, workflow: impl Into<String>, id: impl Into<String>, input: Payload) {
        let workflow = Name::Owned(workflow.into());
        let bytes = workflow.len();
        if bytes == 0 || bytes > NAME_BYTES_MAX {
            self.fault.get_or_insert_with(|| {
                format!("a workflow's name has 1 to {NAME_BYTES_MAX} bytes, and this one {bytes}")
            });
            return;
        }
        if is_reserved_name(&workflow) {
            self.fault.get_or_insert_with(|| reserved_name(&workflow));
            return;
        }
        if let (Some(input), Some(id)) = (self.bounded(input), self.id(&id.into())) {
            self.acts.push(EntityAct::Start { workflow, id, input });
        }
    }

    /// Signals an instance, which gets the signal in its history exactly once, as by
    /// [`WorkflowContext::signal_instance`](crate::WorkflowContext::signal_instance).
    pub fn signal<I, O, E, T: Serialize>(
        &mut self,
        workflow: Workflow<I, O, E>,
        id: impl Into<String>,
        signal: Signal<T>,
        value: T,
    ) {
        self.send(workflow.name(), &id.into(), signal.name(), &value);
    }

    /// Sends a command to another entity, or to this one, which performs it once. Its answer or rejection is dropped.
    pub fn tell<T, I: Serialize, A, E>(
        &mut self,
        entity: Entity<T>,
        key: &str,
        command: EntityCommand<T, I, A, E>,
        input: I,
    ) where
        T: EntityState,
    {
        self.send(entity.name(), &entity.id_of(key), command.name(), &input);
    }

    /// Has this entity perform a command at a time or soon after, never before; it replaces a former time for the same
    /// command. The answer is dropped, and a rejection has no effect. If the command cannot be performed (a value is too
    /// large, or the entity has as many operations outstanding as it may), the entity is parked with the reason, and performs
    /// the command when it is resumed.
    pub fn set_timer<A, E>(&mut self, command: EntityCommand<S, (), A, E>, at: Timestamp) {
        self.acts.push(EntityAct::SetTimer {
            command: command.name().into(),
            at: TimerAt::Deadline(at),
        });
    }

    /// As [`set_timer`](Self::set_timer), at `after` from now.
    pub fn set_timer_in<A, E>(&mut self, command: EntityCommand<S, (), A, E>, after: Duration) {
        self.acts.push(EntityAct::SetTimer {
            command: command.name().into(),
            at: TimerAt::In(after),
        });
    }

    /// Clears the timer of a command, if one is set.
    pub fn clear_timer<A, E>(&mut self, command: EntityCommand<S, (), A, E>) {
        self.acts.push(EntityAct::ClearTimer {
            command: command.name().into(),
        });
    }

    fn send<T: Serialize>(&mut self, workflow: &'static str, id: &str, name: &'static str, value: &T) {
        if let (Some(value), Some(id)) = (self.encode(value), self.id(id)) {
            self.acts.push(EntityAct::Signal {
                workflow: Name::Borrowed(workflow),
                id,
                name: Name::Borrowed(name),
                value,
            });
        }
    }

    fn encode<T: Serialize>(&mut self, value: &T) -> Option<Payload> {
        match self.situation.encode("value", value) {
            Ok(value) => Some(value),
            Err(fault) => {
                self.fault.get_or_insert(fault);
                None
            }
        }
    }

    /// An encoded value, if it is no larger than a payload may be.
    fn bounded(&mut self, value: Payload) -> Option<Payload> {
        let (bytes, bytes_max) = (value.len(), self.situation.payload_bytes_max);
        if bytes <= bytes_max {
            return Some(value);
        }
        self.fault.get_or_insert_with(|| {
            format!("a value has {bytes} bytes, a payload may have {bytes_max}: pass a reference instead")
        });
        None
    }

    fn id(&mut self, id: &str) -> Option<InstanceId> {
        match InstanceId::new(id) {
            Ok(id) => Some(id),
            Err(error) => {
                self.fault.get_or_insert_with(|| error.to_string());
                None
            }
        }
    }
}
