//! `millrun trace`: what led to what, as a tree and as lines, of a program and of a file.

use serde_json::Value;

use crate::serve::serve;
use crate::support::{Ended, Folder};

fn run(folder: &Folder, line: &str) -> Ended {
    let arguments: Vec<_> = line.split(' ').collect();
    folder.run(&arguments)
}

/// A folder with a store in which a record has started an order, and the token of the record. No process has it any more.
fn killed() -> (Folder, String) {
    let folder = Folder::new();
    let (running, _) = serve(&folder, &[], &[]);
    let order = r#"{"customer":"ada","cents":5}"#;
    let publish = [
        "publish",
        "sample.ordered",
        order,
        "--key",
        "ada",
        "--id",
        "order-1",
    ];
    let published = folder.run(&publish).expect(0).out;
    while !run(&folder, "list").expect(0).out.contains("ada") {}
    running.kill();
    let token = published.split_whitespace().nth(1).unwrap().to_owned();
    (folder, token)
}

/// The lines with no times in them.
fn tree(folder: &Folder, line: &str) -> String {
    let lines = run(folder, line).expect(0).out;
    let shown = lines.lines().map(|line| match line.split_once("  (20") {
        Some((words, _)) => words,
        None => line,
    });
    shown.collect::<Vec<_>>().join("\n")
}

#[test]
fn both_ends_of_a_chain_are_told_of_a_program_and_of_a_file() {
    let (folder, token) = killed();
    let described = run(&folder, "describe ada --json").expect(0).out;
    let described: Value = serde_json::from_str(&described).unwrap();
    let order = described["run"].as_str().unwrap().to_owned();
    let check = || {
        let down = tree(&folder, &format!("trace sample.ordered {token} --effects"));
        let lines: Vec<_> = down.lines().collect();
        assert!(lines[0].starts_with("record 1 of sample.ordered"), "{down}");
        assert_eq!(lines[1], "effects");
        let started = format!("  triggered sample-orders ─ ada run {order}");
        let at = lines.iter().position(|line| *line == started);
        let below = lines[at.unwrap_or_else(|| panic!("{started} is not in\n{down}")) + 1];
        assert_eq!(
            below, "    activity sample-reserve",
            "what came of the run is below it"
        );
        let same = tree(&folder, "trace sample.ordered 1 --effects");
        assert_eq!(same, down);
        let same = tree(&folder, "trace sample.ordered --record-id order-1 --effects");
        assert_eq!(same, down);
        let up = tree(&folder, "trace ada --causes");
        let lines: Vec<_> = up.lines().collect();
        assert!(lines[0].starts_with("ada  sample-order  not ended  run "), "{up}");
        let expected = [
            "causes",
            "  triggered sample-orders ─ record 1 of sample.ordered",
            "    outside",
        ];
        assert_eq!(lines[1..], expected, "{up}");
        assert_eq!(tree(&folder, &format!("trace {order} --causes")), up);
        // Both directions, a node a line.
        let lines = run(&folder, &format!("trace {order} --jsonl")).expect(0).out;
        let nodes: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let told: Vec<_> = nodes
            .iter()
            .map(|node| {
                (
                    node["direction"].as_str().unwrap(),
                    node["of"]["kind"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [("causes", "run"), ("causes", "record"), ("effects", "run")]
        );
        assert_eq!((&nodes[1]["from"], &nodes[1]["depth"]), (&0.into(), &1.into()));
        let one = run(&folder, &format!("trace {order} --json")).expect(0).out;
        assert_eq!(serde_json::from_str::<Value>(&one).unwrap(), Value::from(nodes));
    };
    let before = folder.read("millrun.redb");
    check();
    assert!(folder.read("millrun.redb") == before);
    let (running, _) = serve(&folder, &[], &[]);
    // The order has reserved, and now waits 10 minutes for its payment: nothing changes between two walks.
    let down = format!("trace sample.ordered {token} --effects");
    while !tree(&folder, &down).contains("\n    timer") {}
    check();
    drop(running);
}

#[test]
fn a_walk_that_is_cut_says_so_and_what_cannot_be_traced_says_what_to_try() {
    let (folder, token) = killed();
    for line in ["trace ada --causes --limit 1", "trace ada --causes --depth 0"] {
        let cut = run(&folder, line).expect(0);
        assert!(cut.err.contains("there is more: --limit, --depth"), "{cut:#?}");
        assert_eq!(cut.out.lines().count(), 3, "{cut:#?}");
    }
    let whole = run(&folder, "trace ada --causes").expect(0);
    assert_eq!(whole.err, "");
    for (line, code, expected) in [
        ("trace nobody", 1, "try: millrun list"),
        (
            "trace sample.ordered x",
            2,
            "neither a token of a record nor its number",
        ),
        (
            "trace sample.ordered 99",
            1,
            "try: millrun records sample.ordered",
        ),
        (
            "trace sample.ordered --record-id x",
            1,
            "try: millrun records sample.ordered",
        ),
        ("trace nothing 1", 1, "try: millrun topics"),
        ("trace ada --operation 1", 2, "an operation is of a run"),
        ("trace ada --limit 0", 2, "--limit"),
        ("trace ada --causes --effects", 2, "--effects"),
    ] {
        let refused = run(&folder, line).expect(code);
        assert!(refused.err.contains(expected), "{line}: {refused:#?}");
    }
    let other = format!("trace sample.ordered {}", token.replace('A', "B"));
    let refused = run(&folder, &other).expect(1);
    assert!(
        refused.err.contains("try: millrun records sample.ordered"),
        "{refused:#?}"
    );
}
