//! Bulks, the runs that they would reach, and their progress.

use millrun::Timestamp;
use millrun::operating::{BulkCount, BulkDescription, BulkProgress, BulkSummary, BulksPage, RunSearch};

use super::json::{Json, list, object};
use crate::query::encoded;

/// A page of bulks; `next` makes the link to the next page from a cursor.
pub(crate) fn bulks(page: &BulksPage, next: impl FnOnce(&str) -> String) -> Json {
    let next = page.next.map(|cursor| next(&cursor.to_string()));
    object([
        ("bulks", list(&page.bulks, |bulk| Json::Object(summary(bulk)))),
        ("next", next.into()),
    ])
}

fn summary(bulk: &BulkSummary) -> Vec<(&'static str, Json)> {
    vec![
        ("name", bulk.name.as_str().into()),
        ("run", bulk.run.into()),
        ("status", bulk.status.name().into()),
        ("started_at_us", bulk.started_at.into()),
        ("ended_at_us", bulk.ended_at.into()),
    ]
}

/// A bulk in full.
pub(crate) fn bulk(bulk: &BulkSummary, described: &BulkDescription, progress: &BulkProgress) -> Json {
    let mut fields = summary(bulk);
    fields.extend([
        ("action", described.action.as_str().into()),
        ("about", described.about.clone().into()),
        ("ids", described.ids_len.into()),
        ("filter", described.filter.as_ref().map(filter).into()),
        ("per_second", described.per_second.into()),
        ("selected", progress.selected_len.into()),
        ("done", progress.done_len.into()),
        ("passed_over", progress.passed_over_len.into()),
        ("failed", progress.failed_len.into()),
        (
            "failures",
            list(&progress.failures, |failure| {
                object([
                    ("id", failure.id.as_str().into()),
                    ("message", failure.message.as_str().into()),
                ])
            }),
        ),
    ]);
    Json::Object(fields)
}

/// A filter, in the form in which it was sent.
fn filter(filter: &RunSearch) -> Json {
    let from = |time: Timestamp| (time != Timestamp::EPOCH).then_some(time);
    let until = |time: Timestamp| (time != Timestamp::MAX).then_some(time);
    object([
        ("workflow", filter.workflow.clone().into()),
        ("status", list(&filter.statuses, |status| status.name().into())),
        ("id_prefix", filter.id_prefix.as_str().into()),
        ("started_from_us", from(filter.started.from).into()),
        ("started_until_us", until(filter.started.until).into()),
        ("ended_from_us", from(filter.ended.from).into()),
        ("ended_until_us", until(filter.ended.until).into()),
    ])
}

/// What a bulk would reach.
pub(crate) fn bulk_would_reach(count: &BulkCount) -> Json {
    object([
        ("name", Json::Null),
        ("bulk", Json::Null),
        ("selected", count.selected_len.into()),
        ("reached", count.reached_len.into()),
    ])
}

/// A bulk that was started.
pub(crate) fn bulk_started(name: &str) -> Json {
    object([
        ("name", name.into()),
        ("bulk", format!("bulk/{}", encoded(name)).into()),
        ("selected", Json::Null),
        ("reached", Json::Null),
    ])
}
