//! Activities that block or compute: each attempt runs on a thread of its own, up to a number of threads, so that shards and
//! async activities never wait for them.

use std::convert::identity;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millrun_core::{Bell, Next, Part, PartExit, Placement, Timestamp, panic_message};
use millrun_workflow::{Activity, ActivityFailure, TypedError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::code::{decode_input, encode_end};
use super::{ActivityContext, ActivityImplementation, AttemptFailure};

/// One attempt, as a part with a single turn.
struct Work(Option<Box<dyn FnOnce() + Send>>);

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

impl Part for Work {
    fn turn(&mut self, _now: Timestamp, _budget: usize) -> Next {
        if let Some(work) = self.0.take() {
            work();
        }
        Next::Stop
    }
}

impl ActivityImplementation {
    /// Code that blocks its thread.
    pub(crate) fn blocking<I, O, E, F>(activity: Activity<I, O, E>, code: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: TypedError,
        F: Fn(ActivityContext, I) -> Result<O, E> + Send + Sync + 'static,
    {
        let code = Arc::new(code);
        let name = activity.name();
        let start = move |cx: ActivityContext| {
            let input = decode_input(&cx)?;
            let code = Arc::clone(&code);
            let (host, threads) = cx.host_and_threads();
            Ok(async move {
                let permit = threads.acquire_owned().await;
                let (reply, answer) = oneshot::channel();
                let work = move || {
                    // Held until the thread is free again, even if no caller waits any more.
                    let _permit = permit;
                    let attempt = AssertUnwindSafe(|| encode_end(code(cx, input)));
                    let outcome = catch_unwind(attempt).unwrap_or_else(|panic| {
                        let message = panic_message(panic);
                        Err(AttemptFailure::retryable(ActivityFailure::Panicked { message }))
                    });
                    drop(reply.send(outcome));
                };
                let part = Box::new(Work(Some(Box::new(work))));
                let on_exit =
                    Box::new(|exit: PartExit| tracing::trace!(?exit, "a blocking activity has ended"));
                let failed = |message| Err(AttemptFailure::retryable(ActivityFailure::Panicked { message }));
                let spawned = host.spawn_part(name, Placement::Thread, Bell::new(), part, on_exit);
                if let Err(error) = spawned {
                    return failed(error.to_string());
                }
                let lost = |_| failed("its thread ended without a result".into());
                answer.await.unwrap_or_else(lost)
            })
        };
        Self::of_parts(activity, start, identity)
    }
}
