//! The console of a runtime: its routes, and what they check.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use millrun::topics::DurableTopicError;
use millrun::{DurableTopic, Runtime, Topic};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::checked::CheckSites;
use crate::past::Past;
use crate::router::{Served, routes};
#[cfg(feature = "serve")]
use crate::serve::Routes;
use crate::{Access, ExposeError, Hook, Hooks, Redaction, Sites};

/// The routes over a runtime, with what they check. A cheap clone; it keeps the runtime alive.
///
/// ```
/// use axum::Router;
/// use millrun::Runtime;
/// use millrun_http::{Access, Console, Sites, Token};
///
/// # fn app(runtime: &Runtime) -> Result<Router, millrun_http::TokenError> {
/// let access = Access::token(None, Token::from_env("MILLRUN_TOKEN")?);
/// let console = Console::new(runtime, access).sites(Sites::loopback().host("app.example.com"));
/// Ok(Router::new().nest("/millrun", console.router()))
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Console {
    served: Served,
    sites: Sites,
    hooks: Vec<Arc<Hook>>,
}

impl Console {
    /// The routes over a runtime. Who may do what has no default.
    #[must_use]
    pub fn new(runtime: &Runtime, access: Access) -> Self {
        Self {
            served: Served::new(runtime, access),
            sites: Sites::default(),
            hooks: Vec::new(),
        }
    }

    /// The names under which the routes may be requested, and the pages that may request them; those of the loopback address
    /// by default.
    #[must_use]
    pub fn sites(mut self, sites: Sites) -> Self {
        self.sites = sites;
        self
    }

    /// Hides fields wherever a payload becomes JSON.
    #[must_use]
    pub fn redact(mut self, redaction: Redaction) -> Self {
        self.served.redaction = redaction;
        self
    }

    /// Keeps the last 15 minutes from now on, as [`PAST_LEN_MAX`](crate::PAST_LEN_MAX) samples in memory, so that the page
    /// can draw the time before it was opened. A task of the runtime's host takes a sample every
    /// [`PAST_EVERY`](crate::PAST_EVERY), until this console and its routers are dropped, or the runtime has stopped. With
    /// this, the runtime records [durations](Runtime::durations). Without it, nothing is kept, and durations are not recorded
    /// until metrics are requested.
    #[must_use]
    pub fn keep_past(mut self) -> Self {
        self.served.past = Some(Past::keep(&self.served.runtime));
        self
    }

    /// Also takes webhooks, at the hook's path below `hooks/`: for a console with a server of its own, as
    /// [`Hooks`](crate::Hooks) are for an app. The sender needs no role, since webhooks are signed; `Host` and `Origin` are
    /// checked as on all routes. Its reactions can use the exposed topics.
    #[must_use]
    pub fn hook(mut self, hook: Hook) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// From now on `ready` answers 503 at every router of this console and its clones, so that requests are sent elsewhere:
    /// the first step of an orderly end. Everything else still works.
    pub fn not_ready(&self) {
        self.served.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Exposes a topic for publishing and tailing, with its values as JSON: operators publish, readers listen. A topic that
    /// is not exposed cannot be reached. A slow listener never delays a publisher.
    ///
    /// ```
    /// # use millrun::{Runtime, Topic};
    /// # use millrun_http::{Access, Console};
    /// const PRICES: Topic<u64> = Topic::named("shop.prices");
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().start().await?;
    /// let console = Console::new(&runtime, Access::read_only()).expose(PRICES)?;
    /// let app = console.router();
    /// # drop(app);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the name is not valid for a topic, or the topic of this name has another type or is durable.
    pub fn expose<T>(mut self, topic: Topic<T>) -> Result<Self, ExposeError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        self.served.topics.expose(&self.served.runtime, topic)?;
        Ok(self)
    }

    /// Exposes a durable topic for publishing, reading and tailing, with its values as JSON: operators publish, readers read.
    /// A value published over HTTP is checked against the topic's type, and is durable when the request is answered; records
    /// are read as they were written.
    ///
    /// ```
    /// # use millrun::{DurableTopic, Runtime, Topic};
    /// # use millrun_http::{Access, Console};
    /// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().durable_topic(PLACED).start().await?;
    /// let console = Console::new(&runtime, Access::read_only()).expose_durable(PLACED)?;
    /// let app = console.router();
    /// # drop(app);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the topic was not registered with the runtime's builder, or was registered in another way.
    pub fn expose_durable<T>(mut self, topic: DurableTopic<T>) -> Result<Self, DurableTopicError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        self.served.topics.expose_durable(&self.served.runtime, topic)?;
        Ok(self)
    }

    /// The routes, to be nested under any path of any app. `Host`, `Origin` and the caller's role are checked on each of
    /// them. The app's server sets the limits for connections, headers and the time of a request.
    ///
    /// # Panics
    /// When two [hooks](Self::hook) have the same path, or a path is not valid for axum.
    ///
    /// # Cancel safety
    /// If a client gives up, the change that it asked for may be recorded or not. A start, and an update with the same
    /// request name, can safely be sent again; a signal may then be recorded twice.
    pub fn router(&self) -> Router {
        let hooks = Hooks::beside(&self.served.runtime, &self.hooks, &self.served.topics);
        let routes = match self.hooks.is_empty() {
            true => routes(&self.served),
            false => routes(&self.served).nest("/hooks", hooks.router()),
        };
        routes.layer(CheckSites(self.sites.clone()))
    }
}

#[cfg(feature = "serve")]
impl Console {
    /// The same routes, for this crate's server.
    pub(crate) fn routes(&self) -> Routes {
        Routes::new(&self.served, &self.sites, self.router())
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.served.runtime
    }

    pub(crate) fn access(&self) -> &Access {
        &self.served.access
    }

    #[cfg(any(not(unix), test))]
    pub(crate) fn with_access(mut self, access: Access) -> Self {
        self.served.access = access;
        self
    }

    pub(crate) fn with_addresses(mut self) -> Self {
        self.sites = self.sites.addresses();
        self
    }
}

/// The operations of a runtime, to be nested under any path: `app.nest("/millrun", millrun_http::router(&runtime, access))`.
/// The router keeps the runtime alive; once that has been shut down, requests are told so. It must be requested under a
/// loopback name; [`Console`] has more options.
pub fn router(runtime: &Runtime, access: Access) -> Router {
    Console::new(runtime, access).router()
}
