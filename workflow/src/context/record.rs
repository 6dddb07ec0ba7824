//! Values that the code takes from outside, once.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Shared;
use crate::context::shared::Replayed;
use crate::event::{Event, Name};
use crate::{NAME_BYTES_MAX, Payload, PayloadError};

/// How a value is recorded: its name, and the way into the history and back.
#[derive(Debug)]
pub(super) struct Recording {
    shared: Arc<Shared>,
    location: &'static Location<'static>,
    name: Option<&'static str>,
}

impl Recording {
    pub(super) fn new(shared: Arc<Shared>, location: &'static Location<'static>) -> Self {
        Self {
            shared,
            location,
            name: None,
        }
    }

    /// # Panics
    /// When the name is empty or longer than [`NAME_BYTES_MAX`].
    pub(super) fn named(mut self, name: &'static str) -> Self {
        assert!(
            !name.is_empty() && name.len() <= NAME_BYTES_MAX,
            "a name has 1 to 255 bytes"
        );
        self.name = Some(name);
        self
    }

    /// Runs the effect, unless this is a replay, which has its value.
    pub(super) fn poll<T: Serialize + DeserializeOwned>(
        &self,
        effect: impl FnOnce() -> T,
    ) -> Poll<Result<T, PayloadError>> {
        let name = self.name.map(Name::Borrowed);
        let Some(mut table) = self.shared.lock_polled() else {
            return Poll::Pending;
        };
        let replayed = table.replay_value(self.name);
        let bytes_max = table.bounds.payload_bytes_max;
        drop(table);
        let value = match replayed {
            Replayed::Value(value) => value,
            // The effect must not run again. The decision made here does not fit the history, and parks the run.
            Replayed::Absent => Err("no value was recorded here".into()),
            Replayed::Live => match Payload::encode(&effect()) {
                Ok(value) if value.len() > bytes_max => {
                    Err(format!("{} bytes, a payload may have {bytes_max}", value.len()))
                }
                encoded => encoded.map_err(|error| error.to_string()),
            },
        };
        let event = Event::ValueRecorded {
            name,
            value: value.clone(),
        };
        self.shared.lock().decide(event, Some(self.location));
        Poll::Ready(match value {
            // The code sees the decoded value, live as in a replay.
            Ok(value) => value.decode(),
            Err(message) => Err(PayloadError::Encode(message)),
        })
    }
}

/// A one-time side effect; made by [`WorkflowContext::record`](crate::WorkflowContext::record).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. It is ready when it is first polled.
#[derive(Debug)]
#[must_use = "nothing is recorded until it is awaited"]
pub struct RecordStep<F, T> {
    recording: Recording,
    effect: Option<F>,
    value: PhantomData<fn() -> T>,
}

impl<F, T> RecordStep<F, T> {
    pub(crate) fn new(shared: Arc<Shared>, location: &'static Location<'static>, effect: F) -> Self {
        Self {
            recording: Recording::new(shared, location),
            effect: Some(effect),
            value: PhantomData,
        }
    }

    /// Names the value. The name is recorded with the value; a replay that asks for it under another name parks the run.
    /// Without names, two calls with values of the same type get each other's values when they change places. No effect once
    /// polled.
    ///
    /// A value that was recorded without a name fits any name: a call may be named while runs are alive.
    ///
    /// ```
    /// # use millrun_workflow::{WorkflowContext, WorkflowError};
    /// # fn cents_of(item: &str) -> u64 { item.len() as u64 }
    /// async fn total(cx: WorkflowContext, _: ()) -> Result<u64, WorkflowError> {
    ///     let price = cx.record(|| cents_of("book")).named("price").await?;
    ///     let postage = cx.record(|| cents_of("parcel")).named("postage").await?;
    ///     Ok(price + postage)
    /// }
    /// ```
    ///
    /// # Panics
    /// When the name is empty or longer than [`NAME_BYTES_MAX`].
    pub fn named(mut self, name: &'static str) -> Self {
        self.recording = self.recording.named(name);
        self
    }
}

impl<F, T> Future for RecordStep<F, T>
where
    F: FnOnce() -> T + Unpin,
    T: Serialize + DeserializeOwned,
{
    type Output = Result<T, PayloadError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            recording, effect, ..
        } = self.get_mut();
        recording.poll(|| {
            let effect = effect.take();
            effect.expect("ready on its first poll, so there is no second")()
        })
    }
}
