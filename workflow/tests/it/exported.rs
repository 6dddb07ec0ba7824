//! Exported histories: read back as they were, tried with code, and refused with a reason where they are none.

use std::path::Path;

use millrun_core::{Sequence, Timestamp};
use millrun_workflow::{
    Event, ExportedHistory, ExportedHistoryError, Fit, Implementation, KeptBeginning, Limits, Payload,
    Redaction, Workflow, WorkflowContext, WorkflowError,
};

use crate::histories::{Recording, read, recordings};
use crate::world::{World, run_id};

fn numbered(
    events: &[(Event, Timestamp)],
    from: usize,
) -> impl Iterator<Item = (Sequence, Event, Timestamp)> {
    let events = events.iter().enumerate().skip(from);
    events.map(|(at, (event, time))| (Sequence::new(at as u64 + 1), event.clone(), *time))
}

fn exported(events: &[(Event, Timestamp)]) -> ExportedHistory {
    ExportedHistory::new(run_id(), None, numbered(events, 0)).unwrap()
}

/// All forms in which a world's history can be exported: whole, and trimmed at each checkpoint.
fn forms(world: &World) -> Vec<ExportedHistory> {
    let mut all = vec![exported(world.history())];
    for kept in world.kept() {
        let sequence = KeptBeginning::decode(kept).unwrap().sequence().get();
        let behind = numbered(world.history(), usize::try_from(sequence).unwrap());
        all.push(ExportedHistory::new(run_id(), Some(kept), behind).unwrap());
    }
    all
}

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/exported/{name}.jsonl"));
    #[expect(clippy::disallowed_methods, reason = "the files are those that were recorded")]
    std::fs::read_to_string(path).unwrap()
}

/// The files were written once, by [`record_the_files`].
#[test]
fn files_of_this_version_are_read_by_each_later_release_and_written_the_same() {
    for Recording {
        name, file: events, ..
    } in recordings()
    {
        let text = file(name);
        let history: ExportedHistory = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(history, exported(&read(events)), "{name}");
        assert_eq!(history.to_string(), text, "{name}");
    }
    let mut trimmed = 0;
    for (name, history) in trimmed_recordings() {
        let text = file(&name);
        let read: ExportedHistory = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((&read, read.to_string()), (&history, text), "{name}");
        trimmed += 1;
    }
    assert!(trimmed > 2);
}

/// The recordings as their runs are trimmed at their last checkpoints.
fn trimmed_recordings() -> Vec<(String, ExportedHistory)> {
    let mut all = Vec::new();
    for Recording { name, make, .. } in recordings() {
        let mut forms = forms(&make());
        if forms.len() > 1 {
            all.extend(forms.pop().map(|trimmed| (format!("{name}-trimmed"), trimmed)));
        }
    }
    all
}

#[test]
fn a_history_is_read_back_as_it_was_whole_or_trimmed_and_its_code_fits() {
    let mut trimmed = 0;
    for Recording { name, code, make, .. } in recordings() {
        let world = make();
        for history in forms(&world) {
            let back: ExportedHistory = history.to_string().parse().unwrap();
            assert_eq!(back, history, "{name}");
            assert_eq!(back.run(), run_id());
            let Event::Started(started) = &world.history()[0].0 else {
                panic!("{name}");
            };
            assert_eq!(back.workflow(), started.workflow);
            assert_eq!(back.head().get(), world.history().len() as u64, "{name}");
            let is_trimmed = back.events().next().is_none_or(|(first, ..)| first.get() > 1);
            trimmed += usize::from(is_trimmed);
            let fit = back.fit(Some(&code()), Limits::default());
            assert_eq!(fit, Ok(Fit::Fits { changed_values: 0 }), "{name}");
            let workflow = started.workflow.to_string();
            let fit = back.fit(None, Limits::default());
            let version = world.instance.ledger().version();
            assert_eq!(back.version(), version, "{name}");
            assert_eq!(fit, Ok(Fit::NoCode { workflow, version }), "{name}");
        }
    }
    assert!(trimmed > 3, "{trimmed}");
}

#[test]
fn a_file_that_was_cut_off_is_noticed_wherever_that_was() {
    for Recording { name, make, .. } in recordings() {
        for history in forms(&make()) {
            let text = history.to_string();
            // But for the last line feed, all of it is needed.
            for end in (0..text.len() - 1).filter(|end| text.is_char_boundary(*end)) {
                let refused = text[..end].parse::<ExportedHistory>().unwrap_err();
                let is_in_first_line = !text[..end].contains('\n');
                match refused {
                    ExportedHistoryError::CutOff { has, head } => assert!(has < head, "{name}, {end} bytes"),
                    ExportedHistoryError::OtherFormat | ExportedHistoryError::Malformed { line: 1, .. } => {
                        assert!(is_in_first_line, "{name}, {end} bytes");
                    }
                    // Within what is kept.
                    ExportedHistoryError::Malformed { line: 2, .. } => {
                        assert!(!text[..end].ends_with('\n'), "{name}, {end} bytes");
                    }
                    other => panic!("{name}, {end} bytes: {other}"),
                }
            }
            assert_eq!(
                text[..text.len() - 1].parse::<ExportedHistory>().unwrap(),
                history
            );
        }
    }
}

fn refused(text: &str) -> ExportedHistoryError {
    text.parse::<ExportedHistory>().unwrap_err()
}

#[test]
fn what_is_no_history_of_this_format_is_refused_with_what_to_do() {
    let text = file("v1-completed");
    let lines: Vec<_> = text.lines().collect();
    for other in [
        "",
        "\n",
        "hello",
        "{}",
        r#"{"format":"other","version":1}"#,
        lines[1],
    ] {
        assert_eq!(refused(other), ExportedHistoryError::OtherFormat, "{other}");
    }
    let newer = text.replacen("\"version\":1", "\"version\":2", 1);
    assert_eq!(refused(&newer), ExportedHistoryError::Newer { version: 2 });

    let mut without = lines.clone();
    without.remove(3);
    let error = refused(&without.join("\n")).to_string();
    assert!(error.contains("event 4 stands where 3 belongs"), "{error}");
    let mut without = lines.clone();
    without.remove(1);
    let error = refused(&without.join("\n")).to_string();
    assert!(error.contains("does not begin"), "{error}");
    let mut twice = lines.clone();
    twice.insert(3, lines[3]);
    assert!(matches!(
        refused(&twice.join("\n")),
        ExportedHistoryError::NoHistory { .. }
    ));

    let mut odd = lines.clone();
    odd[3] = r#"{"sequence":3,"at_us":1,"event":{"Exploded":{}}}"#;
    let error = refused(&odd.join("\n"));
    assert!(
        matches!(&error, ExportedHistoryError::Malformed { line: 4, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("Exploded"), "{error}");
    let longer = format!("{text}{{\"sequence\"");
    assert!(matches!(refused(&longer), ExportedHistoryError::Malformed { .. }));
}

#[test]
fn numbers_beyond_all_events_are_refused() {
    let text = forms(&(recordings()
        .into_iter()
        .find(|one| one.name == "v1-checkpointed")
        .unwrap()
        .make)())
    .pop()
    .unwrap()
    .to_string();
    let (start, rest) = text.split_once("\"kept\":{\"sequence\":").unwrap();
    let digits = rest.find(',').unwrap();
    let last = format!("{start}\"kept\":{{\"sequence\":{}{}", u64::MAX, &rest[digits..]);
    assert!(last.parse::<ExportedHistory>().is_err());
    let before = last.replacen(&u64::MAX.to_string(), &(u64::MAX - 1).to_string(), 1);
    assert!(before.parse::<ExportedHistory>().is_err());
}

const GREET: Workflow<String, String> = Workflow::named("greet");
const CARD: &str = r#"{"number":"4111","limit":500}"#;

async fn greet(cx: WorkflowContext, name: String) -> Result<String, WorkflowError> {
    cx.sleep(std::time::Duration::from_secs(1)).await?;
    Ok(format!("hello {name}"))
}

/// The call that was added before the first.
async fn greet_later(cx: WorkflowContext, name: String) -> Result<String, WorkflowError> {
    drop(cx.promise::<u64>());
    greet(cx, name).await
}

async fn greet_louder(cx: WorkflowContext, name: String) -> Result<String, WorkflowError> {
    Ok(greet(cx, name).await?.to_uppercase())
}

async fn greet_never(_cx: WorkflowContext, name: String) -> Result<String, WorkflowError> {
    panic!("nobody greets {name}")
}

fn greeted() -> ExportedHistory {
    let mut world = World::start(Implementation::new(GREET, greet), &"Ada");
    assert!(world.fire_next());
    exported(world.history())
}

#[test]
fn code_that_does_not_fit_is_told_with_the_first_difference() {
    let history = greeted();
    let fit = |code| history.fit(Some(&code), Limits::default()).unwrap();
    let Fit::Differs(difference) = fit(Implementation::new(GREET, greet_later)) else {
        panic!("it has another operation");
    };
    assert_eq!(difference.sequence, 2);
    assert!(difference.replayed.contains("promise"), "{difference}");
    let Fit::Fails(difference) = fit(Implementation::new(GREET, greet_never)) else {
        panic!("it panics");
    };
    assert!(difference.replayed.contains("nobody greets Ada"), "{difference}");
    let louder = Implementation::new(GREET, greet_louder);
    assert_eq!(fit(louder.clone()), Fit::Fits { changed_values: 1 });
    let mut limits = Limits::default();
    limits.strict = true;
    assert!(!history.fit(Some(&louder), limits).unwrap().is_fit());
}

#[test]
fn fields_of_payloads_are_hidden_and_what_keeps_its_kind_is_still_replayed() {
    let text = greeted().to_string();
    let card = Payload::from_json(CARD).unwrap();
    let text = text.replace(r#"{"$value":"Ada"}"#, &format!("{{\"$value\":{CARD}}}"));
    let history: ExportedHistory = text.parse().unwrap();
    assert_eq!(history.beginning().unwrap().input, card);
    assert_eq!(history.redacted(&Redaction::default()), text);
    let hidden = history.redacted(&Redaction::of(["number"]).unwrap());
    assert!(
        !hidden.contains("4111") && hidden.contains(r#""limit":500"#),
        "{hidden}"
    );
    assert!(hidden.parse::<ExportedHistory>().is_ok(), "{hidden}");
    // What JSON has no form for is hidden as a whole.
    let bytes = text.replace(&format!("{{\"$value\":{CARD}}}"), r#"{"$payload":"CQEC"}"#);
    let bytes: ExportedHistory = bytes.parse().unwrap();
    assert_eq!(bytes.redacted(&Redaction::default()), bytes.to_string());
    let hidden = bytes.redacted(&Redaction::of(["number"]).unwrap());
    assert!(hidden.contains(r#"{"$payload":""}"#), "{hidden}");

    let all = Redaction::everything().keeping_kinds();
    for Recording { name, make, .. } in recordings() {
        for history in forms(&make()) {
            let hidden = history.redacted(&all);
            let back: ExportedHistory = hidden.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(back.redacted(&all), hidden, "{name}");
            let labels = |history: &ExportedHistory| -> Vec<_> {
                history
                    .events()
                    .map(|(sequence, event, at)| (sequence, event.label(), at))
                    .collect()
            };
            assert_eq!(labels(&back), labels(&history), "{name}");
        }
    }
    let history = greeted();
    let hidden: ExportedHistory = history.redacted(&all).parse().unwrap();
    assert!(!hidden.to_string().contains("Ada"));
    let fit = hidden.fit(Some(&Implementation::new(GREET, greet)), Limits::default());
    assert_eq!(fit, Ok(Fit::Fits { changed_values: 1 }), "the result is another");
}

/// The state of an entity, and what a local step gave, stand in payloads of millrun's own.
#[test]
fn fields_are_hidden_in_what_millrun_wraps_too() {
    let make = |name: &str| {
        let recording = recordings().into_iter().find(|one| one.name == name);
        recording.unwrap_or_else(|| panic!("no {name}"))
    };
    let entity = make("v1-entity");
    let history = exported((entity.make)().history());
    let state = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains("Checkpointed"));
        lines.map(str::to_owned).collect()
    };
    let shown = history.to_string();
    let hidden = history.redacted(&Redaction::of(["balance"]).unwrap().keeping_kinds());
    assert_ne!(state(&shown), state(&hidden), "the state has a balance");
    let back: ExportedHistory = hidden.parse().unwrap();
    assert_eq!(
        back.redacted(&Redaction::of(["balance"]).unwrap().keeping_kinds()),
        hidden
    );
    assert_eq!(history.redacted(&Redaction::of(["nothing"]).unwrap()), shown);

    let mut world = World::start(Implementation::new(GREET, carded), &"Ada");
    assert!(world.fire_next());
    let history = exported(world.history());
    let hidden = history.redacted(&Redaction::of(["number"]).unwrap());
    assert!(
        hidden.contains(r#"{"$value":{"Value":{"number":"(redacted)""#),
        "{hidden}"
    );
    // A number that JSON would make another of is hidden by its value.
    let odd = history.redacted(&Redaction::of(["rate"]).unwrap());
    assert!(
        !odd.contains("$payload") && odd.contains(r#""rate":"(redacted)""#),
        "{odd}"
    );
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Card {
    number: String,
    rate: f32,
}

async fn carded(cx: WorkflowContext, name: String) -> Result<String, WorkflowError> {
    let card = Card {
        number: "4111".to_owned(),
        rate: 1.1,
    };
    let mut card = Some(card);
    let taken = cx.local(|| Ok::<_, WorkflowError>(card.take())).await?;
    cx.sleep(std::time::Duration::from_secs(1)).await?;
    Ok(format!("{name} {}", taken.map_or(0, |card| card.number.len())))
}

#[test]
#[ignore = "writes the files that are missing; run once when a format is released"]
fn record_the_files() {
    let whole = recordings()
        .into_iter()
        .map(|one| (one.name.to_owned(), exported(&read(one.file))));
    for (name, history) in whole.chain(trimmed_recordings()) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/exported/{name}.jsonl"));
        if !path.exists() {
            std::fs::write(&path, history.to_string()).unwrap();
        }
    }
}
