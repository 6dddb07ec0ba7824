//! A record on its way to a run that waits for it.

use std::sync::Arc;
use std::time::Duration;

use millrun_core::Host;
use millrun_workflow::RawRecord;
use tokio::sync::oneshot;

use super::wait_index::RecordWait;
use crate::RunError;
use crate::mail::{Request, ShardDoors, Target, Tell};

/// The first and the longest pause before a record is delivered again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(5));

/// Delivers a record to a run, until the run's history has it or the run does not wait for it any more here.
pub(super) async fn deliver(
    host: Arc<dyn Host>,
    doors: ShardDoors,
    wait: RecordWait,
    record: Arc<RawRecord>,
) {
    let mut pause = PAUSES.0;
    loop {
        let (reply, answer) = oneshot::channel();
        let request = Request::Tell {
            target: Target::Run(wait.run()),
            what: Tell::RecordReceived {
                operation: wait.operation(),
                record: Box::new(RawRecord::clone(&record)),
            },
            reply: reply.into(),
        };
        let door = doors.of(wait.run().partition());
        if let Err(request) = door.try_push(request)
            && !Box::pin(door.push(request)).await
        {
            // The runtime has stopped: the wait stays in its run's history.
            return;
        }
        match answer.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) if !comes_to_terms(&error) => {
                tracing::debug!(run = %wait.run(), %error, "a record is not received any more");
                return;
            }
            Ok(Err(error)) => {
                tracing::debug!(run = %wait.run(), %error, "a record is told again later");
            }
            // The shard was restarted with the delivery in hand, or the runtime stops.
            Err(_) => {}
        }
        host.sleep_until(host.now() + pause).await;
        pause = (2 * pause).min(PAUSES.1);
    }
}

/// Whether a run that has refused a record may accept it later, in this process.
fn comes_to_terms(error: &RunError) -> bool {
    match error {
        RunError::Moved { .. } => false,
        RunError::Turn(_) | RunError::Read(_) => true,
        error => error.is_retryable(),
    }
}
