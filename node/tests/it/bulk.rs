//! Runs that a filter finds: listed, told of, and all done one thing to.

use crate::serve::serve;
use crate::support::{Ended, Folder, Running};

struct Program {
    folder: Folder,
    _running: Running,
}

/// A program with three runs that wait for a timer.
fn program() -> Program {
    let folder = Folder::new();
    let (running, _) = serve(&folder, &[], &[]);
    let program = Program {
        folder,
        _running: running,
    };
    for number in 1..=3 {
        program.start(number);
    }
    program
}

impl Program {
    fn start(&self, number: usize) {
        let id = format!("ship-{number}");
        let start = ["start", "sample-shipment", &id, "\"shelf-1\""];
        self.folder.run(&start).expect(0);
    }

    fn run(&self, line: &str) -> Ended {
        let arguments: Vec<_> = line.split(' ').collect();
        self.folder.run(&arguments)
    }

    fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.run(line).expect(0).out).unwrap()
    }

    /// How many runs a list has.
    fn listed(&self, options: &str) -> usize {
        self.run(&format!("list --jsonl {options}"))
            .expect(0)
            .out
            .lines()
            .count()
    }
}

#[test]
fn runs_are_listed_by_what_they_are_and_do() {
    let program = program();
    for (options, expected) in [
        ("--workflow sample-shipment", 3),
        ("--workflow sample-shipment --status running", 3),
        ("--status parked,failed --workflow sample-shipment", 0),
        ("--id-prefix ship-2", 1),
        ("--id-prefix ship- --since 1h", 3),
        ("--id-prefix ship- --until 1h", 0),
        ("--id-prefix ship- --since 2026-01-01 --ended-since 1h", 0),
        ("--id-prefix ship- --limit 2", 2),
    ] {
        assert_eq!(program.listed(options), expected, "{options}");
    }
    let table = program.run("list --id-prefix ship-3").expect(0).out;
    assert!(table.contains("ship-3  sample-shipment  running"), "{table}");
    for (wrong, told) in [
        ("list --status busy", "not-registered"),
        ("list --since yesterday", "2h"),
        ("list --finished --workflow x", "cannot be used"),
    ] {
        let refused = program.run(wrong).expect(2);
        assert!(refused.err.contains(told), "{}", refused.err);
    }
}

#[test]
fn a_bulk_is_counted_confirmed_done_and_told() {
    let program = program();
    let counted = program
        .run("bulk terminate --id-prefix ship- --dry-run")
        .expect(0)
        .out;
    assert_eq!(counted, "terminate would reach 3 runs\n");
    assert_eq!(
        program.json("bulk cancel --workflow sample-shipment --dry-run --json")["reached"],
        3
    );
    let unasked = program.run("bulk terminate --id-prefix ship-").expect(2);
    assert!(
        unasked.err.contains("--yes") && unasked.err.contains("3 runs"),
        "{}",
        unasked.err
    );
    let all = program.run("bulk terminate --yes").expect(2);
    assert!(all.err.contains("--all"), "{}", all.err);
    assert_eq!(
        program.listed("--id-prefix ship- --status running"),
        3,
        "nothing was done"
    );

    let signal = "bulk signal paid 1 --id-prefix nobody- --yes --per-second 1000";
    assert!(program.run(signal).expect(0).out.starts_with("completed: 0 done"));
    let done = program.json("bulk terminate --id-prefix ship- --yes --name closing --reason enough --json");
    assert_eq!((&done["status"], &done["done"]), (&"completed".into(), &3.into()));
    assert_eq!(program.listed("--id-prefix ship- --outcome terminated"), 3);
    // Under the same name it is the same, and another is refused.
    let again = program
        .run("bulk terminate --id-prefix ship- --yes --name closing --reason enough")
        .expect(0);
    assert_eq!(again.out, "completed: 3 done, 0 passed over, 0 failed\n");
    let other = program.run("bulk resume --all --yes --name closing").expect(1);
    assert!(other.err.contains("closing"), "{}", other.err);
    let shown = program.run("bulk show closing").expect(0).out;
    for told in ["terminate", "enough", "ship-", "completed"] {
        assert!(shown.contains(told), "{shown}");
    }
    let listed = program.run("bulk list").expect(0).out;
    let mut lines = listed.lines();
    assert!(
        lines.any(|line| line.starts_with("closing ") && line.contains("completed")),
        "{listed}"
    );
    assert!(program.run("bulk stop closing").expect(1).err.contains("ended"));
    let again = program
        .run("bulk start-again --outcome terminated --id ship-99 --yes")
        .expect(0);
    assert_eq!(again.out, "completed: 3 done, 1 passed over, 0 failed\n");
    assert_eq!(program.listed("--id-prefix ship- --status running"), 3);
}

#[test]
fn what_becomes_of_the_runs_that_are_meant_is_told_and_nothing_of_others() {
    let program = program();
    let tail = [
        "tail",
        "--workflow",
        "sample-shipment",
        "--outcome",
        "terminated",
        "--limit",
        "2",
        "--jsonl",
    ];
    let mut tailing = program.folder.start(&tail);
    // The tail does not show what was told before it began: runs end until it has shown two.
    let mut number = 10;
    while !tailing.has_ended() {
        program.start(number);
        program.run(&format!("terminate ship-{number}")).expect(0);
        number += 1;
    }
    let told = tailing.ended().expect(0).out;
    assert_eq!(told.lines().count(), 2, "{told}");
    for line in told.lines() {
        let change: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&change["kind"], &change["status"]),
            (&"ended".into(), &"terminated".into())
        );
    }
    let mut tailing = program.folder.start(&["tail", "--all", "--limit", "3"]);
    while !tailing.has_ended() {
        program.start(number);
        program.run(&format!("terminate ship-{number}")).expect(0);
        number += 1;
    }
    let told = tailing.ended().expect(0).out;
    assert_eq!(told.lines().count(), 3, "{told}");
    assert!(
        told.contains("ended") && told.contains("sample-shipment"),
        "{told}"
    );
    let both = program.run("tail ship-1 --workflow sample-shipment").expect(2);
    assert!(both.err.contains("alone"), "{}", both.err);
}
