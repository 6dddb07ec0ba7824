//! `millrun checkout`: decisions, bad lines, and effects that are made once.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::Folder;

fn example() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/orders.ndjson");
    std::fs::read_to_string(path).unwrap()
}

/// The decisions without their order, which depends on who was first.
fn decisions(out: &str) -> BTreeSet<String> {
    out.lines()
        .filter(|line| line.starts_with("order-"))
        .map(str::to_owned)
        .collect()
}

/// What the shop did, sorted; one line an effect.
fn effects(folder: &Folder) -> Vec<String> {
    let book = String::from_utf8(folder.read("millrun-checkout.book")).unwrap();
    let mut effects: Vec<_> = book
        .lines()
        .map(|line| line.split_once('\t').unwrap().1.to_owned())
        .collect();
    effects.sort();
    effects
}

#[test]
fn the_example_orders_are_decided_once_and_shown_again() {
    let folder = Folder::new();
    folder.write("orders", example().as_bytes());
    let arguments = ["checkout", "orders", "--approval-within", "50"];
    let first = folder.run(&arguments).expect(0);
    let expected = [
        "order-1001: shipped, 9.00 paid",
        "order-1002: shipped, 49.00 paid",
        "order-1003: not paid: the card was declined; stock released",
        "order-1004: shipped, 740.00 paid",
        "order-1005: approval refused; stock released",
        "order-1006: nobody approved in time; stock released",
        "order-1007: given back: the address is unknown; payment refunded, stock released",
        "order-1008: shipped, 78.00 paid",
    ];
    assert_eq!(decisions(&first.out), expected.map(str::to_owned).into());
    let made = effects(&folder);
    assert_eq!(made.len(), 22);
    let given_back = made.iter().filter(|effect| effect.starts_with("order-1007"));
    let undone = [
        "charge 26000 cents",
        "refund 26000 cents",
        "release 4 pieces",
        "reserve 4 pieces",
    ];
    assert!(
        given_back.eq(undone.map(|effect| format!("order-1007 {effect}")).iter()),
        "{made:#?}"
    );

    let second = folder.run(&arguments).expect(0);
    assert_eq!(decisions(&second.out), decisions(&first.out));
    assert_eq!(effects(&folder), made, "nothing was done twice");
}

#[test]
fn lines_that_are_no_orders_are_named_and_the_others_are_done() {
    let folder = Folder::new();
    let mut input = b"{\"id\":\"broken\"\n\n".to_vec();
    input.extend_from_slice(&b"x".repeat(200_000));
    input.push(b'\n');
    input.extend_from_slice(example().lines().next().unwrap().as_bytes());
    let ended = folder.run_with_input(&["checkout"], &input).expect(3);
    assert!(ended.err.contains("-:1: not an order"), "{ended:#?}");
    assert!(
        ended.err.contains("-:3: the line is longer than 65536 bytes"),
        "{ended:#?}"
    );
    assert!(ended.out.contains("order-1001: shipped"), "{ended:#?}");
    assert!(
        ended.out.contains("1 orders decided, 0 failed, 2 lines refused"),
        "{ended:#?}"
    );
}

#[test]
fn an_input_that_cannot_be_read_is_an_error() {
    let folder = Folder::new();
    let ended = folder.run(&["checkout", "missing.ndjson"]).expect(1);
    assert!(ended.err.contains("missing.ndjson"), "{ended:#?}");
}

#[test]
fn an_order_that_waits_survives_a_kill_and_makes_no_effect_twice() {
    let folder = Folder::new();
    // Order 1006 waits for an approval that does not come before the kill.
    folder.write("orders", example().as_bytes());
    let arguments = ["checkout", "orders", "--approval-within", "3600000"];
    folder.start_until(&arguments, "order-1002: shipped").kill();

    let approved = example().replace(
        "\"price_cents\":990000}]}",
        "\"price_cents\":990000}],\"approval\":\"granted\"}",
    );
    assert_ne!(approved, example());
    folder.write("orders", approved.as_bytes());
    let ended = folder.run(&arguments).expect(0);
    assert!(
        ended.out.contains("order-1006: shipped, 9900.00 paid"),
        "{ended:#?}"
    );
    let made = effects(&folder);
    let once: BTreeSet<_> = made.iter().collect();
    assert_eq!(once.len(), made.len(), "{made:#?}");
}
