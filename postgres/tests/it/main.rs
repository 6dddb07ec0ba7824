//! The journal on PostgreSQL, against real servers that the tests start.
//!
//! Where no PostgreSQL is installed they are skipped, loudly; where `MILLRUN_REQUIRE` names `postgres`, that is a failure.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod contract;
mod crash;
mod nodes;
mod opening;
mod proxy;
mod retention;
mod server;
mod workflows;

use millrun_persistence::JournalConfig;
use millrun_persistence::contract::Subject;
use millrun_postgres::{PostgresConfig, PostgresJournal};

/// The store at one URL.
pub(crate) struct AtUrl(pub(crate) String);

impl AtUrl {
    fn open(&self) -> PostgresJournal {
        self.fresh(JournalConfig::default())
    }
}

impl Subject for AtUrl {
    type Journal = PostgresJournal;

    fn fresh(&self, config: JournalConfig) -> PostgresJournal {
        PostgresJournal::open(&self.0, PostgresConfig::from(config)).unwrap()
    }

    fn reopen(&self, journal: PostgresJournal, config: JournalConfig) -> PostgresJournal {
        drop(journal);
        self.fresh(config)
    }
}
