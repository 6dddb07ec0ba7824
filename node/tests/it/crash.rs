//! `millrun demo --crash`, in short form.

use crate::support::Folder;

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

#[test]
fn nothing_acknowledged_is_lost_when_a_process_is_killed_in_the_middle() {
    let folder = Folder::new();
    let ended = folder
        .run(&[&SHORT[..], &["--keep-in", "kept"]].concat())
        .expect(0);
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
        ["1,500", "1,500", "0"]
    );
    assert!(
        ended.out.matches("with about").count() >= 1,
        "no kill came in the middle: {ended:#?}"
    );
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
