//! What retention drops is gone from the tables.

use millrun_persistence::contract::{Author, Subject};
use millrun_persistence::{Journal, JournalConfig};

use crate::AtUrl;
use crate::server::TestServer;

/// Runs that had closed in the first flush of an opening kept their turns for ever.
#[test]
fn the_first_runs_that_close_behind_an_opening_are_dropped_in_their_turn() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    let subject = AtUrl(server.url(&schema));
    let mut config = JournalConfig::default();
    config.retention.len_max = 1;
    let mut journal = subject.fresh(config.clone());
    let mut number = 0;
    for _ in 0..3 {
        for _ in 0..3 {
            number += 1;
            let mut author = Author::new(&journal, &format!("run-{number}"), number);
            author.append(&subject, &journal, &[b"one"], true);
            author.assert_history(&journal);
        }
        journal = subject.reopen(journal, config.clone());
    }
    assert_eq!(journal.stats().finished_runs, 1);
    let turns = server.sql(&format!("SELECT count(*) FROM {schema}.turn"));
    assert_eq!(turns[0][0].as_deref(), Some("1"));
}
