//! One function per decoder of stored bytes, for fuzzers (feature `fuzz`).
//!
//! Each takes any bytes, and panics only if an invariant is broken: a decoder returns a value or an error, a decoded value
//! encodes to bytes that decode to the same value, and the fold of a history survives events that no engine would have
//! written.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrun_core::{Partition, RunId, Timestamp};
use serde::de::IgnoredAny;

use crate::event::Event;
use crate::{Instance, KeptBeginning, Ledger, Limits, Payload, wire};

/// A name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 4] = [
    ("event", event),
    ("events", events),
    ("kept", kept),
    ("payload", payload),
];

/// One event: its kind (u8), then its body. Every body is also tried as a run's first.
pub fn event(bytes: &[u8]) {
    let Some((kind, body)) = bytes.split_first() else {
        return;
    };
    decoded(*kind, &Bytes::copy_from_slice(body));
}

/// A history: events one after the other, each a kind (u8), a length (u16, little-endian) and a
/// body.
pub fn events(mut bytes: &[u8]) {
    let mut ledger = Ledger::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([head[1], head[2]])).min(rest.len());
        let (body, after) = rest.split_at(len);
        if let Some(event) = decoded(head[0], &Bytes::copy_from_slice(body)) {
            ledger.apply(&event, Timestamp::from_micros(1));
        }
        bytes = after;
    }
    assert!(ledger.pending().count() == ledger.pending_len());
}

fn decoded(kind: u8, body: &Bytes) -> Option<Event> {
    let opens = Some("some-id");
    let event = wire::decode(kind, body, opens).ok()?;
    assert_eq!(wire::kind(&event), kind);
    let mut again = Vec::new();
    wire::encode(&event, &mut again).expect("what was decoded can be encoded");
    let twice = wire::decode(kind, &again.into(), opens).expect("what was encoded can be decoded");
    assert_eq!(twice, event);
    Some(event)
}

/// A kept beginning, from which a run is brought back.
pub fn kept(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    if let Ok(parts) = wire::decode_kept(&bytes) {
        let again = wire::encode_kept(&parts).expect("what was decoded can be encoded");
        let twice = wire::decode_kept(&again.into()).expect("what was encoded can be decoded");
        assert_eq!(twice.events.len(), parts.events.len());
    }
    let Ok(kept) = KeptBeginning::decode(&bytes) else {
        return;
    };
    let run = RunId::new(Partition::of(b"kept"), Timestamp::EPOCH, 1);
    let (sequence, nothing) = (kept.sequence(), std::iter::empty());
    let brought_back = Instance::replay_kept(None, run, kept, nothing, Limits::default());
    assert_eq!(
        brought_back.map(|instance| instance.sequence()).ok(),
        Some(sequence)
    );
}

/// A user's payload, read as several types.
pub fn payload(bytes: &[u8]) {
    let payload = Payload::from_bytes(Bytes::copy_from_slice(bytes));
    // No panic, whatever the bytes are.
    payload.decode::<IgnoredAny>().ok();
    payload.decode::<(u64, Option<String>, Vec<f64>)>().ok();
    if let Ok(map) = payload.decode::<BTreeMap<String, Vec<i64>>>() {
        let again = Payload::encode(&map).expect("what was decoded can be encoded");
        assert_eq!(again.decode::<BTreeMap<String, Vec<i64>>>(), Ok(map));
    }
}
