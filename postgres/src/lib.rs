//! The journal of millrun on PostgreSQL (15 or later): a [`Journal`](millrun_persistence::Journal) in a schema of a database.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use millrun_postgres::{PostgresConfig, PostgresJournal};
//! use millrun_persistence::Journal;
//!
//! let url = "postgres://app@localhost/orders?schema=millrun";
//! let journal: Arc<dyn Journal> = Arc::new(PostgresJournal::open(url, PostgresConfig::default())?);
//! # Ok::<(), millrun_postgres::PostgresOpenError>(())
//! ```
//!
//! A program hands it to its runtime with `RuntimeBuilder::journal`.
//!
//! ```text
//!   enqueue ──► conditions ──► queue ──► writer thread ──► rows ──► one statement ──► watermark, bells
//!             (heads.rs)   (shared.rs)  (writing.rs)   (rows.rs)        │ lost?
//!                                          ▲                            ▼
//!                                          └──── outcome.rs: raise the term, look, go on or stop
//!   history · finished · search · claims ◄── reader threads (reading.rs) ◄── server.rs ◄── pg/
//! ```

// docs.rs shows which items need a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod believed;
mod config;
mod error;
mod heads;
mod journal;
mod mail;
mod nodes;
mod outcome;
mod pg;
mod queued;
mod reading;
mod retained;
mod rows;
mod server;
mod shared;
mod topics;
mod writing;

pub use config::PostgresConfig;
pub use error::PostgresOpenError;
pub use journal::PostgresJournal;

/// The README of the crate, so that its example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PostgresReadme;
