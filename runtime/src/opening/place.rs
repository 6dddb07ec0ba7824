//! The place of a runtime's data: memory, a file, or a schema of a database, which a URL names.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use millrun_persistence::Journal;

use crate::{OpenError, RuntimeConfig};

/// How the URL of a database begins.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// Where a store is.
#[derive(Default)]
pub(crate) enum StoreLocation {
    #[default]
    Memory,
    File(PathBuf),
    /// Its URL, which may contain a password.
    Server(String),
}

impl From<PathBuf> for StoreLocation {
    fn from(path: PathBuf) -> Self {
        match path.to_str() {
            Some(url) if SCHEMES.iter().any(|scheme| url.starts_with(scheme)) => Self::Server(url.to_owned()),
            _ => Self::File(path),
        }
    }
}

impl fmt::Debug for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("Memory"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Server(_) => f.write_str("Server"),
        }
    }
}

/// Opens the journal in the database that a URL names. Waits for the server, on the calling thread.
#[cfg(feature = "postgres")]
pub(super) fn open_server(url: &str, config: &RuntimeConfig) -> Result<Arc<dyn Journal>, OpenError> {
    use millrun_postgres::{PostgresConfig, PostgresJournal};

    let mut bounds = PostgresConfig::from(config.journal.clone());
    bounds.lease = Some(config.lease);
    Ok(Arc::new(PostgresJournal::open(url, bounds)?))
}

/// Refuses: this build has no support for databases.
#[cfg(not(feature = "postgres"))]
pub(super) fn open_server(_url: &str, _config: &RuntimeConfig) -> Result<Arc<dyn Journal>, OpenError> {
    Err(OpenError::NotBuilt { feature: "postgres" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_postgres_is_a_server_and_anything_else_a_file() {
        let place = |text: &str| StoreLocation::from(PathBuf::from(text));
        for url in ["postgres://app:secret@db/orders", "postgresql://db"] {
            let place = place(url);
            assert!(matches!(&place, StoreLocation::Server(known) if known == url));
            assert_eq!(format!("{place:?}"), "Server", "its password is not shown");
        }
        for path in [
            "app.redb",
            "postgres",
            "postgres:/app.redb",
            "./postgres://x",
            "mysql://db",
        ] {
            assert!(matches!(place(path), StoreLocation::File(_)), "{path}");
        }
    }

    #[cfg(not(feature = "postgres"))]
    #[tokio::test]
    async fn a_url_is_refused_by_a_build_without_the_feature_that_it_needs() {
        let refused = crate::Runtime::open("postgres://app@localhost/orders")
            .start()
            .await;
        assert!(
            matches!(refused, Err(OpenError::NotBuilt { feature: "postgres" })),
            "{refused:?}"
        );
    }
}
