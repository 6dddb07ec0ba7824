//! The task that keeps what a subscription has come to: one append at a time, of all that has changed since the last.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use millrun_core::Host;
use millrun_workflow::Payload;
use tokio::sync::Notify;

use super::shared::{SubscriptionLost, SubscriptionShared};
use super::{stored, undelivered};
use crate::StopCause;
use crate::topics::durable::publish::{RecordToAppend, append_record};

/// How long the keeper waits before it asks again a part that was restarted.
const PAUSE: Duration = Duration::from_millis(10);

/// Starts the keeper of a subscription, which ends with it.
pub(super) fn start(shared: &Arc<SubscriptionShared>) {
    let host: Arc<dyn Host> = Arc::clone(&shared.inner.shared.host);
    let keeper = keep(Arc::downgrade(shared), Arc::clone(&shared.to_save));
    drop(host.spawn("millrun-subscription", Box::pin(keeper)));
}

async fn keep(shared: Weak<SubscriptionShared>, to_save: Arc<Notify>) {
    loop {
        let Some(shared) = shared.upgrade() else { return };
        match save(&shared).await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(SubscriptionLost::Stopped(StopCause::Part { .. }))
                if shared.inner.settled_cause().is_none() =>
            {
                // A part was restarted with what was asked of it: to ask again changes nothing.
                let host = &shared.inner.shared.host;
                host.sleep_until(host.now() + PAUSE).await;
                continue;
            }
            Err(lost) => return shared.lose(lost),
        }
        // It must not be held while nothing is to be done.
        drop(shared);
        to_save.notified().await;
    }
}

/// Buries one of what is to be buried, and keeps what has changed. Whether there may be more to do.
async fn save(shared: &SubscriptionShared) -> Result<bool, SubscriptionLost> {
    let has_buried = undelivered::bury_next(shared).await?;
    if has_buried {
        shared.changed.notify_waiters();
    }
    let (version, bytes) = {
        let state = shared.lock();
        if let Some(lost) = &state.lost {
            return Err(lost.clone());
        }
        let version = state.in_hand.version();
        if version == state.saved {
            return Ok(has_buried);
        }
        (version, stored::encode(&state.in_hand))
    };
    let record = RecordToAppend {
        topic: shared.kept_in,
        partition: shared.partition,
        id: None,
        header: Vec::new(),
        payload: Payload::from_bytes(Bytes::from(bytes)),
    };
    append_record(&shared.inner, record).await?;
    shared.lock().saved = version;
    shared.saved.notify_waiters();
    Ok(true)
}
