//! One function per decoder of bytes from outside, for fuzzers (feature `fuzz`).
//!
//! Each takes any bytes and panics only if something breaks its word: a decoder gives a value or an error, and what
//! decodes is encoded to bytes that decode to the same.

use bytes::Bytes;

use crate::wire;

/// A name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 1] = [("message", message)];

/// What runs of partitions tell each other.
pub fn message(bytes: &[u8]) {
    let Ok(message) = wire::decode(&Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let again = wire::encode(&message).expect("what was decoded can be encoded");
    let twice = wire::decode(&again.into()).expect("what was encoded can be decoded");
    assert_eq!(twice, message);
}
