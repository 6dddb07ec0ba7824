use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrun_core::{Cause, Epoch, InstanceId, Partition, RunId, Timestamp, TraceContext};
use millrun_workflow::{
    ChildFailure, OperationId, Parent, ParentClose, Payload, ResetPoint, ResetRefused, Retry, RunFailure,
    RunTimeout, SignalFailure, StartTimeouts,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::calls::{self, AnswerToNode};
use super::{
    MESSAGE_BYTES_MAX, MailWaiter, MessageError, NodeMessage, decode, decode_mail, encode, waiter_of,
};
use crate::mail::{
    Ask, CommandRequest, EntityRequest, FirstRequest, Latest, PartitionMessage, Question, Replies, Reply,
    Request, ResetOrder, RunSignal, StartChild, StartDelay, StartDetails, StartFollowing, StartRequest,
    StartWith, Target, Tell, UpdateRequest, Wake,
};
use crate::ownership::partition_set::PartitionSet;

fn partition() -> impl Strategy<Value = Partition> {
    (0..Partition::COUNT).prop_map(|index| Partition::from_index(index).unwrap())
}

fn set() -> impl Strategy<Value = Arc<PartitionSet>> {
    btree_set(partition(), 0..20).prop_map(|set| Arc::new(set.into_iter().collect()))
}

fn run() -> impl Strategy<Value = RunId> {
    // Times of runs have 48 bits.
    let started = (0..1_u64 << 48).prop_map(|millis| Timestamp::from_micros(millis * 1_000));
    (partition(), started, any::<u64>())
        .prop_map(|(partition, started, unique)| RunId::new(partition, started, unique))
}

fn operation() -> impl Strategy<Value = OperationId> {
    any::<u32>().prop_map(OperationId::new)
}

fn payload() -> impl Strategy<Value = Payload> {
    vec(any::<u8>(), 0..40).prop_map(|bytes| Payload::from_bytes(bytes.into()))
}

fn id() -> impl Strategy<Value = InstanceId> {
    "[a-zA-Zäß/ -]{1,40}".prop_map(|id| InstanceId::new(&id).unwrap())
}

fn ask() -> impl Strategy<Value = Ask> {
    (any::<u64>(), any::<u32>()).prop_map(|(life, number)| Ask {
        life: Epoch::new(life),
        number,
    })
}

fn parent() -> impl Strategy<Value = Parent> {
    let on_close = prop_oneof![
        Just(ParentClose::Cancel),
        Just(ParentClose::Terminate),
        Just(ParentClose::Abandon)
    ];
    (run(), operation(), on_close).prop_map(|(run, operation, on_close)| Parent {
        run,
        operation,
        on_close,
    })
}

fn start_child() -> impl Strategy<Value = PartitionMessage> {
    let not_before = option::of(any::<u64>().prop_map(Timestamp::from_micros));
    let known = option::of(run());
    let trace = option::of((run(), operation()).prop_map(|(run, operation)| {
        let operation = operation.get();
        TraceContext::beginning_with(run).at_operation(Cause { run, operation })
    }));
    let timeouts = option::of(any::<u64>().prop_map(|run| {
        let run = Some(Duration::from_micros(run));
        Box::new(StartTimeouts { run, chain: None })
    }));
    let bounds = (not_before, timeouts);
    let cancel = option::of(".{0,20}".prop_map(Arc::from));
    let known = (known, cancel);
    (parent(), id(), ".{0,20}", payload(), bounds, trace, known).prop_map(
        |(parent, id, workflow, input, (not_before, timeouts), trace, (known, cancel))| {
            PartitionMessage::StartChild(Box::new(StartChild {
                parent,
                id,
                workflow: workflow.into(),
                input,
                not_before,
                trace,
                timeouts,
                known,
                cancel,
            }))
        },
    )
}

fn child_end() -> impl Strategy<Value = Result<Payload, ChildFailure>> {
    let failure = || {
        (payload(), ".{0,20}", any::<bool>()).prop_map(|(error, message, is_cancelled)| RunFailure {
            error,
            message,
            is_cancelled,
        })
    };
    prop_oneof![
        payload().prop_map(Ok),
        failure().prop_map(|failure| Err(ChildFailure::Failed(failure))),
        failure().prop_map(|failure| Err(ChildFailure::Cancelled(failure))),
        ".{0,20}".prop_map(|reason| Err(ChildFailure::Terminated { reason })),
        ".{0,20}".prop_map(|message| Err(ChildFailure::NotStarted { message })),
        Just(Err(ChildFailure::TimedOut(RunTimeout::Chain))),
    ]
}

fn signal() -> impl Strategy<Value = PartitionMessage> {
    let names = (".{0,20}", ".{0,20}");
    let repeated = (any::<bool>(), option::of(operation()));
    (run(), any::<u32>(), id(), names, payload(), repeated, ask()).prop_map(
        |(run, operation, to, (workflow, name), value, (is_repeated, child), ask)| {
            PartitionMessage::Signal(Box::new(RunSignal {
                sender: Cause { run, operation },
                to,
                workflow: workflow.into(),
                name: name.into(),
                value,
                child,
                is_repeated,
                ask,
            }))
        },
    )
}

fn signal_outcome() -> impl Strategy<Value = Result<(), SignalFailure>> {
    prop_oneof![
        Just(Ok(())),
        Just(Err(SignalFailure::NotFound)),
        Just(Err(SignalFailure::Finished)),
        ".{0,20}".prop_map(|workflow| Err(SignalFailure::OtherWorkflow { workflow })),
        ".{0,20}".prop_map(|message| Err(SignalFailure::Quarantined { message })),
        ".{0,20}".prop_map(|message| Err(SignalFailure::Refused { message })),
    ]
}

fn message() -> impl Strategy<Value = PartitionMessage> {
    let parents = btree_map(partition(), any::<u64>().prop_map(Epoch::new), 0..20);
    let awaited = btree_set((run(), operation()), 0..20);
    prop_oneof![
        start_child(),
        (run(), operation(), run()).prop_map(|(run, operation, child)| PartitionMessage::ChildStarted {
            run,
            operation,
            child
        }),
        (run(), operation(), child_end()).prop_map(|(run, operation, end)| PartitionMessage::ChildEnded {
            run,
            operation,
            end
        }),
        (id(), run(), operation(), ".{0,20}").prop_map(|(id, parent, operation, reason)| {
            PartitionMessage::CancelChild {
                id,
                parent,
                operation,
                reason: reason.into(),
            }
        }),
        (id(), run(), operation()).prop_map(|(id, parent, operation)| PartitionMessage::CloseChild {
            id,
            parent,
            operation
        }),
        signal(),
        (run(), operation(), signal_outcome(), ask()).prop_map(|(run, operation, outcome, ask)| {
            PartitionMessage::SignalSent {
                run,
                operation,
                outcome,
                ask,
            }
        }),
        set().prop_map(|partitions| PartitionMessage::Begun { partitions }),
        (parents, set(), awaited).prop_map(|(parents, children, awaited)| PartitionMessage::Orphans {
            parents: Arc::new(parents.into_iter().collect()),
            children,
            awaited: Arc::new(awaited),
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_message_comes_back_from_its_bytes_and_from_no_part_of_them(message in message(), more in any::<u8>()) {
        let bytes = encode(&message).unwrap();
        prop_assert_eq!(decode(&bytes.clone().into()).unwrap(), message);
        for len in 0..bytes.len() {
            prop_assert!(decode(&Bytes::copy_from_slice(&bytes[..len])).is_err());
        }
        // A list without its entries was taken for the end.
        for more in [more, 0x91, 0x81] {
            let longer = [&bytes[..], &[more]].concat();
            prop_assert!(decode(&longer.into()).is_err());
        }
    }
}

/// Messages of each kind as the releases wrote them. Lines are added, and never changed.
const GOLDEN: &str = include_str!("golden.txt");

fn golden() -> Vec<PartitionMessage> {
    let partition = |index| Partition::from_index(index).unwrap();
    let run = |index, unique| {
        RunId::new(
            partition(index),
            Timestamp::from_micros(1_700_000_000_000_000),
            unique,
        )
    };
    let id = |id| InstanceId::new(id).unwrap();
    let value = |byte| Payload::from_bytes(Bytes::from(vec![1, byte]));
    let (parent, operation) = (run(3, 7), OperationId::new(9));
    let set = |indices: &[u16]| Arc::new(indices.iter().map(|index| partition(*index)).collect());
    let ask = Ask {
        life: Epoch::new(5),
        number: 2,
    };
    vec![
        PartitionMessage::StartChild(Box::new(StartChild {
            parent: Parent {
                run: parent,
                operation,
                on_close: ParentClose::Terminate,
            },
            id: id("order-1/parcel"),
            workflow: "parcel".into(),
            input: value(4),
            not_before: Some(Timestamp::from_micros(12)),
            trace: None,
            timeouts: None,
            known: Some(run(4, 8)),
            cancel: None,
        })),
        PartitionMessage::ChildStarted {
            run: parent,
            operation,
            child: run(4, 8),
        },
        PartitionMessage::ChildEnded {
            run: parent,
            operation,
            end: Ok(value(6)),
        },
        PartitionMessage::ChildEnded {
            run: parent,
            operation,
            end: Err(ChildFailure::Failed(RunFailure {
                error: value(1),
                message: "lost".into(),
                is_cancelled: false,
            })),
        },
        PartitionMessage::CloseChild {
            id: id("order-1/parcel"),
            parent,
            operation,
        },
        PartitionMessage::Signal(Box::new(RunSignal {
            sender: Cause {
                run: parent,
                operation: 9,
            },
            to: id("hub"),
            workflow: "hub".into(),
            name: "told".into(),
            value: value(7),
            child: None,
            is_repeated: true,
            ask,
        })),
        PartitionMessage::SignalSent {
            run: parent,
            operation,
            outcome: Ok(()),
            ask,
        },
        PartitionMessage::SignalSent {
            run: parent,
            operation,
            outcome: Err(SignalFailure::Finished),
            ask,
        },
        PartitionMessage::Begun {
            partitions: set(&[0, 9, 1_023]),
        },
        PartitionMessage::Orphans {
            parents: Arc::new(vec![
                (partition(3), Epoch::new(5)),
                (partition(700), Epoch::new(6)),
            ]),
            children: set(&[4]),
            awaited: Arc::new([(parent, operation)].into()),
        },
        PartitionMessage::CancelChild {
            id: id("order-1/parcel"),
            parent,
            operation,
            reason: "recalled".into(),
        },
        PartitionMessage::StartChild(Box::new(StartChild {
            parent: Parent {
                run: parent,
                operation,
                on_close: ParentClose::Cancel,
            },
            id: id("order-1/parcel"),
            workflow: "parcel".into(),
            input: value(4),
            not_before: None,
            trace: None,
            timeouts: None,
            known: None,
            cancel: Some("recalled".into()),
        })),
        PartitionMessage::Signal(Box::new(RunSignal {
            sender: Cause {
                run: parent,
                operation: 9,
            },
            to: id("order-1/parcel"),
            workflow: "parcel".into(),
            name: "told".into(),
            value: value(7),
            child: Some(operation),
            is_repeated: false,
            ask,
        })),
    ]
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_bytes_of_messages_stay_what_they_were() {
    let written: Vec<_> = golden()
        .iter()
        .map(|message| hexadecimal(&encode(message).unwrap()))
        .collect();
    assert_eq!(written, GOLDEN.lines().collect::<Vec<_>>());
    for (message, line) in golden().iter().zip(GOLDEN.lines()) {
        let byte = |at| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..line.len()).step_by(2).map(byte).collect();
        assert_eq!(&decode(&bytes.into()).unwrap(), message);
    }
}

#[test]
fn what_is_no_message_is_refused_with_a_reason() {
    let refused = |bytes: &[u8]| decode(&Bytes::copy_from_slice(bytes)).unwrap_err();
    assert!(matches!(refused(&[]), MessageError::Cut));
    assert!(matches!(refused(&[1]), MessageError::Cut));
    assert!(matches!(refused(&[2, 1]), MessageError::Version { version: 2 }));
    assert!(matches!(refused(&[1, 0]), MessageError::Kind { kind: 0 }));
    assert!(matches!(refused(&[1, 10]), MessageError::Kind { kind: 10 }));
    assert!(matches!(refused(&[1, 7]), MessageError::Malformed { .. }));
    let short_set = [&[1, 7, 0x81, 0xa1, b'p', 0xc4, 2][..], &[0, 0]].concat();
    let error = refused(&short_set);
    assert!(error.to_string().contains("another size"), "{error}");
    let nobody = encode(&PartitionMessage::CloseChild {
        id: InstanceId::new("x").unwrap(),
        parent: RunId::from_bits(1).unwrap(),
        operation: OperationId::new(1),
    });
    let nobody: Vec<u8> = nobody.unwrap();
    let at = nobody.windows(2).position(|pair| pair == [0xa1, b'x']).unwrap();
    let unnamed = [&nobody[..at], &[0xa0], &nobody[at + 2..]].concat();
    assert!(matches!(refused(&unnamed), MessageError::InstanceId(_)));
}

#[test]
fn a_list_out_of_order_is_refused() {
    let orphans = |parents: [u8; 2]| {
        let owned = parents.map(|index| [0, index, 0, 0, 0, 0, 0, 0, 0, 1]);
        [
            &[1, 8, 0x83, 0xa1, b'p', 0xc4, 20][..],
            &owned.concat(),
            &[0xa1, b'c', 0xc4, 128],
            &[0; 128],
            &[0xa1, b'a', 0xc4, 0],
        ]
        .concat()
    };
    assert!(decode(&orphans([1, 2]).into()).is_ok());
    for parents in [[2, 1], [1, 1]] {
        let error = decode(&orphans(parents).into()).unwrap_err();
        assert!(error.to_string().contains("out of order"), "{error}");
    }
}

#[test]
fn a_message_that_is_too_long_is_refused_on_both_sides() {
    let message = |len| PartitionMessage::ChildEnded {
        run: RunId::from_bits(1).unwrap(),
        operation: OperationId::new(1),
        end: Ok(Payload::from_bytes(Bytes::from(vec![0; len]))),
    };
    let error = encode(&message(MESSAGE_BYTES_MAX)).unwrap_err();
    assert!(
        matches!(error, MessageError::TooLong { bytes } if bytes > MESSAGE_BYTES_MAX),
        "{error:?}"
    );
    let fits = encode(&message(MESSAGE_BYTES_MAX - 100)).unwrap();
    assert_eq!(
        decode(&fits.clone().into()).unwrap(),
        message(MESSAGE_BYTES_MAX - 100)
    );
    let longer = [&fits[..], &[0; 101]].concat();
    assert!(matches!(
        decode(&longer.into()),
        Err(MessageError::TooLong { .. })
    ));
}

/// Answers to nobody.
struct Unread;

impl Replies for Unread {
    fn of<T, E>(&self, _question: u64) -> Reply<T, E> {
        tokio::sync::oneshot::channel().0.into()
    }
}

/// A request that is sent again, as for a partition that has moved, is the same one.
#[test]
fn requests_and_answers_of_other_nodes_are_read_as_they_were_written() {
    let reply = || tokio::sync::oneshot::channel().0.into();
    let reply_to_update = || tokio::sync::oneshot::channel().0.into();
    let id = InstanceId::new("order-42").unwrap();
    let run = RunId::new(id.partition(), Timestamp::from_micros(5_000), 7);
    let payload = || Payload::from_bytes(Bytes::from_static(b"\x05"));
    let update = || UpdateRequest {
        request: "u".into(),
        name: "add".into(),
        input: payload(),
    };
    let latest = |workflow: Option<&'static str>| {
        Target::Latest(Arc::new(Latest {
            id: id.clone(),
            workflow: workflow.map(Into::into),
        }))
    };
    let details = StartDetails {
        cause: Some(Cause { run, operation: 3 }),
        triggered_by: Some("trigger/1".into()),
        trace: Some(TraceContext::beginning_with(run)),
        delay: Some(StartDelay::Until(Timestamp::from_micros(9))),
        retry: Some(Retry::exponential()),
        timeouts: Some(StartTimeouts {
            run: Some(Duration::from_secs(1)),
            chain: None,
        }),
    };
    let start = |details: Option<Box<StartDetails>>| StartRequest {
        id: id.clone(),
        workflow: "order".into(),
        input: payload(),
        details,
        on_conflict: crate::OnConflict::RestartFailed,
        reply: tokio::sync::oneshot::channel().0.into(),
        end: None,
    };
    let requests = [
        Request::Start(start(Some(Box::new(details)))),
        Request::StartFollowing(Box::new(StartFollowing {
            start: start(None),
            run,
        })),
        Request::StartWith(Box::new(StartWith {
            start: start(None),
            with: FirstRequest::Signal {
                name: "go".into(),
                value: payload(),
                request: Some("r".into()),
                is_by_name: true,
                reply: reply(),
            },
        })),
        Request::Tell {
            target: latest(Some("order")),
            what: Tell::EndPromise {
                operation: OperationId::new(4),
                end: Err("no".into()),
            },
            reply: reply(),
        },
        Request::Tell {
            target: Target::Run(run),
            what: Tell::Cancel { reason: "no".into() },
            reply: reply(),
        },
        Request::StartWith(Box::new(StartWith {
            start: start(None),
            with: FirstRequest::Update {
                update: update(),
                reply: reply_to_update(),
            },
        })),
        Request::Update {
            target: latest(None),
            request: update(),
            reply: reply_to_update(),
        },
        Request::Query {
            target: Target::Run(run),
            question: Question {
                name: "total".into(),
                value: payload(),
            },
            reply: tokio::sync::oneshot::channel().0.into(),
        },
        Request::Command(Box::new(CommandRequest {
            id: id.clone(),
            workflow: "account".into(),
            command: EntityRequest {
                request: Some("r".into()),
                name: "deposit".into(),
                input: payload(),
            },
            reply: tokio::sync::oneshot::channel().0.into(),
        })),
        Request::Tell {
            target: latest(Some("order")),
            what: Tell::Reset(Box::new(ResetOrder {
                id: "x".parse().unwrap(),
                next: run,
                point: ResetPoint::to_event(7).of_run(run).keep_signals().because("no"),
            })),
            reply: reply(),
        },
        Request::Await {
            target: latest(None),
            reply: tokio::sync::oneshot::channel().0.into(),
        },
        Request::Describe {
            target: latest(None),
            wake: Wake::Never,
            reply: tokio::sync::oneshot::channel().0.into(),
        },
        Request::Watch {
            target: latest(None),
            reply: tokio::sync::oneshot::channel().0.into(),
        },
    ];
    for request in requests {
        let bytes = Bytes::from(calls::encode_request(7, 9, &request).unwrap().unwrap());
        let NodeMessage::Request(read) = decode_mail(&bytes).unwrap() else {
            panic!("{request:?}");
        };
        assert_eq!((read.node, read.question), (7, 9));
        assert_eq!(read.is_question(), request.may_be_repeated(), "{request:?}");
        let asker = MailWaiter::Asker { node: 7, question: 9 };
        assert_eq!(waiter_of(&bytes), Some(asker));
        let other = calls::renumbered(&bytes, 1 << 40).unwrap();
        let asker = MailWaiter::Asker {
            node: 7,
            question: 1 << 40,
        };
        assert_eq!(waiter_of(&other.clone().into()), Some(asker));
        assert_eq!(calls::renumbered(&other.into(), 9).unwrap(), bytes);
        let taken = read.into_request(&Unread).unwrap();
        let again = calls::encode_request(7, 9, &taken).unwrap().unwrap();
        assert_eq!(again, bytes, "{request:?}");
        for len in 0..bytes.len() {
            assert!(decode_mail(&bytes.slice(..len)).is_err(), "{request:?}");
        }
        assert!(decode_mail(&[&bytes[..], b"\0"].concat().into()).is_err());
    }
    let answers = [
        AnswerToNode::start(&Err(crate::StartError::AlreadyRunning { run })),
        AnswerToNode::tell(&Ok(())),
        AnswerToNode::tell(&Err(ResetRefused::NotLatest { latest: run }.into())),
        AnswerToNode::query(&Ok(payload())),
        AnswerToNode::AskAgain,
        AnswerToNode::Moved,
    ];
    for answer in answers {
        let bytes = Bytes::from(calls::encode_answer(9, answer));
        let NodeMessage::Answer(read) = decode_mail(&bytes).unwrap() else {
            panic!("an answer");
        };
        assert_eq!(waiter_of(&bytes), Some(MailWaiter::Asked { question: 9 }));
        assert_eq!(calls::encode_answer(read.question, read.answer), bytes);
    }
}

/// What another release has written is refused, and its asker known all the same.
#[test]
fn who_asks_is_known_of_a_request_that_cannot_be_read() {
    #[derive(serde::Serialize)]
    struct Later {
        n: u64,
        q: u64,
        w: (&'static str, u8),
        z: bool,
    }
    let later = Later {
        n: 7,
        q: 9,
        w: ("later", 1),
        z: true,
    };
    let bytes = Bytes::from(super::v1::write(calls::REQUEST, &later).unwrap());
    assert!(matches!(decode_mail(&bytes), Err(MessageError::Malformed { .. })));
    assert_eq!(
        waiter_of(&bytes),
        Some(MailWaiter::Asker { node: 7, question: 9 })
    );
    assert_eq!(waiter_of(&bytes.slice(..4)), None);
}

#[test]
fn a_request_or_an_answer_that_is_too_long_is_not_written() {
    let long = Payload::from_bytes(Bytes::from(vec![0; MESSAGE_BYTES_MAX]));
    let request = Request::Query {
        target: Target::Run(RunId::from_bits(1).unwrap()),
        question: Question {
            name: "total".into(),
            value: long.clone(),
        },
        reply: tokio::sync::oneshot::channel().0.into(),
    };
    let error = calls::encode_request(7, 9, &request).unwrap_err();
    assert!(matches!(error, MessageError::TooLong { .. }), "{error}");
    let bytes = Bytes::from(calls::encode_answer(9, AnswerToNode::query(&Ok(long))));
    let NodeMessage::Answer(read) = decode_mail(&bytes).unwrap() else {
        panic!("an answer");
    };
    assert!(matches!(read.answer, AnswerToNode::Failed(message) if message.contains("longer than")));
}
