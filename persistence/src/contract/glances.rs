//! What is known without a disk: it is what reading says, or it is to be read.

use std::collections::BTreeMap;

use millrun_core::{InstanceId, RunId};

use super::{Author, Subject, suite};
use crate::batch::Batch;
use crate::config::JournalConfig;
use crate::error::ReadError;
use crate::journal::{Glance, Journal, Reads};

suite![
    a_glance_says_what_reading_says,
    a_glance_sees_what_was_there_before_reopening,
    a_glance_at_a_closed_journal_asks,
    a_glance_behind_a_failure_says_what_reading_says_and_sees_nothing_that_was_not_durable,
];

const IDS: u64 = 8;

/// What there is of each id.
#[derive(Default)]
struct Model {
    /// All runs that have closed, the earliest first.
    closed: Vec<(u64, RunId)>,
}

impl Model {
    /// What reading says, if this number of the finished runs is retained.
    fn finished(&self, number: u64, retained: usize) -> Result<Option<RunId>, RunId> {
        let dropped = self.closed.len().saturating_sub(retained);
        let latest = self.closed.iter().rposition(|(id, _)| *id == number);
        match latest {
            Some(at) if at < dropped => Err(self.closed[at].1),
            Some(at) => Ok(Some(self.closed[at].1)),
            None => Ok(None),
        }
    }

    fn check(&self, journal: &impl Journal, retained: usize) {
        for number in 0..=IDS {
            let (id, expected) = (id(number), self.finished(number, retained));
            let glance = journal.glance(&id);
            let read = journal.finished(&id);
            let run = match &read {
                Ok(found) => Ok(found.as_ref().map(|found| found.run)),
                Err(ReadError::Expired { run }) => Err(*run),
                Err(error) => panic!("{id}: {error}"),
            };
            assert_eq!(run, expected, "{id}");
            match glance {
                Glance::Found(found) => assert_eq!(read, Ok(Some(found)), "{id}"),
                Glance::Expired(run) => assert_eq!(read, Err(ReadError::Expired { run }), "{id}"),
                Glance::Absent => assert_eq!(read, Ok(None), "{id}"),
                Glance::Ask => {}
            }
        }
    }
}

fn id(number: u64) -> InstanceId {
    InstanceId::new(&format!("id-{number}")).expect("a sound id")
}

/// Begins and closes runs of a few ids in an order drawn from a seed, and looks at all ids after each step. The last
/// id never has a run.
fn live_through<S: Subject>(
    subject: &S,
    journal: &S::Journal,
    retained: usize,
    mut seed: u64,
) -> (Model, BTreeMap<u64, Author>) {
    let mut model = Model::default();
    let mut live = BTreeMap::<u64, Author>::new();
    for step in 0..120 {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let number = (seed >> 33) % IDS;
        match live.remove(&number) {
            Some(mut author) => {
                author.append(subject, journal, &[b"end"], true);
                model.closed.push((number, author.run));
            }
            None => {
                let mut author = Author::new(journal, id(number).as_str(), step);
                author.append(subject, journal, &[b"start"], false);
                live.insert(number, author);
            }
        }
        model.check(journal, retained);
    }
    (model, live)
}

fn a_glance_says_what_reading_says<S: Subject>(subject: &S) {
    for (seed, retained) in [(1, 1_000), (2, 3), (3, 12)] {
        let mut config = JournalConfig::default();
        config.retention.len_max = retained;
        let journal = subject.fresh(config);
        live_through(subject, &journal, retained, seed);
    }
}

fn a_glance_sees_what_was_there_before_reopening<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let retained = JournalConfig::default().retention.len_max;
    let (model, _) = live_through(subject, &journal, retained, 4);
    let journal = subject.reopen(journal, JournalConfig::default());
    model.check(&journal, retained);
}

fn a_glance_at_a_closed_journal_asks<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start", b"end"], true);
    journal.close().expect("nothing is wrong with it");
    for id in [author.id, id(1)] {
        assert_eq!(journal.glance(&id), Glance::Ask);
        assert!(journal.finished(&id).is_err(), "what is asked says why");
    }
}

fn a_glance_behind_a_failure_says_what_reading_says_and_sees_nothing_that_was_not_durable<S: Subject>(
    subject: &S,
) {
    for (seed, retained) in [(5, 1_000), (6, 5)] {
        let mut config = JournalConfig::default();
        config.retention.len_max = retained;
        let Some(journal) = subject.breakable(config) else {
            return;
        };
        let (model, mut live) = live_through(subject, &journal, retained, seed);
        subject.break_down(&journal);
        // What is queued now does not become durable, so that all is as it was.
        for author in live.values_mut() {
            let mut batch = Batch::new();
            author.put(&mut batch, &[b"end"], true);
            if let Ok(enqueued) = journal.enqueue(&batch) {
                subject.settle(&journal, enqueued.offset);
            }
        }
        assert!(journal.failure().is_some(), "no write succeeds");
        model.check(&journal, retained);
    }
}
