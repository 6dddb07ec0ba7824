//! Removes the durable output streams of runs that retention has removed.
//!
//! The journal removes runs by itself, so this checks for each run with a stream whether it still exists: from time to time,
//! and when a stream needs room.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use millrun_core::RunId;
use tokio::sync::oneshot;

use crate::RunError;
use crate::inner::Inner;
use crate::mail::{Request, Target, Wake};

/// The time between two looks at all runs.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Removes streams again and again, while the runtime exists.
pub(crate) async fn remove_streams(inner: Weak<Inner>) {
    let Some(host) = inner.upgrade().map(|inner| Arc::clone(&inner.shared.host)) else {
        return;
    };
    loop {
        host.sleep_until(host.now() + LOOK_EVERY).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.stop.is_closing() || inner.settled_cause().is_some() {
            return;
        }
        inner.remove_outputs().await;
    }
}

impl Inner {
    /// Whether a run is live, or finished and retained.
    async fn is_there(&self, run: RunId) -> Result<(), RunError> {
        let target = Target::Run(run);
        let (reply, answer) = oneshot::channel();
        let question = Request::Describe {
            target: target.clone(),
            wake: Wake::Never,
            reply: reply.into(),
        };
        match self.ask(&target, question, answer).await {
            Err(RunError::NotFound | RunError::Finished) => self.finished_standing(target).await.map(|_| ()),
            answer => answer.map(|_| ()),
        }
    }

    /// Starts the task that removes streams, unless it is running.
    pub(crate) fn start_removing_outputs(self: &Arc<Self>) {
        if self.shared.outputs.starts_removing() {
            let removing = remove_streams(Arc::downgrade(self));
            let host = &self.shared.host;
            drop(host.spawn("millrun-output-streams", Box::pin(removing)));
        }
    }

    /// As [`remove_outputs`](Self::remove_outputs), shared by all callers that came before a look began.
    pub(super) async fn remove_outputs_together(self: &Arc<Self>) {
        let outputs = &self.shared.outputs;
        let came = outputs.looks_begun.load(Ordering::SeqCst);
        let _looking = outputs.looking.lock().await;
        if outputs.looks_begun.load(Ordering::SeqCst) > came {
            return;
        }
        outputs.looks_begun.fetch_add(1, Ordering::SeqCst);
        self.remove_outputs().await;
    }

    /// Removes the streams of removed runs. A stream stays for now if an attempt sends to it, or if its partition has another
    /// owner.
    pub(super) async fn remove_outputs(self: &Arc<Self>) {
        let shared = &self.shared;
        // Sorted by run, so that each run is checked once.
        let mut all = shared.outputs.all();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let mut removed = None;
        for (key, _) in all {
            let run = key.0;
            if !shared.claims.owned().has(run.partition()) {
                continue;
            }
            if removed != Some(run) {
                match self.is_there(run).await {
                    Err(RunError::NotFound | RunError::Expired) => removed = Some(run),
                    Err(RunError::Stopped(_)) => return,
                    Ok(()) | Err(_) => continue,
                }
            }
            // An attempt may still be sending, although it is not waited for.
            if shared.streams.close_unless_sent_to(&key) {
                shared.outputs.remove(&key, &*shared.journal);
            }
        }
    }
}
