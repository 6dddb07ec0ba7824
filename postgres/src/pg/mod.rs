//! The real server: connections by tokio-postgres, each driven by the thread that asks.
//!
//! ```text
//!   opening.rs ─► checks, tables, the lock, the term ─► facts of the store
//!   writer.rs  ─► flush, raise, look                     reader.rs ─► histories, finished runs, live runs
//!        └──────────── connection.rs: one connection, its statements, its deadline ───────────┘
//! ```
//!
//! The names of tokio-postgres do not leave this folder, but for the configuration that [`Address`] makes.

mod connection;
mod opening;
mod reader;
mod tables;
mod tls;
mod values;
mod writer;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrun_persistence::Durability;

pub(crate) use self::opening::{OpenStore, StoreFacts, open};
use self::reader::PgReader;
use self::tls::TlsMaker;
use self::writer::PgWriter;
use crate::address::Address;
use crate::server::{ReaderSession, Server, ServerTrouble, WriterSession};

/// A database, for one opening of the store in it.
pub(crate) struct PgServer {
    address: Address,
    tls: TlsMaker,
    durability: Durability,
    answer_wait_max: Duration,
    /// The number by which this opening is known in the store.
    holder: i64,
    /// The session that has the lock of the store, as the server knows it.
    session: Mutex<Option<BackendName>>,
}

/// A session of a server, by its process and when that began.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BackendName {
    pid: i32,
    started: String,
}

impl PgServer {
    fn session(&self) -> Option<BackendName> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.clone()
    }

    fn set_session(&self, name: BackendName) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
    }
}

impl Server for Arc<PgServer> {
    fn writer(&self) -> Result<Box<dyn WriterSession>, ServerTrouble> {
        Ok(Box::new(PgWriter::connect(self)?))
    }

    fn reader(&self) -> Result<Box<dyn ReaderSession>, ServerTrouble> {
        Ok(Box::new(PgReader::connect(self)?))
    }
}
