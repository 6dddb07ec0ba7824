//! Removes subscriptions that have not been used for longer than their topic allows.
//!
//! ```text
//!   open ──► keeper: what is kept is appended anew each eighth of the time ──┐
//!                                                                           ▼ time of the last record
//!   look, each eighth of the time, no sooner than that behind the start ───► too old, and not open here ──► deleted
//! ```
//!
//! Invariants: a subscription that is open, or whose partition has another owner, is left alone. A removed subscription was
//! not changed since it was examined. An acknowledgement, an opening and a renewal count as use, with the time of the record
//! that keeps them, by the clock of its writer.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use millrun_core::{Partition, Sequence, Timestamp};
use millrun_persistence::{TopicNumber, TopicSummary};

use super::kept_before;
use super::shared::SubscriptionLost;
use crate::inner::Inner;
use crate::topics::durable::managing::TopicManageError;

/// Into how many parts the idle time is divided: in each part, open subscriptions are renewed, and all are examined, once.
pub(crate) const EXPIRY_SHARE: u32 = 8;
/// The longest time between two looks.
const LOOK_MAX: Duration = Duration::from_secs(3_600);
/// A clock has jumped if it advances by two pauses and this much more.
const LEAP: Duration = Duration::from_secs(5);

/// Removes expired subscriptions again and again, while the runtime exists. It ends at once if no topic has an idle time.
pub(crate) async fn expire_unused(inner: Weak<Inner>) {
    let Some((host, mut pace)) = inner.upgrade().and_then(|inner| {
        let topics = inner.shared.durable.with_idle_max();
        let pace = ExpiryPace::of(topics.map(|(topic, _, idle_max)| (topic, idle_max)))?;
        Some((Arc::clone(&inner.shared.host), pace))
    }) else {
        return;
    };
    let mut unreadable = HashSet::new();
    let mut last = host.now();
    loop {
        host.sleep_until(last + pace.pause).await;
        let Some(inner) = inner.upgrade() else { return };
        let now = host.now();
        let due = pace.due(now.saturating_since(last));
        let kept = if due.is_empty() {
            Vec::new()
        } else {
            inner.streams().list()
        };
        let kept: BTreeMap<_, _> = kept.iter().map(|kept| (kept.name.as_str(), kept)).collect();
        for of in due {
            match inner.expire_of(of, &kept, now, &mut unreadable).await {
                Ok(()) => {}
                Err(_) if inner.stop.is_closing() || inner.settled_cause().is_some() => return,
                Err(TopicManageError::Unsupported) => {
                    tracing::warn!("durable subscriptions do not expire: the journal deletes no topics");
                    return;
                }
                Err(error) => {
                    tracing::warn!(topic = of.0, %error, "it could not be told which durable subscriptions have expired")
                }
            }
        }
        last = now;
    }
}

/// When each topic is examined. Only time counts in which the runtime was running, not jumps of its clock: after a clock is
/// corrected, or the machine has slept, subscriptions would look unused that their program has had no time to open.
struct ExpiryPace {
    /// The time between two looks at the clock.
    pause: Duration,
    topics: Vec<ExpiringTopic>,
}

struct ExpiringTopic {
    topic: &'static str,
    idle_max: Duration,
    /// The time until it is examined.
    left: Duration,
}

impl ExpiringTopic {
    fn each(&self) -> Duration {
        (self.idle_max / EXPIRY_SHARE).min(LOOK_MAX)
    }
}

impl ExpiryPace {
    /// `None` without any topic.
    fn of(topics: impl Iterator<Item = (&'static str, Duration)>) -> Option<Self> {
        let topics: Vec<_> = topics
            .map(|(topic, idle_max)| ExpiringTopic {
                topic,
                idle_max,
                left: idle_max / EXPIRY_SHARE,
            })
            .collect();
        let pause = topics.iter().map(ExpiringTopic::each).min()?;
        Some(Self { pause, topics })
    }

    /// The topics to be examined after this much time has passed on the clock.
    fn due(&mut self, passed: Duration) -> Vec<(&'static str, Duration)> {
        let is_leap = passed > self.pause.saturating_mul(2) + LEAP;
        let mut due = Vec::new();
        for topic in &mut self.topics {
            topic.left = match topic.left.checked_sub(passed) {
                _ if is_leap => topic.idle_max / EXPIRY_SHARE,
                Some(left) if !left.is_zero() => left,
                _ => {
                    due.push((topic.topic, topic.idle_max));
                    topic.each()
                }
            };
        }
        due
    }
}

impl Inner {
    /// Removes the subscriptions of a topic that have expired by `now`; `kept` are the subscriptions of all topics. Those
    /// whose places could not be read are added to `unreadable`.
    async fn expire_of(
        &self,
        (topic, idle_max): (&str, Duration),
        kept: &BTreeMap<&str, &TopicSummary>,
        now: Timestamp,
        unreadable: &mut HashSet<TopicNumber>,
    ) -> Result<(), TopicManageError> {
        let before = kept_before(topic);
        let kept = kept.range(before.as_str()..);
        for (_, kept) in kept.take_while(|(name, _)| name.starts_with(&before)) {
            // A subscription that has kept nothing yet has no place to forget.
            if kept.last < kept.first || !self.may_expire(&kept.name) {
                continue;
            }
            let last = Sequence::new(kept.last.get().saturating_sub(1));
            let Ok(Some(record)) = self.record_behind(kept.number, last).await? else {
                if unreadable.insert(kept.number) {
                    tracing::warn!(
                        kept_in = %kept.name,
                        "when a durable subscription was used cannot be read: it does not expire, and is to be removed"
                    );
                }
                continue;
            };
            if now.saturating_since(record.time) >= idle_max.saturating_add(idle_max / EXPIRY_SHARE) {
                let subscription = &kept.name[before.len()..];
                self.expire(kept, (topic, subscription), record.time).await?;
            }
        }
        Ok(())
    }

    /// Whether the subscription that is kept in this topic belongs to this runtime, and is not open.
    fn may_expire(&self, kept_name: &str) -> bool {
        let partition = Partition::of(kept_name.as_bytes());
        self.shared.claims.owned().has(partition) && !self.shared.durable.subscriptions.is_open(kept_name)
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
        if !self.may_expire(&kept.name) || streams.summary(kept.number).is_none_or(is_used) {
            return Ok(());
        }
        let offset = streams.delete(&[kept.number]);
        let offset = offset.map_err(|refused| self.not_managed(refused, topic))?;
        // Its keeper may be about to end.
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

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn names(due: Vec<(&'static str, Duration)>) -> Vec<&'static str> {
        due.into_iter().map(|(topic, _)| topic).collect()
    }

    #[test]
    fn each_topic_is_looked_at_at_its_own_pace_and_once_an_hour_at_least() {
        let mut pace = ExpiryPace::of([("day", 24 * HOUR), ("hour", HOUR)].into_iter()).unwrap();
        assert_eq!(pace.pause, HOUR / 8);
        let mut due_at = Vec::new();
        for step in 1..=40 {
            due_at.extend(names(pace.due(pace.pause)).into_iter().map(|topic| (step, topic)));
        }
        let day: Vec<_> = due_at
            .iter()
            .filter(|(_, topic)| *topic == "day")
            .map(|(step, _)| *step)
            .collect();
        // An eighth of a day after the start, then every hour.
        assert_eq!(day, [24, 32, 40]);
        assert_eq!(due_at.len(), 40 + 3);
    }

    #[test]
    fn what_a_clock_leaps_over_is_no_time_in_which_a_program_could_have_opened_its_subscriptions() {
        let mut pace = ExpiryPace::of([("used", 8 * HOUR)].into_iter()).unwrap();
        assert_eq!(pace.pause, HOUR);
        assert_eq!(names(pace.due(HOUR)), ["used"]);
        // A year passes on a wrong clock; then an eighth of the time passes before the next look.
        assert!(pace.due(365 * 24 * HOUR).is_empty());
        assert!(pace.due(HOUR / 2).is_empty());
        assert_eq!(names(pace.due(HOUR / 2)), ["used"]);
        // A host that is a bit late has not jumped.
        assert_eq!(names(pace.due(HOUR + HOUR / 2)), ["used"]);
    }

    #[test]
    fn without_a_topic_there_is_nothing_to_look_at() {
        assert!(ExpiryPace::of(std::iter::empty()).is_none());
    }
}
