use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::*;

fn error(json: &str) -> String {
    match Payload::from_json(json) {
        Err(PayloadError::Json(error)) => error,
        other => panic!("{json}: {other:?}"),
    }
}

fn refused<T: Serialize>(value: &T) -> bool {
    Payload::encode(value)
        .expect("it can be encoded")
        .to_json()
        .is_err()
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Empty,
    Round(f32),
    Square { side: f64, label: Option<String> },
    Pair(i64, u64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    yes: bool,
    shapes: Vec<Shape>,
    bytes: ByteBuf,
    names: BTreeMap<String, i64>,
    marked: BTreeMap<String, String>,
    letter: char,
    none: Option<()>,
}

fn everything() -> impl Strategy<Value = Everything> {
    let number = || prop_oneof![any::<i64>(), -3_i64..300, Just(i64::MIN), Just(i64::MAX)];
    let shape = prop_oneof![
        Just(Shape::Empty),
        proptest::num::f32::NORMAL.prop_map(Shape::Round),
        (
            proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::SUBNORMAL,
            any::<Option<String>>()
        )
            .prop_map(|(side, label)| Shape::Square { side, label }),
        (number(), any::<u64>()).prop_map(|(one, other)| Shape::Pair(one, other)),
    ];
    let marked = prop::collection::btree_map(
        prop_oneof![r"\${0,3}bytes", r"\$bytes.?", ".{0,3}"],
        prop_oneof![Just("aGk=".to_owned()), any::<String>()],
        0..3,
    );
    (
        any::<bool>(),
        prop::collection::vec(shape, 0..5),
        prop::collection::vec(any::<u8>(), 0..50),
        prop::collection::btree_map(any::<String>(), number(), 0..20),
        marked,
        any::<char>(),
    )
        .prop_map(|(yes, shapes, bytes, names, marked, letter)| Everything {
            yes,
            shapes,
            bytes: ByteBuf::from(bytes),
            names,
            marked,
            letter,
            none: None,
        })
}

proptest! {
    #[test]
    fn a_value_goes_to_json_and_comes_back(value in everything()) {
        let payload = Payload::encode(&value).expect("it can be encoded");
        let json = payload.to_json().expect("it has a form in JSON");
        let back = Payload::from_json(&json).expect("it was written just now");
        prop_assert_eq!(back.decode::<Everything>().expect("it is of the same type"), value);
        prop_assert_eq!(back.to_json().expect("it has one"), json);
    }

    #[test]
    fn any_text_is_read_or_refused(text in r#"[\[\]{}":,0-9eE.+\-a-z$\\ ]{0,40}"#) {
        if let Ok(payload) = Payload::from_json(&text) {
            let json = payload.to_json().expect("what JSON holds can be written as JSON");
            prop_assert_eq!(Payload::from_json(&json), Ok(payload));
        }
    }

    #[test]
    fn any_bytes_are_told_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let payload = Payload::from_bytes([&[1], &bytes[..]].concat().into());
        if let Ok(json) = payload.to_json() {
            let back = Payload::from_json(&json).expect("it was written just now");
            prop_assert_eq!(back.to_json(), Ok(json));
        }
    }
}

#[test]
fn the_same_value_in_json_is_the_same_payload() {
    let given = r#"{"id":7,"price":-250,"rate":0.1,"tags":["a",null,true],"big":9007199254740993}"#;
    #[derive(Serialize)]
    struct Order {
        id: u8,
        price: i64,
        rate: f64,
        tags: (&'static str, Option<u8>, bool),
        big: u64,
    }
    let order = Order {
        id: 7,
        price: -250,
        rate: 0.1,
        tags: ("a", None, true),
        big: (1 << 53) + 1,
    };
    let payload = Payload::encode(&order).expect("it can be encoded");
    assert_eq!(Payload::from_json(given), Ok(payload.clone()));
    assert_eq!(payload.to_json().as_deref(), Ok(given));
}

#[test]
fn bytes_have_a_mark_and_keys_that_look_like_it_another_dollar() {
    let cases: [(Payload, &str); 4] = [
        (
            Payload::encode(serde_bytes::Bytes::new(b"hi")).unwrap(),
            r#"{"$bytes":"aGk="}"#,
        ),
        (
            Payload::encode(&BTreeMap::from([("$bytes", "aGk=")])).unwrap(),
            r#"{"$$bytes":"aGk="}"#,
        ),
        (
            Payload::encode(&BTreeMap::from([("$$bytes", 1)])).unwrap(),
            r#"{"$$$bytes":1}"#,
        ),
        (
            Payload::encode(&BTreeMap::from([("$bytes", 1), ("more", 2)])).unwrap(),
            r#"{"$bytes":1,"more":2}"#,
        ),
    ];
    for (payload, json) in cases {
        assert_eq!(payload.to_json().as_deref(), Ok(json));
        assert_eq!(Payload::from_json(json), Ok(payload));
    }
}

#[test]
fn what_would_lose_something_is_refused() {
    assert!(error("18446744073709551616").contains("18446744073709551616 does not fit"));
    assert!(error(r#"{"a":"\"1","b":[-9223372036854775809]}"#).contains("-9223372036854775809"));
    assert!(Payload::from_json(r#"["18446744073709551616", 18446744073709551615, 1e30, "\\"]"#).is_ok());
    assert!(error(r#"{"a":1,"b":2,"a":3}"#).contains("`a` stands twice"));
    assert!(error(r#"{"$bytes":"***"}"#).contains("base64"));
    assert!(error(r#"{"$bytes":1}"#).contains("base64"));
    assert!(error("{\"a\":").contains("EOF"));
    assert!(error("1 2").contains("trailing"));
    assert!(error("NaN").contains("expected"));
    assert!(refused(&f64::NAN) && refused(&f64::INFINITY) && refused(&f32::NEG_INFINITY));
    assert!(refused(&BTreeMap::from([(1, 2)])));
    assert!(refused(&BTreeMap::from([((1, 2), 2)])));
}

#[test]
fn values_are_nested_so_deep_and_not_deeper() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let payload = Payload::from_json(&nested(DEPTH_MAX)).expect("it is not too deep");
    assert_eq!(payload.to_json(), Ok(nested(DEPTH_MAX)));
    assert!(error(&nested(DEPTH_MAX + 1)).contains("nested"));
    let mut bytes = vec![1];
    bytes.extend(std::iter::repeat_n(0x91, 5_000));
    bytes.push(0xc0);
    assert!(Payload::from_bytes(bytes.into()).to_json().is_err());
}
