//! A random workload that keeps its own record of what it enqueued and what was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrun_core::{Epoch, InstanceId, Offset, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::contract::Author;
use millrun_persistence::{
    Batch, Disk, Journal, ReadError, Reads, RedbConfig, RedbJournal, Snapshot, SnapshotRefused, StoreError,
};

use super::disk::Dice;
use super::published::{self, Published};
use crate::host::HandHost;

/// How many finished runs are retained where retention is on.
const RETAINED: usize = 3;

/// Of how many records each run was trimmed, and how many were written.
type Lengths = BTreeMap<RunId, (usize, usize)>;

/// What there was after a batch.
#[derive(Clone, Debug, Default, PartialEq)]
struct WorkloadState {
    lengths: Lengths,
    /// Finished runs in the order of closing.
    closed: Vec<RunId>,
    published: Published,
}

/// Opens a journal on a disk that keeps everything.
pub(crate) fn open(disk: Arc<dyn Disk>, host: &Arc<HandHost>) -> Result<RedbJournal, StoreError> {
    RedbJournal::open_disk(disk, "simulated", RedbConfig::default(), host.clone())
}

/// Opens a journal that retains everything, and settles it as soon and in as many steps as it can.
pub(crate) fn open_settling(disk: Arc<dyn Disk>, host: &Arc<HandHost>) -> Result<RedbJournal, StoreError> {
    let mut config = RedbConfig::default();
    config.store.dead_bytes_max = 0;
    config.store.unsettled_len_max = 1;
    config.store.settle_bytes_max = 1;
    RedbJournal::open_disk(disk, "simulated", config, host.clone())
}

/// Opens a journal that retains few finished runs, and settles them before it drops them.
pub(crate) fn open_short_settling(
    disk: Arc<dyn Disk>,
    host: &Arc<HandHost>,
) -> Result<RedbJournal, StoreError> {
    let mut config = RedbConfig::default();
    config.journal.retention.len_max = RETAINED;
    config.journal.retention.expired_len_max = 2;
    config.store.dead_bytes_max = 0;
    config.store.unsettled_len_max = 1;
    config.store.settle_bytes_max = 1;
    RedbJournal::open_disk(disk, "simulated", config, host.clone())
}

/// Opens a journal that retains few finished runs and drops their records soon.
pub(crate) fn open_short(disk: Arc<dyn Disk>, host: &Arc<HandHost>) -> Result<RedbJournal, StoreError> {
    let mut config = RedbConfig::default();
    config.journal.retention.len_max = RETAINED;
    config.store.dead_bytes_max = 0;
    RedbJournal::open_disk(disk, "simulated", config, host.clone())
}

/// What was enqueued, in order, with the states it went through.
pub(crate) struct Record {
    authors: Vec<Author>,
    epoch: Epoch,
    /// The state after each batch since the journal was opened, the one before them first.
    states: Vec<WorkloadState>,
    /// The offset of each of these batches.
    offsets: Vec<Offset>,
    /// How many runs were ever begun.
    begun: u64,
    /// The time of the next turn.
    clock: u64,
    /// How many finished runs are retained.
    retained: usize,
    /// The largest bodies of most records, and of a few.
    body_bytes_max: [u64; 2],
    /// Whether some turns have a single record: of these nothing is left when it is lost.
    has_single: bool,
    /// Whether some turns trim their runs.
    has_trims: bool,
    /// Whether some batches are groups.
    has_groups: bool,
    /// Whether batches have records of topics.
    has_topics: bool,
}

impl Record {
    pub(crate) fn new() -> Self {
        Self {
            authors: Vec::new(),
            epoch: Epoch::ZERO,
            states: vec![WorkloadState::default()],
            offsets: Vec::new(),
            begun: 0,
            clock: 1_700_000_000_000_000,
            retained: usize::MAX,
            body_bytes_max: [200, 20_000],
            has_single: false,
            has_trims: false,
            has_groups: false,
            has_topics: false,
        }
    }

    /// In which batches have records of topics besides.
    pub(crate) fn publishing(self) -> Self {
        Self {
            has_topics: true,
            ..self
        }
    }

    /// In which one of two batches holds a group of turns besides.
    pub(crate) fn grouping(self) -> Self {
        Self {
            has_groups: true,
            ..self
        }
    }

    /// In which one of three turns trims its run.
    pub(crate) fn trimming(self) -> Self {
        Self {
            has_trims: true,
            ..self
        }
    }

    /// Of records that are hardly more than their headers.
    pub(crate) fn tiny() -> Self {
        Self {
            body_bytes_max: [4, 40],
            has_single: true,
            ..Self::new()
        }
    }

    /// Of a journal that was opened with [`open_short`] or [`open_short_settling`].
    pub(crate) fn short() -> Self {
        Self {
            retained: RETAINED,
            ..Self::new()
        }
    }

    /// Everyone who has written.
    pub(crate) fn authors(&self) -> &[Author] {
        &self.authors
    }

    /// Begins to write to a journal that holds the state after `batch`.
    pub(crate) fn resume(&mut self, journal: &RedbJournal, batch: usize) {
        let state = self.states.swap_remove(batch);
        self.authors
            .retain(|author| state.lengths.contains_key(&author.run));
        for author in &mut self.authors {
            let (trimmed, len) = state.lengths[&author.run];
            author.written.truncate(len);
            author.trimmed = trimmed;
            author.head = Sequence::new(author.written.len() as u64);
        }
        self.states = vec![state];
        self.offsets.clear();
        let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
        if let Ok(epoch) = journal.take_over(&all) {
            self.epoch = epoch;
            if self.has_topics {
                published::assert_known(journal, (self.states[0].published, epoch));
            }
        }
    }

    /// Enqueues a batch of a few turns. Says whether the journal took it.
    pub(crate) fn enqueue(&mut self, journal: &RedbJournal, dice: &mut Dice) -> bool {
        let mut batch = Batch::new();
        let mut authors = self.authors.clone();
        let mut closed = self.states.last().expect("there is always one").closed.clone();
        for _ in 0..=dice.below(4) {
            let live: Vec<_> = (0..authors.len())
                .filter(|index| !is_closed(&authors[*index]))
                .collect();
            let index = if live.is_empty() || dice.one_in(3) {
                self.begun += 1;
                authors.push(author(self.begun));
                authors.len() - 1
            } else {
                live[usize::try_from(dice.below(live.len() as u64)).unwrap()]
            };
            let author = &mut authors[index];
            author.epoch = self.epoch;
            self.clock += 1;
            author.time = Timestamp::from_micros(self.clock);
            let len_max = self.body_bytes_max[usize::from(dice.one_in(10))];
            let len = usize::try_from(dice.below(len_max)).unwrap();
            let body = vec![dice.roll().to_le_bytes()[0]; len];
            let closes = dice.one_in(5);
            let last: &[u8] = if closes { b"closed" } else { b"turn" };
            if self.has_trims && !closes && !author.written.is_empty() && dice.one_in(3) {
                author.put_trimming(&mut batch, &[&body, last]);
            } else if self.has_single && dice.one_in(2) {
                author.put(&mut batch, &[last], closes);
            } else {
                author.put(&mut batch, &[&body, last], closes);
            }
            if closes {
                closed.push(author.run);
            }
        }
        if self.has_groups && dice.one_in(2) {
            self.put_group(&mut batch, &mut authors, dice);
        }
        let mut published = self.states.last().expect("there is always one").published;
        if self.has_topics {
            let of = (published, self.epoch, Timestamp::from_micros(self.clock));
            let Some(put) = published::put(&mut batch, journal, of, dice) else {
                return false;
            };
            published = put;
        }
        let Ok(enqueued) = journal.enqueue(&batch) else {
            return false;
        };
        assert_eq!(enqueued.refused, []);
        published::assert_taken(&enqueued);
        self.authors = authors;
        if dice.one_in(3) {
            self.put_snapshot(journal, dice);
        }
        let lengths = self
            .authors
            .iter()
            .map(|author| (author.run, (author.trimmed, author.written.len())))
            .collect();
        self.states.push(WorkloadState {
            lengths,
            closed,
            published,
        });
        self.offsets.push(enqueued.offset);
        true
    }

    /// Puts a group into the batch, of a run that begins and of live runs.
    fn put_group(&mut self, batch: &mut Batch, authors: &mut Vec<Author>, dice: &mut Dice) {
        self.begun += 1;
        authors.push(author(self.begun));
        let (time, epoch) = (Timestamp::from_micros(self.clock), self.epoch);
        let body = vec![7; usize::try_from(dice.below(self.body_bytes_max[1])).unwrap()];
        let mut group = batch.group();
        for author in authors
            .iter_mut()
            .rev()
            .filter(|author| !is_closed(author))
            .take(4)
        {
            (author.time, author.epoch) = (time, epoch);
            author.put_grouped(&mut group, &[&body, b"turn"], false);
        }
        group.finish().unwrap();
    }

    /// Folds some live run: into the number of its records, and the last of them.
    fn put_snapshot(&self, journal: &RedbJournal, dice: &mut Dice) {
        let live: Vec<_> = self.authors.iter().filter(|author| !is_closed(author)).collect();
        if live.is_empty() {
            return;
        }
        let author = live[usize::try_from(dice.below(live.len() as u64)).unwrap()];
        let outcome = journal.put_snapshot(Snapshot {
            run: author.run,
            sequence: author.head,
            bytes: folded(&author.written).into(),
        });
        // The disk may have failed meanwhile.
        assert!(matches!(outcome, Ok(()) | Err(SnapshotRefused::Failed(_))));
    }

    /// How many batches are acknowledged.
    pub(crate) fn acknowledged(&self, journal: &RedbJournal) -> usize {
        let watermark = journal.high_watermark();
        self.offsets
            .iter()
            .take_while(|offset| **offset <= watermark)
            .count()
    }

    /// What of a state should still be there.
    fn retained_of(&self, state: &WorkloadState) -> Lengths {
        let dropped = state.closed.len().saturating_sub(self.retained);
        let mut lengths = state.lengths.clone();
        lengths.retain(|run, _| !state.closed[..dropped].contains(run));
        lengths
    }

    /// Looks at a journal that was opened after a crash. What it holds must be the state after
    /// some batch, not before `acknowledged`; otherwise the answer says what is wrong.
    pub(crate) fn check(&self, journal: &RedbJournal, acknowledged: usize) -> Result<usize, String> {
        let mut found = Lengths::new();
        for author in &self.authors {
            let history = match journal.history(author.run) {
                Ok(history) => history,
                Err(ReadError::UnknownRun { .. } | ReadError::Expired { .. }) => continue,
                Err(error) => return Err(format!("{}: {error}", author.id)),
            };
            let trimmed = history
                .trimmed
                .as_ref()
                .map_or(0, |trimmed| usize::try_from(trimmed.before.get()).unwrap() - 1);
            let of = Author {
                trimmed,
                ..author.clone()
            };
            if history
                .trimmed
                .as_ref()
                .is_some_and(|found| found.kept != of.kept())
            {
                return Err(format!("{}: something else is kept", author.id));
            }
            for (record, body) in history.records.iter().zip(of.left()) {
                if record.body != *body {
                    return Err(format!(
                        "{}: record {} has another body",
                        author.id, record.sequence
                    ));
                }
            }
            let found_len = trimmed + history.records.len();
            if found_len > author.written.len() || history.id != author.id {
                return Err(format!("{}: records that nobody wrote", author.id));
            }
            if let Some(snapshot) = journal.snapshot(author.run).map_err(|error| error.to_string())? {
                let len = usize::try_from(snapshot.sequence.get()).unwrap();
                if len > found_len || snapshot.bytes != folded(&author.written[..len]) {
                    return Err(format!("{}: a snapshot of what is not there", author.id));
                }
            }
            found.insert(author.run, (trimmed, found_len));
        }
        let report = journal
            .recover(&mut [&mut |_| {}], &mut |_| {})
            .map_err(|error| error.to_string())?;
        if !report.damaged.is_empty() {
            return Err(format!("damage: {:?}", report.damaged));
        }
        let published = published::check(journal)?;
        let is_after =
            |state: &WorkloadState| self.retained_of(state) == found && state.published == published;
        let Some(batch) = self.states.iter().rposition(is_after) else {
            return Err("what is there is not the state after any batch".to_owned());
        };
        if batch < acknowledged {
            return Err(format!(
                "{acknowledged} batches were acknowledged, {batch} are there"
            ));
        }
        for author in &self.authors {
            let retained = match journal.finished(&author.id) {
                Ok(retained) => retained,
                Err(ReadError::Expired { .. }) => None,
                Err(error) => return Err(error.to_string()),
            };
            let found = found.get(&author.run);
            let is_whole = found.is_some_and(|(_, len)| *len == author.written.len());
            if retained.is_some() != (is_whole && is_closed(author)) {
                return Err(format!(
                    "{}: found as finished: {}",
                    author.id,
                    retained.is_some()
                ));
            }
        }
        Ok(batch)
    }
}

fn author(number: u64) -> Author {
    let id = InstanceId::new(&format!("instance-{number}")).unwrap();
    let time = Timestamp::from_micros(1_700_000_000_000_000 + number);
    let run = RunId::new(id.partition(), time, number);
    Author {
        id,
        run,
        head: Sequence::ZERO,
        epoch: Epoch::ZERO,
        time,
        written: Vec::new(),
        trimmed: 0,
    }
}

fn folded(written: &[Vec<u8>]) -> Vec<u8> {
    let mut folded = written.len().to_le_bytes().to_vec();
    folded.extend(written.last().into_iter().flatten());
    folded
}

fn is_closed(author: &Author) -> bool {
    author.written.last().is_some_and(|body| body == b"closed")
}
