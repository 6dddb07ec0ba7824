//! `millrun demo --crash`, in short form.

use millrun_testkit::PostgresServer;

use crate::support::{Ended, Folder};

const SHORT: [&str; 8] = [
    "demo",
    "--crash",
    "--workflows",
    "1500",
    "--running",
    "500",
    "--kills",
    "3",
];

/// The show has acknowledged and completed this number of runs, at least one kill came in the middle, and the ledger has no fault.
fn assert_clean(ended: &Ended, runs: &str) {
    assert!(ended.out.contains("nothing acknowledged was lost"), "{ended:#?}");
    let count = |what: &str| {
        let line = ended.out.lines().find(|line| line.trim_start().starts_with(what));
        line.unwrap_or_else(|| panic!("{what}: {ended:#?}"))
            .split_whitespace()
            .last()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        [
            count("starts acknowledged"),
            count("of those completed"),
            count("faults")
        ],
        [runs, runs, "0"]
    );
    assert!(
        ended.out.matches("with about").count() >= 1,
        "no kill came in the middle: {ended:#?}"
    );
}

#[test]
fn nothing_acknowledged_is_lost_when_nodes_of_one_store_are_killed_in_the_middle() {
    if !PostgresServer::is_installed() {
        let required = std::env::var("MILLRUN_REQUIRE").unwrap_or_default();
        assert!(
            !required.contains("postgres"),
            "MILLRUN_REQUIRE asks for postgres"
        );
        eprintln!("SKIPPED: there is no PostgreSQL (initdb), so no nodes were killed");
        return;
    }
    let mut server = PostgresServer::make().unwrap();
    server.start().unwrap();
    let folder = Folder::new();
    let url = server.url("crash");
    let line = |nodes| [&SHORT[..], &["--store", &url, "--nodes", nodes]].concat();
    assert_clean(&folder.run(&line("3")).expect(0), "1,500");
    // Its runs would be taken for those of the next show.
    let refused = folder.run(&line("2")).expect(1);
    assert!(refused.err.contains("the schema has runs"), "{refused:#?}");
    folder.run(&line("0")).expect(2);
    let file = folder
        .run(&[&SHORT[..], &["--store", "a.redb"]].concat())
        .expect(2);
    assert!(file.err.contains("--store names a database"), "{file:#?}");
}

#[test]
fn nothing_acknowledged_is_lost_when_a_process_is_killed_in_the_middle() {
    let folder = Folder::new();
    let ended = folder
        .run(&[&SHORT[..], &["--keep-in", "kept"]].concat())
        .expect(0);
    assert!(ended.out.contains("nothing acknowledged was lost"), "{ended:#?}");
    assert_clean(&ended, "1,500");
    assert!(folder.path("kept/ledger").exists() && folder.path("kept/store.redb").exists());
}

/// After Ctrl-C, and after output that could not be written, the temporary store stayed behind.
#[test]
fn a_show_that_is_cut_short_leaves_nothing_behind() {
    let folder = Folder::new();
    let left = |folder: &Folder| std::fs::read_dir(folder.temporary()).unwrap().count();
    let running = folder.start_until(&SHORT, "kill 1");
    assert_eq!(left(&folder), 1, "the store is not where this test looks");
    assert_eq!(running.interrupt(), Some(130));
    assert_eq!(left(&folder), 0);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    folder.run_onto(&SHORT, writer.into()).expect(1);
    assert_eq!(left(&folder), 0);
}

#[test]
fn a_directory_that_exists_is_not_written_to() {
    let folder = Folder::new();
    folder.write("kept/precious", b"x");
    folder
        .run(&[&SHORT[..], &["--keep-in", "kept"]].concat())
        .expect(1);
    assert_eq!(folder.read("kept/precious"), b"x");
}

#[test]
fn a_store_that_forgot_is_found_out() {
    let folder = Folder::new();
    let worker = |store: &str, process: &str, more: &[&str]| {
        let fixed = [
            "crash-worker",
            "--ledger",
            "ledger",
            "--workflows",
            "20",
            "--running",
            "20",
        ];
        folder.run(&[&fixed[..], &["--store", store, "--process", process], more].concat())
    };
    worker("store", "1", &[]).expect(0);
    // The same ledger with an empty store: every acknowledged run is gone.
    let ended = worker("empty", "2", &["--only-show"]).expect(1);
    assert!(
        ended.err.contains("there is no instance of this id"),
        "{ended:#?}"
    );
}
