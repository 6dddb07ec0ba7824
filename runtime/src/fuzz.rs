//! One function per decoder of bytes from outside, for fuzzers (feature `fuzz`).
//!
//! Each takes any bytes, and panics only if an invariant is broken: a decoder returns a value or an error, and a decoded
//! value encodes to bytes that decode to the same value.

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

/// Mail of one node for another.
pub fn message(bytes: &[u8]) {
    // Requests and answers of callers are only decoded.
    drop(wire::decode_mail(&Bytes::copy_from_slice(bytes)));
    let Ok(message) = wire::decode(&Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let again = wire::encode(&message).expect("what was decoded can be encoded");
    let twice = wire::decode(&again.into()).expect("what was encoded can be decoded");
    assert_eq!(twice, message);
}

/// The body of a record of a durable topic: a decoded body encodes to the same bytes.
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

/// The text of a record's token: each token has one text.
pub fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(token) = text.parse::<RecordToken>() {
        assert_eq!(token.to_string(), text);
    }
}

/// The state of a subscription: it encodes to the same bytes, and the subscription can continue.
pub fn kept_subscription(bytes: &[u8]) {
    subscription::go_on_from(bytes);
}
