//! The contract suite of the port, on a real server.

use std::cell::RefCell;

use millrun_core::Partition;
use millrun_persistence::contract::{self, Subject};
use millrun_persistence::{Journal, JournalConfig};
use millrun_postgres::{PostgresConfig, PostgresJournal};

use crate::server::TestServer;

/// Stores in schemas of the shared server.
struct Postgres {
    server: &'static TestServer,
    schema: RefCell<String>,
    /// Joined as a node, in place of having the store to itself.
    is_node: bool,
}

impl Postgres {
    fn open(&self, config: JournalConfig) -> PostgresJournal {
        let mut url = self.server.url(&self.schema.borrow());
        if self.is_node {
            url.push_str("&node=only");
        }
        let journal = PostgresJournal::open(&url, PostgresConfig::from(config)).unwrap();
        if self.is_node {
            let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
            journal.take_over(&all).unwrap();
        }
        journal
    }
}

impl Subject for Postgres {
    type Journal = PostgresJournal;

    fn fresh(&self, config: JournalConfig) -> PostgresJournal {
        self.schema.replace(self.server.schema());
        self.open(config)
    }

    fn reopen(&self, journal: PostgresJournal, config: JournalConfig) -> PostgresJournal {
        journal.close().unwrap();
        drop(journal);
        self.open(config)
    }

    fn breakable(&self, config: JournalConfig) -> Option<PostgresJournal> {
        Some(self.fresh(config))
    }

    /// As if another process had taken the store.
    fn break_down(&self, _: &PostgresJournal) {
        let schema = self.schema.borrow();
        self.server.sql(&format!(
            "UPDATE {schema}.writer SET term = term + 1000, holder = 0"
        ));
    }

    fn damaged(
        &self,
        journal: PostgresJournal,
        config: JournalConfig,
        body: &[u8],
    ) -> Option<PostgresJournal> {
        journal.close().unwrap();
        drop(journal);
        let (schema, body) = (self.schema.borrow(), std::str::from_utf8(body).unwrap());
        let at = format!("position(convert_to('{body}', 'UTF8') IN frames)");
        let damaged = self.server.sql(&format!(
            "UPDATE {schema}.turn SET frames = set_byte(frames, {at} - 1, get_byte(frames, {at} - 1) # 1) WHERE {at} > 0 \
             RETURNING seq"
        ));
        assert!(!damaged.is_empty(), "the record is in the store");
        drop(schema);
        Some(self.open(config))
    }
}

/// Runs a share of the cases, so that several wait for the disk at a time.
fn check(is_node: bool, share: usize, of: usize) {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let subject = Postgres {
        server,
        schema: RefCell::default(),
        is_node,
    };
    let cases = contract::cases::<Postgres>();
    assert!(cases.len() >= 84, "the suite has {} cases", cases.len());
    for case in cases.into_iter().skip(share).step_by(of) {
        println!("{}", case.name);
        (case.run)(&subject);
    }
}

#[test]
fn the_postgres_journal_keeps_the_contract_first_share() {
    check(false, 0, 4);
}

#[test]
fn the_postgres_journal_keeps_the_contract_second_share() {
    check(false, 1, 4);
}

#[test]
fn the_postgres_journal_keeps_the_contract_third_share() {
    check(false, 2, 4);
}

#[test]
fn the_postgres_journal_keeps_the_contract_fourth_share() {
    check(false, 3, 4);
}

/// A node that has claimed all partitions sees to the whole store as a single process does.
#[test]
fn a_node_keeps_the_contract_first_share() {
    check(true, 0, 3);
}

#[test]
fn a_node_keeps_the_contract_second_share() {
    check(true, 1, 3);
}

#[test]
fn a_node_keeps_the_contract_third_share() {
    check(true, 2, 3);
}
