//! Subscriptions that nobody has used for longer than their topic allows: they are removed.
//!
//! ```text
//!   open ──► keeper: what is kept is appended anew each eighth of the time ──┐
//!                                                                           ▼ time of the last record
//!   check, each eighth of the time, no sooner than that behind the start ──► too old, and not open here ──► deleted
//! ```
//!
//! Invariants: one that is open, or whose partition another owner has, is left alone. What is removed was not appended to since
//! it was looked at. An acknowledgement, an opening and a renewal count as use; the time is that of the record which keeps
//! them, by the clock of its writer.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use millrun_core::{Partition, Sequence, Timestamp};
use millrun_persistence::TopicSummary;

use super::kept_before;
use super::shared::SubscriptionLost;
use crate::inner::Inner;
use crate::topics::durable::managing::TopicManageError;

/// Into how many parts the time of disuse is divided: an open subscription is renewed, and all are looked at, once in each.
pub(crate) const EXPIRY_SHARE: u32 = 8;
/// The longest time from one look to the next.
const LOOK_MAX: Duration = Duration::from_secs(3_600);

/// Removes what has expired, again and again, as long as there is the runtime. Without a topic whose subscriptions expire it
/// ends at once.
pub(crate) async fn expire_unused(inner: Weak<Inner>) {
    let Some((host, pause)) = inner.upgrade().and_then(|inner| {
        let shortest = inner
            .shared
            .durable
            .with_idle_max()
            .map(|(_, _, idle_max)| idle_max);
        let pause = (shortest.min()? / EXPIRY_SHARE).min(LOOK_MAX);
        Some((Arc::clone(&inner.shared.host), pause))
    }) else {
        return;
    };
    let started = host.now();
    loop {
        host.sleep_until(host.now() + pause).await;
        let Some(inner) = inner.upgrade() else { return };
        match inner.expire_at(host.now(), started).await {
            Ok(()) => {}
            Err(_) if inner.stop.is_closing() || inner.settled_cause().is_some() => return,
            Err(error) => {
                tracing::warn!(%error, "it could not be told which durable subscriptions have expired")
            }
        }
    }
}

impl Inner {
    /// Removes the subscriptions that have expired by `now`, in a runtime that started at `started`.
    async fn expire_at(&self, now: Timestamp, started: Timestamp) -> Result<(), TopicManageError> {
        let Some(streams) = self.shared.journal.topics() else {
            return Ok(());
        };
        let topics = streams.list();
        let by_name: BTreeMap<&str, &TopicSummary> =
            topics.iter().map(|topic| (topic.name.as_str(), topic)).collect();
        for (topic, _, idle_max) in self.shared.durable.with_idle_max() {
            let share = idle_max / EXPIRY_SHARE;
            if now.saturating_since(started) < share {
                continue;
            }
            let before = kept_before(topic);
            let kept = by_name.range(before.as_str()..);
            for (name, kept) in kept.take_while(|(name, _)| name.starts_with(&before)) {
                let partition = Partition::of(name.as_bytes());
                // Of one that has kept nothing yet nothing is to be forgotten.
                let is_here = kept.last >= kept.first && self.shared.claims.owned().has(partition);
                if !is_here || self.shared.durable.subscriptions.is_open(name) {
                    continue;
                }
                let last = Sequence::new(kept.last.get().saturating_sub(1));
                let Ok(Some(record)) = self.record_behind(kept.number, last).await? else {
                    // When it was used cannot be read.
                    continue;
                };
                if now.saturating_since(record.time) >= idle_max.saturating_add(share) {
                    let subscription = &name[before.len()..];
                    self.expire(kept, (topic, subscription), record.time).await?;
                }
            }
        }
        Ok(())
    }

    /// Removes a subscription, unless it is opened or was used meanwhile.
    async fn expire(
        &self,
        kept: &TopicSummary,
        (topic, subscription): (&str, &str),
        used: Timestamp,
    ) -> Result<(), TopicManageError> {
        let subscriptions = &self.shared.durable.subscriptions;
        let opening = subscriptions.opening.lock().await;
        let streams = self.streams();
        let is_used = |now: TopicSummary| now.last != kept.last;
        if subscriptions.is_open(&kept.name) || streams.summary(kept.number).is_none_or(is_used) {
            return Ok(());
        }
        let offset = streams.delete(&[kept.number]);
        let offset = offset.map_err(|refused| self.not_managed(refused, topic))?;
        // Its keeper may still be about to end.
        subscriptions.lose_where_not_held(kept.number, &SubscriptionLost::Expired);
        drop(opening);
        self.until_durable(offset).await?;
        subscriptions.count_expired();
        tracing::warn!(
            topic,
            subscription,
            last_used_us = used.as_micros(),
            "a durable subscription has expired: nobody has used it for longer than subscription_idle_max"
        );
        Ok(())
    }
}
