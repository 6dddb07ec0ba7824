//! The spans that are made of a history: names, times and ids, which never change for a history that is there.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use millrun_core::{Sequence, SpanId, Timestamp};
use millrun_workflow::{Event, KeptBeginning, RunSpans, SpanBounds, SpanEnd, SpanFold};

use crate::histories::{read, recordings};
use crate::world::{World, run_id};

fn spans_of(history: &[(Event, Timestamp)], bounds: SpanBounds) -> RunSpans {
    let mut fold = SpanFold::new(run_id(), bounds);
    for (sequence, (event, time)) in (1..).zip(history) {
        fold.apply(Sequence::new(sequence), event, *time);
    }
    fold.finish().unwrap()
}

/// One line for each span, with its notes below.
fn drawn(spans: &RunSpans) -> String {
    let mut text = format!("{}\n", spans.trace);
    for span in &spans.spans {
        let parent = span.parent.map_or("-".into(), |parent| parent.to_string());
        let (from, until) = (span.began_at.as_micros(), span.ended_at.as_micros());
        let (label, name, end) = (span.of.label(), &span.name, &span.end);
        writeln!(
            text,
            "  {} < {parent} {label} {name:?} {from}..{until} {end:?}",
            span.id
        )
        .unwrap();
        writeln!(text, "    {:?} {:?}", span.attributes, span.links).unwrap();
        for note in &span.notes {
            let at = note.at.as_micros();
            writeln!(text, "    {at} {} {:?}", note.name, note.attributes).unwrap();
        }
    }
    text
}

fn drawn_recordings() -> String {
    let mut text = String::new();
    for recording in recordings() {
        let spans = spans_of(&read(recording.file), SpanBounds::default());
        writeln!(text, "{} {}", recording.name, drawn(&spans)).unwrap();
    }
    text
}

#[test]
fn the_spans_of_recorded_histories_never_change() {
    assert_eq!(drawn_recordings(), include_str!("../spans.txt"));
}

#[test]
#[ignore = "writes what the spans are now; look at each line that has changed, since collectors have the old ones"]
fn write_the_spans() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/spans.txt");
    std::fs::write(path, drawn_recordings()).unwrap();
}

#[test]
fn the_ids_of_a_run_are_all_different_and_each_span_hangs_below_the_run() {
    for recording in recordings() {
        let spans = spans_of(&read(recording.file), SpanBounds::default()).spans;
        let ids: BTreeSet<_> = spans.iter().map(|span| span.id).collect();
        assert_eq!(ids.len(), spans.len(), "{}", recording.name);
        assert_eq!(spans[0].id, SpanId::of_run(run_id()));
        for span in &spans[1..] {
            assert_eq!(span.parent, Some(spans[0].id));
            // A clock that was set back lets an operation begin before its run; it does not let it end before it began.
            assert!(span.began_at <= span.ended_at, "{}: {span:?}", recording.name);
        }
    }
}

/// A run that goes on has the spans that it will have, as far as it has come: nothing that was told changes its id.
#[test]
fn the_beginning_of_a_history_has_the_first_of_its_spans() {
    for recording in recordings() {
        let history = read(recording.file);
        let whole = spans_of(&history, SpanBounds::default());
        for len in 1..history.len() {
            let part = spans_of(&history[..len], SpanBounds::default());
            assert_eq!(part.trace, whole.trace);
            for (part, whole) in part.spans.iter().zip(&whole.spans) {
                assert_eq!(
                    (part.id, part.parent, part.of),
                    (whole.id, whole.parent, whole.of)
                );
                assert_eq!((&part.name, part.began_at), (&whole.name, whole.began_at));
            }
        }
    }
}

#[test]
fn what_is_too_much_is_counted() {
    let recording = recordings()
        .into_iter()
        .find(|recording| recording.name == "v1-composed");
    let history = read(recording.unwrap().file);
    let whole = spans_of(&history, SpanBounds::default());
    let bounds = SpanBounds {
        spans_len_max: 4,
        notes_len_max: 0,
        text_bytes_max: 3,
    };
    let few = spans_of(&history, bounds);
    assert_eq!(few.spans.len(), 4);
    assert_eq!(few.left_out, u64::try_from(whole.spans.len() - 4).unwrap());
    let notes = whole.spans[0].notes.len();
    assert!(notes > 0);
    assert_eq!(few.spans[0].notes_left_out, u32::try_from(notes).unwrap());
    for span in few.spans {
        assert!(span.notes.is_empty());
        assert!(!matches!(span.end, SpanEnd::Failed(text) if text.len() > 3));
    }
}

/// Of a run that was trimmed, the operations are there that were pending then, under the ids that they had.
#[test]
fn a_kept_beginning_has_the_run_and_what_was_pending() {
    let mut checked = 0;
    for recording in recordings() {
        let world: World = (recording.make)();
        let whole = spans_of(world.history(), SpanBounds::default());
        for bytes in world.kept() {
            let kept = KeptBeginning::decode(bytes).unwrap();
            let mut fold = SpanFold::new(run_id(), SpanBounds::default());
            fold.begin_kept(&kept);
            for (sequence, (event, time)) in (1..).zip(world.history()) {
                if sequence > kept.sequence().get() {
                    fold.apply(Sequence::new(sequence), event, *time);
                }
            }
            let spans = fold.finish().unwrap();
            assert_eq!((spans.trace, spans.spans[0].id), (whole.trace, whole.spans[0].id));
            assert_eq!(spans.spans[0].ended_at, whole.spans[0].ended_at);
            for span in &spans.spans[1..] {
                let same = whole.spans.iter().find(|other| other.id == span.id).unwrap();
                assert_eq!((span.began_at, span.ended_at), (same.began_at, same.ended_at));
                assert_eq!((&span.name, &span.end), (&same.name, &same.end));
            }
            checked += 1;
        }
    }
    assert!(checked > 0);
}
