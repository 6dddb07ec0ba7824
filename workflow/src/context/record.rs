//! Values that the code takes from the world, once.

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
use crate::event::Event;
use crate::{Payload, PayloadError};

/// A one-time side effect; made by [`WorkflowContext::record`](crate::WorkflowContext::record).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. It is ready when it is first polled.
#[derive(Debug)]
#[must_use = "nothing is recorded until it is awaited"]
pub struct Record<F, T> {
    shared: Arc<Shared>,
    location: &'static Location<'static>,
    effect: Option<F>,
    value: PhantomData<fn() -> T>,
}

impl<F, T> Record<F, T> {
    pub(crate) fn new(shared: Arc<Shared>, location: &'static Location<'static>, effect: F) -> Self {
        Self {
            shared,
            location,
            effect: Some(effect),
            value: PhantomData,
        }
    }
}

impl<F, T> Future for Record<F, T>
where
    F: FnOnce() -> T + Unpin,
    T: Serialize + DeserializeOwned,
{
    type Output = Result<T, PayloadError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(mut table) = this.shared.lock_polled() else {
            return Poll::Pending;
        };
        let replayed = table.replay_value();
        let bytes_max = table.bounds.payload_bytes_max;
        drop(table);
        let value = match replayed {
            Replayed::Value(value) => value,
            // The effect must not happen again: what is decided here does not fit, and parks the run.
            Replayed::Absent => Err("no value was recorded here".into()),
            Replayed::Live => {
                let effect = this
                    .effect
                    .take()
                    .expect("ready on its first poll, so there is no second");
                match Payload::encode(&effect()) {
                    Ok(value) if value.len() > bytes_max => {
                        Err(format!("{} bytes, a payload may have {bytes_max}", value.len()))
                    }
                    encoded => encoded.map_err(|error| error.to_string()),
                }
            }
        };
        let event = Event::ValueRecorded { value: value.clone() };
        this.shared.lock().decide(event, Some(this.location));
        Poll::Ready(match value {
            // Live as in a replay, the code sees what was decoded.
            Ok(value) => value.decode(),
            Err(message) => Err(PayloadError::Encode(message)),
        })
    }
}
