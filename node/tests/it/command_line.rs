//! Help and exit codes.

use std::fs::File;

use crate::support::Folder;

#[test]
fn help_names_every_command_and_exit_code() {
    let folder = Folder::new();
    let help = folder.run(&["--help"]).expect(0).out;
    for word in ["demo", "checkout", "Exit codes:", "130"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(!help.contains("crash-worker"), "{help}");
    let help = folder.run(&["demo", "--help"]).expect(0).out;
    for option in [
        "--store",
        "--manifest",
        "--files-at-once",
        "--crash",
        "--workflows",
        "--kills",
        "--seed",
    ] {
        assert!(help.contains(option), "{option}: {help}");
    }
}

/// `millrun help --help` was called an unknown command.
#[test]
fn help_is_had_in_every_way() {
    let folder = Folder::new();
    let help = folder.run(&["demo", "--help"]).expect(0).out;
    assert_eq!(folder.run(&["help", "demo"]).expect(0).out.trim(), help.trim());
    let help = folder.run(&["--help"]).expect(0).out;
    assert_eq!(folder.run(&["help"]).expect(0).out.trim(), help.trim());
    for arguments in [&["help", "--help"][..], &["help", "-h"]] {
        assert!(
            folder
                .run(arguments)
                .expect(0)
                .out
                .contains("Usage: millrun help")
        );
    }
    folder.run(&["help", "nonsense"]).expect(2);
}

/// A reader that had gone, or a full disk behind standard output, was a panic with exit code 101.
#[test]
fn output_that_cannot_be_written_is_an_error_and_no_panic() {
    let folder = Folder::new();
    folder.write("tree/a", b"x");
    folder.write("orders", b"");
    let short = ["demo", "--crash", "--workflows", "50", "--kills", "1"];
    for arguments in [&["demo", "tree"][..], &["checkout", "orders"], &["help"], &short] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = folder.run_onto(arguments, full.into()).expect(1);
        assert!(
            ended.err.contains("standard output cannot be written"),
            "{ended:#?}"
        );

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = folder.run_onto(arguments, writer.into()).expect(1);
        assert!(!ended.err.contains("millrun:"), "{ended:#?}");
    }
    // Standard error is for people: what they cannot be told is left out.
    let nobody = File::options().write(true).open("/dev/full").unwrap();
    folder
        .run_with_words_for(&["demo", "tree"], nobody.into())
        .expect(0);
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let folder = Folder::new();
    for arguments in [
        &[][..],
        &["nonsense"],
        &["demo", "--files-at-once", "0"],
        &["demo", "--kills", "1"],
        &["demo", "--workflows", "1", "."],
    ] {
        folder.run(arguments).expect(2);
    }
}
