//! Every example runs, and prints what it says it prints.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

fn run(program: &str, directory: &Path) -> Output {
    Command::new(program).current_dir(directory).output().unwrap()
}

/// Runs a program that succeeds; gives what it printed.
fn printed(program: &str, directory: &Path) -> String {
    let output = run(program, directory);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn quickstart_gives_the_same_result_the_second_time() {
    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_quickstart");
    let first = printed(program, directory.path());
    assert!(first.starts_with("1999 cents paid, receipt "), "{first}");
    assert_eq!(printed(program, directory.path()), first);
}

#[test]
fn quickstart_fits_on_a_page() {
    assert!(include_str!("../../quickstart.rs").lines().count() <= 40);
}

#[test]
fn resume_goes_on_where_the_first_process_died() {
    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_resume");
    let first = run(program, directory.path());
    assert!(!first.status.success());
    assert_eq!(
        first.stdout,
        b"step 1, attempt 1\nstep 2, attempt 1\nstep 3, attempt 1\n"
    );
    let second = printed(program, directory.path());
    let lines: Vec<_> = second.lines().collect();
    assert!(
        lines[0].starts_with("step 3, attempt ") && lines[0] != "step 3, attempt 1",
        "{second}"
    );
    assert_eq!(
        lines[1..],
        ["step 4, attempt 1", "step 5, attempt 1", "height 15"]
    );
    assert_eq!(printed(program, directory.path()), "height 15\n");
}

#[test]
fn approval_takes_the_answer_or_the_silence() {
    let directory = tempfile::tempdir().unwrap();
    let out = printed(env!("CARGO_BIN_EXE_approval"), directory.path());
    assert_eq!(out, "ada: approved by grace\nalan: nobody answered\n");
}

#[test]
fn topics_reach_fast_and_slow_subscribers() {
    let directory = tempfile::tempdir().unwrap();
    let out = printed(env!("CARGO_BIN_EXE_topics"), directory.path());
    assert_eq!(
        out,
        "the sum of all orders is 55\nthe screen shows [8, 9, 10], 7 were dropped\n"
    );
}

#[test]
fn actor_gets_what_a_workflow_published() {
    let directory = tempfile::tempdir().unwrap();
    let out = printed(env!("CARGO_BIN_EXE_actor"), directory.path());
    assert_eq!(out, "thank you for 1999 cents\n");
}

#[test]
fn cart_answers_and_performs_each_request_once() {
    let directory = tempfile::tempdir().unwrap();
    let expected = [
        "r1: bread is number 1",
        "r2: milk is number 2",
        "r1: bread is number 1",
        "r3: bread is there already",
        "r4: tea is number 3",
        "3 of [\"bread\", \"milk\", \"tea\"]",
    ];
    let out = printed(env!("CARGO_BIN_EXE_cart"), directory.path());
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn parcels_are_started_by_the_order_that_comes_first() {
    let directory = tempfile::tempdir().unwrap();
    let out = printed(env!("CARGO_BIN_EXE_parcels"), directory.path());
    assert_eq!(
        out,
        "parcel 1, ada: bread, milk, tea\nparcel 2, grace: ink, paper, pens\nparcel 3, ada: salt, rice, oil\n"
    );
}
