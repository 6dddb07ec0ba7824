//! The attempts of activities that a world has seen.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrun::host::Host;
use millrun::workflow::Cause;
use millrun::{Activity, ActivityContext, ActivityTap, InstanceId, Payload, Timestamp};
use serde::de::DeserializeOwned;

use super::course::WorldLife;

/// An attempt of an activity, mocked or real, as a [`World`](crate::World) has seen it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttemptSeen<I> {
    /// The activity's input.
    pub input: I,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The id of the instance that called.
    pub instance_id: InstanceId,
    /// Identifies the call: the same for all attempts of it, also after a crash.
    pub idempotency_key: String,
    /// When it began.
    pub began_at: Timestamp,
    /// How it ended: successfully, or with this error or panic. `None` while it is under way, and if a timeout, a cancel or a
    /// crash has cut it off.
    pub end: Option<Result<(), String>>,
}

/// Records attempts over all lives, as a service outside of the process would see them.
#[derive(Debug)]
pub(super) struct CallRecorder {
    attempts: Mutex<Vec<RecordedAttempt>>,
    len_max: usize,
    has_refused: AtomicBool,
}

#[derive(Clone, Debug)]
struct RecordedAttempt {
    activity: String,
    cause: Cause,
    input: Payload,
    seen: AttemptSeen<()>,
}

impl CallRecorder {
    pub(super) const fn new(len_max: usize) -> Self {
        Self {
            attempts: Mutex::new(Vec::new()),
            len_max,
            has_refused: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RecordedAttempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an attempt was refused because too many are recorded.
    pub(super) fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }

    /// Each attempt of an activity, in the order in which they began.
    ///
    /// # Panics
    /// If an input is not of the activity's type.
    pub(super) fn attempts<I: DeserializeOwned, O, E>(
        &self,
        activity: Activity<I, O, E>,
    ) -> Vec<AttemptSeen<I>> {
        let recorded: Vec<_> = self
            .lock()
            .iter()
            .filter(|attempt| attempt.activity == activity.name())
            .cloned()
            .collect();
        let typed = recorded.into_iter().map(|attempt| {
            let input = attempt.input.decode().unwrap_or_else(|error| {
                panic!("an input of {} is not of its type: {error}", activity.name())
            });
            let AttemptSeen {
                input: (),
                attempt,
                instance_id,
                idempotency_key,
                began_at,
                end,
            } = attempt.seen;
            AttemptSeen {
                input,
                attempt,
                instance_id,
                idempotency_key,
                began_at,
                end,
            }
        });
        typed.collect()
    }

    /// Records an attempt, unless there are too many.
    fn begin(&self, cx: &ActivityContext, input: &Payload, now: Timestamp) -> bool {
        let mut attempts = self.lock();
        if attempts.len() >= self.len_max {
            self.has_refused.store(true, Ordering::Relaxed);
            return false;
        }
        let seen = AttemptSeen {
            input: (),
            attempt: cx.attempt(),
            instance_id: cx.instance_id().clone(),
            idempotency_key: cx.idempotency_key(),
            began_at: now,
            end: None,
        };
        attempts.push(RecordedAttempt {
            activity: cx.activity().to_owned(),
            cause: cx.cause(),
            input: input.clone(),
            seen,
        });
        true
    }

    fn end(&self, cx: &ActivityContext, end: Result<(), String>) {
        let mut attempts = self.lock();
        let mut own = attempts.iter_mut().rev();
        let own = own.find(|attempt| attempt.cause == cx.cause() && attempt.seen.attempt == cx.attempt());
        if let Some(own) = own {
            own.seen.end = Some(end);
        }
    }
}

/// Reports the attempts of one life to the recorder and to that life.
pub(super) struct WorldTap {
    pub(super) recorder: Arc<CallRecorder>,
    pub(super) life: Arc<WorldLife>,
    pub(super) host: Arc<dyn Host>,
}

impl ActivityTap for WorldTap {
    fn begins(&self, cx: &ActivityContext, input: &Payload) -> bool {
        !self.life.is_over() && self.recorder.begin(cx, input, self.host.now())
    }

    fn has_ended(&self, cx: &ActivityContext, end: Option<Result<&Payload, String>>) {
        let end = match end {
            Some(Ok(_)) => Ok(()),
            Some(Err(message)) => Err(message),
            None => Err("it panicked".to_owned()),
        };
        self.recorder.end(cx, end);
        self.life.end_attempt();
    }
}

impl fmt::Debug for WorldTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorldTap")
    }
}
