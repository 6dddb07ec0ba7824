//! The history of one run as a file: lines of JSON that people can read and tests can keep and replay, and in which fields of
//! payloads can be hidden.
//!
//! ```text
//!   {"format":"millrun-history","version":1,"run":"…","id":"order-7","workflow":"order","head":412}
//!   {"kept":{…}}                                             of a trimmed run: what is kept of the events before
//!   {"sequence":401,"at_us":1764230400000000,"event":{"TimerFired":{"operation":12}}}
//!   …
//! ```
//!
//! Invariants: a written history is read back equal, payloads byte for byte; a file that was cut off is noticed. All later
//! releases read the format: a new field or kind of event gets a default, or a later version.

mod error;
mod replay;

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use millrun_core::{RunId, Sequence, Timestamp, base64};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::error::ExportedHistoryError;
pub use self::replay::Fit;
use crate::event::{Event, EventError};
use crate::ledger::KeptBeginning;
use crate::payload::{Payload, REDACTED, Redaction};
use crate::wire::{self, KeptParts};

/// How the first line names the format.
const FORMAT: &str = "millrun-history";
/// The version that is written, and the latest that is read.
const VERSION: u32 = 1;

/// The history of one run, as it is written to a file and read back. Its [text](fmt::Display) is the content of the file.
///
/// ```
/// use millrun_core::{Partition, RunId, Sequence, Timestamp};
/// use millrun_workflow::{Event, ExportedHistory, Payload, Started};
///
/// let run = RunId::new(Partition::of(b"order-7"), Timestamp::EPOCH, 1);
/// let started = Started::new("order", "order-7".parse()?, Payload::encode(&7)?);
/// let event = (Sequence::new(1), Event::Started(started), Timestamp::EPOCH);
/// let history = ExportedHistory::new(run, None, [event])?;
/// let text = history.to_string();
/// assert_eq!(text.parse::<ExportedHistory>()?, history);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, PartialEq)]
pub struct ExportedHistory {
    run: RunId,
    kept: Option<KeptParts>,
    events: Vec<ExportedEvent>,
}

/// An event of a history, with its number and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ExportedEvent {
    sequence: Sequence,
    #[serde(rename = "at_us")]
    at: Timestamp,
    event: Event,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header<'a> {
    format: &'a str,
    version: u32,
    run: RunId,
    id: String,
    workflow: String,
    /// The number of the last event.
    head: Sequence,
}

/// The line of the kept beginning.
#[derive(Serialize, Deserialize)]
struct KeptLine<K> {
    kept: K,
}

impl ExportedHistory {
    /// The history of a run: the encoded [kept beginning](KeptBeginning), if the history is trimmed, and the events in order.
    ///
    /// # Errors
    /// [`ExportedHistoryError::NoHistory`] when these are no history: the beginning is missing, or there is a gap.
    pub fn new(
        run: RunId,
        kept: Option<&Bytes>,
        events: impl IntoIterator<Item = (Sequence, Event, Timestamp)>,
    ) -> Result<Self, ExportedHistoryError> {
        let no_history = |error: EventError| ExportedHistoryError::NoHistory {
            problem: error.to_string(),
        };
        let kept = kept.map(wire::decode_kept).transpose().map_err(no_history)?;
        let events = events
            .into_iter()
            .map(|(sequence, event, at)| ExportedEvent { sequence, at, event });
        let history = Self {
            run,
            kept,
            events: events.collect(),
        };
        history.check()?;
        Ok(history)
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run
    }

    /// The name of the run's workflow.
    #[must_use]
    pub fn workflow(&self) -> &str {
        self.beginning().map_or("", |started| &started.workflow)
    }

    /// The [version](crate::Workflow::version) of the run's code: the one that it began with, or the one to which it has
    /// moved since.
    #[must_use]
    pub fn version(&self) -> u32 {
        let kept = self.kept.iter().flat_map(|kept| &kept.events);
        let events = kept.map(|noted| &noted.event);
        let events = events.chain(self.events.iter().map(|recorded| &recorded.event));
        let versions = events.filter_map(|event| match event {
            Event::Started(started) => Some(started.version),
            Event::VersionChanged { version } => Some(*version),
            _ => None,
        });
        versions.last().unwrap_or(0)
    }

    /// The beginning of the run.
    #[must_use]
    pub fn beginning(&self) -> Option<&crate::Started> {
        let kept = self.kept.iter().flat_map(|kept| &kept.events);
        let first = kept.map(|noted| &noted.event);
        let first = first
            .chain(self.events.iter().map(|recorded| &recorded.event))
            .next();
        match first {
            Some(Event::Started(started)) => Some(started),
            _ => None,
        }
    }

    /// The number of the last event.
    #[must_use]
    pub fn head(&self) -> Sequence {
        let kept = self.kept.as_ref().map(|kept| Sequence::new(kept.sequence));
        let last = self.events.last().map(|last| last.sequence);
        last.or(kept).unwrap_or(Sequence::ZERO)
    }

    /// The events that it has, each with its number and its time.
    pub fn events(&self) -> impl Iterator<Item = (Sequence, &Event, Timestamp)> {
        let events = self.events.iter();
        events.map(|recorded| (recorded.sequence, &recorded.event, recorded.at))
    }

    /// Its lines, each with its line feed, without the hidden fields of payloads. A payload that JSON cannot express (an
    /// infinite number, a map whose keys are not texts) is left out as a whole. A history redacted with [kinds
    /// kept](Redaction::keeping_kinds) can mostly still be replayed: if the code does not decide by what is hidden, and
    /// `(redacted)` and 0 are valid values of its types. Texts of errors and reasons, names, keys and ids are no payloads,
    /// and stay.
    pub fn into_redacted_lines(self, redaction: Redaction) -> impl Iterator<Item = String> + Send {
        (0..self.lines_len()).map(move |number| self.redacted_line(number, &redaction))
    }

    /// All of its [redacted lines](Self::into_redacted_lines) as one text.
    #[must_use]
    pub fn redacted(&self, redaction: &Redaction) -> String {
        let lines = (0..self.lines_len()).map(|number| self.redacted_line(number, redaction));
        lines.collect()
    }

    fn redacted_line(&self, number: usize, redaction: &Redaction) -> String {
        let line = self.line(number);
        let mut shown = String::with_capacity(line.len() + 1);
        hide_payloads(&line, redaction, &mut shown);
        shown.push('\n');
        shown
    }

    fn lines_len(&self) -> usize {
        1 + usize::from(self.kept.is_some()) + self.events.len()
    }

    /// A line without its line feed; lines count from zero.
    fn line(&self, number: usize) -> String {
        let before = self.lines_len() - self.events.len();
        let line = match (number, &self.kept) {
            (0, _) => serde_json::to_string(&Header {
                format: FORMAT,
                version: VERSION,
                run: self.run,
                id: self
                    .beginning()
                    .map_or("", |started| started.id.as_str())
                    .to_owned(),
                workflow: self.workflow().to_owned(),
                head: self.head(),
            }),
            (1, Some(kept)) => serde_json::to_string(&KeptLine { kept }),
            (number, _) => serde_json::to_string(&self.events[number - before]),
        };
        // Texts, numbers and payloads can always be expressed in JSON.
        line.unwrap_or_default()
    }

    /// Checks that it has a beginning, and that no event is missing.
    fn check(&self) -> Result<(), ExportedHistoryError> {
        let no_history = |problem: String| Err(ExportedHistoryError::NoHistory { problem });
        if self.beginning().is_none() {
            return no_history("it does not begin with how the run began".to_owned());
        }
        let before = match &self.kept {
            None => 0,
            Some(kept) => {
                // Whether a run can be brought back from the kept beginning is found out by decoding it.
                self.kept_beginning(kept)?;
                kept.sequence
            }
        };
        for (at, recorded) in (1..).zip(&self.events) {
            let expected = before.checked_add(at);
            if expected != Some(recorded.sequence.get()) {
                let sequence = recorded.sequence;
                let expected = expected.map_or_else(|| "none".to_owned(), |number| number.to_string());
                return no_history(format!("event {sequence} stands where {expected} belongs"));
            }
        }
        Ok(())
    }

    fn kept_beginning(&self, kept: &KeptParts) -> Result<KeptBeginning, ExportedHistoryError> {
        let bytes = wire::encode_kept(kept).map(Bytes::from);
        let kept = bytes.and_then(|bytes| KeptBeginning::decode(&bytes));
        kept.map_err(|error| ExportedHistoryError::NoHistory {
            problem: error.to_string(),
        })
    }
}

/// Its lines, each of which ends with a line feed.
impl fmt::Display for ExportedHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..self.lines_len()).try_for_each(|number| writeln!(f, "{}", self.line(number)))
    }
}

impl FromStr for ExportedHistory {
    type Err = ExportedHistoryError;

    fn from_str(text: &str) -> Result<Self, ExportedHistoryError> {
        let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
        let mut lines = lines.peekable();
        let (first, _) = lines.next().ok_or(ExportedHistoryError::OtherFormat)?;
        let header = header(first)?;
        let (head, mut kept) = (header.head, None);
        if let Some((line, number)) = lines.next_if(|(line, _)| line.starts_with("{\"kept\"")) {
            let line: KeptLine<KeptParts> = read_line(line, number)?;
            kept = Some(line.kept);
        }
        let mut events: Vec<ExportedEvent> = Vec::new();
        let mut cut_in = None;
        while let Some((line, number)) = lines.next() {
            match read_line(line, number) {
                Ok(event) => events.push(event),
                // The file ends in the middle of this line.
                Err(_) if lines.peek().is_none() && !text.ends_with('\n') => cut_in = Some(number),
                Err(error) => return Err(error),
            }
        }
        let history = Self {
            run: header.run,
            kept,
            events,
        };
        if history.head() < head {
            let has = history.head();
            return Err(ExportedHistoryError::CutOff { has, head });
        }
        if let Some(line) = cut_in {
            let problem = "it stands behind the last event".to_owned();
            return Err(ExportedHistoryError::Malformed { line, problem });
        }
        history.check()?;
        Ok(history)
    }
}

fn header(line: &str) -> Result<Header<'_>, ExportedHistoryError> {
    #[derive(Deserialize)]
    struct Format<'a> {
        format: &'a str,
        version: u32,
    }
    let found = serde_json::from_str::<Format<'_>>(line);
    let found = found.map_err(|_| ExportedHistoryError::OtherFormat)?;
    if found.format != FORMAT {
        return Err(ExportedHistoryError::OtherFormat);
    }
    if found.version > VERSION {
        let version = found.version;
        return Err(ExportedHistoryError::Newer { version });
    }
    read_line(line, 1)
}

fn read_line<'a, T: Deserialize<'a>>(line: &'a str, number: usize) -> Result<T, ExportedHistoryError> {
    serde_json::from_str(line).map_err(|error| ExportedHistoryError::Malformed {
        line: number,
        problem: error.to_string(),
    })
}

/// The beginning of an object whose only key starts with a dollar.
const MARK: &str = "{\"$";
/// The beginning of a payload that is written as its value.
const VALUE_MARK: &str = "{\"$value\":";
/// The beginning of a payload that is written as its bytes.
const BYTES_MARK: &str = "{\"$payload\":";

/// Writes JSON without the hidden parts of its payloads.
fn hide_payloads(json: &str, redaction: &Redaction, shown: &mut String) {
    if redaction.hides_nothing() {
        shown.push_str(json);
        return;
    }
    let mut rest = json;
    // Only payloads are objects with such a key, and within a text a quotation mark is escaped.
    while let Some(at) = rest.find(MARK) {
        let is_value = rest[at..].starts_with(VALUE_MARK);
        let mark = if is_value { VALUE_MARK } else { BYTES_MARK };
        if !rest[at..].starts_with(mark) {
            let (before, behind) = rest.split_at(at + MARK.len());
            shown.push_str(before);
            rest = behind;
            continue;
        }
        let (before, behind) = rest.split_at(at);
        shown.push_str(before);
        let behind = &behind[mark.len()..];
        let mut values = serde_json::Deserializer::from_str(behind).into_iter::<&RawValue>();
        let Some(Ok(value)) = values.next() else {
            // What cannot be parsed is not shown.
            shown.push_str(mark);
            shown.push_str(REDACTED);
            return;
        };
        match is_value {
            true => {
                shown.push_str(mark);
                shown.push_str(&redaction.applied(value.get()));
            }
            false => hide_in_bytes(value.get(), redaction, shown),
        }
        rest = &behind[values.byte_offset()..];
    }
    shown.push_str(rest);
}

/// Writes a payload that stands there as bytes: unchanged, if nothing of it is hidden; otherwise as what is left of its
/// value.
fn hide_in_bytes(json: &str, redaction: &Redaction, shown: &mut String) {
    let text: Option<String> = serde_json::from_str(json).ok();
    let bytes = text.and_then(|text| base64::decode(&text));
    let value = bytes.and_then(|bytes| Payload::from_bytes(bytes.into()).to_json().ok());
    match value.as_deref().map(|value| (value, redaction.applied(value))) {
        Some((value, hidden)) if hidden == value => {
            shown.push_str(BYTES_MARK);
            shown.push_str(json);
        }
        Some((_, hidden)) => {
            shown.push_str(VALUE_MARK);
            shown.push_str(&hidden);
        }
        // Its fields cannot be found.
        None => {
            shown.push_str(BYTES_MARK);
            shown.push_str("\"\"");
        }
    }
}
