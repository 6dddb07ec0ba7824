//! Kinds of errors, to which a call's retry policies can refer.

use std::fmt;
use std::marker::PhantomData;

use crate::NAME_BYTES_MAX;

/// The kind of an attempt that ran out of time.
pub(crate) const TIMED_OUT: &str = "millrun.timed-out";

/// The kind of an attempt that panicked.
pub(crate) const PANICKED: &str = "millrun.panicked";

/// A kind of the errors `E` of an activity: a call may have a [retry policy](crate::Call::retry_on) for each kind.
///
/// An error states its own kind, by [`TypedError::kind`](crate::TypedError::kind) or, for the ready-made one,
/// [`ActivityError::of_kind`](crate::ActivityError::of_kind). It also states whether it may be tried again; a call with a
/// policy for its kind overrides that.
///
/// ```
/// use millrun_workflow::{ErrorKind, TypedError};
/// use serde::{Deserialize, Serialize};
///
/// const DECLINED: ErrorKind<ChargeError> = ErrorKind::named("declined");
///
/// #[derive(Debug, Serialize, Deserialize, thiserror::Error)]
/// enum ChargeError {
///     #[error("the card was declined")]
///     Declined,
///     #[error("the bank does not answer")]
///     Unreachable,
/// }
///
/// impl TypedError for ChargeError {
///     fn kind(&self) -> Option<&str> {
///         match self {
///             Self::Declined => Some(DECLINED.name()),
///             Self::Unreachable => None,
///         }
///     }
/// }
/// assert_eq!(ChargeError::Declined.kind(), Some("declined"));
/// ```
pub struct ErrorKind<E> {
    name: &'static str,
    types: PhantomData<fn(E)>,
}

impl<E> ErrorKind<E> {
    /// An attempt took too long or was silent for too long.
    pub const TIMED_OUT: Self = Self::named(TIMED_OUT);

    /// An attempt panicked.
    pub const PANICKED: Self = Self::named(PANICKED);

    /// A kind with this name, which is stored with the calls that have a policy for it.
    ///
    /// # Panics
    /// When the name is empty or longer than [`NAME_BYTES_MAX`]; in a constant this is a compile
    /// error.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        assert!(
            !name.is_empty() && name.len() <= NAME_BYTES_MAX,
            "a name has 1 to 255 bytes"
        );
        Self {
            name,
            types: PhantomData,
        }
    }

    /// The stored name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<E> Clone for ErrorKind<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for ErrorKind<E> {}

impl<E> fmt::Debug for ErrorKind<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ErrorKind").field(&self.name).finish()
    }
}
