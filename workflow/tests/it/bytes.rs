//! Bytes and histories that nobody wrote: a value or an error, never a panic.

use bytes::Bytes;
use millrun_core::Timestamp;
use millrun_workflow::{Event, Instance, Limits, ReplayError, wire};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::histories;
use crate::world::run_id;

const KINDS: std::ops::RangeInclusive<u8> = 0..=255;

/// Whatever decodes is an event that survives the journey.
fn check_total(kind: u8, body: Bytes) {
    let Ok(event) = wire::decode(kind, &body, Some("id")) else {
        return;
    };
    assert_eq!(wire::kind(&event), kind);
    let mut again = Vec::new();
    wire::encode(&event, &mut again).unwrap();
    assert_eq!(wire::decode(kind, &Bytes::from(again), Some("id")), Ok(event));
}

fn recorded_events() -> Vec<(Event, Timestamp)> {
    histories::recordings()
        .iter()
        .flat_map(|recording| histories::read(recording.file))
        .collect()
}

/// A change to a history.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Remove(Index),
    Repeat(Index),
    Swap(Index, Index),
    /// An event of any recorded history, put anywhere.
    Insert(Index, Index),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let index = || any::<Index>();
    let damage = prop_oneof![
        index().prop_map(Damage::Remove),
        index().prop_map(Damage::Repeat),
        (index(), index()).prop_map(|(one, other)| Damage::Swap(one, other)),
        (index(), index()).prop_map(|(from, to)| Damage::Insert(from, to)),
    ];
    vec(damage, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_give_an_event_or_an_error(kind in KINDS, body in vec(any::<u8>(), 0..80)) {
        check_total(kind, Bytes::from(body));
    }

    #[test]
    fn damaged_events_give_an_event_or_an_error(
        which in any::<Index>(),
        kind in 0..40_u8,
        keeps_kind in any::<bool>(),
        edits in vec((any::<Index>(), any::<u8>()), 0..4),
        tail in vec(any::<u8>(), 0..3),
    ) {
        let events = recorded_events();
        let event = &events[which.index(events.len())].0;
        let mut body = Vec::new();
        wire::encode(event, &mut body).unwrap();
        for (at, byte) in edits {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = byte;
            }
        }
        body.extend(tail);
        check_total(if keeps_kind { wire::kind(event) } else { kind }, Bytes::from(body));
    }

    #[test]
    fn damaged_histories_replay_or_park_or_are_refused(which in any::<Index>(), damages in damages()) {
        let recordings = histories::recordings();
        let recording = &recordings[which.index(recordings.len())];
        let mut history = histories::read(recording.file);
        let others = recorded_events();
        for damage in damages {
            if history.is_empty() {
                break;
            }
            let len = history.len();
            match damage {
                Damage::Remove(at) => drop(history.remove(at.index(len))),
                Damage::Repeat(at) => history.insert(at.index(len), history[at.index(len)].clone()),
                Damage::Swap(one, other) => history.swap(one.index(len), other.index(len)),
                Damage::Insert(from, to) => {
                    history.insert(to.index(len + 1), others[from.index(others.len())].clone());
                }
            }
        }
        let code = (recording.code)();
        let begins = matches!(history.first(), Some((Event::Started(_), _)));
        match Instance::replay(Some(&code), run_id(), history.clone(), Limits::default()) {
            Ok(instance) => {
                prop_assert!(begins);
                prop_assert_eq!(instance.sequence().get(), history.len() as u64);
            }
            Err(ReplayError::Empty) => prop_assert!(history.is_empty()),
            Err(ReplayError::NoStart(_)) => prop_assert!(!begins),
            Err(_) => prop_assert!(begins),
        }
    }
}
