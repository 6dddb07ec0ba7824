//! Help and exit codes.

use crate::support::Place;

#[test]
fn help_names_every_command_and_exit_code() {
    let place = Place::new();
    let help = place.run(&["--help"]).expect(0).out;
    for word in ["demo", "checkout", "Exit codes:", "130"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(!help.contains("crash-worker"), "{help}");
    let help = place.run(&["demo", "--help"]).expect(0).out;
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

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let place = Place::new();
    for arguments in [
        &[][..],
        &["nonsense"],
        &["demo", "--files-at-once", "0"],
        &["demo", "--kills", "1"],
    ] {
        place.run(arguments).expect(2);
    }
}
