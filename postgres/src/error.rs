//! Why a store on PostgreSQL could not be opened.

use std::io;

use millrun_persistence::StoreError;

/// Why a store on PostgreSQL could not be opened. Each message says what to do; none holds a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresOpenError {
    /// The URL cannot be read, or has an unknown parameter.
    #[error("the URL of the database cannot be read: {problem}")]
    Url {
        /// What is wrong with it, without repeating any part of it.
        problem: String,
    },
    /// The schema's name would need quotes, or belongs to PostgreSQL.
    #[error(
        "{name:?} is no name for a schema here: take up to 63 lower-case letters, digits and underscores that begin with a \
         letter, and not with pg_"
    )]
    SchemaName {
        /// The name.
        name: String,
    },
    /// A bound of the configuration is invalid.
    #[error(transparent)]
    Config(StoreError),
    /// There is no server, or it does not answer. It may be starting: try again.
    #[error(
        "no database answers at {address} ({problem}): see that the server runs and can be reached, and try again"
    )]
    NoServer {
        /// The address, without the password.
        address: String,
        /// What happened.
        problem: String,
    },
    /// The server does not let this user in.
    #[error(
        "the server does not let the user in at {address} ({problem}): check the user, the password and pg_hba.conf"
    )]
    Login {
        /// The address, without the password.
        address: String,
        /// What the server said.
        problem: String,
    },
    /// The server has no such database.
    #[error("there is no such database at {address} ({problem}): create it first")]
    NoDatabase {
        /// The address, without the password.
        address: String,
        /// What the server said.
        problem: String,
    },
    /// A connection with verified TLS could not be made, which is required for another machine.
    #[error(
        "there is no verified TLS to {address} ({problem}): set up a certificate, name its authority with sslrootcert, or \
         say sslmode=require or sslmode=disable if the network is trusted"
    )]
    Tls {
        /// The address, without the password.
        address: String,
        /// What happened.
        problem: String,
    },
    /// The user lacks rights that the store needs.
    #[error(
        "the user lacks rights at {address} ({problem}): let it create the schema, or create the schema and make the user \
         its owner"
    )]
    Grants {
        /// The address, without the password.
        address: String,
        /// What the server said.
        problem: String,
    },
    /// The server is older than PostgreSQL 15.
    #[error("{address} runs PostgreSQL {found}, millrun needs 15 or later: upgrade the server")]
    TooOld {
        /// The address, without the password.
        address: String,
        /// The server's version.
        found: String,
    },
    /// The server is a standby, and takes no writes.
    #[error(
        "{address} is a standby: name the primary, or all hosts, separated by commas, and the primary is found among them"
    )]
    Standby {
        /// The address, without the password.
        address: String,
    },
    /// The database or the user is set to read only.
    #[error("{address} is read only: turn default_transaction_read_only off for the user and the database")]
    ReadOnly {
        /// The address, without the password.
        address: String,
    },
    /// Statements of one session reach several sessions of the server: a pooler stands between.
    #[error(
        "between here and {address} there is a pooler that gives each transaction another session: connect to the server \
         itself, or to a pooler in session mode"
    )]
    Pooler {
        /// The address, without the password.
        address: String,
    },
    /// The server does not sync what it reports as durable.
    #[error(
        "{address} runs with fsync=off, with which nothing is durable: turn it on, or open the store as Volatile"
    )]
    NoSync {
        /// The address, without the password.
        address: String,
    },
    /// The schema holds tables that are not millrun's. Nothing was changed.
    #[error(
        "the schema of {address} is not a store of millrun: name another with ?schema=, nothing was changed"
    )]
    Foreign {
        /// The address, without the password.
        address: String,
    },
    /// The store was written by a later release. Nothing was changed.
    #[error(
        "the store at {address} has format {found}, this release reads up to {supported}: use a newer release, nothing was changed"
    )]
    NewerFormat {
        /// The address, without the password.
        address: String,
        /// The format found.
        found: i32,
        /// The newest format this release reads.
        supported: i32,
    },
    /// Another process has the store open.
    #[error("the store at {address} is open elsewhere ({by}): stop that process first")]
    AlreadyOpen {
        /// The address, without the password.
        address: String,
        /// Which session of the server has it.
        by: String,
    },
    /// Another process has joined the store under this name.
    #[error(
        "a process has joined the store at {address} as node {name:?}: give each node a name of its own, or none, with ?node="
    )]
    NodeNameInUse {
        /// The address, without the password.
        address: String,
        /// The name.
        name: String,
    },
    /// The tables of the store contradict each other.
    #[error("the store at {address} is damaged ({cause}): restore a backup of the database")]
    Corrupted {
        /// The address, without the password.
        address: String,
        /// What was found.
        cause: String,
    },
    /// The server refused a statement.
    #[error("the database at {address} refused a statement: {problem}")]
    Server {
        /// The address, without the password.
        address: String,
        /// What the server said.
        problem: String,
    },
    /// The operating system refused a thread.
    #[error("a thread of the journal could not be started")]
    Spawn(#[from] io::Error),
}

impl PostgresOpenError {
    /// Whether the same call may succeed later, with the same arguments.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::NoServer { .. }
                | Self::AlreadyOpen { .. }
                | Self::NodeNameInUse { .. }
                | Self::Standby { .. }
        )
    }
}
