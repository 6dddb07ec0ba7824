//! What a program says of a hook, in the order in which it is said: where, signed how, and what then.

use std::fmt;
use std::time::Duration;

use super::{Reaction, RefusedWebhook, Scheme, Webhook};

/// The longest that a webhook waits for a result.
const WAIT_MAX: Duration = Duration::from_secs(60);

type Then = dyn Fn(&Webhook<'_>) -> Result<Reaction, RefusedWebhook> + Send + Sync;

/// A path at which another service posts webhooks, how they are signed, and what is done about them.
pub struct Hook {
    pub(super) path: String,
    /// `None` if nothing is signed.
    pub(super) scheme: Option<Scheme>,
    pub(super) then: Box<Then>,
    pub(super) wait: Duration,
}

/// The path of a hook that does not say yet how its webhooks are signed.
#[derive(Debug)]
#[must_use = "it is no hook yet"]
pub struct HookPath(String);

/// A hook that does not say yet what is done.
#[derive(Debug)]
#[must_use = "it is no hook yet"]
pub struct SignedHook {
    path: String,
    scheme: Option<Scheme>,
}

impl Hook {
    /// A hook at this path, below where the routes are nested.
    pub fn post(path: impl Into<String>) -> HookPath {
        HookPath(path.into())
    }

    /// Answers with the result of the run that it starts, if that ends within this time, of at most a minute: `outcome`
    /// and what goes with it, as the API tells results. Without this, it answers when the start is durable.
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

    /// Takes every webhook, signed or not: every program that reaches the path can post what it likes, and so can any page
    /// in the browser of a person who reaches it. A webhook's id is what the header `Idempotency-Key` or `webhook-id`
    /// says, of 1 to 255 bytes: another is refused, as the problem `webhook`. One without is always a new one.
    pub fn unsigned(self) -> SignedHook {
        SignedHook {
            path: self.0,
            scheme: None,
        }
    }
}

impl SignedHook {
    /// What is done about a webhook. The closure is called once for each that is sent, also when it is sent again; it
    /// must not block.
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
