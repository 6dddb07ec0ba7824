//! Random programs: what is done to a topic and its subscriptions, and where the process is killed.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

/// A subscription of the programs.
#[derive(Debug)]
pub(super) struct Who {
    pub(super) name: &'static str,
    pub(super) in_flight_max: usize,
    pub(super) is_ordered: bool,
    /// After how many deliveries a record is buried.
    pub(super) deliveries_max: Option<u32>,
    /// Whether the key of a buried record waits.
    pub(super) holds_keys: bool,
}

pub(super) const WHO: [Who; 4] = [
    Who {
        name: "careful",
        in_flight_max: 3,
        is_ordered: true,
        deliveries_max: Some(2),
        holds_keys: false,
    },
    Who {
        name: "patient",
        in_flight_max: 4,
        is_ordered: false,
        deliveries_max: None,
        holds_keys: false,
    },
    Who {
        name: "strict",
        in_flight_max: 2,
        is_ordered: true,
        deliveries_max: Some(1),
        holds_keys: false,
    },
    Who {
        name: "holding",
        in_flight_max: 3,
        is_ordered: true,
        deliveries_max: Some(1),
        holds_keys: true,
    },
];

pub(super) const LEASE: Duration = Duration::from_secs(30);
/// How long a record stays away that is sent back.
pub(super) const PAUSES: [Duration; 2] = [Duration::ZERO, Duration::from_secs(10)];
/// Two of them are longer than a lease, and one longer than a pause.
pub(super) const WAIT: Duration = Duration::from_secs(20);
/// Subscriptions that nobody uses expire in the long wait.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(8 * 3_600);
pub(super) const LONG_WAIT: Duration = Duration::from_secs(20 * 3_600);

/// Where a new subscription begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    Beginning,
    Now,
    /// Behind a record, also if that is dropped.
    Behind(u64),
    /// With what was appended at the time of a record, or later.
    TimeOf(u64),
}

/// Numbers of records, of deliveries and of buried records count around.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Publish {
        key: char,
        id: Option<u8>,
    },
    Subscribe {
        who: usize,
        from: Start,
    },
    /// The consumer goes, with the deliveries that it has.
    Close {
        who: usize,
    },
    Take {
        who: usize,
    },
    Ack {
        nth: usize,
        is_through: bool,
    },
    SendBack {
        nth: usize,
        pause: usize,
    },
    SendUndelivered {
        nth: usize,
    },
    /// An operator lets a key go on.
    Release {
        who: usize,
        key: char,
    },
    /// All but the last records are purged.
    Purge {
        but: u64,
    },
    Wait,
    LongWait,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) op: Op,
    /// The process is killed when the operation has committed as often as this.
    pub(super) killed_behind: Option<u32>,
}

fn ops() -> impl Strategy<Value = Op> {
    let who = 0..WHO.len();
    let start = prop_oneof![
        3 => Just(Start::Beginning),
        1 => Just(Start::Now),
        1 => any::<u64>().prop_map(Start::Behind),
        1 => any::<u64>().prop_map(Start::TimeOf),
    ];
    let id = weighted(0.3, 0..4_u8);
    prop_oneof![
        16 => (prop::char::range('a', 'c'), id).prop_map(|(key, id)| Op::Publish { key, id }),
        12 => (who.clone(), start).prop_map(|(who, from)| Op::Subscribe { who, from }),
        1 => who.clone().prop_map(|who| Op::Close { who }),
        24 => who.clone().prop_map(|who| Op::Take { who }),
        10 => (0..8_usize, weighted(0.2, Just(()))).prop_map(|(nth, through)| {
            Op::Ack { nth, is_through: through.is_some() }
        }),
        10 => (0..8_usize, 0..PAUSES.len()).prop_map(|(nth, pause)| Op::SendBack { nth, pause }),
        4 => (0..8_usize).prop_map(|nth| Op::SendUndelivered { nth }),
        2 => (who, prop::char::range('a', 'c')).prop_map(|(who, key)| Op::Release { who, key }),
        2 => (0..6_u64).prop_map(|but| Op::Purge { but }),
        6 => Just(Op::Wait),
        1 => Just(Op::LongWait),
    ]
}

pub(super) fn programs() -> impl Strategy<Value = Vec<Step>> {
    let killed_behind = weighted(0.1, 0..3_u32);
    let step = (ops(), killed_behind).prop_map(|(op, killed_behind)| Step { op, killed_behind });
    vec(step, 1..60)
}
