//! One function per decoder of bytes from outside, for fuzzers (feature `fuzz`).
//!
//! Each takes any bytes and panics only if something breaks its word: a decoder gives a value or an error, and what
//! decodes is encoded to bytes that decode to the same.

use bytes::Bytes;

use crate::topics::RecordToken;
use crate::topics::durable::stored::{self, StoredHeader};
use crate::topics::durable::subscription;
use crate::wire;

/// A name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 4] = [
    ("message", message),
    ("record", record),
    ("token", token),
    ("subscription", kept_subscription),
];

/// What one node mails to another.
pub fn message(bytes: &[u8]) {
    // What callers ask and are answered is only read.
    drop(wire::decode_mail(&Bytes::copy_from_slice(bytes)));
    let Ok(message) = wire::decode(&Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let again = wire::encode(&message).expect("what was decoded can be encoded");
    let twice = wire::decode(&again.into()).expect("what was encoded can be decoded");
    assert_eq!(twice, message);
}

/// The body of a record of a durable topic: what decodes encodes to the same bytes.
pub fn record(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    let Ok((header, payload)) = StoredHeader::decode(&body) else {
        return;
    };
    let mut again = header.encode();
    assert!(again.len() <= stored::HEADER_BYTES_MAX);
    again.extend_from_slice(&payload);
    assert_eq!(again, bytes, "a record that decodes encodes to the same bytes");
}

/// The text of a record's place: there is one for each place.
pub fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(token) = text.parse::<RecordToken>() {
        assert_eq!(token.to_string(), text);
    }
}

/// What a subscription has kept: it is kept alike again, and the subscription can go on.
pub fn kept_subscription(bytes: &[u8]) {
    subscription::go_on_from(bytes);
}
