use std::sync::Arc;
use std::time::Duration;

use super::*;
use millrun_core::{Cause, RunId, Sequence};

use crate::event::{
    ActivityFailure, ActivityScheduled, Checkpoint, ChildFailure, ChildScheduled, CommandPerformed,
    FormerRun, KeyFilter, Origin, Parent, ParentClose, ParkReason, PublishScheduled, RawRecord,
    ReceiveScheduled, RecordFilter, RecordTexts, RunTimeout, RunTimeouts, RunTry, SignalFailure,
    SignalScheduled, StartTimeouts, TakenThrough,
};
use crate::{Nondeterminism, Payload, Retry, TimeoutKind};

fn samples() -> Vec<Event> {
    let value = Payload::encode(&("a", 1)).unwrap();
    let operation = OperationId::new(70_000);
    let failures = [
        ActivityFailure::Failed {
            error: value.clone(),
            message: "declined".into(),
        },
        ActivityFailure::TimedOut(TimeoutKind::StartToClose),
        ActivityFailure::TimedOut(TimeoutKind::ScheduleToStart),
        ActivityFailure::TimedOut(TimeoutKind::ScheduleToClose),
        ActivityFailure::TimedOut(TimeoutKind::Heartbeat),
        ActivityFailure::Panicked {
            message: "index out of bounds".into(),
        },
        ActivityFailure::Unreadable {
            message: "no such field".into(),
        },
    ];
    let reasons = [
        ParkReason::NotRegistered {
            workflow: "checkout".into(),
            version: 0,
            registered: Vec::new(),
        },
        ParkReason::NotRegistered {
            workflow: "checkout".into(),
            version: u32::MAX,
            registered: vec![1, 70_000],
        },
        ParkReason::NotRegistered {
            workflow: "checkout".into(),
            version: 0,
            registered: vec![1],
        },
        ParkReason::Panicked {
            message: "oh".into(),
            count: 3,
        },
        ParkReason::Nondeterminism(Box::new(Nondeterminism {
            sequence: 4,
            recorded: "call of a".into(),
            replayed: "call of b".into(),
        })),
        ParkReason::Stuck {
            message: "awaits a channel".into(),
        },
        ParkReason::HistoryFull { len_max: 2_000_000 },
        ParkReason::Delayed {
            until: Timestamp::MAX,
        },
        ParkReason::Paused {
            reason: "a holiday".into(),
        },
    ];
    let error = RunFailure {
        error: value.clone(),
        message: "no".into(),
        is_cancelled: true,
    };
    let id = InstanceId::new("order-42").unwrap();
    let started = Started::new("checkout", id.clone(), value.clone());
    let scheduled = ActivityScheduled {
        operation,
        activity: "charge".into(),
        queue: "default".into(),
        input: value.clone(),
        retry: Retry::exponential(),
        retry_on: None,
        start_to_close: Duration::from_secs(3),
        schedule_to_start: None,
        schedule_to_close: None,
        heartbeat: None,
        epoch: 2,
    };
    let custom = ActivityScheduled {
        queue: "gpu".into(),
        schedule_to_start: Some(Duration::from_secs(1)),
        schedule_to_close: Some(Duration::from_secs(2)),
        heartbeat: Some(Duration::from_micros(1)),
        retry: Retry::never()
            .first_pause(Duration::from_micros(7))
            .elapsed_max(Duration::from_micros(70))
            .coefficient(1.25),
        retry_on: Some(
            [
                ("busy".into(), Retry::exponential()),
                ("gone".into(), Retry::never()),
            ]
            .into(),
        ),
        ..scheduled.clone()
    };
    let run = RunId::new(
        millrun_core::Partition::of(b"order-42"),
        Timestamp::EPOCH,
        u64::MAX,
    );
    let signals = vec![("go".into(), value.clone()), ("stop".into(), value.clone())];
    let parent = |on_close| {
        Some(Arc::new(Origin {
            parent: Some(Parent {
                run,
                operation,
                on_close,
            }),
            ..Origin::default()
        }))
    };
    let taken = vec![
        TakenThrough {
            topic: "orders.paid".into(),
            filter: RecordFilter::default(),
            sequence: Sequence::new(3),
        },
        TakenThrough {
            topic: "orders.paid".into(),
            filter: RecordFilter {
                key: Some(KeyFilter::Is("order-7".into())),
                correlation: None,
            },
            sequence: Sequence::new(u64::MAX),
        },
        TakenThrough {
            topic: "orders.paid".into(),
            filter: RecordFilter {
                key: Some(KeyFilter::StartsWith("order-".into())),
                correlation: Some("basket-1".into()),
            },
            sequence: Sequence::new(1),
        },
    ];
    let child_ends = [
        Ok(value.clone()),
        Err(ChildFailure::Failed(error.clone())),
        Err(ChildFailure::Cancelled(error.clone())),
        Err(ChildFailure::Terminated { reason: "x".into() }),
        Err(ChildFailure::NotStarted { message: "y".into() }),
        Err(ChildFailure::TimedOut(RunTimeout::Run)),
        Err(ChildFailure::TimedOut(RunTimeout::Chain)),
    ];
    let closes = [ParentClose::Cancel, ParentClose::Terminate, ParentClose::Abandon];
    let mut events = vec![
        Event::Started(Started {
            origin: Some(Arc::new(Origin {
                parent: None,
                continued: Some(run),
                formers: Vec::new(),
                cause: None,
                triggered_by: Some("billing/7".into()),
                trace: None,
                began_as: None,
                signals: signals.clone(),
                answers: vec![
                    ("7".into(), Ok(value.clone())),
                    ("8".into(), Err("too large".into())),
                ],
                senders: vec![
                    Cause { run, operation: 1 },
                    Cause {
                        run,
                        operation: u32::MAX,
                    },
                ],
                signal_requests: vec!["r-1".into(), "r-2".into()],
                start_at: None,
                run_try: None,
                timeouts: None,
                taken: taken.clone(),
            })),
            ..started.clone()
        }),
        Event::ChildStarted { operation, run },
        Event::ChildCancelRequested {
            operation,
            reason: "recalled".into(),
        },
        Event::ContinuedAsNew {
            run,
            workflow: "checkout".into(),
            input: value.clone(),
            failed: None,
        },
        Event::PublishScheduled(Arc::new(PublishScheduled {
            operation,
            topic: "orders.placed".into(),
            value: value.clone(),
            texts: None,
        })),
        Event::PublishScheduled(Arc::new(PublishScheduled {
            operation,
            topic: "orders.placed".into(),
            value: value.clone(),
            texts: Some(Box::new(RecordTexts {
                key: Some("order-7".into()),
                correlation: None,
                content_type: Some("application/json".into()),
            })),
        })),
        Event::SignalScheduled(Arc::new(SignalScheduled {
            operation,
            workflow: "checkout".into(),
            id: id.clone(),
            name: "paid".into(),
            value: value.clone(),
            child: None,
        })),
        Event::SignalScheduled(Arc::new(SignalScheduled {
            operation,
            workflow: "ship".into(),
            id: id.clone(),
            name: "express".into(),
            value: value.clone(),
            child: Some(OperationId::new(u32::MAX)),
        })),
        Event::SignalSent {
            operation,
            outcome: Ok(()),
        },
        Event::RunSignalReceived {
            sender: Box::new(Cause { run, operation: 7 }),
            name: "paid".into(),
            value: value.clone(),
        },
        Event::PublishParked { operation },
        Event::Published {
            operation,
            outcome: Ok(PublishOutcome::Taken),
        },
        Event::Published {
            operation,
            outcome: Ok(PublishOutcome::Unknown),
        },
        Event::Published {
            operation,
            outcome: Err("full".into()),
        },
        Event::ReceiveScheduled(Arc::new(ReceiveScheduled {
            operation,
            topic: "orders.paid".into(),
            filter: RecordFilter {
                key: Some(KeyFilter::Is("order-7".into())),
                correlation: None,
            },
            behind: Some(Sequence::new(u64::MAX)),
            since: None,
        })),
        Event::ReceiveScheduled(Arc::new(ReceiveScheduled {
            operation,
            topic: "orders.paid".into(),
            filter: RecordFilter {
                key: Some(KeyFilter::StartsWith("eu.".into())),
                correlation: Some("basket-1".into()),
            },
            behind: None,
            since: Some(Timestamp::MAX),
        })),
        Event::ReceiveScheduled(Arc::new(ReceiveScheduled {
            operation,
            topic: "orders.paid".into(),
            filter: RecordFilter::default(),
            behind: None,
            since: None,
        })),
        Event::RecordReceived {
            operation,
            record: Box::new(RawRecord {
                sequence: Sequence::new(u64::MAX),
                time: Timestamp::MAX,
                key: Some("order-7".into()),
                correlation: Some("basket-1".into()),
                cause: Some(Cause { run, operation: 3 }),
                value: value.clone(),
            }),
        },
        Event::RecordReceived {
            operation,
            record: Box::new(RawRecord {
                sequence: Sequence::new(1),
                time: Timestamp::EPOCH,
                key: None,
                correlation: None,
                cause: None,
                value: value.clone(),
            }),
        },
        Event::PromiseMade { operation },
        Event::PromiseSettled {
            operation,
            end: Ok(value.clone()),
        },
        Event::PromiseSettled {
            operation,
            end: Err("no".into()),
        },
        Event::Checkpointed(Box::new(Checkpoint {
            state: value.clone(),
            signals,
            operations_len: 7,
            random_len: u64::MAX,
            is_whole: true,
            now: None,
            taken,
            begun_with: Vec::new(),
        })),
        Event::Checkpointed(Box::new(Checkpoint {
            state: value.clone(),
            signals: Vec::new(),
            operations_len: 0,
            random_len: 0,
            is_whole: false,
            now: Some(Timestamp::MAX),
            taken: Vec::new(),
            begun_with: Vec::new(),
        })),
        Event::Started(started.clone()),
        Event::Started(Started {
            not_before: None,
            ..started.clone()
        }),
        Event::Started(started.clone().delayed_until(Timestamp::MAX)),
        Event::Started(started.clone().retried(Retry::never())),
        Event::Started(Started {
            origin: Some(Arc::new(Origin {
                run_try: Some(Box::new(
                    RunTry::first(Retry::exponential()).again(Timestamp::MAX),
                )),
                ..Origin::default()
            })),
            ..started.clone()
        }),
        Event::ContinuedAsNew {
            run,
            workflow: "checkout".into(),
            input: value.clone(),
            failed: Some(Box::new(RunFailure {
                error: value.clone(),
                message: "no".into(),
                is_cancelled: false,
            })),
        },
        Event::Checkpointed(Box::new(Checkpoint {
            state: value.clone(),
            signals: vec![("go".into(), value.clone())],
            operations_len: 0,
            random_len: 0,
            is_whole: true,
            now: None,
            taken: Vec::new(),
            begun_with: vec![("go".into(), u32::MAX)],
        })),
        Event::Started(Started {
            version: u32::MAX,
            ..started.clone()
        }),
        Event::VersionChanged { version: 70_000 },
        Event::Started(Started {
            bounds: Bounds {
                payload_bytes_max: usize::MAX,
                pending_len_max: 3,
            },
            ..started
        }),
        Event::ActivityScheduled(Arc::new(scheduled)),
        Event::ActivityScheduled(Arc::new(custom)),
        Event::ActivityCompleted {
            operation,
            attempt: 2,
            result: value.clone(),
        },
        Event::TimerStarted {
            operation,
            deadline: Timestamp::MAX,
        },
        Event::TimerFired { operation },
        Event::SignalReceived {
            name: "approved".into(),
            value: value.clone(),
            cause: None,
            request: None,
        },
        Event::SignalReceived {
            name: "approved".into(),
            value: value.clone(),
            cause: None,
            request: Some("r-1".into()),
        },
        Event::SignalReceived {
            name: "approved".into(),
            value: value.clone(),
            cause: Some(Box::new(Cause { run, operation: 7 })),
            request: None,
        },
        Event::Started(
            Started::new("checkout", id.clone(), value.clone()).caused_by(Cause {
                run,
                operation: u32::MAX,
            }),
        ),
        Event::OperationCancelled { operation },
        Event::CancelRequested {
            reason: "customer".into(),
            is_shown: false,
        },
        Event::CancelRequested {
            reason: "customer".into(),
            is_shown: true,
        },
        Event::ValueRecorded {
            name: None,
            value: Ok(value.clone()),
        },
        Event::ValueRecorded {
            name: Some("price".into()),
            value: Ok(value.clone()),
        },
        Event::ValueRecorded {
            name: Some("price".into()),
            value: Err("no".into()),
        },
        Event::ValueRecorded {
            name: None,
            value: Err("too large".into()),
        },
        Event::Patched { id: "tax".into() },
        Event::AttemptStarted {
            operation,
            attempt: 2,
        },
        Event::AttemptHeartbeat {
            operation,
            attempt: 3,
            details: value.clone(),
        },
        Event::UpdateAccepted {
            request: "7".into(),
            name: "add".into(),
            input: value.clone(),
        },
        Event::UpdateAnswered {
            request: "7".into(),
            answer: Ok(value.clone()),
        },
        Event::UpdateAnswered {
            request: "8".into(),
            answer: Err("too large".into()),
        },
        Event::CommandPerformed(Box::new(CommandPerformed {
            request: None,
            name: "add".into(),
            version: 1,
            events: Vec::new(),
            answer: value.clone(),
            timers: Vec::new(),
        })),
        Event::CommandPerformed(Box::new(CommandPerformed {
            request: Some("r-1".into()),
            name: "add".into(),
            version: 7,
            events: vec![value.clone(), value.clone()],
            answer: value.clone(),
            timers: vec!["expire".into(), "remind".into()],
        })),
        Event::Completed {
            result: value.clone(),
        },
        Event::Failed { error: error.clone() },
        Event::Cancelled { error },
        Event::Terminated {
            reason: "operator".into(),
        },
        Event::TimedOut {
            timeout: RunTimeout::Run,
            next: None,
        },
        Event::TimedOut {
            timeout: RunTimeout::Chain,
            next: None,
        },
        Event::TimedOut {
            timeout: RunTimeout::Run,
            next: Some(run),
        },
        Event::Reset {
            run,
            to: Sequence::new(u64::MAX),
            reason: "operator".into(),
        },
        Event::Started(Started {
            origin: Some(Arc::new(Origin {
                continued: Some(run),
                formers: [7, u64::MAX]
                    .map(|to| FormerRun {
                        run,
                        to: Sequence::new(to),
                    })
                    .to_vec(),
                ..Origin::default()
            })),
            ..Started::new("checkout", InstanceId::new("order-42").unwrap(), value.clone())
        }),
        Event::Resumed,
    ];
    let both = StartTimeouts {
        run: Some(Duration::from_secs(60)),
        chain: Some(Duration::from_micros(1)),
    };
    events.extend(closes.map(|on_close| {
        Event::ChildScheduled(Arc::new(ChildScheduled {
            operation,
            workflow: "ship".into(),
            id: id.clone(),
            input: value.clone(),
            on_close,
            not_before: (on_close == ParentClose::Abandon).then_some(Timestamp::MAX),
            timeouts: None,
        }))
    }));
    events.extend(closes.map(|on_close| {
        Event::Started(Started {
            origin: parent(on_close),
            ..Started::new("ship", id.clone(), value.clone())
        })
    }));
    let trace = "00-ffffffffffffffffffffffffffffffff-0000000000000001-03";
    let traced = Started::new("bill", id.clone(), value.clone()).traced(trace.parse().unwrap());
    events.push(Event::Started(traced));
    events.push(Event::Started(Started {
        origin: Some(Arc::new(Origin {
            continued: Some(run),
            began_as: Some("ship".into()),
            ..Origin::default()
        })),
        ..Started::new("bill", id.clone(), value.clone())
    }));
    events.push(Event::ChildScheduled(Arc::new(ChildScheduled {
        operation,
        workflow: "ship".into(),
        id: id.clone(),
        input: value.clone(),
        on_close: ParentClose::Cancel,
        not_before: None,
        timeouts: Some(Box::new(both)),
    })));
    let bounded = [
        RunTimeouts {
            run: both.run,
            since: None,
            chain_ends: Some(Timestamp::MAX),
        },
        RunTimeouts {
            run: both.run,
            since: Some(Timestamp::MAX),
            chain_ends: None,
        },
    ];
    events.extend(bounded.map(|timeouts| {
        Event::Started(Started {
            origin: Some(Arc::new(Origin {
                timeouts: Some(Box::new(timeouts)),
                ..Origin::default()
            })),
            ..Started::new("ship", id.clone(), value.clone())
        })
    }));
    events.extend(child_ends.map(|end| Event::ChildEnded { operation, end }));
    let message = || "z".to_owned();
    let unsent = [
        SignalFailure::NotFound,
        SignalFailure::Finished,
        SignalFailure::OtherWorkflow { workflow: message() },
        SignalFailure::Quarantined { message: message() },
        SignalFailure::Refused { message: message() },
    ];
    events.extend(unsent.map(|failure| Event::SignalSent {
        operation,
        outcome: Err(failure),
    }));
    for failure in failures {
        events.push(Event::ActivityFailed {
            operation,
            attempt: 1,
            failure: failure.clone(),
        });
        let retry_at = Timestamp::from_micros(9);
        events.push(Event::AttemptFailed {
            operation,
            attempt: 1,
            failure,
            retry_at,
            epoch: 8,
        });
    }
    events.extend(reasons.map(|reason| Event::Parked { reason }));
    events
}

fn opens(event: &Event) -> Option<&str> {
    match event {
        Event::Started(started) => Some(started.id.as_str()),
        _ => None,
    }
}

fn encoded(event: &Event) -> Bytes {
    let mut body = Vec::new();
    encode(event, &mut body).unwrap();
    Bytes::from(body)
}

#[test]
fn every_event_survives_the_journey() {
    for event in samples() {
        assert_eq!(
            decode(kind(&event), &encoded(&event), opens(&event)).unwrap(),
            event
        );
    }
}

/// As it stands in an exported history.
#[test]
fn every_event_survives_the_journey_through_json() {
    for event in samples() {
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event, "{json}");
    }
}

fn samples_as_json() -> String {
    let lines = samples()
        .into_iter()
        .map(|event| serde_json::to_string(&event).unwrap() + "\n");
    lines.collect()
}

/// The file has what the first release wrote; lines are added for new kinds of events, and none is ever changed.
#[test]
fn json_that_was_written_once_is_read_for_ever() {
    let frozen = include_str!("../../../tests/exported/events.jsonl");
    let read: Vec<Event> = frozen
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        samples().iter().all(|sample| read.contains(sample)),
        "add the lines of new samples"
    );
    let today = samples_as_json();
    assert!(
        frozen.lines().all(|line| today.contains(line)),
        "a line is written in another way than once"
    );
}

#[test]
#[ignore = "writes the file if it is missing"]
fn record_the_events() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exported/events.jsonl");
    if !path.exists() || std::fs::metadata(&path).unwrap().len() == 0 {
        std::fs::write(path, samples_as_json()).unwrap();
    }
}

#[test]
fn truncated_and_prolonged_bodies_are_errors() {
    for event in samples() {
        let body = encoded(&event);
        for end in 0..body.len() {
            assert!(
                decode(kind(&event), &body.slice(..end), opens(&event)).is_err(),
                "{event:?} cut at {end}"
            );
        }
        // A list or a map without its entries was taken for the end.
        for tail in 0..=u8::MAX {
            let longer = [&body[..], &[tail]].concat();
            assert!(
                decode(kind(&event), &Bytes::from(longer), opens(&event)).is_err(),
                "{event:?} with a tail of {tail:#x}"
            );
        }
    }
}

#[test]
fn any_bytes_give_a_value_or_an_error() {
    let mut state = 7_u64;
    for event in samples() {
        let body = encoded(&event);
        for _ in 0..300 {
            state = crate::retry::mix(state);
            let mut bytes = body.to_vec();
            if bytes.is_empty() {
                continue;
            }
            let at = usize::try_from(state % bytes.len() as u64).unwrap();
            bytes[at] ^= u8::try_from(state >> 56).unwrap() | 1;
            let kind = u8::try_from((state >> 32) % 40).unwrap();
            drop(decode(kind, &Bytes::from(bytes), Some("id")));
        }
    }
    assert_eq!(
        decode(200, &Bytes::new(), None),
        Err(EventError::UnknownKind(200))
    );
}

#[test]
fn a_field_added_by_a_later_version_is_passed_over() {
    #[derive(Serialize)]
    struct Later {
        o: u32,
        x: &'static str,
    }
    let body = Bytes::from(rmp_serde::to_vec_named(&Later { o: 5, x: "new" }).unwrap());
    assert_eq!(
        decode(TIMER_FIRED, &body, None),
        Ok(Event::TimerFired {
            operation: OperationId::new(5)
        })
    );
}

#[test]
fn the_queue_of_a_call_is_left_out_or_a_text_and_the_default_one_is_not_copied() {
    let calls = samples().into_iter().filter_map(|event| match event {
        Event::ActivityScheduled(scheduled) => Some(scheduled),
        _ => None,
    });
    let calls: Vec<_> = calls.collect();
    let gpu = calls.iter().find(|call| call.queue == "gpu").unwrap();
    let body = encoded(&Event::ActivityScheduled(Arc::clone(gpu)));
    let written = b"\xa1q\xa3gpu";
    let at = body.windows(written.len()).position(|bytes| bytes == written);
    let at = at.expect("the key, and a text of three bytes");
    let with_queue = |queue: &[u8]| {
        let (before, after) = (&body[..at + 2], &body[at + written.len()..]);
        decode(ACTIVITY_SCHEDULED, &[before, queue, after].concat().into(), None)
    };
    for (queue, is_copied) in [(&b"\xa7default"[..], false), (b"\xa3cpu", true)] {
        let Ok(Event::ActivityScheduled(call)) = with_queue(queue) else {
            panic!("{queue:?}")
        };
        assert_eq!(call.queue.as_bytes(), &queue[1..]);
        assert_eq!(matches!(call.queue, Cow::Owned(_)), is_copied);
    }
    for no_text in [&b"\xc0"[..], b"\x07", b"\x90"] {
        assert!(with_queue(no_text).is_err(), "{no_text:?}");
    }
}

/// Values were recorded without a name, in a body that is still theirs.
#[test]
fn a_value_without_a_name_is_written_as_before_there_were_names_and_with_one_beside_it() {
    let value = Ok(Payload::encode(&7_u64).unwrap());
    let named = |name: Option<&'static str>| Event::ValueRecorded {
        name: name.map(Cow::Borrowed),
        value: value.clone(),
    };
    let mut before = Vec::new();
    write(&mut before, &RecordedWire::of(&value)).unwrap();
    assert_eq!(encoded(&named(None)), before);
    let with_name = [&[before[0] + 1][..], &before[1..], b"\xa1n\xa5price"].concat();
    assert_eq!(encoded(&named(Some("price"))), with_name);
    for neither_or_both in [&b"\x80"[..], b"\x82\xa1v\xc4\x01\x07\xa1e\xa2no"] {
        let body = Bytes::copy_from_slice(neither_or_both);
        assert!(matches!(
            decode(VALUE_RECORDED, &body, None),
            Err(EventError::Malformed(_))
        ));
    }
}
