//! The server that is measured with, and the way in beside the journal's.

use std::sync::atomic::{AtomicU32, Ordering};

use millrun_testkit::PostgresServer;
use tokio_postgres::{Client, NoTls};

use crate::BenchError;

pub(super) fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::failed("PostgreSQL", error)
}

/// A server that has just started.
pub(super) fn started() -> Result<PostgresServer, BenchError> {
    let mut server = PostgresServer::make().map_err(failed)?;
    // The journal's rows stay in memory, as on a server that was set up for it.
    server.set(&["shared_buffers=512MB", "max_wal_size=4GB"]);
    server.start().map_err(failed)?;
    Ok(server)
}

/// A schema that nothing else is in.
pub(super) fn schema() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("s{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A connection as the administrator, driven by a task of its own.
pub(super) async fn connected(server: &PostgresServer) -> Result<Client, BenchError> {
    let mut config = tokio_postgres::Config::new();
    config.host_path(server.folder()).port(server.port());
    config.user("postgres").dbname("postgres");
    let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
    tokio::spawn(connection);
    Ok(client)
}
