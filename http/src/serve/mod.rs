//! This crate's own server for the routes, with bounds that a nested router leaves to its app's server.
//!
//! ```text
//!   at_address, at_socket ──► accept ──► connection (a task each) ──► request ──► routes
//!          │                    │  ▲           │ unstalled: what is written must be taken
//!          ▼                    ▼  └─ silent ◄─┘ one that has sent no request makes room
//!       Serving ──── stage ─────┴──► told: event streams are told of the end
//! ```
//!
//! Invariants:
//!
//! - Each connection is a task in the set of the accept loop, which is a task of the runtime's host: none outlives the
//!   [`Serving`], and none the host.
//! - Whatever a client does or fails to do, it holds at most one connection's memory, for a bounded time; only a stream that
//!   it reads lasts as long as the server.
//!
//! Left out on purpose: TLS and HTTP/2, which a proxy in front can do.

mod accept;
mod address;
mod config;
mod connection;
mod request;
mod routes;
mod serving;
mod silent;
#[cfg(unix)]
mod socket;
#[cfg(test)]
mod tests;
mod timer;
#[cfg(any(not(unix), test))]
mod token_file;
mod told;
mod unstalled;

pub(crate) use routes::Routes;

pub use address::ServeError;
pub use config::ServeConfig;
pub use serving::{Drained, ServedAt, Serving};
