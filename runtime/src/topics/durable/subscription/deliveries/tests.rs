//! Against a naive model: a list of records, each with what has become of it.

use bytes::Bytes;
use millrun_core::{Partition, Sequence};
use proptest::prelude::*;

use super::*;

const LEASE: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn record(sequence: u64) -> TopicRecord {
    TopicRecord {
        sequence: Sequence::new(sequence),
        partition: Partition::of(b"any"),
        time: at(0),
        id: None,
        body: Bytes::new(),
    }
}

fn bounds(holds_keys: bool) -> SubscriptionBounds {
    SubscriptionBounds {
        in_flight_max: 6,
        lease: LEASE,
        deliveries_max: Some(3),
        is_ordered: true,
        holds_keys,
    }
}

fn key_of(sequence: u64) -> Option<String> {
    (!sequence.is_multiple_of(4)).then(|| format!("key-{}", sequence % 4))
}

/// What happens to a subscription.
#[derive(Clone, Debug)]
enum Step {
    TakeIn,
    Give,
    /// Answers one of those that were given, counted from the last.
    Acknowledge(usize),
    SendBack(usize, u64),
    Bury,
    /// Lets a key go on.
    Release(u64),
    Pass(u64),
    /// The process ends, and another goes on with what was kept.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::TakeIn),
        5 => Just(Step::Give),
        4 => (0..8_usize).prop_map(Step::Acknowledge),
        2 => (0..8_usize, 0..8_u64).prop_map(|(which, pause)| Step::SendBack(which, pause)),
        1 => Just(Step::Bury),
        1 => (1..4_u64).prop_map(Step::Release),
        2 => (0..15_u64).prop_map(Step::Pass),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 0..200)
}

/// A record of the model.
#[derive(Clone, Debug, Default)]
struct Modelled {
    is_done: bool,
    is_in_hand: bool,
    deliveries: u32,
    /// The lease, and when it ends.
    lease: Option<(u64, u64)>,
    paused_until: u64,
}

#[derive(Debug, Default)]
struct Model {
    records: BTreeMap<u64, Modelled>,
    /// Keys that wait behind a buried record.
    held: BTreeMap<String, u64>,
    now: u64,
}

impl Model {
    /// Whether a record is in hand, and none of its key before it.
    fn is_free(&self, sequence: u64) -> bool {
        let key = key_of(sequence);
        if key.as_ref().is_some_and(|key| self.held.contains_key(key)) {
            return false;
        }
        let before = self.records.range(..sequence);
        let mut of_key = before.filter(|(other, record)| record.is_in_hand && key_of(**other) == key);
        self.records[&sequence].is_in_hand && (key.is_none() || of_key.next().is_none())
    }

    /// Whether a record waits to be buried.
    fn is_spent(&self, sequence: u64) -> bool {
        self.is_free(sequence) && self.records[&sequence].deliveries >= 3
    }

    /// Which record may be given now.
    fn next(&self) -> Option<u64> {
        let can = |sequence: u64, record: &Modelled| {
            record.lease.is_none() && record.paused_until <= self.now && !self.is_spent(sequence)
        };
        let mut all = self
            .records
            .iter()
            .filter(|(sequence, record)| self.is_free(**sequence) && can(**sequence, record));
        all.next().map(|(sequence, _)| *sequence)
    }

    /// Leases that are over by now.
    fn wake(&mut self) {
        let now = self.now;
        for record in self.records.values_mut() {
            if record.lease.is_some_and(|(_, until)| until <= now) {
                come_back(record, 0);
            }
        }
    }
}

fn come_back(record: &mut Modelled, paused_until: u64) {
    record.lease = None;
    record.deliveries += 1;
    record.paused_until = paused_until;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn it_does_what_a_naive_model_does(steps in steps(), holds_keys in any::<bool>()) {
        let bounds = bounds(holds_keys);
        let mut in_hand = RecordsInHand::new(bounds, Acknowledged::default(), BTreeMap::new());
        let mut model = Model::default();
        let (mut next_taken_in, mut given) = (1, Vec::<(u64, u64)>::new());
        for step in steps {
            match step {
                Step::TakeIn => {
                    let len = model.records.values().filter(|record| record.is_in_hand).count();
                    prop_assert_eq!(in_hand.has_room(), len < 6);
                    if len < 6 {
                        in_hand.take_in(record(next_taken_in), key_of(next_taken_in).as_deref());
                        let modelled = model.records.entry(next_taken_in).or_default();
                        modelled.is_in_hand = !modelled.is_done;
                        next_taken_in += 1;
                    }
                }
                Step::Give => {
                    model.wake();
                    let expected = model.next();
                    let found = in_hand.give(at(model.now));
                    prop_assert_eq!(found.as_ref().map(|leased| leased.record.sequence.get()), expected);
                    if let (Some(leased), Some(sequence)) = (found, expected) {
                        let modelled = model.records.get_mut(&sequence).unwrap();
                        prop_assert_eq!(leased.deliveries, modelled.deliveries + 1);
                        prop_assert_eq!(leased.last_error.is_some(), modelled.deliveries > 0);
                        modelled.lease = Some((leased.lease, model.now + LEASE.as_secs()));
                        given.push((sequence, leased.lease));
                    }
                }
                Step::Acknowledge(which) | Step::SendBack(which, _) => {
                    let Some((sequence, lease)) = given.iter().rev().nth(which).copied() else { continue };
                    model.wake();
                    let now = at(model.now);
                    let modelled = model.records.get_mut(&sequence).unwrap();
                    let is_leased = modelled.is_in_hand && modelled.lease.is_some_and(|(of, _)| of == lease);
                    let outcome = if let Step::SendBack(_, pause) = step {
                        if is_leased {
                            come_back(modelled, model.now + pause);
                        }
                        in_hand.send_back(sequence, lease, (Duration::from_secs(pause), "sent back", now))
                    } else {
                        if is_leased {
                            *modelled = Modelled { is_done: true, ..Modelled::default() };
                        }
                        in_hand.acknowledge(sequence, lease, now)
                    };
                    prop_assert_eq!(outcome.is_ok(), is_leased);
                }
                Step::Bury => {
                    let spent = in_hand.next_spent().map(|(record, returned)| {
                        (record.sequence.get(), returned.deliveries)
                    });
                    if let Some((sequence, deliveries)) = spent {
                        prop_assert!(model.is_spent(sequence));
                        let modelled = model.records.get_mut(&sequence).unwrap();
                        prop_assert_eq!(modelled.deliveries, deliveries);
                        *modelled = Modelled { is_done: true, ..Modelled::default() };
                        // Every fifth was sent back already.
                        let is_sent_back = sequence.is_multiple_of(5);
                        if let Some(key) = key_of(sequence).filter(|_| holds_keys && !is_sent_back) {
                            model.held.insert(key, sequence);
                        }
                        in_hand.buried(sequence, is_sent_back);
                    } else {
                        prop_assert!(model.records.keys().all(|at| !model.is_spent(*at)));
                    }
                }
                Step::Release(number) => {
                    let key = key_of(number).unwrap();
                    let buried = model.held.remove(&key);
                    let is_released = match buried {
                        Some(buried) if buried.is_multiple_of(2) => in_hand.release_behind(buried),
                        _ => in_hand.release_key(&key),
                    };
                    prop_assert_eq!(is_released, buried.is_some());
                }
                Step::Pass(seconds) => model.now += seconds,
                Step::Crash => {
                    let returned = in_hand.returned().map(|(sequence, returned)| (sequence, returned.clone()));
                    let (acknowledged, returned) = (in_hand.acknowledged().clone(), returned.collect());
                    next_taken_in = acknowledged.through() + 1;
                    let held = in_hand.held_keys().clone();
                    in_hand = RecordsInHand::new(bounds, acknowledged, returned).with_held_keys(held);
                    given.clear();
                    for modelled in model.records.values_mut() {
                        *modelled = Modelled {
                            is_done: modelled.is_done,
                            // A lease that the crash has cut off was no answer.
                            deliveries: modelled.deliveries,
                            ..Modelled::default()
                        };
                    }
                }
            }
            let held = in_hand.held_keys().iter().map(|(key, buried)| (key.to_string(), *buried));
            prop_assert_eq!(held.collect::<BTreeMap<_, _>>(), model.held.clone());
            for (sequence, modelled) in &model.records {
                prop_assert_eq!(in_hand.acknowledged().has(*sequence), modelled.is_done, "{}", sequence);
            }
        }
    }
}

#[test]
fn all_that_are_leased_before_one_are_acknowledged_with_it() {
    let mut in_hand = RecordsInHand::new(bounds(false), Acknowledged::default(), BTreeMap::new());
    for sequence in [4, 5, 6, 8] {
        in_hand.take_in(record(sequence), None);
    }
    let leases: Vec<_> = (0..3)
        .filter_map(|_| in_hand.give(at(0)))
        .map(|leased| leased.lease)
        .collect();
    assert_eq!(in_hand.acknowledge_through(6, leases[2], at(1)), Ok(()));
    assert_eq!((in_hand.len(), in_hand.oldest()), (1, Some((8, at(0)))));
    in_hand.pass_over(1, 3);
    assert_eq!(in_hand.acknowledged().through(), 6);
    assert_eq!(in_hand.acknowledge(6, leases[2], at(1)), Err(NotLeased));
}

#[test]
fn while_as_many_keys_are_held_as_may_be_only_records_without_a_key_are_buried() {
    let held = (0..HELD_KEYS_MAX).map(|number| (format!("held-{number}").into(), 1));
    let mut in_hand = RecordsInHand::new(bounds(true), Acknowledged::up_to(1), BTreeMap::new());
    in_hand = in_hand.with_held_keys(held.collect());
    for (sequence, key) in [(2, Some("one")), (3, Some("two")), (4, None)] {
        in_hand.take_in(record(sequence), key);
        let leased = in_hand.give(at(0)).unwrap();
        in_hand.spend(sequence, leased.lease, "no way");
    }
    let next = |in_hand: &RecordsInHand| in_hand.next_spent().map(|(record, _)| record.sequence.get());
    assert_eq!(next(&in_hand), Some(4));
    in_hand.buried(4, false);
    assert_eq!(next(&in_hand), None);
    assert!(in_hand.release_key("held-7"));
    assert_eq!(next(&in_hand), Some(2));
    in_hand.buried(2, false);
    assert_eq!((next(&in_hand), in_hand.held_keys().len()), (None, HELD_KEYS_MAX));
    in_hand.take_in(record(5), Some("one"));
    assert!(in_hand.give(at(0)).is_none(), "its key waits");
}

#[test]
fn an_error_is_kept_up_to_a_bound() {
    assert_eq!(cut(&"ü".repeat(400)).len(), 512);
    assert_eq!(cut("short"), "short");
}
