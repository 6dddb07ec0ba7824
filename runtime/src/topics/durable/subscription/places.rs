//! Where the subscriptions stand that a store has, told to its journal when a runtime begins: retention holds back what they
//! have not acknowledged.
//!
//! ```text
//!   list of topics ─► those that hold records back ─► the last record of each of their subscriptions ─► the journal
//! ```
//!
//! Invariants: a topic is told to be known as a whole when the place of each of its subscriptions is. One that cannot be read
//! counts as one that has read nothing. Subscriptions that are opened meanwhile are told of by themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use millrun_core::Sequence;
use millrun_persistence::TopicSummary;

use super::{kept_before, stored};
use crate::StopCause;
use crate::inner::Inner;
use crate::topics::durable::reader::is_lane_lost;

/// Tells the journal where the subscriptions of all topics stand that hold records back; of a runtime that has ended meanwhile
/// nothing.
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
            // Of one that has kept nothing yet, whoever opens it tells.
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

/// How far the subscription has come that is kept in this topic.
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
