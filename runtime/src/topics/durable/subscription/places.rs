//! Tells the journal, when a runtime begins, the places of the store's subscriptions, so that retention holds back what they
//! have not acknowledged.
//!
//! ```text
//!   list of topics ─► those that hold records back ─► the last record of each of their subscriptions ─► the journal
//! ```
//!
//! Invariants: a topic is reported as complete once the places of all its subscriptions are. An unreadable one counts as one
//! that has read nothing. Subscriptions that are opened meanwhile report their own places.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use millrun_core::Sequence;
use millrun_persistence::TopicSummary;

use super::{kept_before, stored};
use crate::StopCause;
use crate::inner::Inner;
use crate::topics::durable::reader::is_lane_lost;

/// Reports the places of all subscriptions of topics that hold records back; stops if the runtime ends meanwhile.
pub(crate) async fn note_places(inner: Weak<Inner>) {
    let Some(topics) = inner.upgrade().and_then(|inner| {
        let streams = inner.shared.journal.topics()?;
        Some(streams.list())
    }) else {
        return;
    };
    let by_name: BTreeMap<&str, &TopicSummary> =
        topics.iter().map(|topic| (topic.name.as_str(), topic)).collect();
    for topic in topics.iter().filter(|topic| topic.retention.unread_bytes_max > 0) {
        let before = kept_before(&topic.name);
        let kept = by_name.range(before.as_str()..);
        for (_, kept) in kept.take_while(|(name, _)| name.starts_with(&before)) {
            // A subscription that has kept nothing yet reports its place when it is opened.
            if kept.last < kept.first {
                continue;
            }
            let Some(inner) = inner.upgrade() else { return };
            let Ok(through) = place(&inner, kept).await else {
                return;
            };
            inner.streams().note_reader(topic.number, kept.number, through);
        }
        let Some(inner) = inner.upgrade() else { return };
        inner.streams().all_readers_noted(topic.number);
    }
}

/// The place of the subscription that is kept in this topic.
async fn place(inner: &Arc<Inner>, kept: &TopicSummary) -> Result<Sequence, StopCause> {
    let before = Sequence::new(kept.last.get().saturating_sub(1));
    let problem = loop {
        break match inner.record_behind(kept.number, before).await? {
            Ok(Some(record)) => match stored::decode(&record.body) {
                Ok(kept) => return Ok(Sequence::new(kept.acknowledged.through())),
                Err(error) => error.to_string(),
            },
            Ok(None) => "it is not there".to_owned(),
            Err(error) if is_lane_lost(&error) => continue,
            Err(error) => error.to_string(),
        };
    };
    tracing::warn!(
        kept_in = %kept.name, %problem,
        "what a durable subscription has kept cannot be read: its topic holds records back for it up to unread_bytes_max"
    );
    Ok(Sequence::ZERO)
}
