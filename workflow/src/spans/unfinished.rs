//! The spans of a run while its history is read: the open ones, and the room for more.

use std::collections::BTreeMap;

use millrun_core::{Cause, RunId, Sequence, SpanId, Timestamp, TraceContext};

use super::{RunSpan, RunSpans, SpanBounds, SpanEnd, SpanNote, SpanOf, SpanValue};
use crate::OperationId;

/// Attributes of a note.
type Attributes = Vec<(&'static str, SpanValue)>;

/// The spans that have begun, within their bounds.
#[derive(Clone, Debug)]
pub(super) struct UnfinishedSpans {
    run: RunId,
    bounds: SpanBounds,
    /// The first one is the run's.
    spans: Vec<RunSpan>,
    /// How many operations and updates found no room.
    left_out: u64,
    /// The indexes of the spans of pending operations.
    operations: BTreeMap<OperationId, usize>,
    /// The indexes of the spans of unanswered updates, by request.
    updates: BTreeMap<String, usize>,
}

impl UnfinishedSpans {
    pub(super) fn new(run: RunId, bounds: SpanBounds) -> Self {
        Self {
            run,
            bounds,
            spans: Vec::new(),
            left_out: 0,
            operations: BTreeMap::new(),
            updates: BTreeMap::new(),
        }
    }

    pub(super) fn run_id(&self) -> RunId {
        self.run
    }

    pub(super) fn bounds(&self) -> SpanBounds {
        self.bounds
    }

    /// Whether the run has not begun.
    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The span of the run, which comes first.
    pub(super) fn begin_run(&mut self, span: RunSpan) {
        self.spans.push(span);
    }

    pub(super) fn attribute_run(&mut self, name: &'static str, value: SpanValue) {
        if let Some(run) = self.spans.first_mut() {
            run.attributes.push((name, value));
        }
    }

    /// Ends the span of the run. Open spans of operations and updates end with it, dropped.
    pub(super) fn end_run(&mut self, time: Timestamp, end: SpanEnd) {
        let operations = std::mem::take(&mut self.operations).into_values();
        let updates = std::mem::take(&mut self.updates).into_values();
        for at in operations.chain(updates) {
            self.end(at, time, SpanEnd::Dropped);
        }
        self.end(0, time, end);
    }

    /// The span of an operation that begins, if there is room.
    pub(super) fn operation(
        &mut self,
        of: SpanOf,
        operation: OperationId,
        name: String,
        time: Timestamp,
    ) -> Option<&mut RunSpan> {
        let cause = Cause {
            run: self.run,
            operation: operation.get(),
        };
        let at = self.push(of, SpanId::of_operation(cause), name, time)?;
        self.operations.insert(operation, at);
        let span = &mut self.spans[at];
        let number = SpanValue::Number(u64::from(operation.get()));
        span.attributes.push(("millrun.operation", number));
        Some(span)
    }

    /// The span of a pending operation, if there was room for it.
    pub(super) fn pending(&mut self, operation: OperationId) -> Option<&mut RunSpan> {
        let at = *self.operations.get(&operation)?;
        self.spans.get_mut(at)
    }

    pub(super) fn close(&mut self, operation: OperationId, time: Timestamp, end: SpanEnd) {
        if let Some(at) = self.operations.remove(&operation) {
            self.end(at, time, end);
        }
    }

    /// The span of an update that the event with this number has let in, if there is room.
    pub(super) fn update(&mut self, accepted: Sequence, request: &str, name: &str, time: Timestamp) {
        let id = SpanId::of_update(self.run, accepted);
        if let Some(at) = self.push(SpanOf::Update, id, format!("update {name}"), time) {
            let told = self.text(request);
            self.spans[at].attributes.push(("millrun.request", told));
            self.updates.insert(request.to_owned(), at);
        }
    }

    pub(super) fn close_update(&mut self, request: &str, time: Timestamp, end: SpanEnd) {
        if let Some(at) = self.updates.remove(request) {
            self.end(at, time, end);
        }
    }

    pub(super) fn note_run(&mut self, at: Timestamp, name: &'static str, attributes: Attributes) {
        self.note(0, at, name, attributes);
    }

    pub(super) fn note_operation(
        &mut self,
        operation: OperationId,
        at: Timestamp,
        name: &'static str,
        attributes: Attributes,
    ) {
        if let Some(span) = self.operations.get(&operation).copied() {
            self.note(span, at, name, attributes);
        }
    }

    /// All spans. Open ones last until `last_at`, the time of the last event.
    pub(super) fn finish(mut self, trace: TraceContext, last_at: Timestamp) -> RunSpans {
        if self.left_out > 0 {
            self.attribute_run("millrun.spans_left_out", SpanValue::Number(self.left_out));
        }
        for span in &mut self.spans {
            if span.end == SpanEnd::Open {
                span.ended_at = last_at.max(span.began_at);
            }
        }
        RunSpans {
            run: self.run,
            trace,
            spans: self.spans,
            left_out: self.left_out,
        }
    }

    /// An end with this error, whose text is cut to the bound.
    pub(super) fn failed(&self, message: &str) -> SpanEnd {
        SpanEnd::Failed(self.cut(message))
    }

    /// The beginning of a text, up to the bound.
    pub(super) fn text(&self, text: &str) -> SpanValue {
        SpanValue::Text(self.cut(text))
    }

    fn cut(&self, text: &str) -> String {
        text[..text.floor_char_boundary(self.bounds.text_bytes_max)].to_owned()
    }

    fn push(&mut self, of: SpanOf, id: SpanId, name: String, time: Timestamp) -> Option<usize> {
        if self.spans.len() >= self.bounds.spans_len_max.max(1) {
            self.left_out += 1;
            return None;
        }
        let at = self.spans.len();
        self.spans.push(RunSpan {
            parent: Some(SpanId::of_run(self.run)),
            ..begun(of, id, name, time)
        });
        Some(at)
    }

    fn end(&mut self, at: usize, time: Timestamp, end: SpanEnd) {
        let span = &mut self.spans[at];
        // The clock of the host may have been set back since the span began.
        span.ended_at = time.max(span.began_at);
        span.end = end;
    }

    fn note(&mut self, span: usize, at: Timestamp, name: &'static str, attributes: Attributes) {
        let span = &mut self.spans[span];
        if span.notes.len() >= self.bounds.notes_len_max {
            span.notes_left_out = span.notes_left_out.saturating_add(1);
            return;
        }
        span.notes.push(SpanNote { at, name, attributes });
    }
}

/// A span that has begun.
pub(super) fn begun(of: SpanOf, id: SpanId, name: String, time: Timestamp) -> RunSpan {
    RunSpan {
        id,
        parent: None,
        of,
        name,
        began_at: time,
        ended_at: time,
        end: SpanEnd::Open,
        attributes: Vec::new(),
        notes: Vec::new(),
        notes_left_out: 0,
        links: Vec::new(),
    }
}
