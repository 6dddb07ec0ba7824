//! The outcome of an update for its caller: decoded, or as bytes.

use millrun_workflow::{InputRefused, Payload, PayloadError};
use serde::de::DeserializeOwned;

use crate::mail::{UpdateAnswer, UpdateRefused};
use crate::{RunError, UpdateError};

/// Decodes the answer to an update, or its rejection.
pub(crate) struct Decoder<A, R> {
    answer: fn(Payload) -> Result<A, PayloadError>,
    rejection: fn(Payload) -> Result<R, PayloadError>,
}

impl<A, R> Clone for Decoder<A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, R> Copy for Decoder<A, R> {}

impl<A: DeserializeOwned, R: DeserializeOwned> Decoder<A, R> {
    /// Decodes into these types.
    pub(crate) const fn typed() -> Self {
        Self {
            answer: |answer| answer.decode(),
            rejection: |rejection| rejection.decode(),
        }
    }
}

impl Decoder<Payload, Payload> {
    /// Decodes nothing.
    pub(crate) const fn untyped() -> Self {
        Self {
            answer: Ok,
            rejection: Ok,
        }
    }
}

impl<A, R> Decoder<A, R> {
    /// Decodes the outcome of an update.
    pub(crate) fn decode(self, answer: Result<UpdateAnswer, UpdateRefused>) -> Result<A, UpdateError<R>> {
        match answer {
            Ok(Ok(answer)) => (self.answer)(answer).map_err(UpdateError::Payload),
            Ok(Err(message)) => Err(UpdateError::Failed { message }),
            Err(refused) => Err(self.refused(refused)),
        }
    }

    /// Why an update has no answer.
    pub(crate) fn refused(self, refused: UpdateRefused) -> UpdateError<R> {
        match refused {
            UpdateRefused::Parked(reason) => UpdateError::Parked(Box::new(reason)),
            UpdateRefused::Run(RunError::Refused(InputRefused::Rejected { error, .. })) => {
                (self.rejection)(error).map_or_else(UpdateError::Payload, UpdateError::Rejected)
            }
            UpdateRefused::Run(error) => UpdateError::Run(error),
        }
    }
}
