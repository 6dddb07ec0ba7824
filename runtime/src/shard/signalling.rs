//! Signals from runs to instances: sent until the outcome of each is durable in the sender's history, and recorded once.
//!
//! ```text
//!   sender's shard                                         shard of the instance
//!     turn: SignalScheduled ── commit ── Signal ─────────────► turn: RunSignalReceived, unless it is known
//!     turn: SignalSent ◄──────────────── SignalSent ── commit ─┘
//! ```
//!
//! Each message may be lost in a crash of either shard. A sender's shard that begins sends pending signals again, and so do
//! the others when the shard of the instance has begun anew ([calls](super::calls)). A run that has the signal already knows
//! the sender and answers again; for a run that has ended since, a reader looks into its history. Only the answer to the
//! latest sending counts, since a refusal says that the signal is not recorded anywhere.

use millrun_core::{Cause, RunId};
use millrun_persistence::ReadError;
use millrun_workflow::{Input, Moment, OperationId, SignalFailure, SignalScheduled};

use super::Shard;
use super::family::is_of_call;
use super::runs::entry::{Errand, Sender};
use super::sweeps::effects::{Behalf, Effect};
use crate::RunError;
use crate::mail::{Ask, FinishedReads, PartitionMessage, RunSignal, check_workflow};

/// Sends a signal to an instance.
pub(super) fn send_signal(run: RunId, scheduled: &SignalScheduled, is_repeated: bool) -> Effect {
    let signal = RunSignal {
        sender: Cause {
            run,
            operation: scheduled.operation.get(),
        },
        to: scheduled.id.clone(),
        workflow: scheduled.workflow.clone(),
        name: scheduled.name.clone(),
        value: scheduled.value.clone(),
        child: scheduled.child,
        is_repeated,
        ask: Ask::default(),
    };
    let message = PartitionMessage::Signal(Box::new(signal));
    Effect::Send(scheduled.id.partition(), Box::new(message))
}

fn failure_of(error: RunError) -> SignalFailure {
    match error {
        RunError::NotFound => SignalFailure::NotFound,
        RunError::Finished | RunError::Expired => SignalFailure::Finished,
        RunError::OtherWorkflow { workflow, .. } => SignalFailure::OtherWorkflow { workflow },
        error @ (RunError::Damaged(_) | RunError::Read(_) | RunError::History(_)) => {
            SignalFailure::Quarantined {
                message: error.to_string(),
            }
        }
        error => SignalFailure::Refused {
            message: error.to_string(),
        },
    }
}

impl Shard {
    /// A run signals an instance: gives the signal to the instance's latest run.
    pub(super) fn on_signal(&mut self, signal: Box<RunSignal>, moment: Moment) {
        if let Some(known) = self.entries.latest(&signal.to) {
            let run = known.run;
            if let Some(call) = signal.child
                && !is_of_call(&known, (signal.sender.run, call))
            {
                return self.answer_signal(signal, Err(SignalFailure::NotFound));
            }
            if known.has_ended() && !signal.is_repeated && self.is_for_entity(&signal) {
                return self.tell_new(signal, moment);
            }
            return match check_workflow(&signal.workflow, known.workflow.began_as()) {
                Ok(()) => self.with_run(run, Errand::Signal(signal), moment),
                Err(error) => self.answer_signal(signal, Err(failure_of(error))),
            };
        }
        let Some(found) = self.finished(&signal.to) else {
            return self.ask(
                signal.to.clone(),
                PartitionMessage::Signal(signal),
                FinishedReads::Run,
            );
        };
        match found.finished {
            Ok(Some(_)) | Ok(None) | Err(ReadError::Expired { .. })
                if !(matches!(found.finished, Ok(Some(_))) && signal.is_repeated)
                    && self.is_for_entity(&signal) =>
            {
                self.tell_new(signal, moment);
            }
            Ok(Some(run)) => self.find_signal(run, signal),
            Ok(None) => self.answer_signal(signal, Err(SignalFailure::NotFound)),
            Err(ReadError::Expired { .. }) => self.answer_signal(signal, Err(SignalFailure::Finished)),
            Err(error) => self.answer_signal(signal, Err(failure_of(error.into()))),
        }
    }

    /// Begins an entity that does not live with a signal.
    fn tell_new(&mut self, signal: Box<RunSignal>, moment: Moment) {
        match self.begin_told(&signal, moment) {
            Ok(run) => {
                let before = self.effects.work_on(run);
                self.answer_signal(signal, Ok(()));
                self.effects.resume(before);
            }
            Err(error) => self.answer_signal(signal, Err(failure_of(error))),
        }
    }

    /// Gives a signal of another run to a run in memory.
    pub(super) fn take_signal(&mut self, run: RunId, signal: Box<RunSignal>, moment: Moment) {
        let input = Input::RunSignal {
            sender: Box::new(signal.sender),
            name: signal.name.clone(),
            value: signal.value.clone(),
        };
        let taken = self.apply(run, input, moment, Sender::Outside);
        self.answer_signal(signal, taken.map_err(failure_of));
    }

    /// The instance has ended, before the signal came or after it was recorded: a reader finds out.
    pub(super) fn find_signal(&mut self, run: RunId, signal: Box<RunSignal>) {
        if !signal.is_repeated {
            return self.answer_signal(signal, Err(SignalFailure::Finished));
        }
        self.effects.push(Effect::FindSignal(run, signal.clone()));
        self.told.note_signal(self.effects.present(), signal);
    }

    /// A signal did not reach the run that it was for.
    pub(super) fn refuse_signal(&mut self, signal: Box<RunSignal>, error: RunError) {
        self.answer_signal(signal, Err(failure_of(error)));
    }

    fn answer_signal(&mut self, signal: Box<RunSignal>, outcome: Result<(), SignalFailure>) {
        let answer = Effect::Send(signal.sender.run.partition(), Box::new(signal.answer(outcome)));
        self.effects.push(answer);
        self.told.note_signal(self.effects.present(), signal);
    }

    /// The journal has refused turns of these runs: the signals that they got in this sweep are sent to them again; the
    /// answers to these were dropped.
    pub(super) fn signal_again(&mut self, refused: &[RunId]) {
        for (of, signal) in self.told.take_signals() {
            if refused.iter().any(|run| Behalf::from(*run) == of) {
                let partition = signal.to.partition();
                self.ways.send(partition, PartitionMessage::Signal(signal));
            }
        }
    }

    /// Takes the outcome of a signal that a run here has sent, if it was not sent again since.
    pub(super) fn on_signal_sent(
        &mut self,
        run: RunId,
        operation: OperationId,
        outcome: Result<(), SignalFailure>,
        ask: Ask,
        moment: Moment,
    ) {
        if self.calls.is_last_ask(run, operation, ask.number) {
            self.with_run(
                run,
                Errand::Input(Input::SignalSent { operation, outcome }),
                moment,
            );
        }
    }
}
