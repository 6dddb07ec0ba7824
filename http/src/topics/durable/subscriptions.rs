//! The state of a topic's durable subscriptions.

use millrun::topics::{DurableSubscriptionSummary, SubscriptionStatus, TopicLookError};
use millrun::{RunError, Runtime};

use crate::problem::Problem;
use crate::query::{PageQuery, next_page};
use crate::view::{Json, list, object};

/// A page of the subscriptions of a durable topic, in the order of their names. They are shown for any durable topic of the
/// runtime, like the list of topics: no content of records is shown.
pub(crate) async fn subscriptions_page(runtime: &Runtime, topic: &str, query: &str) -> Result<Json, Problem> {
    let PageQuery { after, limit } = PageQuery::parse(query)?;
    let told = runtime.durable_subscriptions(topic, after.as_deref(), limit + 1);
    let mut told = told.await?;
    let has_more = told.len() > limit;
    told.truncate(limit);
    let last = told.last().filter(|_| has_more);
    Ok(object([
        ("next", last.map(|last| next_page(&last.name, limit)).into()),
        ("subscriptions", list(&told, subscription)),
    ]))
}

fn subscription(summary: &DurableSubscriptionSummary) -> Json {
    let figure = |figure: fn(&SubscriptionStatus) -> Json| match &summary.status {
        Ok(status) => figure(status),
        Err(_) => Json::Null,
    };
    object([
        ("name", summary.name.as_str().into()),
        ("is_open", summary.is_open.into()),
        ("lag", figure(|status| status.lag.into())),
        ("dropped", figure(|status| status.dropped.into())),
        (
            "acknowledged_through",
            figure(|status| status.acknowledged_through.get().into()),
        ),
        (
            "oldest",
            figure(|status| status.oldest.map(|(sequence, _)| sequence.get()).into()),
        ),
        (
            "oldest_at_us",
            figure(|status| status.oldest.map(|(_, time)| time).into()),
        ),
        ("in_hand", figure(|status| status.in_hand.into())),
        ("leased", figure(|status| status.leased.into())),
        ("returned", figure(|status| status.returned.into())),
        ("held_keys", figure(|status| status.held_keys.into())),
        ("missed", figure(|status| status.missed.into())),
        ("undelivered", figure(|status| status.undelivered.into())),
        ("undelivered_to", summary.undelivered_to.as_deref().into()),
        (
            "problem",
            summary.status.as_ref().err().map(String::as_str).into(),
        ),
    ])
}

impl From<TopicLookError> for Problem {
    fn from(error: TopicLookError) -> Self {
        let told = error.to_string();
        match error {
            TopicLookError::NotDeclared { .. } => Self::new("no-topic", told),
            TopicLookError::Read(source) => Self::new("read", format!("{told}: {source}")),
            TopicLookError::Stopped(cause) => RunError::Stopped(cause).into(),
            _ => Self::new("unknown", told),
        }
    }
}
