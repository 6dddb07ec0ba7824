//! The builder of a hook, in the order of its steps: the path, the signature, the reaction.

use std::fmt;
use std::time::Duration;

use super::{Reaction, RefusedWebhook, Scheme, Webhook};

/// The longest time that a webhook waits for a result.
const WAIT_MAX: Duration = Duration::from_secs(60);

type Then = dyn Fn(&Webhook<'_>) -> Result<Reaction, RefusedWebhook> + Send + Sync;

/// A path at which another service posts webhooks, with the signature that they need and the reaction to them.
pub struct Hook {
    pub(super) path: String,
    /// `None` for unsigned webhooks.
    pub(super) scheme: Option<Scheme>,
    pub(super) then: Box<Then>,
    pub(super) wait: Duration,
}

/// The path of a hook whose signature is not set yet.
#[derive(Debug)]
#[must_use = "it is no hook yet"]
pub struct HookPath(String);

/// A hook whose reaction is not set yet.
#[derive(Debug)]
#[must_use = "it is no hook yet"]
pub struct SignedHook {
    path: String,
    scheme: Option<Scheme>,
}

impl Hook {
    /// A hook at this path, below the path where the routes are nested.
    pub fn post(path: impl Into<String>) -> HookPath {
        HookPath(path.into())
    }

    /// Answers with the result of the run that it starts, if that ends within this time, of at most a minute: `outcome` and
    /// further fields, as the API shows results. Without this, it answers when the start is durable.
    #[must_use]
    pub fn result_within(mut self, wait: Duration) -> Self {
        self.wait = wait.min(WAIT_MAX);
        self
    }
}

impl HookPath {
    /// Takes only webhooks that are signed by this scheme.
    pub fn verify(self, scheme: Scheme) -> SignedHook {
        SignedHook {
            path: self.0,
            scheme: Some(scheme),
        }
    }

    /// Takes every webhook, signed or not: every program that reaches the path can post anything, and so can any page in the
    /// browser of a person who reaches it. A webhook's id is its header `Idempotency-Key` or `webhook-id`, of 1 to 255 bytes;
    /// an invalid id is refused, as the problem `webhook`. A webhook without an id always counts as new.
    pub fn unsigned(self) -> SignedHook {
        SignedHook {
            path: self.0,
            scheme: None,
        }
    }
}

impl SignedHook {
    /// Sets the reaction to a webhook. The closure is called for each webhook, also when it is sent again; it must not block.
    pub fn then(
        self,
        then: impl Fn(&Webhook<'_>) -> Result<Reaction, RefusedWebhook> + Send + Sync + 'static,
    ) -> Hook {
        Hook {
            path: self.path,
            scheme: self.scheme,
            then: Box::new(then),
            wait: Duration::ZERO,
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook")
            .field("path", &self.path)
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}
