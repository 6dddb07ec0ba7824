//! Every example runs, and prints what it says it prints.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod histories;
mod pipeline;
mod worlds;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(program: &str, directory: &Path) -> Output {
    Command::new(program)
        .current_dir(directory)
        .env("TMPDIR", directory)
        .output()
        .unwrap()
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
fn actor_gets_what_a_workflow_published_also_behind_its_restart() {
    let directory = tempfile::tempdir().unwrap();
    let out = printed(env!("CARGO_BIN_EXE_actor"), directory.path());
    assert_eq!(
        out,
        "thank you for 1999 cents\nthank you for 500 cents\nactor clerk: restarted 1 time\n"
    );
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
    // The cart has ended by now: what it answered is answered again, what it refused is too late.
    let again = printed(env!("CARGO_BIN_EXE_cart"), directory.path());
    assert_eq!(
        again,
        out.replace("r3: bread is there already", "r3: the cart is full")
    );
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

#[test]
fn trip_gives_back_in_reverse_what_was_booked_also_when_it_is_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let expected = [
        "flight booked",
        "hotel booked",
        "ada travels: [6, 5]",
        "flight booked",
        "hotel booked",
        "hotel 5 given back",
        "flight 6 given back",
        "alan stays at home: the workflow failed: the activity failed: no car is left",
        "train booked",
        "hotel booked",
        "hotel 5 given back",
        "train 5 given back",
        "grace stays at home: the workflow was cancelled: the signal was not waited for: the run was asked to cancel: she is ill",
    ];
    let out = printed(env!("CARGO_BIN_EXE_trip"), directory.path());
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn seats_are_sold_once() {
    let directory = tempfile::tempdir().unwrap();
    let out = printed(env!("CARGO_BIN_EXE_seats"), directory.path());
    assert_eq!(
        out,
        "friday: 1 of 2 has the last seat\nsaturday: 1 of 2 has the last seat\n"
    );
}

#[test]
fn stock_is_taken_by_one_order_and_not_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let expected = [
        "ada: on its way",
        "alan: sorry, 2 bolts are left",
        "2 bolts are left",
        "92 nuts are left",
        "to be ordered: 2 bolts",
    ];
    let out = printed(env!("CARGO_BIN_EXE_stock"), directory.path());
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn meter_is_read_for_ever_with_a_history_that_stays_short() {
    let directory = tempfile::tempdir().unwrap();
    let expected = [
        "250 readings; this run's history has 56 events",
        "it is the run that began: false",
        "the sum is 31375",
    ];
    let out = printed(env!("CARGO_BIN_EXE_meter"), directory.path());
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
}

/// Votes used to be sent before all jurors had begun, and one in four times there was nobody to get one.
#[test]
fn jury_waits_for_a_majority_and_for_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let expected = [
        "grace has voted true",
        "alan has voted false",
        "barbara has voted true",
        "ada has voted true",
        "the verdict is true, by grace, barbara, ada",
        "edsger need not vote",
    ];
    for _ in 0..10 {
        let out = printed(env!("CARGO_BIN_EXE_jury"), directory.path());
        assert_eq!(out.lines().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn import_goes_on_where_the_attempt_before_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let expected = [
        "attempt 1 begins at row 0",
        "attempt 2 begins at row 3",
        "attempt 3 begins at row 6",
        "monday: 28",
        "attempt 1 begins at row 0",
        "tuesday: the workflow failed: please look at row 1",
    ];
    let out = printed(env!("CARGO_BIN_EXE_import"), directory.path());
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn upgrade_shows_what_does_not_fit_and_takes_old_runs_the_old_way() {
    let directory = tempfile::tempdir().unwrap();
    let out = printed(env!("CARGO_BIN_EXE_upgrade"), directory.path());
    let lines: Vec<_> = out.lines().collect();
    assert!(
        lines[0].contains("recorded") && lines[0].contains("replayed"),
        "{out}"
    );
    assert!(
        lines[1].contains("call of charge") && lines[1].contains("call of screen"),
        "{out}"
    );
    assert!(lines[1].contains("upgrade.rs:"), "{out}");
    assert_eq!(
        lines[2..],
        [
            "old: 100 cents charged",
            "new: 200 cents screened, 200 cents charged"
        ]
    );
    // It used to wait for ever for the runs that the first time had left behind.
    assert_eq!(printed(env!("CARGO_BIN_EXE_upgrade"), directory.path()), out);
    let left = fs::read_dir(directory.path()).unwrap();
    assert_eq!(left.count(), 0, "it leaves nothing behind");
}

#[test]
fn preflight_finds_what_the_next_release_would_break_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let call = |arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_preflight"));
        let output = program
            .args(arguments)
            .current_dir(directory.path())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(call(&["app.redb"]).0, Some(0));
    let store = fs::read(directory.path().join("app.redb")).unwrap();
    let (code, out) = call(&["app.redb", "--next", "--preflight"]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.starts_with("0 of 1 runs fit the code"), "{out}");
    assert!(
        out.contains("call of charge") && out.contains("such as order-1"),
        "{out}"
    );
    let (code, out) = call(&["app.redb", "--preflight"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(fs::read(directory.path().join("app.redb")).unwrap() == store);
}

#[test]
fn tree_is_listed_watched_and_killed_a_branch_of() {
    let directory = tempfile::tempdir().unwrap();
    let out = printed(env!("CARGO_BIN_EXE_tree"), directory.path());
    assert!(
        out.starts_with("shard 0, restarted 0 times\n") || out.contains("\nshard 0, restarted 0 times\n"),
        "{out}"
    );
    let expected = "shard 0 failed: it was killed\nshard 0 was restarted, 1 in all\nthe run gives 42\n";
    assert!(out.ends_with(expected), "{out}");
}

/// All Rust code below a folder, in one text.
fn code_below(folder: &Path) -> String {
    let mut code = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            code += &code_below(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code += &fs::read_to_string(&path).unwrap();
        }
    }
    code
}

/// The feature table and the pitfalls name what shows that they are right.
#[test]
fn tests_and_files_that_the_documents_name_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates = [
        "core",
        "broker",
        "workflow",
        "persistence",
        "postgres",
        "runtime",
        "http",
        "testkit",
        "node",
        "examples",
    ];
    let code: String = crates.iter().map(|name| code_below(&root.join(name))).collect();
    for (document, named_at_least) in [("docs/capabilities.md", 60), ("docs/pitfalls.md", 30)] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        let quoted = text.split('`').skip(1).step_by(2);
        let mut named = 0;
        for name in quoted {
            let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let is_test = name.chars().all(is_word) && name.matches('_').count() > 2;
            let is_file = name.ends_with(".rs") && name.contains('/');
            named += u64::from(is_test || is_file);
            // A field of the configuration may have a name as long as a test's.
            let is_known = || code.contains(&format!("fn {name}(")) || code.contains(&format!("pub {name}:"));
            assert!(!is_test || is_known(), "{document}: {name}");
            assert!(!is_file || root.join(name).exists(), "{document}: {name}");
        }
        assert!(named > named_at_least, "{document} names {named}");
    }
}

/// What is no bound of the configuration: a mode, or a place for others.
const OTHERS: [&str; 13] = [
    "claimed_at_open",
    "hosts_instances",
    "keep_history",
    "own_thread",
    "replay_check_every",
    "strict",
    "versions_may_go_back",
    "durability",
    "archive",
    "limits",
    "journal",
    "store",
    "retention",
];

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// The ways in which a person may write a default that is printed like this; none if it is something else.
fn written(value: &str) -> Vec<String> {
    if let Ok(number) = value.parse::<u64>() {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let round = units
            .iter()
            .find(|(bits, _)| number > 0 && number.trailing_zeros() >= *bits);
        let mut written = vec![grouped(number)];
        written.extend(round.map(|(bits, unit)| format!("{} {unit}", number >> bits)));
        return written;
    }
    let unit_at = value.find(|c: char| c.is_alphabetic()).unwrap_or(value.len());
    let (number, unit) = value.split_at(unit_at);
    if number.parse::<f64>().is_err() || !["ns", "µs", "ms", "s"].contains(&unit) {
        return Vec::new();
    }
    let mut written = vec![format!("{number} {unit}")];
    let hours = number
        .parse::<u64>()
        .ok()
        .filter(|s| unit == "s" && s % 3_600 == 0);
    written.extend(hours.map(|seconds| format!("{} h", seconds / 3_600)));
    written
}

/// Whether a text says this, in whole words.
fn says(text: &str, what: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text.split_whitespace();
        words
            .map(|word| word.trim_end_matches([',', ';', '.']).to_owned())
            .collect()
    };
    let (text, what) = (words(text), words(what));
    text.windows(what.len()).any(|words| words == what)
}

#[test]
fn every_bound_of_the_configuration_stands_in_the_table_of_limits_with_its_default() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let limits = fs::read_to_string(root.join("docs/limits.md")).unwrap();
    let rows: Vec<Vec<&str>> = limits
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').collect())
        .collect();
    assert!(rows.iter().all(|cells| cells.len() == 4), "{rows:?}");
    let config = format!("{:#?}", millrun::RuntimeConfig::default());
    let mut bounds_len = 0;
    for line in config.lines() {
        let Some((field, value)) = line.trim().trim_end_matches(',').split_once(": ") else {
            continue;
        };
        if OTHERS.contains(&field) {
            continue;
        }
        bounds_len += 1;
        let is_of = |cell: &str| match field {
            // Those of retention share a line.
            "age_max" | "len_max" | "bytes_max" => cell.contains("`journal.retention`"),
            field => cell.contains(&format!("`{field}`")) || cell.contains(&format!(".{field}`")),
        };
        let row = rows.iter().find(|cells| is_of(cells[1]));
        let row = row.unwrap_or_else(|| panic!("{field} has no row"));
        // What is allowed at most is no default.
        let default = row[2].split("at most").next().unwrap_or_default();
        let written = written(value);
        assert!(
            value == "{}" || !written.is_empty(),
            "say how a person writes {value}, the default of {field}"
        );
        let is_told = value == "{}" || written.iter().any(|written| says(default, written));
        assert!(is_told, "{field} is {value} by default: {row:?}");
    }
    assert!(bounds_len > 35, "{bounds_len} in {config}");
}

#[test]
fn console_is_nested_in_an_app_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let printed = printed(env!("CARGO_BIN_EXE_console"), directory.path());
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines[..2], ["/: a shop", "/millrun/v1/ready: {\"ready\":true}"]);
    assert!(lines[2].contains("waits for the signal paid"), "{printed}");
}
