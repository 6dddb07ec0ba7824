//! A received webhook whose signature has been checked.

use axum::http::HeaderMap;
use serde::de::DeserializeOwned;

use super::RefusedWebhook;

/// A request of another service.
#[derive(Clone, Copy, Debug)]
pub struct Webhook<'a> {
    id: &'a str,
    headers: &'a HeaderMap,
    body: &'a [u8],
}

impl<'a> Webhook<'a> {
    pub(super) const fn new(id: &'a str, headers: &'a HeaderMap, body: &'a [u8]) -> Self {
        Self { id, headers, body }
    }

    /// Its id: the same when it is sent again. See [`Scheme`](super::Scheme) for its origin.
    #[must_use]
    pub const fn id(&self) -> &'a str {
        self.id
    }

    /// The value of a header that occurs once and is text: `x-github-event`, say. Schemes sign no headers other than their
    /// own.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let mut all = self.headers.get_all(name).iter();
        let value = all.next()?.to_str().ok()?;
        all.next().is_none().then_some(value)
    }

    /// The body, byte for byte.
    #[must_use]
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The body as JSON of this type.
    ///
    /// # Errors
    /// When it does not parse as this type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, RefusedWebhook> {
        Ok(serde_json::from_slice(self.body)?)
    }
}
