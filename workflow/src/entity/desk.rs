//! What the machine keeps for an entity beside its state: timers, and the acts of the last command.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{InstanceId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::event::{
    ChildScheduled, Event, Name, ParentClose, PublishScheduled, RecordTexts, SignalScheduled,
};
use crate::{OperationId, Payload};

/// An act that a command asks for, in the order in which it asks.
#[derive(Debug)]
pub(crate) enum EntityAct {
    Publish {
        topic: Name,
        value: Payload,
        texts: Option<Box<RecordTexts>>,
    },
    Start {
        workflow: Name,
        id: InstanceId,
        input: Payload,
    },
    Signal {
        workflow: Name,
        id: InstanceId,
        name: Name,
        value: Payload,
    },
    /// Performs the command at this time, in place of a former time for the command.
    SetTimer {
        command: Name,
        at: TimerAt,
    },
    ClearTimer {
        command: Name,
    },
}

/// A start by an entity that was refused: the input of the command that
/// [`EntityCode::on_start_refused`](crate::EntityCode::on_start_refused) names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRefused {
    /// The name of the workflow.
    pub workflow: String,
    /// The id that the instance was to have.
    pub id: String,
    /// Why it was not started.
    pub message: String,
}

/// When a timer fires.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimerAt {
    Deadline(Timestamp),
    In(Duration),
}

/// The machine's bookkeeping for an entity.
#[derive(Debug, Default)]
pub(crate) struct EntityDesk {
    /// The timers that are set, and the commands that they perform.
    timers: Vec<(OperationId, Name)>,
    /// Commands for which the last command has set timers, whose `TimerStarted` decisions have not followed yet.
    unset: VecDeque<Name>,
    /// The acts of the command that is being recorded.
    acts: Vec<EntityAct>,
    /// The answer to the last command that was performed.
    answer: Option<Payload>,
    /// Refused starts that the entity is about to be told of.
    refused: Vec<(OperationId, StartRefused)>,
    /// The number of commands since the last checkpoint.
    pub(crate) performed_len: u32,
}

impl EntityDesk {
    /// Restores the timers of a checkpoint.
    pub(super) fn restore(&mut self, timers: Vec<(u32, String)>) {
        let timers = timers.into_iter();
        self.timers = timers
            .map(|(operation, name)| (OperationId::new(operation), name.into()))
            .collect();
    }

    /// The timers, as a checkpoint holds them.
    pub(crate) fn timers(&self) -> Vec<(u32, String)> {
        let timers = self.timers.iter();
        timers
            .map(|(operation, name)| (operation.get(), name.to_string()))
            .collect()
    }

    /// A command has been decided, and is about to be recorded.
    pub(crate) fn decide(&mut self, acts: Vec<EntityAct>, answer: Payload) {
        (self.acts, self.answer) = (acts, Some(answer));
    }

    pub(crate) fn take_acts(&mut self) -> Vec<EntityAct> {
        std::mem::take(&mut self.acts)
    }

    pub(crate) fn take_answer(&mut self) -> Option<Payload> {
        self.answer.take()
    }

    /// The command that a timer performs.
    pub(crate) fn command_of(&self, timer: OperationId) -> Option<&Name> {
        let mut timers = self.timers.iter();
        timers
            .find(|(operation, _)| *operation == timer)
            .map(|(_, name)| name)
    }

    /// The timer that is set for a command.
    fn timer_of(&self, command: &str) -> Option<OperationId> {
        let mut timers = self.timers.iter();
        timers
            .find(|(_, name)| name == command)
            .map(|(operation, _)| *operation)
    }

    pub(crate) fn forget_timer(&mut self, timer: OperationId) {
        self.timers.retain(|(operation, _)| *operation != timer);
    }

    /// Notes a start that is about to be recorded as refused.
    pub(crate) fn refuse(&mut self, operation: OperationId, refused: StartRefused) {
        self.refused.push((operation, refused));
    }

    /// The start that was refused.
    pub(crate) fn refused(&self, operation: OperationId) -> Option<&StartRefused> {
        let mut refused = self.refused.iter();
        refused
            .find(|(of, _)| *of == operation)
            .map(|(_, refused)| refused)
    }

    pub(crate) fn forget_refused(&mut self, operation: OperationId) {
        self.refused.retain(|(of, _)| *of != operation);
    }

    /// A command was recorded that sets timers for these commands; the timers' operations follow.
    pub(crate) fn expect_timers(&mut self, commands: &[Name]) {
        self.unset = commands.iter().cloned().collect();
    }

    /// Takes a decision of the history, which a replay does not decide again.
    pub(crate) fn note(&mut self, event: &Event) {
        match event {
            Event::TimerStarted { operation, .. } => {
                if let Some(command) = self.unset.pop_front() {
                    self.timers.push((*operation, command));
                }
            }
            Event::OperationCancelled { operation } => self.forget_timer(*operation),
            Event::Checkpointed(_) => self.performed_len = 0,
            _ => {}
        }
    }

    /// The decisions that follow from an act. The first that begins an operation gets `number`.
    pub(crate) fn issue(
        &mut self,
        act: EntityAct,
        number: OperationId,
        host_now: Timestamp,
        decide: &mut dyn FnMut(Event),
    ) {
        let operation = number;
        match act {
            EntityAct::Publish { topic, value, texts } => {
                decide(Event::PublishScheduled(Arc::new(PublishScheduled {
                    operation,
                    topic,
                    value,
                    texts,
                })));
            }
            EntityAct::Start { workflow, id, input } => {
                decide(Event::ChildScheduled(Arc::new(ChildScheduled {
                    operation,
                    workflow,
                    id,
                    input,
                    on_close: ParentClose::Abandon,
                    not_before: None,
                    timeouts: None,
                })));
            }
            EntityAct::Signal {
                workflow,
                id,
                name,
                value,
            } => decide(Event::SignalScheduled(Arc::new(SignalScheduled {
                operation,
                workflow,
                id,
                name,
                value,
                child: None,
            }))),
            EntityAct::SetTimer { command, at } => {
                self.clear_timer(&command, decide);
                let deadline = match at {
                    TimerAt::Deadline(deadline) => deadline,
                    TimerAt::In(after) => host_now + after,
                };
                self.timers.push((operation, command));
                decide(Event::TimerStarted { operation, deadline });
            }
            EntityAct::ClearTimer { command } => self.clear_timer(&command, decide),
        }
    }

    fn clear_timer(&mut self, command: &str, decide: &mut dyn FnMut(Event)) {
        if let Some(operation) = self.timer_of(command) {
            self.forget_timer(operation);
            decide(Event::OperationCancelled { operation });
        }
    }
}

impl EntityAct {
    /// Whether it begins an operation.
    pub(crate) fn begins(&self) -> bool {
        !matches!(self, Self::ClearTimer { .. })
    }

    /// The command for which it sets a timer.
    pub(crate) fn timer(&self) -> Option<&Name> {
        match self {
            Self::SetTimer { command, .. } => Some(command),
            _ => None,
        }
    }
}
