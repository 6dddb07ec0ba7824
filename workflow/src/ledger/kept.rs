//! A kept beginning: what a run that begins again at a checkpoint still needs of the events before it.
//!
//! ```text
//!   Started ─ … 1,000,000 events … ─ Checkpointed ─ 3 events        the history
//!      └───────────── folded ────────────┘  │
//!                        ▼                  │
//!                 kept beginning ───────────┴─────► replay          the same instance
//! ```
//!
//! Invariant: a replay from a kept beginning and the events behind it makes the same turns, byte for byte, as a replay of the
//! whole history. So the events before the checkpoint may be removed, or the kept beginning that stands beside them.
//!
//! Left out: the state of the code itself, which is in the checkpoint, and what does not outlive a checkpoint (changes that
//! the code asked for, waits).

use std::sync::Arc;

use bytes::Bytes;
use millrun_core::{Sequence, Timestamp};

use super::{Ledger, Pending, UpdateStanding};
use crate::event::{ActivityFailure, Checkpoint, Event, EventError};
use crate::wire::{self, KeptParts, Noted};

/// The fold of a history up to a checkpoint, from which the run can be [brought back](crate::Instance::replay_kept) without
/// the events before.
///
/// The engine [makes](crate::Turn::kept) one from time to time, as bytes.
#[derive(Clone, Debug)]
pub struct KeptBeginning {
    /// The ledger, including the checkpoint.
    pub(crate) ledger: Ledger,
    pub(crate) checkpoint: Box<Checkpoint>,
    /// When the checkpoint was recorded.
    pub(crate) at: Timestamp,
}

impl KeptBeginning {
    /// Decodes the kept beginning of a [turn](crate::Turn::kept).
    ///
    /// # Errors
    /// When the bytes are not a kept beginning, or were written by a later version.
    pub fn decode(bytes: &Bytes) -> Result<Self, EventError> {
        let malformed = |what: &str| EventError::Malformed(format!("a kept beginning {what}"));
        let KeptParts {
            sequence,
            is_cancel_requested,
            events,
            accepted,
            answers,
            senders,
            signal_requests,
        } = wire::decode_kept(bytes)?;
        let mut ledger = Ledger::new();
        let mut events = events.into_iter();
        let (first, last) = (events.next(), events.next_back());
        let (Some(first), Some(last)) = (first, last) else {
            return Err(malformed("without a beginning or a checkpoint"));
        };
        let Event::Started(_) = &first.event else {
            return Err(malformed("without a beginning"));
        };
        ledger.apply(&first.event, first.time);
        // Answers that the run took over are among the others: those of the first event are not counted twice.
        ledger.remembered = None;
        for noted in events {
            ledger
                .note(&noted)
                .ok_or_else(|| malformed("with something else"))?;
        }
        for request in accepted {
            let updates = &mut ledger.remembered.get_or_insert_default().updates;
            updates.standings.insert(request, UpdateStanding::Accepted);
        }
        for (request, answer) in &answers {
            ledger.answer(request, answer);
        }
        for sender in senders {
            ledger.remember_sender(sender);
        }
        for request in &signal_requests {
            ledger.remember_signal_request(request);
        }
        ledger.is_cancel_requested = is_cancel_requested;
        let before = sequence.checked_sub(1).filter(|before| *before > 0);
        ledger.sequence = Sequence::new(before.ok_or_else(|| malformed("without events"))?);
        ledger.apply(&last.event, last.time);
        match last.event {
            Event::Checkpointed(checkpoint) if checkpoint.is_whole => Ok(Self {
                ledger,
                checkpoint,
                at: last.time,
            }),
            _ => Err(malformed("without a checkpoint")),
        }
    }

    /// The ledger up to the checkpoint, as far as the run still needs it.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The sequence of the checkpoint: the events behind it are needed to bring the run back.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.ledger.sequence
    }

    /// The number of operations that the run had issued at the checkpoint; they are numbered from 1.
    #[must_use]
    pub fn operations_len(&self) -> u32 {
        self.checkpoint.operations_len
    }

    /// When the checkpoint was recorded.
    #[must_use]
    pub fn recorded_at(&self) -> Timestamp {
        self.at
    }
}

impl Ledger {
    /// The kept beginning for a `checkpoint` that is being recorded; `None` if none is due: one is made in
    /// `kept_beginning_every` events. The ledger does not include the checkpoint yet.
    pub(crate) fn keep(
        &self,
        checkpoint: &Checkpoint,
        now: Timestamp,
        every: u64,
    ) -> Option<(Sequence, Vec<u8>)> {
        let sequence = self.sequence.next();
        let passed = |sequence: Sequence| sequence.get().checked_div(every);
        let is_due = passed(sequence) != passed(self.checkpoint);
        if !is_due || !checkpoint.is_whole || self.parked.is_some() || self.outcome.is_some() {
            return None;
        }
        let (started, started_at) = self.started.as_ref()?;
        let mut events = vec![Noted::once(Event::Started(started.clone()), *started_at)];
        if self.version != started.version {
            let version = self.version;
            events.push(Noted::once(Event::VersionChanged { version }, *started_at));
        }
        for (operation, (pending, since)) in self.pending.iter() {
            let mut note = |event| events.push(Noted::once(event, *since));
            match pending {
                Pending::Activity(activity) => {
                    note(Event::ActivityScheduled(Arc::clone(&activity.scheduled)));
                    if let (Some(retry_at), 1..) = (activity.retry_at, activity.failures) {
                        note(Event::AttemptFailed {
                            operation,
                            attempt: activity.failed_attempt,
                            // What the failure was is not needed any more.
                            failure: ActivityFailure::Unreadable {
                                message: String::new(),
                            },
                            retry_at,
                            epoch: activity.epoch,
                        });
                        events.last_mut()?.count = activity.failures;
                    }
                    let attempt = activity.begun_attempt;
                    let mut note = |event| events.push(Noted::once(event, *since));
                    if let Some(details) = activity.details.clone() {
                        note(Event::AttemptHeartbeat {
                            operation,
                            attempt,
                            details,
                        });
                    } else if attempt > 0 {
                        note(Event::AttemptStarted { operation, attempt });
                    }
                }
                Pending::Child {
                    scheduled,
                    run,
                    cancel,
                } => {
                    note(Event::ChildScheduled(Arc::clone(scheduled)));
                    if let Some(run) = *run {
                        note(Event::ChildStarted { operation, run });
                    }
                    if let Some(cancel) = cancel {
                        let reason = String::from(&**cancel);
                        note(Event::ChildCancelRequested { operation, reason });
                    }
                }
                Pending::Publish { scheduled, is_parked } => {
                    note(Event::PublishScheduled(Arc::clone(scheduled)));
                    if *is_parked {
                        note(Event::PublishParked { operation });
                    }
                }
                Pending::Receive { scheduled, .. } => note(Event::ReceiveScheduled(Arc::clone(scheduled))),
                Pending::Signal(scheduled) => note(Event::SignalScheduled(Arc::clone(scheduled))),
                Pending::Promise => note(Event::PromiseMade { operation }),
                Pending::Timer { deadline } => note(Event::TimerStarted {
                    operation,
                    deadline: *deadline,
                }),
            }
        }
        events.push(Noted::once(
            Event::Checkpointed(Box::new(checkpoint.clone())),
            now,
        ));
        let updates = self.updates().into_iter().flat_map(|updates| &updates.standings);
        let accepted = updates.filter(|(_, standing)| matches!(standing, UpdateStanding::Accepted));
        let parts = KeptParts {
            sequence: sequence.get(),
            is_cancel_requested: self.is_cancel_requested,
            events,
            accepted: accepted.map(|(request, _)| request.clone()).collect(),
            answers: self.answers(usize::MAX),
            senders: self.senders(usize::MAX),
            signal_requests: self.signal_requests(),
        };
        Some((sequence, wire::encode_kept(&parts).ok()?))
    }

    /// Takes in a part of a pending operation; `None` if it is something else.
    fn note(&mut self, noted: &Noted) -> Option<()> {
        match &noted.event {
            Event::ActivityScheduled(_)
            | Event::ChildScheduled(_)
            | Event::PublishScheduled(_)
            | Event::ReceiveScheduled(_)
            | Event::SignalScheduled(_)
            | Event::PromiseMade { .. }
            | Event::TimerStarted { .. }
            | Event::AttemptStarted { .. }
            | Event::AttemptHeartbeat { .. }
            | Event::ChildStarted { .. }
            | Event::ChildCancelRequested { .. }
            | Event::PublishParked { .. }
            | Event::VersionChanged { .. } => self.apply(&noted.event, noted.time),
            Event::AttemptFailed { operation, .. } => {
                self.apply(&noted.event, noted.time);
                if let Some((Pending::Activity(activity), _)) = self.pending.get_mut(*operation) {
                    activity.failures = noted.count;
                }
            }
            Event::Started(_)
            | Event::ActivityCompleted { .. }
            | Event::ActivityFailed { .. }
            | Event::TimerFired { .. }
            | Event::Published { .. }
            | Event::RecordReceived { .. }
            | Event::PromiseSettled { .. }
            | Event::Checkpointed(_)
            | Event::ChildEnded { .. }
            | Event::ContinuedAsNew { .. }
            | Event::SignalReceived { .. }
            | Event::RunSignalReceived { .. }
            | Event::SignalSent { .. }
            | Event::OperationCancelled { .. }
            | Event::ValueRecorded { .. }
            | Event::Patched { .. }
            | Event::UpdateAccepted { .. }
            | Event::UpdateAnswered { .. }
            | Event::CommandPerformed(_)
            | Event::CancelRequested { .. }
            | Event::Completed { .. }
            | Event::Failed { .. }
            | Event::Cancelled { .. }
            | Event::Terminated { .. }
            | Event::TimedOut { .. }
            | Event::Reset { .. }
            | Event::Parked { .. }
            | Event::Resumed => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrun_core::{Cause, InstanceId, Partition, RunId};

    use super::*;
    use crate::event::{
        ActivityScheduled, ChildScheduled, KeyFilter, Origin, ParentClose, PublishScheduled,
        ReceiveScheduled, RecordFilter, RecordTexts, SignalScheduled, Started,
    };
    use crate::{ANSWERS_LEN_MAX, OperationId, Payload, Retry, SIGNAL_REQUESTS_LEN_MAX};

    fn id() -> InstanceId {
        InstanceId::new("order-42").unwrap()
    }

    fn sender(operation: u32) -> Cause {
        let run = RunId::new(Partition::of(b"sender"), Timestamp::EPOCH, 5);
        Cause { run, operation }
    }

    fn payload(number: u64) -> Payload {
        Payload::encode(&number).unwrap()
    }

    fn call(operation: u32) -> Event {
        Event::ActivityScheduled(Arc::new(ActivityScheduled {
            operation: OperationId::new(operation),
            activity: "step".into(),
            queue: "default".into(),
            input: payload(7),
            retry: Retry::exponential(),
            retry_on: None,
            start_to_close: Duration::from_secs(10),
            schedule_to_start: Some(Duration::from_secs(5)),
            schedule_to_close: Some(Duration::from_secs(60)),
            heartbeat: None,
            epoch: 3,
        }))
    }

    fn answered(number: usize) -> Event {
        Event::UpdateAnswered {
            request: format!("request-{number}"),
            answer: if number.is_multiple_of(2) {
                Ok(payload(1))
            } else {
                Err("no".into())
            },
        }
    }

    fn signalled(number: usize) -> Event {
        Event::SignalReceived {
            name: "go".into(),
            value: payload(1),
            cause: None,
            request: (!number.is_multiple_of(3)).then(|| format!("signal-{number}").into()),
        }
    }

    /// A run with every kind of outstanding operation, and more answers than it remembers.
    fn history() -> Vec<Event> {
        let operation = OperationId::new;
        let mut started = Started::new("order", id(), payload(1));
        started.origin = Some(Arc::new(Origin {
            // The second is forgotten, and answered again later.
            answers: vec![("a".into(), Ok(payload(2))), ("b".into(), Err("b".into()))],
            senders: vec![sender(9)],
            signal_requests: vec!["carried".into(), "forgotten".into()],
            trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
                .parse()
                .ok(),
            ..Origin::default()
        }));
        let failed = |number| Event::AttemptFailed {
            operation: operation(2),
            attempt: number,
            failure: ActivityFailure::Panicked { message: "p".into() },
            retry_at: Timestamp::from_micros(900 + u64::from(number)),
            epoch: 9,
        };
        let mut events = vec![
            Event::Started(started),
            Event::VersionChanged { version: 3 },
            call(1),
            call(2),
            failed(1),
            failed(2),
            failed(4),
        ];
        events.extend([
            Event::AttemptHeartbeat {
                operation: operation(2),
                attempt: 5,
                details: payload(5),
            },
            Event::AttemptStarted {
                operation: operation(2),
                attempt: 6,
            },
            call(3),
            Event::AttemptStarted {
                operation: operation(3),
                attempt: 1,
            },
            Event::TimerStarted {
                operation: operation(4),
                deadline: Timestamp::from_micros(5_000),
            },
            Event::PromiseMade {
                operation: operation(5),
            },
            call(6),
            Event::ActivityCompleted {
                operation: operation(6),
                attempt: 1,
                result: payload(6),
            },
        ]);
        for number in [7, 8] {
            events.push(Event::ChildScheduled(Arc::new(ChildScheduled {
                operation: operation(number),
                workflow: "child".into(),
                id: id(),
                input: payload(8),
                on_close: ParentClose::Abandon,
                not_before: None,
                timeouts: None,
            })));
            events.push(Event::PublishScheduled(Arc::new(PublishScheduled {
                operation: operation(number + 2),
                topic: "orders".into(),
                value: payload(9),
                texts: Some(Box::new(RecordTexts {
                    key: Some("order-7".into()),
                    ..RecordTexts::default()
                })),
            })));
        }
        events.push(Event::ReceiveScheduled(Arc::new(ReceiveScheduled {
            operation: operation(11),
            topic: "paid".into(),
            filter: RecordFilter {
                key: Some(KeyFilter::StartsWith("order-".into())),
                correlation: Some("basket-1".into()),
            },
            behind: Some(Sequence::new(9)),
            since: None,
        })));
        for number in 1..=3 {
            events.push(Event::SignalScheduled(Arc::new(SignalScheduled {
                operation: operation(11 + number),
                workflow: "stock".into(),
                id: id(),
                name: "taken".into(),
                value: payload(10),
                child: (number == 2).then_some(operation(7)),
            })));
            events.push(Event::RunSignalReceived {
                sender: Box::new(sender(4 - number)),
                name: "go".into(),
                value: payload(1),
            });
        }
        events.push(Event::SignalSent {
            operation: operation(14),
            outcome: Ok(()),
        });
        events.push(Event::ChildStarted {
            operation: operation(8),
            run: RunId::new(Partition::of(b"child"), Timestamp::EPOCH, 4),
        });
        events.push(Event::ChildCancelRequested {
            operation: operation(8),
            reason: "recalled".into(),
        });
        events.push(Event::PublishParked {
            operation: operation(10),
        });
        events.push(Event::UpdateAccepted {
            request: "waits".into(),
            name: "add".into(),
            input: payload(3),
        });
        events.extend((0..ANSWERS_LEN_MAX).map(answered));
        events.extend((0..SIGNAL_REQUESTS_LEN_MAX).map(signalled));
        events.push(Event::UpdateAnswered {
            request: "b".into(),
            answer: Ok(payload(4)),
        });
        events.push(Event::CancelRequested {
            reason: "why".into(),
            is_shown: true,
        });
        events
    }

    fn checkpoint(is_whole: bool) -> Checkpoint {
        Checkpoint {
            state: payload(11),
            signals: vec![("go".into(), payload(12))],
            operations_len: 10,
            random_len: 3,
            is_whole,
            now: None,
            taken: Vec::new(),
            begun_with: Vec::new(),
        }
    }

    fn at(index: usize) -> Timestamp {
        Timestamp::from_micros(100 + index as u64)
    }

    /// For each place of the checkpoint, the kept beginning is the fold of all events before it.
    #[test]
    fn what_is_kept_is_what_the_history_says() {
        let mut ledger = Ledger::new();
        let every: Vec<_> = history().into_iter().enumerate().collect();
        for (index, event) in &every {
            ledger.apply(event, at(*index));
            if *index > 40 && index % 100 != 0 && index + 3 < every.len() {
                continue;
            }
            let now = at(index + 7);
            let (sequence, bytes) = ledger.keep(&checkpoint(true), now, 1).unwrap();
            let kept = KeptBeginning::decode(&bytes.into()).unwrap();
            let mut whole = ledger.clone();
            let event = Event::Checkpointed(Box::new(checkpoint(true)));
            whole.apply(&event, now);
            assert_eq!(format!("{:?}", kept.ledger), format!("{whole:?}"), "{index}");
            assert_eq!((kept.sequence(), kept.at), (sequence, now));
            assert_eq!(*kept.checkpoint, checkpoint(true));
            // It remembers as many answers as the other, in the same order.
            let mut both = [kept.ledger, whole];
            for later in 2_000..2_500 {
                both.iter_mut()
                    .for_each(|ledger| ledger.apply(&answered(later), now));
            }
            assert_eq!(format!("{:?}", both[0]), format!("{:?}", both[1]));
        }
    }

    #[test]
    fn one_is_kept_in_so_many_events_and_never_of_a_checkpoint_that_is_passed_over() {
        let mut ledger = Ledger::new();
        let started = Event::Started(Started::new("order", id(), payload(1)));
        ledger.apply(&started, at(0));
        let mut kept = Vec::new();
        for index in 1..40 {
            let event = if index % 4 == 3 {
                kept.extend(
                    ledger
                        .keep(&checkpoint(true), at(index), 10)
                        .map(|(at, _)| at.get()),
                );
                assert_eq!(ledger.keep(&checkpoint(true), at(index), 0), None);
                assert_eq!(ledger.keep(&checkpoint(false), at(index), 1), None);
                Event::Checkpointed(Box::new(checkpoint(true)))
            } else {
                Event::Resumed
            };
            ledger.apply(&event, at(index));
        }
        assert_eq!(kept, [12, 20, 32, 40]);
    }

    /// The kept beginning that release 0.2 makes of a run with a call and an answer; readable for ever.
    const KEPT_V1: &str = concat!(
        "0184a17304a169a86f726465722d3432a1659384a16b01a17464a16e01a162c41283a177a56f72646572a169",
        "c4020101a1740084a16b02a17465a16e01a162c42b87a16f01a16ea473746570a169c4020107a16503a174ce",
        "00989680a27473ce004c4b40a27463ce0393870084a16b1fa17467a16e01a162c41b85a176c402010ba17391",
        "92a2676fc402010ca16f0aa17203a177c3a1619182a172a9726571756573742d32a16181a176c4020101",
    );

    #[test]
    fn bytes_that_were_kept_are_read() {
        let mut ledger = Ledger::new();
        ledger.apply(&Event::Started(Started::new("order", id(), payload(1))), at(0));
        ledger.apply(&call(1), at(1));
        ledger.apply(&answered(2), at(2));
        let (_, bytes) = ledger.keep(&checkpoint(true), at(3), 1).unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, KEPT_V1);
        for len in 0..bytes.len() {
            let cut = Bytes::copy_from_slice(&bytes[..len]);
            assert!(KeptBeginning::decode(&cut).is_err(), "{len} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(KeptBeginning::decode(&longer.into()).is_err());
        let later = [&[5], &bytes[1..]].concat();
        let error = KeptBeginning::decode(&later.into()).unwrap_err().to_string();
        assert!(error.contains("version Some(5)"), "{error}");
    }
}
