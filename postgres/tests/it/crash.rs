//! What is acknowledged is there, once and whole, whatever becomes of the server and of the way to it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use millrun_core::{Offset, Partition, RunId, Sequence};
use millrun_persistence::contract::{Author, Subject};
use millrun_persistence::{
    Batch, Durability, FailureKind, Journal, JournalConfig, ReadError, Reads, Resolved, TopicAppend,
    TopicRecordHeader, TopicRetention,
};
use millrun_postgres::{PostgresConfig, PostgresJournal, PostgresOpenError};

use crate::AtUrl;
use crate::proxy::{Cut, Proxy};
use crate::server::TestServer;

/// A generator with a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, max: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % max
    }
}

/// An open store of the shared server, in which a run has begun.
struct Begun {
    server: &'static TestServer,
    schema: String,
    subject: AtUrl,
    journal: PostgresJournal,
    author: Author,
}

/// `None` where there is no server.
fn begun() -> Option<Begun> {
    let server = TestServer::shared()?;
    let schema = server.schema();
    let subject = AtUrl(server.url(&schema));
    let journal = subject.open();
    let mut author = Author::new(&journal, "a", 1);
    author.append(&subject, &journal, &[b"one"], false);
    Some(Begun {
        server,
        schema,
        subject,
        journal,
        author,
    })
}

/// The server is killed while several threads append; the journal goes on when it is there again.
#[test]
fn a_server_that_is_killed_and_started_again_has_all_that_was_acknowledged() {
    const KILLS: usize = 6;
    let Some(mut server) = TestServer::own() else {
        return;
    };
    let subject = AtUrl(server.url("killed"));
    let journal = subject.open();
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    let authors = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .map(|worker| {
                let (journal, url, stop, acknowledged) = (&journal, &subject.0, &stop, &acknowledged);
                scope.spawn(move || {
                    let subject = AtUrl(url.clone());
                    let (mut authors, mut number) = (Vec::new(), 0);
                    while !stop.load(Ordering::Relaxed) {
                        number += 1;
                        let id = format!("{worker}-{number}");
                        // Each worker has partitions of its own: who takes one over fences its former owner.
                        if u64::from(Partition::of(id.as_bytes()).index() % 4) != worker {
                            continue;
                        }
                        let mut author = Author::new(journal, &id, number);
                        // Append returns when it is acknowledged.
                        author.append(&subject, journal, &[b"begin", &[7; 300]], false);
                        author.append(&subject, journal, &[b"more"], false);
                        if number % 2 == 0 {
                            author.append(&subject, journal, &[b"end"], true);
                        }
                        authors.push(author);
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    authors
                })
            })
            .collect();
        for kill in 1..=KILLS {
            // So many more runs have been acknowledged since the last start.
            while acknowledged.load(Ordering::Relaxed) < kill * 40 {
                std::thread::yield_now();
            }
            server.kill();
            server.start();
        }
        stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(journal.failure(), None, "no caller has noticed");
    assert!(authors.len() >= KILLS * 40);
    for author in &authors {
        author.assert_history(&journal);
    }
    let finished = journal.stats().finished_runs;
    let journal = subject.reopen(journal, JournalConfig::default());
    for author in &authors {
        author.assert_history(&journal);
    }
    let stats = journal.stats();
    let live = authors.iter().filter(|author| author.written.len() == 3).count() as u64;
    assert_eq!((stats.live_runs, stats.finished_runs), (live, finished));
    assert_eq!(live + finished, authors.len() as u64, "each is there once");
}

/// Connections are cut at chosen bytes of what is sent and of what is answered, so that some flushes have landed and others
/// have not, and nobody has heard.
#[test]
fn a_connection_that_is_cut_at_any_byte_loses_and_doubles_nothing() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let proxy = Proxy::to(server.port());
    let schema = server.schema();
    let subject = AtUrl(proxy.url(&schema));
    let journal = subject.open();
    let mut authors: Vec<_> = (0..3)
        .map(|number| Author::new(&journal, &format!("run-{number}"), number))
        .collect();
    let (mut dice, mut cuts) = (Dice(20_261_126), 0);
    for round in 0..160_u64 {
        // A flush has about 900 bytes, and its answer less than 100.
        let far = |dice: &mut Dice, max| usize::try_from(dice.below(max)).unwrap();
        proxy.set(match round % 2 {
            0 => Cut::Up(far(&mut dice, 900)),
            _ => Cut::Down(far(&mut dice, 100)),
        });
        let author = &mut authors[usize::try_from(round % 3).unwrap()];
        author.append(&subject, &journal, &[&round.to_le_bytes()], false);
        cuts += usize::from(proxy.has_cut());
    }
    proxy.set(Cut::Never);
    assert!(cuts > 100, "{cuts} connections were cut");
    assert_eq!(journal.failure(), None);
    for author in &authors {
        author.assert_history(&journal);
    }
    let direct = AtUrl(server.url(&schema));
    drop(journal);
    let journal = direct.open();
    for author in &authors {
        author.assert_history(&journal);
    }
    let flushes = server.sql(&format!("SELECT count(*) FROM {schema}.turn"));
    assert_eq!(flushes[0][0].as_deref(), Some("160"));
}

/// A record of a topic goes with its turn, also where nobody heard whether the flush has landed.
#[test]
fn records_of_topics_share_the_fate_of_their_turns_when_connections_are_cut() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let proxy = Proxy::to(server.port());
    let schema = server.schema();
    let subject = AtUrl(proxy.url(&schema));
    let journal = subject.open();
    let topics = journal.topics().unwrap();
    let topic = topics.declare("orders", TopicRetention::unbounded()).unwrap();
    let (mut author, mut dice) = (Author::new(&journal, "order", 1), Dice(7));
    for round in 0..60_u64 {
        let far = usize::try_from(dice.below(900)).unwrap();
        proxy.set(if round % 2 == 0 {
            Cut::Up(far)
        } else {
            Cut::Down(far / 9)
        });
        let mut batch = Batch::new();
        let turn = author.put(&mut batch, &[&round.to_le_bytes()], false);
        let header = TopicRecordHeader {
            topic,
            partition: author.run.partition(),
            epoch: author.epoch,
            time: author.time,
            id: Some(u128::from(round)),
            with: Some(turn),
        };
        batch.topic_record(header, &[&round.to_le_bytes()]).unwrap();
        let enqueued = journal.enqueue(&batch).unwrap();
        let expected = TopicAppend::Appended(Sequence::new(round + 1));
        assert_eq!(
            (enqueued.refused, enqueued.topic_appends),
            (vec![], vec![expected])
        );
        subject.settle(&journal, enqueued.offset);
    }
    proxy.set(Cut::Never);
    assert_eq!(journal.failure(), None);
    drop(journal);
    let direct = AtUrl(server.url(&schema));
    let journal = direct.open();
    author.assert_history(&journal);
    let (mut after, mut told) = (Sequence::ZERO, Vec::new());
    loop {
        let page = journal.topics().unwrap().read(topic, after, 100).unwrap();
        told.extend(page.records().map(|record| record.body.to_vec()));
        if page.chunks.is_empty() {
            break;
        }
        after = page.last();
    }
    assert_eq!(told, author.written);
    assert_eq!(
        journal.topics().unwrap().appended_with(topic, 30),
        Some(Sequence::new(31))
    );
}

/// A row that is damaged is named, and reading goes on behind it.
#[test]
fn a_damaged_row_of_a_topic_is_named_and_passed() {
    let Some(Begun {
        server,
        schema,
        subject,
        journal,
        author,
    }) = begun()
    else {
        return;
    };
    let topic = journal
        .topics()
        .unwrap()
        .declare("t", TopicRetention::unbounded())
        .unwrap();
    for _ in 0..3 {
        let mut batch = Batch::new();
        let header = TopicRecordHeader {
            topic,
            partition: author.run.partition(),
            epoch: author.epoch,
            time: author.time,
            id: None,
            with: None,
        };
        batch.topic_record(header, &[b"body"]).unwrap();
        subject.settle(&journal, journal.enqueue(&batch).unwrap().offset);
    }
    drop(journal);
    server.sql(&format!(
        "UPDATE {schema}.topic_row SET frames = set_byte(frames, 20, 0) WHERE first = 2"
    ));
    let journal = subject.open();
    let topics = journal.topics().unwrap();
    let page = topics.read(topic, Sequence::ZERO, usize::MAX).unwrap();
    assert_eq!(page.last(), Sequence::new(1));
    let error = topics.read(topic, Sequence::new(1), usize::MAX).unwrap_err();
    let ReadError::TopicDamaged { until, .. } = error else {
        panic!("{error}")
    };
    let page = topics.read(topic, until, usize::MAX).unwrap();
    assert_eq!((until, page.last()), (Sequence::new(2), Sequence::new(3)));
}

/// Nothing comes back, and no connection ends: the server still has the session, and its lock.
#[test]
fn a_server_that_falls_silent_is_reached_by_another_connection() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let proxy = Proxy::to(server.port());
    let mut config = PostgresConfig::default();
    config.answer_wait_max = Duration::from_millis(300);
    let journal = PostgresJournal::open(&proxy.url(&server.schema()), config).unwrap();
    let subject = AtUrl(String::new());
    let mut author = Author::new(&journal, "silent", 1);
    author.append(&subject, &journal, &[b"before"], false);
    for round in 0..3_u8 {
        proxy.set(Cut::Swallow);
        let enqueued = journal.enqueue(&author.batch(&[&[round]], false)).unwrap();
        // The answer is waited for in vain, and then another connection is made.
        let before = proxy.connections();
        while proxy.connections() == before {
            std::thread::yield_now();
        }
        assert!(journal.high_watermark() < enqueued.offset);
        proxy.set(Cut::Never);
        subject.settle(&journal, enqueued.offset);
        assert_eq!(journal.failure(), None);
        author.assert_history(&journal);
    }
}

/// A server that was set back to an earlier moment, as by a failover to a replica that was behind, has lost what was
/// acknowledged: the journal says so, and neither goes on nor stays silent.
#[test]
fn a_store_that_was_rolled_back_stops_the_journal() {
    let Some(mut server) = TestServer::own() else {
        return;
    };
    let subject = AtUrl(server.url("rolled"));
    let journal = subject.open();
    let mut author = Author::new(&journal, "a", 1);
    author.append(&subject, &journal, &[b"kept"], false);
    drop(journal);
    server.stop();
    server.copy_data("data", "earlier");
    server.start();
    let journal = subject.open();
    author.epoch = journal.take_over(&[author.id.partition()]).unwrap();
    author.append(&subject, &journal, &[b"acknowledged, and lost"], false);
    server.kill();
    server.copy_data("earlier", "data");
    server.start();
    // The opening of this process is not in the store of that moment.
    let enqueued = journal.enqueue(&author.batch(&[b"too late"], false)).unwrap();
    subject.settle(&journal, enqueued.offset);
    let failure = journal.failure().expect("what was acknowledged is gone");
    assert!(
        matches!(failure.kind(), FailureKind::RolledBack | FailureKind::Fenced),
        "{failure:?}"
    );
    assert!(journal.close().is_err());
}

/// As above, within one opening: the copy is made while the store is open.
#[test]
fn a_store_that_was_rolled_back_within_an_opening_stops_the_journal() {
    let Some(mut server) = TestServer::own() else {
        return;
    };
    let subject = AtUrl(server.url("rolled"));
    let journal = subject.open();
    let mut author = Author::new(&journal, "a", 1);
    author.append(&subject, &journal, &[b"kept"], false);
    server.kill();
    server.copy_data("data", "earlier");
    server.start();
    author.append(&subject, &journal, &[b"acknowledged, and lost"], false);
    server.kill();
    server.copy_data("earlier", "data");
    server.start();
    let enqueued = journal.enqueue(&author.batch(&[b"too late"], false)).unwrap();
    subject.settle(&journal, enqueued.offset);
    let failure = journal.failure().expect("what was acknowledged is gone");
    assert_eq!(failure.kind(), FailureKind::RolledBack, "{failure}");
    assert!(journal.high_watermark() < enqueued.offset);
    // What is there is whole, as of the earlier moment.
    drop(journal);
    let journal = subject.open();
    let history = journal.history(author.run).unwrap();
    assert_eq!(
        (history.records.len(), &history.records[0].body[..]),
        (1, &b"kept"[..])
    );
}

#[test]
fn who_has_lost_the_store_to_another_process_is_fenced() {
    let Some(Begun {
        server,
        schema,
        subject,
        journal,
        mut author,
    }) = begun()
    else {
        return;
    };
    let mut config = PostgresConfig::default();
    config.open_wait_max = Duration::ZERO;
    let refused = PostgresJournal::open(&subject.0, config).expect_err("it is open");
    let PostgresOpenError::AlreadyOpen { by, .. } = &refused else {
        panic!("{refused:?}")
    };
    assert!(by.starts_with("session ") && refused.is_retryable(), "{by}");
    // The server ends the session of the first process; the second comes before it is back.
    server.sql(&format!(
        "SELECT pg_terminate_backend(l.pid, 5000) FROM pg_locks l JOIN pg_namespace n ON n.nspname = '{schema}' \
         WHERE l.locktype = 'advisory' AND l.objid::bigint = (n.oid::bigint + 2147483648) % 4294967296"
    ));
    let second = subject.open();
    let enqueued = journal.enqueue(&author.clone().batch(&[b"late"], false)).unwrap();
    subject.settle(&journal, enqueued.offset);
    let failure = journal.failure().expect("another process has it");
    assert_eq!(failure.kind(), FailureKind::Fenced, "{failure}");
    // An answer that would rest on the memory of the first is not given either.
    assert!(journal.confirm(enqueued.offset) > journal.high_watermark());
    author.epoch = second.take_over(&[author.id.partition()]).unwrap();
    author.append(&subject, &second, &[b"two"], false);
    author.assert_history(&second);
}

#[test]
fn a_question_is_not_answered_from_the_memory_of_a_process_that_has_lost_the_store() {
    let Some(Begun {
        server,
        schema,
        subject,
        journal,
        mut author,
    }) = begun()
    else {
        return;
    };
    let queued = author.append(&subject, &journal, &[b"two"], false);
    server.sql(&format!("UPDATE {schema}.writer SET term = term + 1, holder = 0"));
    let confirmed = journal.confirm(queued);
    subject.settle(&journal, confirmed);
    assert!(journal.high_watermark() < confirmed);
    assert_eq!(
        journal.failure().map(|failure| failure.kind()),
        Some(FailureKind::Fenced)
    );
}

/// A commit whose wait for the standby is cancelled succeeds with a warning, and without the standby.
#[test]
fn what_a_standby_does_not_have_is_not_acknowledged_when_somebody_cancels_the_wait_for_it() {
    let Some(server) = TestServer::own() else {
        return;
    };
    let subject = AtUrl(server.url("replicated"));
    let journal = subject.open();
    let mut author = Author::new(&journal, "a", 1);
    let waiting = || {
        let sql = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        server.sql(sql).pop().map(|mut row| row.remove(0).unwrap())
    };
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.sql("SELECT pg_reload_conf()");
    // The sessions hear of that in their own time.
    let mut offset = Offset::ZERO;
    while waiting().is_none() {
        if journal.high_watermark() >= offset {
            offset = journal.enqueue(&author.batch(&[b"turn"], false)).unwrap().offset;
        }
    }
    // The flush is cancelled, and then each raise of the term that follows.
    let mut cancelled = Vec::new();
    while cancelled.len() < 3 {
        assert!(journal.high_watermark() < offset, "{cancelled:?}");
        let Some(pid) = waiting().filter(|pid| !cancelled.contains(pid)) else {
            std::thread::yield_now();
            continue;
        };
        server.sql(&format!("SELECT pg_cancel_backend({pid})"));
        cancelled.push(pid);
    }
    server.sql("ALTER SYSTEM RESET synchronous_standby_names");
    server.sql("SELECT pg_reload_conf()");
    subject.settle(&journal, offset);
    assert_eq!(journal.failure(), None);
    author.assert_history(&journal);
}

/// The server gives the lock to a session, and the answer is lost with it: the next session ends that one, and does not take
/// it for another process.
#[test]
fn a_process_whose_answer_from_the_lock_is_lost_does_not_fence_itself() {
    let Some(mut server) = TestServer::own() else {
        return;
    };
    let proxy = Proxy::to(server.port());
    let mut config = PostgresConfig::default();
    config.answer_wait_max = Duration::from_millis(500);
    let journal = PostgresJournal::open(&proxy.url("held"), config).unwrap();
    let subject = AtUrl(String::new());
    let mut author = Author::new(&journal, "a", 1);
    author.append(&subject, &journal, &[b"one"], false);
    proxy.set(Cut::Hold("pg_try_advisory_lock"));
    server.sql("SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'");
    author.append(&subject, &journal, &[b"two"], false);
    assert!(proxy.has_cut(), "the answer was lost");
    assert_eq!(journal.failure(), None);
    author.assert_history(&journal);
    drop(journal);
    server.stop();
}

/// A raise of this opening whose answer was lost may be done late, when the session behind it has a term already.
#[test]
fn a_term_that_was_raised_behind_the_back_of_its_own_process_does_not_fence_it() {
    let Some(Begun {
        server,
        schema,
        subject,
        journal,
        mut author,
    }) = begun()
    else {
        return;
    };
    server.sql(&format!("UPDATE {schema}.writer SET term = term + 1"));
    author.append(&subject, &journal, &[b"two"], false);
    assert_eq!(journal.failure(), None);
    author.assert_history(&journal);
}

/// A reader that connects anew may find another primary than the writer has, one that is behind or that another process has.
#[test]
fn a_server_that_has_not_what_was_written_is_not_read() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    let mut config = PostgresConfig::default();
    (config.readers, config.server_wait_max) = (1, Duration::ZERO);
    let journal = PostgresJournal::open(&server.url(&schema), config).unwrap();
    let subject = AtUrl(String::new());
    let mut author = Author::new(&journal, "a", 1);
    author.append(&subject, &journal, &[b"one"], false);
    for (there, back) in [
        ("marker SET at = at - 1", "marker SET at = at + 1"),
        ("writer SET term = term - 1", "writer SET term = term + 1"),
        ("writer SET holder = holder + 1", "writer SET holder = holder - 1"),
    ] {
        server.sql(&format!("UPDATE {schema}.{there}"));
        assert!(journal.history(author.run).is_err(), "{there}");
        server.sql(&format!("UPDATE {schema}.{back}"));
    }
    author.assert_history(&journal);
}

/// A row that is there already shows that somebody else has written: nothing is written over it.
#[test]
fn a_duplicate_key_stops_the_journal() {
    let Some(Begun {
        server,
        schema,
        subject,
        journal,
        mut author,
    }) = begun()
    else {
        return;
    };
    server.sql(&format!(
        "INSERT INTO {schema}.turn SELECT part, run, 2, 2, frames FROM {schema}.turn"
    ));
    let enqueued = journal.enqueue(&author.batch(&[b"two"], false)).unwrap();
    subject.settle(&journal, enqueued.offset);
    assert_eq!(
        journal.failure().map(|failure| failure.kind()),
        Some(FailureKind::Corrupted)
    );
    assert!(journal.high_watermark() < enqueued.offset);
}

/// A caller that was cut off asks what became of its batch, and appends what is absent.
#[test]
fn an_unknown_outcome_is_resolved_by_the_next_opening() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let proxy = Proxy::to(server.port());
    let schema = server.schema();
    let direct = AtUrl(server.url(&schema));
    for (round, cut) in [Cut::Down(0), Cut::Up(0), Cut::Down(40), Cut::Up(200)]
        .into_iter()
        .enumerate()
    {
        let mut config = PostgresConfig::default();
        config.server_wait_max = Duration::ZERO;
        let journal = PostgresJournal::open(&proxy.url(&schema), config).unwrap();
        let subject = AtUrl(String::new());
        let mut author = Author::new(&journal, "cut off", round as u64);
        author.append(&subject, &journal, &[b"begin"], false);
        let batch = author.batch(&[b"perhaps"], false);
        proxy.set(cut);
        let enqueued = journal.enqueue(&batch).unwrap();
        subject.settle(&journal, enqueued.offset);
        proxy.set(Cut::Never);
        let failure = journal.failure().expect("nobody waits for the server");
        assert!(matches!(failure.kind(), FailureKind::Io(_)), "{failure:?}");
        drop(journal);
        let journal = direct.open();
        let resolved = journal.resolve(&batch).unwrap();
        let epoch = journal.take_over(&[author.id.partition()]).unwrap();
        if resolved == [Resolved::Absent] {
            let mut again = Author {
                head: Sequence::new(1),
                epoch,
                ..author.clone()
            };
            let enqueued = journal.enqueue(&again.batch(&[b"perhaps"], false)).unwrap();
            assert_eq!(enqueued.refused, []);
            direct.settle(&journal, enqueued.offset);
        } else {
            assert_eq!(resolved, [Resolved::Appended]);
        }
        author.assert_history(&journal);
    }
}

/// Without a sync at each commit a crash may lose what was acknowledged last: that is what the mode says, and the journal that
/// was open through it stops.
#[test]
fn what_is_durable_in_time_is_found_after_a_close() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let subject = AtUrl(server.url(&server.schema()));
    for durability in [
        Durability::Volatile,
        Durability::Eventual {
            window: Duration::from_secs(60),
        },
    ] {
        let mut config = JournalConfig::default();
        config.durability = durability;
        let journal = subject.fresh(config.clone());
        let mut author = Author::new(&journal, &format!("{durability:?}"), 1);
        author.append(&subject, &journal, &[b"one"], false);
        let journal = subject.reopen(journal, config);
        author.assert_history(&journal);
    }
}

/// Of an open journal the crash would lose what the WAL writer of the server has not written yet.
#[test]
fn a_close_that_succeeds_is_survived_in_every_mode() {
    let Some(mut server) = TestServer::own() else {
        return;
    };
    server.stop();
    server.set(&["wal_writer_delay=10s", "wal_writer_flush_after=1GB"]);
    server.start();
    let subject = AtUrl(server.url("closed"));
    for durability in [
        Durability::Volatile,
        Durability::Eventual {
            window: Duration::from_secs(60),
        },
    ] {
        let mut config = JournalConfig::default();
        config.durability = durability;
        let journal = subject.fresh(config.clone());
        let mut author = Author::new(&journal, &format!("{durability:?}"), 1);
        for turn in 0..20_u8 {
            author.append(&subject, &journal, &[&[turn]], false);
        }
        journal.close().unwrap();
        server.kill();
        server.start();
        drop(journal);
        author.assert_history(&subject.fresh(config));
    }
}

/// Several turns of many runs wait for each other in one flush, and the buffer's bounds hold while the server is away.
#[test]
fn while_the_server_is_away_the_buffer_fills_and_then_all_is_taken() {
    let Some(mut server) = TestServer::own() else {
        return;
    };
    let subject = AtUrl(server.url("away"));
    let mut config = JournalConfig::default();
    config.batch_len_max = 10;
    let journal = subject.fresh(config);
    let mut author = Author::new(&journal, "a", 1);
    author.append(&subject, &journal, &[b"before"], false);
    server.kill();
    let (mut last, mut taken) = (Offset::ZERO, 0_u8);
    let late = loop {
        let batch = author.batch(&[&[taken]], false);
        match journal.enqueue(&batch) {
            Ok(enqueued) => last = enqueued.offset,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                break batch;
            }
        }
        taken += 1;
        assert!(taken < 100, "the buffer has a bound");
    };
    assert!(journal.high_watermark() < last);
    server.start();
    subject.settle(&journal, last);
    let enqueued = journal.enqueue(&late).unwrap();
    subject.settle(&journal, enqueued.offset);
    author.assert_history(&journal);
    let nothing = journal.enqueue(&Batch::new()).unwrap();
    assert!(journal.high_watermark() >= nothing.offset);
}

/// What [`the_writing_process`] is told by, and where it writes.
const URL: &str = "MILLRUN_POSTGRES_WRITER";

/// Not a test of its own: the process that the next one kills. It tells each turn that was acknowledged.
#[test]
fn the_writing_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let subject = AtUrl(url);
    let journal = subject.open();
    for round in 0_u64.. {
        let opened = journal.stats().finished_runs + journal.stats().live_runs;
        let mut author = Author::new(&journal, &format!("run-{opened}"), opened);
        author.append(&subject, &journal, &[b"begin", &round.to_le_bytes()], false);
        author.append(&subject, &journal, &[b"end"], round % 2 == 0);
        println!("acknowledged {:032x}", author.run.bits());
    }
}

/// Set for [`the_process_without_descriptors`].
const URL_WITHOUT_DESCRIPTORS: &str = "MILLRUN_POSTGRES_DESCRIPTORS";

/// Not a test of its own: the process of the next one. When its connection is cut, it has no descriptor for another.
#[test]
fn the_process_without_descriptors() {
    let Ok(url) = std::env::var(URL_WITHOUT_DESCRIPTORS) else {
        return;
    };
    let mut config = PostgresConfig::default();
    config.server_wait_max = Duration::from_millis(200);
    let journal = PostgresJournal::open(&url, config).unwrap();
    let mut author = Author::new(&journal, "a", 1);
    println!("opened");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let offset = journal.enqueue(&author.batch(&[b"one"], false)).unwrap().offset;
    AtUrl(String::new()).settle(&journal, offset);
    println!("failed {:?}", journal.failure().map(|failure| failure.kind()));
}

/// It panicked, and the journal said that its writer was lost.
#[test]
fn a_process_without_descriptors_waits_for_the_server_as_for_one_that_is_away() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let name = "without_descriptors";
    let url = format!("{}&application_name={name}", server.url(&server.schema()));
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::the_process_without_descriptors", "--nocapture"])
        .env(URL_WITHOUT_DESCRIPTORS, url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(lines.by_ref().any(|line| line.contains("opened")));
    let id = process.id().to_string();
    let limited = Command::new("prlimit")
        .args(["--pid", &id, "--nofile=3"])
        .status();
    if !limited.is_ok_and(|limited| limited.success()) {
        eprintln!("SKIPPED: there is no prlimit, so a process without descriptors was not tested");
        process.kill().unwrap();
        process.wait().unwrap();
        return;
    }
    server.sql(&format!(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '{name}'"
    ));
    process.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let told = lines.find(|line| line.contains("failed ")).unwrap();
    assert!(told.contains("Io(NotConnected)"), "{told}");
    process.wait().unwrap();
}

/// A process is killed again and again as it appends; each that comes after it finds all that it was told.
#[test]
fn a_process_that_is_killed_leaves_all_that_it_was_told_to_the_next() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let mut acknowledged = Vec::new();
    for life in 1..=5 {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::the_writing_process", "--nocapture"])
            .env(URL, &url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            let Some(run) = line.split("acknowledged ").nth(1) else {
                continue;
            };
            acknowledged.push(RunId::from_bits(u128::from_str_radix(run, 16).unwrap()).unwrap());
            if acknowledged.len() >= life * 15 {
                break;
            }
        }
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let journal = AtUrl(url).open();
    for run in &acknowledged {
        let history = journal.history(*run).unwrap();
        assert_eq!(history.records.len(), 3, "{run}");
    }
    let (first, rest) = acknowledged.split_at(1);
    assert!(!rest.contains(&first[0]) && acknowledged.len() >= 75);
}
