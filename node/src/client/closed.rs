//! A store without a running process, read from its file.
//!
//! ```text
//!   operation that only looks ──► the router of millrun-http, in this process ──► ClosedStore ──► the file, unchanged
//! ```
//!
//! So every command prints for a file what it prints for a program. Commands that need a process are refused before the file
//! is opened.

use std::fmt;
use std::path::{Path, PathBuf};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use millrun::OpenError;
use millrun::store::{ClosedStore, StoreError};
use millrun_http::{Access, Operation, router};
use tokio::sync::OnceCell;

use super::error::ClientError;
use super::wire::exchange;

/// How many bytes the pipe to the router holds.
const PIPE_BYTES: usize = 64 * 1024;

/// The operations that a file answers without a program: they only read, and do not wait.
const OF_A_FILE: [&str; 20] = [
    "instances",
    "finished",
    "find",
    "counts",
    "describe_instance",
    "describe_run",
    "why",
    "why_run",
    "trace",
    "trace_run",
    "trace_record",
    "history",
    "export_history",
    "outputs",
    "result",
    "result_of_run",
    "bulks",
    "schedules",
    "store",
    "verify_store",
];

/// The file of a store, opened at the first request.
pub(crate) struct ClosedFile {
    store: PathBuf,
    socket: PathBuf,
    opened: OnceCell<(ClosedStore, Router)>,
}

impl fmt::Debug for ClosedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClosedFile")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl ClosedFile {
    pub(super) fn new(store: PathBuf, socket: PathBuf) -> Self {
        Self {
            store,
            socket,
            opened: OnceCell::new(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.store
    }

    /// The error for an operation that needs a process.
    pub(super) fn needs_process(&self) -> ClientError {
        ClientError::Closed {
            store: self.store.clone(),
            socket: self.socket.clone(),
        }
    }

    /// The user's error for a file that cannot be opened.
    pub(super) fn unopened(&self, error: OpenError) -> ClientError {
        match error {
            OpenError::Store(StoreError::AlreadyOpen { .. }) => ClientError::Taken {
                store: self.store.clone(),
                socket: self.socket.clone(),
            },
            error => ClientError::Unread {
                store: self.store.clone(),
                source: Box::new(error),
            },
        }
    }

    /// Opens the file, once.
    pub(super) async fn open(&self) -> Result<&ClosedStore, ClientError> {
        Ok(&self.opened().await?.0)
    }

    async fn opened(&self) -> Result<&(ClosedStore, Router), ClientError> {
        let open = async {
            let store = ClosedStore::open(&self.store).await;
            let store = store.map_err(|error| self.unopened(error))?;
            // A user who may read the file may see all of it; nothing can be changed.
            let router = router(store.runtime(), Access::operator());
            Ok((store, router))
        };
        self.opened.get_or_try_init(|| open).await
    }

    /// Asks the file.
    pub(super) async fn send(
        &self,
        operation: &Operation,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, ClientError> {
        if !OF_A_FILE.contains(&operation.name) {
            return Err(self.needs_process());
        }
        let (_, router) = self.opened().await?;
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let service = TowerToHyperService::new(router.clone());
        // It ends with the request's side of the pipe.
        tokio::spawn(async move {
            let served = http1::Builder::new().serve_connection(TokioIo::new(far), service);
            served.await.ok();
        });
        exchange(near, request).await
    }
}
