//! What the journal holds in memory: the conditions of the next turns, and all that can be read.
//!
//! ```text
//!   turn ──► Heads::admit ──► entry ──(durable)──► Books::enter ──► histories, finished runs
//!   file ──► entries ────────────────────────────────────┘
//! ```
//!
//! Both are folds of entries, so that what an opening finds is what the lines before it made.

use std::collections::{BTreeMap, HashMap, VecDeque};

use millrun_core::{Epoch, InstanceId, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::{
    FinishedRun, GroupView, OwnerTable, ReadError, Record, RecordView, Retention, Snapshot, Trimmed,
    TurnRefused, TurnView,
};

use crate::lines::{Entry, Turn, run_of, snapshot_of};

/// The conditions under which turns are taken.
pub(crate) struct Heads {
    live: BTreeMap<RunId, Head>,
    pub(crate) owners: OwnerTable,
}

/// A live run, queued turns included.
struct Head {
    last_turn: Turn,
    /// A turn was refused, and its owner has not read the run again.
    is_suspect: bool,
}

impl Heads {
    pub(crate) fn new(opening: u32, books: &Books) -> Self {
        let live = books.runs.iter().filter_map(|(run, stored)| {
            let last_turn = stored.turns.last().filter(|turn| !turn.closes)?.clone();
            let is_suspect = false;
            Some((
                *run,
                Head {
                    last_turn,
                    is_suspect,
                },
            ))
        });
        Self {
            live: live.collect(),
            owners: OwnerTable::new(Epoch::of(opening, 0)),
        }
    }

    /// The partitions have new owners, who begin with what they read.
    pub(crate) fn trust(&mut self, partitions: &[Partition]) {
        for (run, head) in &mut self.live {
            head.is_suspect &= !partitions.contains(&run.partition());
        }
    }

    fn check_epoch(&self, run: RunId, epoch: Epoch) -> Result<(), TurnRefused> {
        let checked = self.owners.check(run.partition(), epoch);
        checked.map_err(|current| TurnRefused::Fenced { current })
    }

    pub(crate) fn read_again(&mut self, run: RunId, epoch: Epoch) -> Result<Sequence, TurnRefused> {
        self.check_epoch(run, epoch)?;
        let head = self.live.get_mut(&run).ok_or(TurnRefused::NotLive)?;
        head.is_suspect = false;
        Ok(head.last_turn.last())
    }

    /// The sequence number of a live run's last record, queued turns included.
    pub(crate) fn last(&self, run: RunId) -> Option<Sequence> {
        self.live.get(&run).map(|head| head.last_turn.last())
    }

    /// Whether the conditions of all turns of a group hold, which has this many bytes in all; otherwise what is
    /// wrong with those of which something is.
    pub(crate) fn judge(
        &self,
        group: &GroupView<'_>,
        bytes: usize,
        max: usize,
    ) -> Result<(), Vec<Option<TurnRefused>>> {
        let judged = group.turns().map(|(_, turn)| self.check(&turn, bytes, max).err());
        let judged: Vec<_> = judged.collect();
        match judged.iter().all(Option::is_none) {
            true => Ok(()),
            false => Err(judged),
        }
    }

    fn check(&self, turn: &TurnView<'_>, bytes: usize, max: usize) -> Result<(), TurnRefused> {
        self.check_epoch(turn.run(), turn.epoch())?;
        if bytes > max {
            return Err(TurnRefused::TooLarge { bytes, max });
        }
        match self.live.get(&turn.run()) {
            Some(head) => head.check(turn),
            None if turn.opens().is_none() => Err(TurnRefused::NotLive),
            None => Ok(()),
        }
    }

    /// After a refusal, but for that of a turn that is there already, the run takes nothing until it is read again.
    /// A fenced turn says nothing of the run of the present owner.
    pub(crate) fn mark(&mut self, run: RunId, refused: &TurnRefused) {
        let says_nothing = matches!(refused, TurnRefused::Fenced { .. } | TurnRefused::AlreadyAppended);
        if let Some(head) = self.live.get_mut(&run)
            && !says_nothing
        {
            head.is_suspect = true;
        }
    }

    /// Takes a turn whose conditions hold.
    pub(crate) fn admit(&mut self, turn: &TurnView<'_>) -> Turn {
        let last_turn = Turn::of(turn);
        if turn.closes() {
            self.live.remove(&turn.run());
        } else {
            let (last_turn, is_suspect) = (last_turn.clone(), false);
            self.live.insert(
                turn.run(),
                Head {
                    last_turn,
                    is_suspect,
                },
            );
        }
        last_turn
    }
}

impl Head {
    /// Whether a turn fits behind the last one.
    fn check(&self, turn: &TurnView<'_>) -> Result<(), TurnRefused> {
        let last = &self.last_turn;
        if self.is_suspect {
            Err(TurnRefused::ReadAgain)
        } else if turn.opens().is_none() && turn.head() == last.last() {
            Ok(())
        } else if (turn.head(), turn.last()) == (last.head(), last.last())
            && last
                .records()
                .zip(turn.records())
                .all(|(one, other)| one.is_same_as(&other))
        {
            Err(TurnRefused::AlreadyAppended)
        } else {
            Err(TurnRefused::Conflict { head: last.last() })
        }
    }
}

/// All that is durable.
#[derive(Default)]
pub(crate) struct Books {
    runs: BTreeMap<RunId, Stored>,
    /// Finished runs that are retained, the earliest closed first, and the bytes of their records.
    finished: VecDeque<RunId>,
    finished_bytes: u64,
    latest: HashMap<InstanceId, RunId>,
    /// The runs that were dropped last.
    expired: VecDeque<(RunId, InstanceId)>,
    pub(crate) epochs: u32,
    pub(crate) dropped: u64,
    pub(crate) turns: u64,
}

struct Stored {
    id: InstanceId,
    turns: Vec<Turn>,
    bytes: u64,
    snapshot: Option<Snapshot>,
}

impl Stored {
    fn last(&self) -> &Turn {
        self.turns.last().expect("a run is entered with its first turn")
    }

    fn trimmed(&self) -> Option<Trimmed> {
        self.turns.first()?.trimmed()
    }
}

impl Books {
    pub(crate) fn enter(&mut self, entry: Entry, retention: &Retention) {
        match entry {
            Entry::Epochs(number) => self.epochs += number,
            Entry::Turn(turn) => self.enter_turn(turn, retention),
            Entry::Upkeep(micros) => self.drop_expired(Timestamp::from_micros(micros), retention),
            Entry::Snapshot(run, sequence, bytes) => {
                let stored = self.runs.get_mut(&run_of(run));
                if let Some(stored) = stored.filter(|stored| !stored.last().closes) {
                    stored.snapshot = Some(snapshot_of(run, sequence, bytes));
                }
            }
            Entry::NoSnapshot(run) => {
                if let Some(stored) = self.runs.get_mut(&run_of(run)) {
                    stored.snapshot = None;
                }
            }
        }
    }

    fn enter_turn(&mut self, turn: Turn, retention: &Retention) {
        let (run, now, closes) = (turn.run(), turn.time(), turn.closes);
        // What the run is trimmed of goes as if it had not been there.
        if let Some(id) = turn.id() {
            let (turns, bytes, snapshot) = (Vec::new(), 0, None);
            self.runs.insert(
                run,
                Stored {
                    id,
                    turns,
                    bytes,
                    snapshot,
                },
            );
        }
        let stored = self
            .runs
            .get_mut(&run)
            .expect("a run is opened by its first turn");
        stored.bytes += turn.bytes();
        stored.turns.push(turn);
        self.turns += 1;
        if closes {
            stored.snapshot = None;
            self.finished_bytes += stored.bytes;
            self.latest.insert(stored.id.clone(), run);
            self.finished.push_back(run);
            self.drop_expired(now, retention);
        }
    }

    fn drop_expired(&mut self, now: Timestamp, retention: &Retention) {
        while let Some(run) = self.finished.front().copied() {
            let closed_at = self.runs[&run].last().time();
            if retention.retains(now, closed_at, self.finished.len() as u64, self.finished_bytes) {
                return;
            }
            self.finished.pop_front();
            let stored = self.runs.remove(&run).expect("a retained run is stored");
            self.finished_bytes -= stored.bytes;
            if self.latest.get(&stored.id) == Some(&run) {
                self.latest.remove(&stored.id);
            }
            self.dropped += 1;
            self.expired.push_back((run, stored.id));
            if self.expired.len() > retention.expired_len_max {
                self.expired.pop_front();
            }
        }
    }

    /// The entries that make these books anew.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let live = self.runs.iter().filter(|(_, stored)| !stored.last().closes);
        let finished = self.finished.iter().map(|run| &self.runs[run]);
        let mut entries = vec![Entry::Epochs(self.epochs)];
        for stored in finished.chain(live.map(|(_, stored)| stored)) {
            entries.extend(stored.turns.iter().cloned().map(Entry::Turn));
            if let Some(Snapshot { run, sequence, bytes }) = stored.snapshot.clone() {
                entries.push(Entry::Snapshot(run.bits(), sequence.get(), bytes));
            }
        }
        entries
    }

    fn stored(&self, run: RunId) -> Result<&Stored, ReadError> {
        let is_expired = || self.expired.iter().any(|(expired, _)| *expired == run);
        self.runs.get(&run).ok_or_else(|| match is_expired() {
            true => ReadError::Expired { run },
            false => ReadError::UnknownRun { run },
        })
    }

    /// Id and size of a run's records, and what stands in the place of those that it was trimmed of.
    pub(crate) fn describe(&self, run: RunId) -> Result<(&InstanceId, u64, Option<Trimmed>), ReadError> {
        let stored = self.stored(run)?;
        Ok((&stored.id, stored.bytes, stored.trimmed()))
    }

    /// The records of a run, and the sequence number of the last one.
    pub(crate) fn history(&self, run: RunId) -> Result<(impl Iterator<Item = Record>, Sequence), ReadError> {
        let stored = self.stored(run)?;
        let records = stored.turns.iter().flat_map(Turn::records);
        Ok((records, stored.last().last()))
    }

    pub(crate) fn snapshot(&self, run: RunId) -> Option<Snapshot> {
        self.runs.get(&run)?.snapshot.clone()
    }

    pub(crate) fn finished(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        if let Some(run) = self.latest.get(id) {
            return Ok(Some(self.found(*run)));
        }
        let expired = self.expired.iter().rev().find(|(_, expired)| expired == id);
        expired.map_or(Ok(None), |(run, _)| Err(ReadError::Expired { run: *run }))
    }

    pub(crate) fn list_finished(&self, after: Option<RunId>, limit: usize) -> Vec<FinishedRun> {
        let after = after.and_then(|run| self.finished.iter().position(|other| *other == run));
        let from = after.map_or(0, |at| at + 1);
        self.finished
            .range(from..)
            .take(limit)
            .map(|run| self.found(*run))
            .collect()
    }

    fn found(&self, run: RunId) -> FinishedRun {
        let stored = &self.runs[&run];
        let last = stored.last();
        FinishedRun::new(run, stored.id.clone(), last.time(), last.last())
    }

    /// Every live run.
    pub(crate) fn live(&self) -> impl Iterator<Item = RunId> {
        let live = self.runs.iter().filter(|(_, stored)| !stored.last().closes);
        live.map(|(run, _)| *run)
    }

    /// Hands out all records of a run.
    pub(crate) fn visit(&self, run: RunId, visit: &mut dyn FnMut(RecordView<'_>)) {
        let Some(stored) = self.runs.get(&run) else { return };
        let trimmed = stored.trimmed();
        for (number, record) in stored.turns.iter().flat_map(Turn::records).enumerate() {
            let is_first = number == 0;
            visit(RecordView {
                run,
                sequence: record.sequence,
                kind: record.kind,
                time: record.time,
                opens: is_first.then_some(stored.id.as_str()),
                kept: trimmed
                    .as_ref()
                    .filter(|_| is_first)
                    .map(|trimmed| &trimmed.kept[..]),
                closes: record.closes,
                body: &record.body,
            });
        }
    }

    pub(crate) fn finished_len(&self) -> u64 {
        self.finished.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.runs.values().map(|stored| stored.bytes).sum()
    }
}
