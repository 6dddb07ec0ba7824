//! `millrun demo`: the manifest, and that an interruption costs nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::support::{Folder, sha256sum_accepts};

/// Takes long enough to be interrupted, and no room on the disk.
const LARGE: u64 = 600 << 20;

#[test]
fn the_manifest_has_every_file_whatever_its_name_and_is_accepted_by_sha256sum() {
    let folder = Folder::new();
    for name in [
        &b"plain"[..],
        b"new\nline",
        b"back\\slash",
        b"caf\xe9",
        b"sub/-",
        b"sub/ deep/er/x",
    ] {
        folder.write(OsStr::from_bytes(&[b"tree/", name].concat()), name);
    }
    std::os::unix::fs::symlink("plain", folder.path("tree/link")).unwrap();
    let ended = folder.run(&["demo", "tree"]).expect(0);
    let manifest = folder.read("millrun-demo.sha256");
    assert_eq!(
        manifest.iter().filter(|byte| **byte == b'\n').count(),
        6,
        "{ended:#?}"
    );
    assert_ne!(sha256sum_accepts(&folder, "millrun-demo.sha256"), Some(false));
    assert!(ended.out.contains("1 symbolic links"), "{ended:#?}");
}

#[test]
fn store_and_manifest_in_the_tree_are_left_out_and_a_second_run_sees_what_changed() {
    let folder = Folder::new();
    folder.write("a", b"one");
    folder.run(&["demo"]).expect(0);
    let first = folder.read("millrun-demo.sha256");
    assert!(
        first.ends_with(b"  ./a\n") && first.len() == 64 + 6,
        "{}",
        String::from_utf8_lossy(&first)
    );
    folder.write("a", b"two");
    folder.run(&["demo"]).expect(0);
    assert_ne!(folder.read("millrun-demo.sha256"), first);
    assert_eq!(
        folder.names(),
        ["a", "millrun-demo.redb", "millrun-demo.sha256"],
        "nothing else is left behind"
    );
}

#[test]
fn a_tree_of_many_chunks_is_complete_and_in_order() {
    let folder = Folder::new();
    (0..700).for_each(|number| folder.write(format!("tree/{:02}/{number:03}", number / 50), b"x"));
    folder.run(&["demo", "tree"]).expect(0);
    let manifest = String::from_utf8(folder.read("millrun-demo.sha256")).unwrap();
    let names: Vec<&str> = manifest.lines().map(|line| &line[66..]).collect();
    assert_eq!(names.len(), 700);
    assert!(names.is_sorted());
}

#[test]
fn an_empty_tree_gives_an_empty_manifest() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("tree")).unwrap();
    folder.run(&["demo", "tree"]).expect(0);
    assert_eq!(folder.read("millrun-demo.sha256"), b"");
}

/// A tree with a file that takes a while, and what an undisturbed run makes of it.
fn slow_tree() -> (Folder, Vec<u8>) {
    let folder = Folder::new();
    (0..300).for_each(|number| folder.write(format!("tree/{number}"), b"x"));
    folder.write_zeros("tree/large", LARGE);
    folder
        .run(&["demo", "tree", "--store", "other.redb", "--manifest", "expected"])
        .expect(0);
    let expected = folder.read("expected");
    (folder, expected)
}

#[test]
fn a_killed_run_goes_on_and_ends_with_the_same_manifest() {
    let (folder, expected) = slow_tree();
    folder.start_until(&["demo", "tree"], "checksumming").kill();
    assert!(!folder.path("millrun-demo.sha256").exists());
    let ended = folder.run(&["demo", "tree"]).expect(0);
    assert!(ended.err.contains("going on with"), "{ended:#?}");
    assert_eq!(folder.read("millrun-demo.sha256"), expected);
}

#[test]
fn an_interrupted_run_finishes_its_files_or_cuts_them_and_goes_on_later() {
    let (folder, expected) = slow_tree();
    for within in ["0", "10"] {
        let running = folder.start_until(&["demo", "tree", "--stop-within", within], "checksumming");
        assert_eq!(running.interrupt(), Some(130));
    }
    let ended = folder.run(&["demo", "tree"]).expect(0);
    assert!(ended.err.contains("going on with"), "{ended:#?}");
    assert_eq!(folder.read("millrun-demo.sha256"), expected);
}

#[test]
fn what_cannot_be_used_is_named_and_left_alone() {
    let folder = Folder::new();
    folder.write("tree/a", b"x");
    folder.write("foreign", &b"this is no store. ".repeat(1_000));
    for (arguments, named) in [
        (&["demo", "missing"][..], "missing"),
        (&["demo", "tree/a"], "tree/a"),
        (&["demo", "tree", "--store", "missing/store"], "missing/store"),
        (&["demo", "tree", "--store", "foreign"], "store"),
        (&["demo", "tree", "--manifest", "tree"], "tree"),
    ] {
        let ended = folder.run(arguments).expect(1);
        assert!(
            ended.err.starts_with("millrun: ") && ended.err.contains(named),
            "{ended:#?}"
        );
    }
    assert_eq!(folder.read("foreign"), b"this is no store. ".repeat(1_000));
}

/// A full disk behind the manifest was met with ten minutes of silence.
#[test]
fn a_manifest_that_cannot_be_written_is_told_at_once() {
    let folder = Folder::new();
    folder.write("tree/a", b"x");
    std::os::unix::fs::symlink("/dev/full", folder.path("full.partial")).unwrap();
    let full = ["demo", "tree", "--manifest", "full"];
    let told = format!(
        "attempt 1: the manifest {} cannot be written",
        folder.path("full").display()
    );
    folder.start_until(&full, &told).kill();
    folder.write("foreign.partial/file", b"x");
    let ended = folder.run(&["demo", "tree", "--manifest", "foreign"]).expect(1);
    assert!(
        ended.err.contains("foreign cannot be written: Is a directory"),
        "{ended:#?}"
    );
}

/// Names with an escape in them went to the manifest, and paths of thousands of bytes to the screen, without
/// a word.
#[test]
fn strange_names_are_counted_and_long_ones_are_shown_in_part() {
    let folder = Folder::new();
    folder.write("tree/\u{1b}[31mred", b"x");
    let ended = folder.run(&["demo", "tree"]).expect(0);
    assert!(
        ended.out.contains("1 names with control characters"),
        "{ended:#?}"
    );
    assert!(
        folder
            .read("millrun-demo.sha256")
            .ends_with(b"  tree/\x1b[31mred\n")
    );
    let ended = folder.run(&["demo", &"d/".repeat(3_000)]).expect(1);
    assert!(
        ended.err.len() < 500 && ended.err.contains("[5760 characters]"),
        "{ended:#?}"
    );
}

#[test]
fn a_store_in_use_is_refused_to_a_second_process() {
    let (folder, _) = slow_tree();
    let first = folder.start_until(&["demo", "tree"], "checksumming");
    let second = folder.run(&["demo", "tree", "--manifest", "second"]).expect(1);
    assert!(
        second.err.starts_with("millrun: the store could not be opened"),
        "{second:#?}"
    );
    drop(first);
}
