//! The file of a store that no process has, asked by the real program.

use crate::serve::serve;
use crate::support::{Ended, Folder};

/// A folder with the store of a `serve` that was killed: a shipment that waits for its timer.
fn killed() -> Folder {
    let folder = Folder::new();
    let (running, _) = serve(&folder, &[], &[]);
    folder
        .run(&["start", "sample-shipment", "ship-1", "\"shelf-1\""])
        .expect(0);
    running.kill();
    folder
}

fn run(folder: &Folder, line: &str) -> Ended {
    let arguments: Vec<_> = line.split(' ').collect();
    folder.run(&arguments)
}

fn json(folder: &Folder, line: &str) -> serde_json::Value {
    serde_json::from_str(&run(folder, line).expect(0).out).unwrap()
}

#[test]
fn what_a_killed_program_left_is_read_and_not_a_byte_changes() {
    let folder = killed();
    let before = folder.read("millrun.redb");
    let list = run(&folder, "list").expect(0).out;
    assert!(list.contains("ship-1  sample-shipment  running"), "{list}");
    assert_eq!(json(&folder, "list --status running --json")[0]["id"], "ship-1");
    assert_eq!(json(&folder, "describe ship-1 --json")["status"], "running");
    let why = run(&folder, "why ship-1").expect(0).out;
    assert!(why.contains("timer"), "{why}");
    let history = run(&folder, "history ship-1 --jsonl").expect(0).out;
    assert!(history.lines().count() >= 2, "{history}");
    run(&folder, "history ship-1 --timeline").expect(0);
    let exported = run(&folder, "history ship-1 --export").expect(0).out;
    assert_eq!(
        exported.lines().count(),
        history.lines().count() + 1,
        "{exported}"
    );
    assert!(
        exported.starts_with(r#"{"format":"millrun-history","version":1,"#),
        "{exported}"
    );
    assert!(exported.contains("shelf-1"), "{exported}");
    let hidden = run(&folder, "history ship-1 --export --redact **").expect(0).out;
    assert!(!hidden.contains("\"shelf-1\""), "{hidden}");
    assert_eq!(hidden.lines().count(), exported.lines().count());
    let wrong = run(&folder, "history ship-1 --export --redact a..b")
        .expect(2)
        .err;
    assert!(wrong.contains("a..b"), "{wrong}");
    run(&folder, "history ship-1 --redact a").expect(2);
    // Nothing goes on, so nothing is waited for.
    assert_eq!(
        run(&folder, "result ship-1 --wait 3600").expect(3).out,
        "running\n"
    );
    let counts = run(&folder, "counts").expect(0).out;
    assert!(counts.contains("sample-shipment  1"), "{counts}");
    let inspected = run(&folder, "inspect").expect(0).out;
    assert!(inspected.contains("no process has it"), "{inspected}");
    let inspected = json(&folder, "inspect --json");
    assert_eq!(inspected["was_repaired"], true);
    assert_eq!(inspected["live_runs"], 1);
    assert_eq!(json(&folder, "verify --json")["is_sound"], true);
    assert!(folder.read("millrun.redb") == before);
    // It is there for the program as it was.
    let (running, _) = serve(&folder, &[], &[]);
    assert!(run(&folder, "list").expect(0).out.contains("ship-1"));
    drop(running);
}

#[test]
fn what_ended_is_counted_of_a_file_too_and_the_runs_at_either_end_are_told() {
    let folder = Folder::new();
    let (running, _) = serve(&folder, &[], &[]);
    for id in ["a", "b", "c"] {
        run(&folder, &format!("start sample-shipment {id} \"x\"")).expect(0);
    }
    for id in ["c", "a"] {
        run(&folder, &format!("terminate {id} --reason enough")).expect(0);
    }
    run(&folder, "start sample-shipment d \"x\"").expect(0);
    let ends_of = |inspected: &serde_json::Value| {
        let ends = ["oldest_live", "newest_live", "earliest_ended", "latest_ended"];
        ends.map(|end| inspected[end]["id"].as_str().unwrap().to_owned())
    };
    assert_eq!(ends_of(&json(&folder, "inspect --json")), ["b", "d", "c", "a"]);
    running.kill();
    let inspected = json(&folder, "inspect --json");
    assert_eq!(ends_of(&inspected), ["b", "d", "c", "a"]);
    assert_eq!(inspected["is_all_counted"], true);
    for counted in [&inspected, &json(&folder, "counts --json")] {
        let shipments = &counted["workflows"][0];
        assert_eq!(shipments["workflow"], "sample-shipment", "{counted}");
        assert_eq!(
            (&shipments["running"], &shipments["terminated"]),
            (&2.into(), &2.into())
        );
    }
    let told = run(&folder, "inspect").expect(0).out;
    assert!(told.contains("earliest ended  c   sample-shipment"), "{told}");
}

#[test]
fn what_needs_a_program_says_so_and_leaves_the_file_alone() {
    let folder = killed();
    let before = folder.read("millrun.redb");
    for line in [
        "signal ship-1 go",
        "start sample-shipment ship-2 \"x\"",
        "cancel ship-1",
        "pause ship-1",
        "query ship-1 status",
        "update ship-1 x",
        "tail ship-1",
        "stats",
        "catalogue",
        "versions",
        "topics",
        "records sample.ordered",
        "subscriptions sample.ordered",
        "publish sample.ordered 7",
        "call export_store --body {\"name\":\"x\"}",
    ] {
        let refused = run(&folder, line).expect(4);
        assert!(
            refused.err.contains("try: millrun serve --store millrun.redb"),
            "{line}: {refused:#?}"
        );
    }
    assert!(folder.read("millrun.redb") == before);
    folder.write("other.redb", b"something else");
    let other = run(&folder, "list --store other.redb").expect(1);
    assert!(other.err.contains("not a millrun store"), "{other:#?}");
}

#[test]
fn a_store_whose_process_does_not_answer_is_not_opened() {
    let folder = killed();
    let (running, _) = serve(&folder, &[], &["--socket", "false"]);
    for line in ["list", "verify", "compact", "backup copy.redb"] {
        let taken = run(&folder, line).expect(4);
        assert!(
            taken.err.contains("a process has millrun.redb open"),
            "{line}: {taken:#?}"
        );
    }
    drop(running);
}

#[test]
fn a_file_is_copied_restored_exported_imported_and_compacted() {
    let folder = killed();
    let before = folder.read("millrun.redb");
    run(&folder, "backup copy.redb").expect(0);
    let again = run(&folder, "backup copy.redb").expect(1);
    assert!(again.err.contains("exists"), "{again:#?}");
    run(&folder, "export lines.ndjson").expect(0);
    assert!(folder.read("millrun.redb") == before);

    run(&folder, "restore copy.redb restored.redb").expect(0);
    assert!(
        run(&folder, "list --store restored.redb")
            .expect(0)
            .out
            .contains("ship-1")
    );
    let refused = run(&folder, "restore copy.redb millrun.redb").expect(1);
    assert!(refused.err.contains("nothing is written over"), "{refused:#?}");
    let mut damaged = folder.read("copy.redb");
    for byte in &mut damaged[8_192..] {
        *byte ^= 0x5a;
    }
    folder.write("damaged.redb", &damaged);
    run(&folder, "restore damaged.redb never.redb").expect(1);
    run(&folder, "import lines.ndjson imported.redb").expect(0);
    assert!(
        run(&folder, "list --store imported.redb")
            .expect(0)
            .out
            .contains("ship-1")
    );

    let compacted = json(&folder, "compact --json");
    let bytes = |name: &str| compacted[name].as_u64().unwrap();
    assert!(bytes("bytes_after") <= bytes("bytes_before"), "{compacted}");
    assert_eq!(bytes("bytes_after"), folder.read("millrun.redb").len() as u64);
    assert!(run(&folder, "list").expect(0).out.contains("ship-1"));
    assert!(!folder.names().contains(&"never.redb".to_owned()));
}

#[test]
fn the_store_of_a_program_that_runs_is_verified_copied_and_compacted_by_it() {
    let folder = Folder::new();
    let (running, address) = serve(&folder, &[], &[]);
    run(&folder, "start sample-shipment ship-1 \"shelf-1\"").expect(0);
    let inspected = run(&folder, "inspect").expect(0).out;
    assert!(inspected.contains("a process answers"), "{inspected}");
    assert_eq!(json(&folder, "verify --json")["is_sound"], true);
    run(&folder, "backup copy.redb").expect(0);
    run(&folder, "export lines.ndjson").expect(0);
    let again = run(&folder, &format!("backup copy.redb --url http://{address}")).expect(1);
    assert!(again.err.contains("exists"), "{again:#?}");
    assert!(run(&folder, "compact").expect(0).out.contains("has begun"));
    // Nothing is left beside the store.
    let names = folder.names();
    assert!(
        names
            .iter()
            .all(|name| !name.contains("redb.") || name.ends_with(".sock")),
        "{names:?}"
    );
    drop(running);
    assert!(
        run(&folder, "list --store copy.redb")
            .expect(0)
            .out
            .contains("ship-1")
    );
}
