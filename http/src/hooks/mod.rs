//! Webhooks: requests of other services, which are checked and then start, signal or publish.
//!
//! ```text
//!   webhook ──► body, as it was sent ──► signature and time ──► closure ──► reaction ──► commit ──► answer
//! ```
//!
//! Invariants:
//!
//! - The closure sees only data that is signed as the hook requires, and the answer comes after the commit.
//! - A webhook that is sent again has the same id, which is used as the id of the instance or the name of the request: so it
//!   has no second effect while the run is retained.
//!
//! The routes stand beside those of a [`Console`](crate::Console), not below them: senders of webhooks need not reach the
//! API. A console with a server of its own [takes hooks as well](crate::Console::hook).

mod hook;
mod reaction;
mod scheme;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use millrun::Runtime;

pub use hook::{Hook, HookPath, SignedHook};
pub use reaction::{Reaction, RefusedWebhook};
pub use scheme::{Scheme, SecretError};
pub use webhook::Webhook;

use crate::BODY_BYTES_MAX;
use crate::Redaction;
use crate::answers::result;
use crate::body::read_bytes;
use crate::problem::Problem;
use crate::router::finished;
use crate::topics::Topics;
use crate::view::{Json, object};
use reaction::{Done, ReactionReach};

/// Routes for webhooks, to be nested under any path of any app. A cheap clone; it keeps the runtime alive.
///
/// ```
/// use axum::Router;
/// use millrun::{Runtime, Workflow};
/// use millrun_http::{Hook, Hooks, Reaction, Scheme};
/// use serde::{Deserialize, Serialize};
///
/// const REFUND: Workflow<Charge, ()> = Workflow::named("refund");
///
/// #[derive(Serialize, Deserialize)]
/// struct Charge {
///     amount: u64,
/// }
///
/// #[derive(Deserialize)]
/// struct Event {
///     r#type: String,
///     data: Charge,
/// }
///
/// # fn app(runtime: &Runtime) -> Result<Router, Box<dyn std::error::Error>> {
/// let secret = std::env::var("STRIPE_SECRET")?;
/// let stripe = Hook::post("/stripe").verify(Scheme::stripe([secret])?).then(|webhook| {
///     let event: Event = webhook.json()?;
///     Ok(match event.r#type.as_str() {
///         "charge.refunded" => Reaction::start(REFUND, event.data),
///         _ => Reaction::nothing(),
///     })
/// });
/// let hooks = Hooks::new(runtime).hook(stripe);
/// Ok(Router::new().nest("/hooks", hooks.router()))
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Hooks {
    runtime: Runtime,
    hooks: Vec<Arc<Hook>>,
    topics: Topics,
}

impl Hooks {
    /// No hooks yet, over a runtime.
    #[must_use]
    pub fn new(runtime: &Runtime) -> Self {
        Self {
            runtime: runtime.clone(),
            hooks: Vec::new(),
            topics: Topics::default(),
        }
    }

    /// These hooks of a console, which can use the topics that it exposes.
    pub(crate) fn beside(runtime: &Runtime, hooks: &[Arc<Hook>], topics: &Topics) -> Self {
        Self {
            runtime: runtime.clone(),
            hooks: hooks.to_vec(),
            topics: topics.clone(),
        }
    }

    /// Adds a hook.
    #[must_use]
    pub fn hook(mut self, hook: Hook) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// The routes. A webhook's body has at most 2 MiB. An error is answered as a problem, after which most senders try again:
    /// 401 for a webhook that is not signed as required, or too old, 422 for one that the closure refuses. A webhook without
    /// a reaction is answered 204, any other when its effect is durable.
    ///
    /// # Panics
    /// When two hooks have the same path, or a path is not valid for axum.
    ///
    /// # Cancel safety
    /// If the sender gives up, the reaction may be performed or not; when the webhook is sent again, it is performed once.
    pub fn router(&self) -> Router {
        let mut router = Router::new();
        for hook in &self.hooks {
            let hook = Arc::clone(hook);
            let reach = ReactionReach {
                runtime: self.runtime.clone(),
                topics: self.topics.clone(),
            };
            let path = format!("/{}", hook.path.trim_start_matches('/'));
            let handler = move |request: Request| {
                let (reach, hook) = (reach.clone(), Arc::clone(&hook));
                async move {
                    let answered = answer(&reach, &hook, request).await;
                    finished(answered.unwrap_or_else(Problem::into_response))
                }
            };
            router = router.route(&path, post(handler));
        }
        router.method_not_allowed_fallback(|| async {
            finished(Problem::new("method", "a webhook is posted").into_response())
        })
    }
}

async fn answer(reach: &ReactionReach, hook: &Hook, request: Request<Body>) -> Result<Response, Problem> {
    let runtime = &reach.runtime;
    let (head, body) = request.into_parts();
    let body = read_bytes(body, BODY_BYTES_MAX).await?;
    let id = match &hook.scheme {
        Some(scheme) => scheme.verify(&head.headers, &body, runtime.host().now())?,
        None => scheme::unsigned_id(&head.headers, runtime.host().as_ref())?,
    };
    let webhook = Webhook::new(&id, &head.headers, &body);
    let reaction = (hook.then)(&webhook).map_err(|refused| Problem::new("webhook", refused.to_string()))?;
    let done = reaction.perform(reach.clone(), id).await?;
    Ok(match done {
        Done::Nothing => StatusCode::NO_CONTENT.into_response(),
        Done::Published => object([("published", true.into())]).respond(&Redaction::everything()),
        Done::Recorded => object([("recorded", true.into())]).respond(&Redaction::everything()),
        Done::Started { id, run } => {
            let mut told = vec![("id", Json::from(id.as_str())), ("run", run.into())];
            if let Some(run) = run.filter(|_| hook.wait > Duration::ZERO) {
                let described = runtime.describe_run(run).await?;
                let Json::Object(ended) = result(runtime, described, hook.wait).await? else {
                    unreachable!("a result is an object");
                };
                told.extend(ended.into_iter().filter(|(name, _)| *name != "run"));
            }
            // The program has chosen to show this sender the result.
            Json::Object(told).respond(&Redaction::default())
        }
    })
}
