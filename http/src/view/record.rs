//! Records of durable topics, and the state of each topic.

use millrun::Payload;
use millrun::topics::{DurableRecord, DurableTopicSummary, DurableTopicTimes, RecordToken};

use super::json::{Json, object};

/// A record.
pub(crate) fn record(record: &DurableRecord<Payload>) -> Json {
    object([
        ("token", record.token().to_string().into()),
        ("sequence", record.token().sequence().get().into()),
        ("at_us", record.appended_at().into()),
        ("key", record.key().into()),
        ("correlation", record.correlation().into()),
        ("content_type", record.content_type().into()),
        ("cause", record.run_cause().into()),
        ("trace", record.trace().copied().into()),
        ("payload", record.payload().into()),
    ])
}

/// A record of which only the place is known.
pub(crate) fn unreadable_record(token: RecordToken, problem: &str) -> Json {
    object([
        ("token", token.to_string().into()),
        ("sequence", token.sequence().get().into()),
        ("at_us", Json::Null),
        ("key", Json::Null),
        ("correlation", Json::Null),
        ("content_type", Json::Null),
        ("cause", Json::Null),
        ("trace", Json::Null),
        ("payload", object([("unreadable", problem.into())])),
    ])
}

/// The state of a durable topic; `payload` is the type of its values, if it is exposed.
pub(crate) fn durable_topic(
    summary: &DurableTopicSummary,
    times: DurableTopicTimes,
    payload: Option<&str>,
) -> Json {
    let retention = &summary.retention;
    let age_max_us = u64::try_from(retention.age_max.as_micros()).unwrap_or(u64::MAX);
    object([
        ("name", summary.name.as_str().into()),
        ("is_exposed", payload.is_some().into()),
        ("payload", payload.into()),
        (
            "retention",
            object([
                ("age_max_us", age_max_us.into()),
                ("bytes_max", retention.bytes_max.into()),
                ("len_max", retention.len_max.into()),
                ("unread_bytes_max", retention.unread_bytes_max.into()),
            ]),
        ),
        ("first", summary.first.into()),
        ("last", summary.last.into()),
        ("first_at_us", times.first.into()),
        ("last_at_us", times.last.into()),
        ("records", (summary.last + 1).saturating_sub(summary.first).into()),
        ("bytes", summary.bytes.into()),
    ])
}
