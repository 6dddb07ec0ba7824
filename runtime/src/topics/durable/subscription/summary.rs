//! The state of a subscription, whether or not a consumer has it open.

use std::sync::Arc;

use millrun_core::{Sequence, Timestamp};
use millrun_persistence::{TopicNumber, TopicSummary};

use super::acknowledged::Acknowledged;
use super::shared::SubscriptionShared;
use super::stored::KeptPlace;
use super::{kept_before, stored};
use crate::StopCause;
use crate::inner::Inner;

/// The state of a subscription at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionStatus {
    /// All records up to this one are acknowledged.
    pub acknowledged_through: Sequence,
    /// How many records of the topic are not acknowledged.
    pub lag: u64,
    /// How many of them retention has dropped: they are reported as missed when the subscription reaches them.
    pub dropped: u64,
    /// How many of them are in hand: delivered, waiting to be delivered again, or behind another record of their key.
    pub in_hand: usize,
    /// How many of those are delivered to consumers.
    pub leased: usize,
    /// How many of them have come back without success.
    pub returned: usize,
    /// How many keys wait behind an undelivered record, until that is sent back or the key is
    /// [released](crate::Runtime::release_held_key).
    pub held_keys: usize,
    /// The first record in hand, with the time at which it was appended.
    pub oldest: Option<(Sequence, Timestamp)>,
    /// How many records were skipped since the subscription was opened here.
    pub missed: u64,
    /// How many have gone to the topic for undelivered records since the subscription was opened here.
    pub undelivered: u64,
}

/// A durable subscription as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurableSubscriptionSummary {
    /// The name of its topic.
    pub topic: String,
    /// Its name.
    pub name: String,
    /// Whether a consumer or a trigger of this runtime has it open.
    pub is_open: bool,
    /// The topic for its undelivered records, if it is open and has one.
    pub undelivered_to: Option<String>,
    /// Its state, or why that is unknown. Here `oldest` is the first record that is left and not acknowledged, in hand or
    /// not, unless it cannot be read.
    pub status: Result<SubscriptionStatus, String>,
}

impl SubscriptionStatus {
    /// The status of an open subscription.
    pub(in crate::topics::durable) fn of_open(shared: &SubscriptionShared) -> Self {
        let streams = shared.inner.shared.journal.topics();
        let summary = streams.and_then(|streams| streams.summary(shared.topic.number));
        let state = shared.lock();
        Self {
            in_hand: state.in_hand.len(),
            leased: state.in_hand.leased_len(),
            returned: state.in_hand.returned().count(),
            held_keys: state.in_hand.held_keys().len(),
            oldest: state
                .in_hand
                .oldest()
                .map(|(sequence, time)| (Sequence::new(sequence), time)),
            missed: state.missed,
            undelivered: state.undelivered,
            ..Self::of_acknowledged(state.in_hand.acknowledged(), summary.as_ref())
        }
    }

    /// The status of a subscription that is not open, from its kept state.
    fn of_kept(kept: &KeptPlace, summary: Option<&TopicSummary>) -> Self {
        Self {
            returned: kept.returned.len(),
            held_keys: kept.held_keys.len(),
            ..Self::of_acknowledged(&kept.acknowledged, summary)
        }
    }

    fn of_acknowledged(acknowledged: &Acknowledged, summary: Option<&TopicSummary>) -> Self {
        let (first, last) = summary.map_or((1, 0), |summary| (summary.first.get(), summary.last.get()));
        Self {
            acknowledged_through: Sequence::new(acknowledged.through()),
            lag: last.saturating_sub(acknowledged.through() + acknowledged.len_behind()),
            dropped: acknowledged.missing_before(first),
            in_hand: 0,
            leased: 0,
            returned: 0,
            held_keys: 0,
            oldest: None,
            missed: 0,
            undelivered: 0,
        }
    }
}

impl DurableSubscriptionSummary {
    /// The summary of an open subscription.
    pub(in crate::topics::durable) fn of_open(
        shared: &SubscriptionShared,
        status: SubscriptionStatus,
    ) -> Self {
        let undelivered = shared.undelivered.map(|topic| topic.number);
        let mut topics = shared.inner.shared.durable.iter();
        let named = topics.find(|(_, number)| Some(*number) == undelivered);
        Self {
            topic: shared.topic_name.to_owned(),
            name: shared.name.clone(),
            is_open: true,
            undelivered_to: named.map(|(name, _)| name.to_owned()),
            status: Ok(status),
        }
    }

    /// The summaries of a topic's subscriptions behind this name, in order.
    pub(in crate::topics::durable) async fn of_topic(
        inner: &Arc<Inner>,
        (topic, topic_name): (TopicNumber, &str),
        after: Option<&str>,
        len_max: usize,
    ) -> Result<Vec<Self>, StopCause> {
        let before = kept_before(topic_name);
        let kept = inner.streams().list().into_iter().filter_map(|kept| {
            let name = kept.name.strip_prefix(&before)?.to_owned();
            // A subscription without a kept state is just being opened for the first time.
            let is_wanted = after.is_none_or(|after| *name > *after) && kept.last >= kept.first;
            is_wanted.then_some((name, kept))
        });
        let mut kept: Vec<_> = kept.collect();
        kept.sort_by(|(one, _), (other, _)| one.cmp(other));
        kept.truncate(len_max);
        let mut told = Vec::with_capacity(kept.len());
        for (name, kept) in kept {
            let open = inner.shared.durable.subscriptions.get(&kept.name);
            let open = open.filter(|shared| shared.is_open());
            let mut summary = match &open {
                Some(shared) => Self::of_open(shared, SubscriptionStatus::of_open(shared)),
                None => Self {
                    topic: topic_name.to_owned(),
                    name,
                    is_open: false,
                    undelivered_to: None,
                    status: kept_status(inner, topic, &kept).await?,
                },
            };
            if let Ok(status) = &mut summary.status
                && status.lag > 0
            {
                status.find_oldest(inner, topic).await?;
            }
            told.push(summary);
        }
        Ok(told)
    }
}

impl SubscriptionStatus {
    /// Finds the first record that is left and not acknowledged.
    async fn find_oldest(&mut self, inner: &Inner, topic: TopicNumber) -> Result<(), StopCause> {
        let first = self.acknowledged_through.get() + 1;
        if self.oldest.is_some_and(|(sequence, _)| sequence.get() == first) {
            return Ok(());
        }
        // If retention has dropped some, the first record that is left is found.
        let read = inner.record_behind(topic, self.acknowledged_through).await?;
        if let Ok(Some(record)) = read {
            self.oldest = Some((record.sequence, record.time));
        }
        Ok(())
    }
}

/// The status of a subscription from its kept state, or why it is unknown.
async fn kept_status(
    inner: &Inner,
    topic: TopicNumber,
    kept: &TopicSummary,
) -> Result<Result<SubscriptionStatus, String>, StopCause> {
    let before = Sequence::new(kept.last.get().saturating_sub(1));
    let record = match inner.record_behind(kept.number, before).await? {
        Ok(Some(record)) => record,
        Ok(None) => return Ok(Err("what it has kept is not there".to_owned())),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let summary = inner.streams().summary(topic);
    Ok(match stored::decode(&record.body) {
        Ok(kept) => Ok(SubscriptionStatus::of_kept(&kept, summary.as_ref())),
        Err(error) => Err(error.to_string()),
    })
}
