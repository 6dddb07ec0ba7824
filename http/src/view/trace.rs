//! Traces as JSON.

use millrun::operating::{
    TraceDirection, TraceLink, TraceNode, TraceOf, TraceOutcome, TracePage, TraceRelation,
};

use super::json::{Json, list, object};
use crate::query::encoded;

/// What is shown of a page.
#[derive(Clone, Copy)]
pub(crate) struct TraceShown {
    /// Only the links of this direction, if the request says so.
    pub(crate) direction: Option<TraceDirection>,
    /// Whether the caller may see the content of the record that is traced.
    pub(crate) is_exposed: bool,
}

/// A page of a trace; `next` makes the link to the page behind it.
pub(crate) fn trace(page: &TracePage, shown: TraceShown, next: impl FnOnce(&str) -> String) -> Json {
    let links = |links: &[TraceLink], of: TraceDirection| {
        let is_wanted = shown.direction.is_none_or(|direction| direction == of);
        let links = if is_wanted { links } else { &[] };
        list(links, |one| link(one, shown.is_exposed))
    };
    let next = page.next.map(|cursor| next(&cursor.to_string()));
    object([
        ("of", end(&page.of)),
        ("about", about(&page.about, shown.is_exposed)),
        ("causes", links(&page.causes, TraceDirection::Causes)),
        ("effects", links(&page.effects, TraceDirection::Effects)),
        (
            "trimmed_before",
            page.trimmed_before.map(|before| before.get()).into(),
        ),
        ("looked_at", page.looked_at.into()),
        ("next", next.into()),
    ])
}

fn about(node: &TraceNode, is_exposed: bool) -> Json {
    match node {
        TraceNode::Run {
            id,
            workflow,
            started_at,
            ended,
            trace,
        } => object([
            ("kind", "run".into()),
            ("id", id.into()),
            ("workflow", workflow.as_str().into()),
            ("started_at_us", (*started_at).into()),
            ("ended", ended.map(|(status, _)| status.name()).into()),
            ("ended_at_us", ended.map(|(_, at)| at).into()),
            ("trace", (*trace).into()),
        ]),
        TraceNode::Record {
            token,
            appended_at,
            key,
            correlation,
            trace,
        } => object([
            ("kind", "record".into()),
            ("token", token.to_string().into()),
            ("at_us", (*appended_at).into()),
            ("key", key.as_deref().filter(|_| is_exposed).into()),
            (
                "correlation",
                correlation.as_deref().filter(|_| is_exposed).into(),
            ),
            ("trace", (*trace).into()),
        ]),
        _ => object([("kind", "other".into())]),
    }
}

fn link(link: &TraceLink, is_exposed: bool) -> Json {
    let (outcome, detail) = link.outcome.named();
    // A consumer's words about a record may contain parts of its payload.
    let is_of_consumer =
        link.relation == TraceRelation::Subscription && matches!(link.outcome, TraceOutcome::Returned(_));
    object([
        ("relation", link.relation.name().into()),
        ("to", link.to.as_ref().map(end).into()),
        ("name", link.name.as_deref().into()),
        ("instance", link.instance.as_ref().into()),
        ("operation", link.operation.into()),
        ("at_us", link.at.into()),
        ("attempts", link.attempts.into()),
        ("outcome", outcome.into()),
        ("detail", detail.filter(|_| is_exposed || !is_of_consumer).into()),
    ])
}

/// An end of a link, with the address of its trace.
fn end(of: &TraceOf) -> Json {
    let run = |run| format!("runs/{run}/trace");
    match of {
        TraceOf::Run(of) => object([
            ("kind", "run".into()),
            ("run", (*of).into()),
            ("trace", run(of).into()),
        ]),
        TraceOf::Operation(cause) => object([
            ("kind", "operation".into()),
            ("run", cause.run.into()),
            ("operation", cause.operation.into()),
            (
                "trace",
                format!("{}?operation={}", run(&cause.run), cause.operation).into(),
            ),
        ]),
        TraceOf::Instance(id) => object([
            ("kind", "instance".into()),
            ("id", id.into()),
            (
                "trace",
                format!("instances/{}/trace", encoded(id.as_str())).into(),
            ),
        ]),
        TraceOf::Record { topic, sequence } => object([
            ("kind", "record".into()),
            ("topic", topic.as_str().into()),
            ("sequence", sequence.get().into()),
            (
                "trace",
                format!("topics/{}/trace?sequence={sequence}", encoded(topic)).into(),
            ),
        ]),
        _ => object([("kind", "other".into()), ("trace", Json::Null)]),
    }
}
