//! The real server: connections by tokio-postgres, each driven by the thread that asks.
//!
//! ```text
//!   opening.rs ─► checks, tables, the lock, the term ─► facts of the store
//!   writer.rs  ─► flush, raise, look, claim              reader.rs ─► histories, finished runs, live runs
//!   nodes.rs   ─► who has joined, and who is dead    mail.rs   ─► what nodes have for each other
//!        └──────────── connection.rs: one connection, its statements, its deadline ───────────┘
//! ```
//!
//! The names of tokio-postgres stay within this folder, except for the configuration that [`Address`] makes.

mod connection;
mod mail;
mod nodes;
mod opening;
mod reader;
mod tables;
mod tls;
mod values;
mod writer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrun_persistence::Durability;

use self::mail::PgMail;
use self::nodes::PgNodes;
pub(crate) use self::opening::{OpenStore, StoreFacts, open};
use self::reader::PgReader;
use self::tls::TlsMaker;
use self::writer::PgWriter;
use crate::address::Address;
use crate::server::{MailSession, NodesSession, ReaderSession, Server, ServerTrouble, WriterSession};

/// A database, for one opening of the store in it.
pub(crate) struct PgServer {
    address: Address,
    tls: TlsMaker,
    durability: Durability,
    answer_wait_max: Duration,
    /// The name of this opening's row in the tables of writers and markers.
    node: String,
    /// Whether other processes have the store open too.
    is_shared: bool,
    /// The number by which the store knows this opening.
    holder: i64,
    /// The server's sessions that have asked for the lock of the store. One of them may hold it, even if its answer was lost.
    sessions: Mutex<Vec<BackendName>>,
    /// The term and the marker, as the writer knows them.
    known: Mutex<StorePlace>,
}

/// How far a store has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StorePlace {
    term: i64,
    marker: i64,
}

/// A session of a server: its process, and when that began.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BackendName {
    pid: i32,
    started: String,
}

impl PgServer {
    fn sessions(&self) -> MutexGuard<'_, Vec<BackendName>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The statement that takes the lock of the store.
    fn lock_statement(&self) -> &'static str {
        match self.is_shared {
            true => tables::LOCK_NODE,
            false => tables::LOCK,
        }
    }

    fn known(&self) -> MutexGuard<'_, StorePlace> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server for Arc<PgServer> {
    fn writer(&self) -> Result<Box<dyn WriterSession>, ServerTrouble> {
        Ok(Box::new(PgWriter::connect(self)?))
    }

    fn reader(&self, must_be_ours: bool) -> Result<Box<dyn ReaderSession>, ServerTrouble> {
        Ok(Box::new(PgReader::connect(self, must_be_ours)?))
    }

    fn nodes(&self) -> Result<Box<dyn NodesSession>, ServerTrouble> {
        Ok(Box::new(PgNodes::connect(self)?))
    }

    fn mail(&self) -> Result<Box<dyn MailSession>, ServerTrouble> {
        Ok(Box::new(PgMail::connect(self)?))
    }
}
