//! Spans in the form of OpenTelemetry.

use std::time::{Duration, SystemTime};

use millrun_core::{SpanId, Timestamp, TraceContext};
use millrun_workflow::{RunSpan, RunSpans, SpanEnd, SpanOf, SpanValue};
use opentelemetry::trace::{Event, Link, SpanContext, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

/// The instrumentation scope of all spans.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("millrun")
        .with_version(env!("CARGO_PKG_VERSION"))
        .build()
}

/// The spans of a run, for an exporter.
pub(super) fn span_data(spans: &RunSpans, scope: &InstrumentationScope) -> Vec<SpanData> {
    let all = spans.spans.iter();
    all.map(|span| one(span, &spans.trace, scope)).collect()
}

fn one(span: &RunSpan, trace: &TraceContext, scope: &InstrumentationScope) -> SpanData {
    let mut attributes: Vec<_> = span.attributes.iter().map(key_value).collect();
    attributes.push(KeyValue::new("millrun.kind", span.of.label()));
    let mut events = SpanEvents::default();
    events.events.extend(span.notes.iter().map(|note| {
        let attributes = note.attributes.iter().map(key_value).collect();
        Event::new(note.name, time(note.at), attributes, 0)
    }));
    events.dropped_count = span.notes_left_out;
    let mut links = SpanLinks::default();
    let linked = span
        .links
        .iter()
        .map(|link| Link::with_context(context(*link, trace)));
    links.links.extend(linked);
    let status = match &span.end {
        // The specification of OpenTelemetry leaves "Ok" to applications; a library only sets errors.
        SpanEnd::Open | SpanEnd::Done => Status::Unset,
        SpanEnd::Dropped => {
            attributes.push(KeyValue::new("millrun.dropped", true));
            Status::Unset
        }
        SpanEnd::Failed(message) => Status::error(message.clone()),
    };
    SpanData {
        span_context: context(span.id, trace),
        parent_span_id: span
            .parent
            .map_or(opentelemetry::trace::SpanId::INVALID, otel_span),
        // The parent of a run's span belongs to the caller, which may be another process.
        parent_span_is_remote: span.of == SpanOf::Run && span.parent.is_some(),
        span_kind: match span.of {
            SpanOf::Publish => SpanKind::Producer,
            SpanOf::Receive => SpanKind::Consumer,
            _ => SpanKind::Internal,
        },
        name: span.name.clone().into(),
        start_time: time(span.began_at),
        end_time: time(span.ended_at),
        attributes,
        dropped_attributes_count: 0,
        events,
        links,
        status,
        instrumentation_scope: scope.clone(),
    }
}

fn otel_span(span: SpanId) -> opentelemetry::trace::SpanId {
    span.bits().into()
}

fn context(span: SpanId, trace: &TraceContext) -> SpanContext {
    SpanContext::new(
        trace.trace_id().bits().into(),
        otel_span(span),
        TraceFlags::new(trace.flags()),
        false,
        TraceState::default(),
    )
}

fn key_value((name, value): &(&'static str, SpanValue)) -> KeyValue {
    let value = match value {
        SpanValue::Text(text) => Value::from(text.clone()),
        // No number in a history is larger than `i64::MAX`.
        SpanValue::Number(number) => Value::from(i64::try_from(*number).unwrap_or(i64::MAX)),
    };
    KeyValue::new(*name, value)
}

fn time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(at.as_micros())
}
