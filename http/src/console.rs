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

    /// The names under which the routes may be asked for, and the pages that may ask; those of the loopback address
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
    /// draws what was before it was opened: a task of the runtime's host takes a sample every
    /// [`PAST_EVERY`](crate::PAST_EVERY), for as long as a router of this console or the console itself is there, and the
    /// runtime has not stopped. It has the runtime record [durations](Runtime::durations). Without this nothing is kept,
    /// and nothing recorded until metrics are asked for.
    #[must_use]
    pub fn keep_past(mut self) -> Self {
        self.served.past = Some(Past::keep(&self.served.runtime));
        self
    }

    /// Also takes webhooks, at the hook's path below `hooks/`: for a console that is served by itself, as
    /// [`Hooks`](crate::Hooks) are for an app. Who sends one needs no role, since it is signed; `Host` and `Origin` are
    /// checked as on all routes. Its reactions reach the topics that are exposed.
    #[must_use]
    pub fn hook(mut self, hook: Hook) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// From now on `ready` answers 503 at every router of this console and its clones, so that requests are sent
    /// elsewhere: the first step of an orderly end. Everything else goes on.
    pub fn not_ready(&self) {
        self.served.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Lets a topic be published to and tailed, with its values as JSON: operators publish, readers listen. A topic
    /// that is not exposed cannot be reached. Nobody who listens holds up a publisher.
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
    /// When the name is none of a topic, or the topic of this name carries another type or is durable.
    pub fn expose<T>(mut self, topic: Topic<T>) -> Result<Self, ExposeError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        self.served.topics.expose(&self.served.runtime, topic)?;
        Ok(self)
    }

    /// Lets a durable topic be published to, read and tailed, with its values as JSON: operators publish, readers read. What
    /// is published over HTTP is durable when it is answered, and is of the topic's type; what is read is as it is recorded.
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
    /// When the runtime's builder was not told of it, or told something else of it.
    pub fn expose_durable<T>(mut self, topic: DurableTopic<T>) -> Result<Self, DurableTopicError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        self.served.topics.expose_durable(&self.served.runtime, topic)?;
        Ok(self)
    }

    /// The routes, to be nested under any path of any app. `Host`, `Origin` and the caller's role are checked on
    /// each of them. Bounds of connections, of headers and of the time of a request are those of the server that
    /// the app is given to.
    ///
    /// # Panics
    /// When two [hooks](Self::hook) have the same path, or one has a path that is none of axum's.
    ///
    /// # Cancel safety
    /// What a request whose client gives up was to change may be recorded or not. A start, and an update under the
    /// same request, may be sent again; a signal may be recorded twice then.
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
    /// The same routes for a server of this crate.
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

/// The operations of a runtime, to be nested under any path:
/// `app.nest("/millrun", millrun_http::router(&runtime, access))`. It keeps the runtime alive; once that has been
/// shut down, requests are told so. It is asked for under a loopback name; [`Console`] has more to choose.
pub fn router(runtime: &Runtime, access: Access) -> Router {
    Console::new(runtime, access).router()
}
