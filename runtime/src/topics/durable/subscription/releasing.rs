//! Releases keys that a subscription holds behind buried records, for an operator: in memory if a consumer has the
//! subscription open, otherwise in its kept state.

use std::sync::Arc;

use millrun_core::{Partition, Sequence};

use super::config::SubscriptionBounds;
use super::deliveries::RecordsInHand;
use super::kept_before;
use super::shared::{HeldSubscription, SubscriptionLost};
use super::stored;
use crate::inner::Inner;
use crate::topics::durable::managing::TopicManageError;
use crate::topics::durable::publish::{RecordToAppend, append_record};

/// Releases a key of a subscription; durable when this returns. Returns whether it was held.
pub(crate) async fn release_held_key(
    inner: &Arc<Inner>,
    (topic, name): (&str, &str),
    key: &str,
) -> Result<bool, TopicManageError> {
    let subscriptions = &inner.shared.durable.subscriptions;
    // The subscription is not opened meanwhile, since the opener would miss the change.
    let opening = subscriptions.opening.lock().await;
    let kept_name = format!("{}{name}", kept_before(topic));
    if let Some(shared) = subscriptions.get(&kept_name).and_then(HeldSubscription::hold) {
        drop(opening);
        let is_released = shared.release_key(|in_hand| in_hand.release_key(key));
        let version = shared.lock().in_hand.version();
        shared.until_saved(version).await?;
        return Ok(is_released);
    }
    let mut all = inner.streams().list().into_iter();
    let kept = all.find(|kept| kept.name == kept_name && kept.last >= kept.first);
    let kept = kept.ok_or_else(|| TopicManageError::NoSubscription {
        topic: topic.to_owned(),
        name: name.to_owned(),
    })?;
    let unreadable = |problem: String| TopicManageError::Unreadable { problem };
    let before = Sequence::new(kept.last.get().saturating_sub(1));
    let record = inner.record_behind(kept.number, before).await?;
    let record = record.map_err(|error| unreadable(error.to_string()))?;
    let record = record.ok_or_else(|| unreadable("it is not there".to_owned()))?;
    let place = stored::decode(&record.body).map_err(|error| unreadable(error.to_string()))?;
    let bounds = SubscriptionBounds {
        holds_keys: true,
        ..SubscriptionBounds::default()
    };
    let in_hand = RecordsInHand::new(bounds, place.acknowledged, place.returned);
    let mut in_hand = in_hand.with_held_keys(place.held_keys);
    if !in_hand.release_key(key) {
        return Ok(false);
    }
    let body = stored::encode(&in_hand);
    let changed = RecordToAppend {
        topic: kept.number,
        partition: Partition::of(kept_name.as_bytes()),
        id: None,
        payload_len: body.len(),
        body,
        unless_changed: Some((kept.number, kept.last)),
    };
    append_record(inner, changed)
        .await
        .map_err(SubscriptionLost::from)?;
    Ok(true)
}
