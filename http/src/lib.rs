//! An axum router over a millrun runtime: what runs there, as JSON.
//!
//! ```
//! use axum::{Router, body::Body, http::Request};
//! use millrun::Runtime;
//! use millrun_http::Access;
//! use tower::ServiceExt as _;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::volatile().start().await?;
//! let app = Router::new().nest("/millrun", millrun_http::router(&runtime, Access::read_only()));
//! let answer = app.oneshot(Request::get("/millrun/v1/ready").body(Body::empty())?).await?;
//! assert_eq!(answer.status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! [`OPERATIONS`] lists the operations, and [`PROBLEMS`] the problems. The crate's README has both as tables.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod answers;
mod body;
mod bulk;
mod checked;
mod console;
mod entities;
mod exporting;
mod hooks;
mod keys;
mod metrics;
mod openapi;
mod operations;
mod page;
mod past;
mod problem;
mod publish;
mod query;
mod router;
mod schedules;
#[cfg(feature = "serve")]
mod serve;
mod sites;
mod starts;
mod store;
mod stream;
mod token;
mod topics;
mod trace;
mod traceparent;
mod upkeep_time;
mod view;
mod waiting;

/// The examples of the README compile.
#[cfg(all(doctest, feature = "serve"))]
#[doc = include_str!("../README.md")]
pub struct Readme;

pub use access::{Access, Role, TopicRequest, TopicUse};
pub use body::{BODY_BYTES_MAX, LINES_BYTES_MAX};
pub use console::{Console, router};
pub use exporting::EXPORTS_LEN_MAX;
pub use hooks::{Hook, HookPath, Hooks, Reaction, RefusedWebhook, Scheme, SecretError, SignedHook, Webhook};
pub use keys::KEYS_LEN_MAX;
pub use metrics::{METRICS, Metric, MetricKind, SERIES_LEN_MAX};
pub use millrun::history::{Redaction, RedactionError};
pub use openapi::openapi_json;
pub use operations::{OPERATIONS, Operation};
pub use past::{PAST_EVERY, PAST_LEN_MAX};
pub use problem::{PROBLEMS, ProblemType};
#[cfg(feature = "serve")]
#[cfg_attr(docsrs, doc(cfg(feature = "serve")))]
pub use serve::{Drained, ServeConfig, ServeError, ServedAt, Serving};
pub use sites::Sites;
pub use starts::LINES_LEN_MAX;
pub use stream::STREAMS_LEN_MAX;
pub use token::{Token, TokenError};
pub use topics::{ExposeError, RECORDS_BYTES_MAX, RING_BYTES_MAX, RING_LEN_MAX};
