//! What retention drops is gone from the tables.

use millrun_persistence::contract::{Author, Subject};
use millrun_persistence::{Batch, Journal, JournalConfig, TopicRecordHeader, TopicRetention};

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
    (config.retention.len_max, config.retention.expired_len_max) = (1, 1);
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
    let names = server.sql(&format!("SELECT count(*) FROM {schema}.finished"));
    assert_eq!(
        names[0][0].as_deref(),
        Some("2"),
        "one run is remembered by its name"
    );
}

#[test]
fn ids_of_records_that_are_forgotten_are_gone_also_where_one_batch_has_more_than_are_remembered() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    let subject = AtUrl(server.url(&schema));
    let mut config = JournalConfig::default();
    config.topic_ids_len_max = 3;
    let journal = subject.fresh(config);
    let author = Author::new(&journal, "a", 1);
    let retention = TopicRetention::unbounded();
    let topic = journal.topics().unwrap().declare("t", retention).unwrap();
    let append = |ids: std::ops::Range<u128>| {
        let mut batch = Batch::new();
        for id in ids {
            let header = TopicRecordHeader {
                topic,
                partition: author.run.partition(),
                epoch: author.epoch,
                time: author.time,
                id: Some(id),
                with: None,
            };
            batch.topic_record(header, &[b"body"]).unwrap();
        }
        subject.settle(&journal, journal.enqueue(&batch).unwrap().offset);
    };
    append(0..8);
    append(8..9);
    append(9..10);
    let left = server.sql(&format!("SELECT count(*) FROM {schema}.topic_id"));
    assert_eq!(left[0][0].as_deref(), Some("3"));
}
