//! Every program of the guide runs and prints what its chapter says, and every snippet of a chapter stands in a
//! program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "what is linted here as workflow code is none"
)]

mod chapters;
mod glossary;
mod type_names;

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a program, and compares what it prints with the file that its chapter includes.
fn check(name: &str, program: &str) {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(program)
        .current_dir(directory.path())
        .env("TMPDIR", directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("programs/{name}.out"));
    assert_eq!(printed, fs::read_to_string(expected).unwrap(), "{name}");
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        0,
        "{name} leaves nothing behind"
    );
}

macro_rules! programs {
    ($($test:ident $name:literal,)*) => {
        /// The programs that are run.
        const PROGRAMS: &[&str] = &[$($name),*];

        $(
            #[test]
            fn $test() {
                check($name, env!(concat!("CARGO_BIN_EXE_guide-", $name)));
            }
        )*
    };
}

programs! {
    first_charges_and_ships_once "first",
    errors_are_retried_where_that_helps "errors",
    clients_charge_once "clients",
    waiting_ends_with_whatever_comes_first "waiting",
    state_is_asked_and_changed "state",
    entities_are_commanded_once "entities",
    together_waits_for_what_it_needs "together",
    sagas_undo_in_reverse "sagas",
    long_goes_on_under_one_id "long",
    starts_do_as_they_are_told "starting",
    schedules_are_due_once_and_by_the_rule_of_the_clocks "schedules",
    events_start_and_signal "events",
    durable_topics_lose_nothing_over_two_processes "durable",
    actors_hear_of_what_is_published "actors",
    testing_moves_the_clock_itself "testing",
    payloads_of_old_runs_are_read "payloads",
    deploying_keeps_old_runs_on_the_old_way "deploying",
    operating_tells_what_is_stuck "operating",
    web_answers_and_ends_in_order "web",
}
