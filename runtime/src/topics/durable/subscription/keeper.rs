//! The task that saves a subscription's progress: one append at a time, of all changes since the last.
//!
//! Invariants: an append is only made if the last record is the one that it knows: if another owner had the partition
//! meanwhile, that owner's record stays. Retention is told of a place when it is saved, not before. The task ends when all
//! answers are saved and no consumer or delivery holds the subscription.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select;
use millrun_core::{Host, Sequence};

use super::shared::{SubscriptionLost, SubscriptionShared};
use super::{stored, undelivered};
use crate::StopCause;
use crate::topics::durable::declared::KnownTopic;
use crate::topics::durable::publish::{DurablePublishError, RecordToAppend, append_record};
use crate::topics::durable::reader::TopicReader;

/// The pause before it asks again after a part was restarted.
const PAUSE: Duration = Duration::from_millis(10);

/// A save that the journal was asked for, until its result is known.
struct ToKeep {
    version: u64,
    /// All records up to this one are acknowledged.
    through: Sequence,
    bytes: Bytes,
}

/// Starts the keeper of a subscription.
pub(super) fn start(shared: &Arc<SubscriptionShared>) {
    let host: Arc<dyn Host> = Arc::clone(&shared.inner.shared.host);
    drop(host.spawn("millrun-subscription", Box::pin(keep(Arc::clone(shared)))));
}

async fn keep(shared: Arc<SubscriptionShared>) {
    let mut to_keep = None;
    loop {
        match save(&shared, &mut to_keep).await {
            Ok(true) => {}
            Ok(false) if shared.ends_unless_held() => return,
            Ok(false) => until_due(&shared).await,
            Err(SubscriptionLost::Stopped(StopCause::Part { .. }))
                if shared.inner.settled_cause().is_none() =>
            {
                // A part was restarted with the request in hand; repeating it changes nothing.
                let host = &shared.inner.shared.host;
                host.sleep_until(host.now() + PAUSE).await;
            }
            Err(lost) => return shared.lose(lost),
        }
    }
}

/// Waits until there may be something to save, or the place has to be renewed.
async fn until_due(shared: &SubscriptionShared) {
    let to_save = pin!(shared.to_save.notified());
    let renewed_at = shared.lock().renewed_at();
    match renewed_at {
        None => to_save.await,
        Some(at) => {
            select(to_save, shared.inner.shared.host.sleep_until(at)).await;
        }
    }
}

/// Buries one record, and saves changes or renews the place. Returns whether there may be more to do.
async fn save(shared: &SubscriptionShared, to_keep: &mut Option<ToKeep>) -> Result<bool, SubscriptionLost> {
    let mut has_buried = false;
    if to_keep.is_none() {
        has_buried = undelivered::bury_next(shared).await?;
        if has_buried {
            shared.changed.notify_waiters();
        }
        let state = shared.lock();
        if let Some(lost) = &state.lost {
            return Err(lost.clone());
        }
        let version = state.in_hand.version();
        let now = shared.inner.shared.host.now();
        if version != state.saved || state.renewed_at().is_some_and(|at| at <= now) {
            let bytes = stored::encode(&state.in_hand).into();
            *to_keep = Some(ToKeep {
                version,
                through: Sequence::new(state.in_hand.acknowledged().through()),
                bytes,
            });
        }
    }
    let Some(ToKeep {
        version,
        through,
        bytes,
    }) = to_keep
    else {
        return Ok(has_buried);
    };
    let last = shared.lock().last_kept;
    let record = RecordToAppend {
        topic: shared.kept_in,
        partition: shared.partition,
        id: None,
        body: bytes.to_vec(),
        payload_len: bytes.len(),
        unless_changed: Some((shared.kept_in, last)),
    };
    let kept = match append_record(&shared.inner, record).await {
        Ok((sequence, _)) => sequence,
        Err(DurablePublishError::UnknownTopic) => return Err(SubscriptionLost::Deleted),
        Err(moved @ DurablePublishError::Moved { .. }) => {
            if shared.inner.streams().summary(shared.kept_in).is_none() {
                return Err(SubscriptionLost::Deleted);
            }
            // Or an earlier request appended it, and the answer was lost with a part.
            let is_kept = is_last(shared, last.next(), bytes).await;
            if !is_kept {
                return Err(moved.into());
            }
            last.next()
        }
        Err(error) => return Err(error.into()),
    };
    {
        let mut state = shared.lock();
        (state.saved, state.last_kept) = (*version, kept);
        state.last_kept_at = shared.inner.shared.host.now();
    }
    shared
        .inner
        .streams()
        .note_reader(shared.topic.number, shared.kept_in, *through);
    *to_keep = None;
    shared.saved.notify_waiters();
    Ok(true)
}

/// Whether this is the last saved record of the subscription.
async fn is_last(shared: &SubscriptionShared, sequence: Sequence, bytes: &Bytes) -> bool {
    let streams = shared.inner.shared.journal.topics();
    let summary = streams.and_then(|streams| streams.summary(shared.kept_in));
    if summary.is_none_or(|summary| summary.last != sequence) {
        return false;
    }
    let known = KnownTopic {
        number: shared.kept_in,
        store: shared.topic.store,
    };
    let before = Sequence::new(sequence.get() - 1);
    let mut reader: TopicReader<()> = TopicReader::behind(Arc::clone(&shared.inner), known, before);
    let record = reader.next_raw().await;
    record.is_ok_and(|record| record.sequence == sequence && record.body == *bytes)
}
