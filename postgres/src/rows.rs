//! The rows of one flush: the combined result of the queued entries.
//!
//! ```text
//!   turn 1, turn 2, trim at 3, close ──► insert: 3, 4 · delete: before 3 · finished: one row · live: nothing to do
//! ```
//!
//! All parts of a flush's statement see the tables as they were before it. So a row that one entry adds and a later one
//! removes must not appear in the flush at all; that is worked out here. A pure machine.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrun_core::{Epoch, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::{OutgoingMail, Retention, SealedTopics, StoredTopicName, TopicNumber};

use crate::believed::BelievedTime;
use crate::queued::{QueuedEntry, QueuedTurn};
use crate::retained::{FinishedFront, FrontRun, WindowEmpty};

/// How many finished runs one flush drops at most.
pub(crate) const DROPPED_LEN_MAX: usize = 4_096;

/// Rows to be written, and rows to be deleted.
#[derive(Debug, Default)]
pub(crate) struct FlushRows {
    pub(crate) turns: Vec<TurnRow>,
    /// Runs whose turns before this sequence are deleted.
    pub(crate) trimmed: Vec<(RunId, u64)>,
    pub(crate) opened: Vec<(RunId, Box<str>)>,
    /// Runs that are not live any more.
    pub(crate) closed: Vec<RunId>,
    pub(crate) finished: Vec<FinishedRow>,
    pub(crate) snapshots: Vec<SnapshotRow>,
    pub(crate) no_snapshots: Vec<RunId>,
    pub(crate) partitions: Vec<PartitionRow>,
    /// The first retained finished run.
    pub(crate) first: u64,
    /// Rows of finished runs before this one are deleted.
    pub(crate) forgotten: u64,
    /// Rows before this one were deleted by earlier flushes.
    pub(crate) forgotten_before: u64,
    pub(crate) topics: TopicRows,
    pub(crate) of_node: NodeRows,
}

/// What the flush of a node writes in addition.
#[derive(Debug, Default)]
pub(crate) struct NodeRows {
    /// The partitions whose names of finished runs are forgotten.
    pub(crate) forgets: Vec<Partition>,
    /// The numbers of finished runs that are not retained any more.
    pub(crate) dropped: Vec<u64>,
    /// The number of retained finished runs, and their bytes.
    pub(crate) retained: (u64, u64),
    pub(crate) mail: MailRows,
}

/// Mail to be written, and mail to be deleted.
#[derive(Debug, Default)]
pub(crate) struct MailRows {
    pub(crate) posted: Vec<OutgoingMail>,
    /// The numbers of mail that has been handled, and of mail that cannot be read.
    pub(crate) handled: Vec<u64>,
    pub(crate) aside: Vec<u64>,
}

/// The changes of an owned partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionRow {
    pub(crate) partition: Partition,
    /// Its latest epoch, if that has changed; otherwise zero.
    pub(crate) epoch: Epoch,
    /// Whether it is given back.
    pub(crate) is_released: bool,
    /// The number of its retained finished runs and their bytes, if changed.
    pub(crate) retained: Option<(u64, u64)>,
}

/// Rows of topics to be written, and to be deleted.
#[derive(Debug, Default)]
pub(crate) struct TopicRows {
    pub(crate) names: Vec<StoredTopicName>,
    pub(crate) sealed: SealedTopics,
    pub(crate) gone: Vec<(TopicNumber, Sequence)>,
    /// Ids before this number were deleted by earlier flushes.
    pub(crate) ids_from_before: u64,
}

#[derive(Debug)]
pub(crate) struct TurnRow {
    pub(crate) run: RunId,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) frames: Bytes,
}

#[derive(Debug)]
pub(crate) struct FinishedRow {
    /// `None` if the store gives it.
    pub(crate) number: Option<u64>,
    /// Whether retention drops it in the same flush that numbers it.
    pub(crate) is_gone: bool,
    pub(crate) run: RunId,
    /// `None` if it is in the row of the live run.
    pub(crate) id: Option<Box<str>>,
    pub(crate) closed_at: Timestamp,
    pub(crate) head: u64,
    pub(crate) kind: u8,
    pub(crate) bytes: u64,
}

impl FinishedRow {
    /// The run as retention sees it.
    pub(crate) fn front(&self) -> FrontRun {
        let unnumbered = FrontRun::unnumbered(self.run, self.closed_at, self.bytes);
        match self.number {
            Some(number) => FrontRun { number, ..unnumbered },
            None => unnumbered,
        }
    }
}

#[derive(Debug)]
pub(crate) struct SnapshotRow {
    pub(crate) run: RunId,
    pub(crate) sequence: u64,
    pub(crate) folded: Bytes,
}

/// The changes of one run in a flush.
#[derive(Debug, Default)]
struct RunChange {
    turns: Vec<QueuedTurn>,
    /// Turns in the store before this sequence are deleted.
    trimmed_before: Option<u64>,
    opens: Option<Box<str>>,
    /// If the run has closed: the time, sequence and kind of its last turn, and the bytes of the run.
    close: Option<(Timestamp, u64, u8, u64)>,
    snapshot: Option<Option<(u64, Bytes)>>,
}

impl RunChange {
    fn turn(&mut self, turn: QueuedTurn) {
        if let Some(id) = &turn.opens {
            self.opens = Some(id.clone());
        }
        if turn.trims {
            self.turns.clear();
            self.trimmed_before = Some(turn.first.get());
        }
        if turn.trims || turn.closes {
            self.snapshot = Some(None);
        }
        if turn.closes {
            self.close = Some((turn.time, turn.last.get(), turn.last_kind, turn.run_bytes));
        }
        self.turns.push(turn);
    }
}

/// Collects the entries of a flush.
#[derive(Debug, Default)]
pub(crate) struct RowsBuilder {
    runs: BTreeMap<RunId, RunChange>,
    /// In the order in which they closed.
    closed: Vec<RunId>,
    pub(crate) partitions: BTreeMap<Partition, (Epoch, bool)>,
    /// The counts of partitions that have changed.
    pub(crate) counts: BTreeMap<Partition, (u64, u64)>,
}

impl RowsBuilder {
    pub(crate) fn take(&mut self, entry: QueuedEntry) {
        match entry {
            QueuedEntry::Turn(turn) => {
                if turn.closes {
                    self.closed.push(turn.run);
                }
                self.runs.entry(turn.run).or_default().turn(turn);
            }
            QueuedEntry::Snapshot(snapshot) => {
                let kept = (snapshot.sequence.get(), snapshot.bytes);
                let change = self.runs.entry(snapshot.run).or_default();
                if change.close.is_none() {
                    change.snapshot = Some(Some(kept));
                }
            }
            QueuedEntry::NoSnapshot(run) => self.runs.entry(run).or_default().snapshot = Some(None),
        }
    }

    /// Counts the runs that close, and numbers them. Called once, before runs are dropped.
    pub(crate) fn finish_runs(
        &mut self,
        retained: &mut FinishedFront,
        believed: &mut BelievedTime,
    ) -> Vec<FinishedRow> {
        let closed = std::mem::take(&mut self.closed);
        let rows = closed.into_iter().filter_map(|run| {
            let change = self.runs.get(&run)?;
            let (time, head, kind, bytes) = change.close?;
            let closed_at = believed.see(time);
            Some(FinishedRow {
                number: retained.add(run, closed_at, bytes),
                is_gone: false,
                run,
                id: change.opens.clone(),
                closed_at,
                head,
                kind,
                bytes,
            })
        });
        rows.collect()
    }

    /// Drops runs that the bounds of retention do not keep at `now`, at most `len_max`. Returns whether that was all.
    ///
    /// # Errors
    /// When the earliest runs have to be read first; the caller then calls this again.
    pub(crate) fn drop_runs(
        &mut self,
        retained: &mut FinishedFront,
        (now, bounds): (Timestamp, &Retention),
        dropped: &mut Vec<FrontRun>,
    ) -> Result<bool, WindowEmpty> {
        while dropped.len() < DROPPED_LEN_MAX {
            match retained.drop_next(now, bounds)? {
                Some(gone) => dropped.push(gone),
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// The rows, without those of runs that are dropped in the same flush.
    pub(crate) fn rows(
        mut self,
        finished: Vec<FinishedRow>,
        dropped: &[FrontRun],
        retained: &FinishedFront,
    ) -> FlushRows {
        let (first, forgotten) = (retained.first(), retained.forgotten());
        for partition in self.counts.keys() {
            self.partitions.entry(*partition).or_insert((Epoch::ZERO, false));
        }
        let partitions = self.partitions.into_iter();
        let partitions = partitions.map(|(partition, (epoch, is_released))| PartitionRow {
            partition,
            epoch,
            is_released,
            retained: self.counts.get(&partition).copied(),
        });
        let mut rows = FlushRows {
            partitions: partitions.collect(),
            first,
            forgotten,
            ..FlushRows::default()
        };
        let gone: std::collections::BTreeSet<_> = dropped.iter().map(|gone| gone.run).collect();
        if retained.is_shared() {
            // Runs of other nodes may be retained before this node's first one.
            rows.first = 0;
            let numbered = dropped.iter().filter(|gone| gone.is_numbered());
            rows.of_node.dropped = numbered.map(|gone| gone.number).collect();
            rows.of_node.retained = (retained.len(), retained.bytes());
        }
        for run in &gone {
            // All of its turns are deleted.
            rows.trimmed.push((*run, u64::MAX));
        }
        for (run, change) in self.runs {
            let is_gone = gone.contains(&run);
            let is_new = change.opens.is_some();
            let closes = change.close.is_some();
            if closes && !is_new {
                rows.closed.push(run);
            }
            if let (Some(id), false) = (change.opens, closes) {
                rows.opened.push((run, id));
            }
            if let (Some(before), false, false) = (change.trimmed_before, is_new, is_gone) {
                rows.trimmed.push((run, before));
            }
            match change.snapshot {
                Some(Some((sequence, folded))) => rows.snapshots.push(SnapshotRow {
                    run,
                    sequence,
                    folded,
                }),
                Some(None) if !is_new => rows.no_snapshots.push(run),
                Some(None) | None => {}
            }
            if !is_gone {
                rows.turns.extend(change.turns.into_iter().map(|turn| TurnRow {
                    run,
                    first: turn.first.get(),
                    last: turn.last.get(),
                    frames: turn.frames,
                }));
            }
        }
        // A run that closes is known as live until then, even if its name is forgotten in the same flush.
        rows.finished = finished;
        for row in &mut rows.finished {
            row.is_gone = row.number.is_none() && gone.contains(&row.run);
        }
        rows.finished
            .retain(|row| row.number.is_none_or(|number| number >= forgotten));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrun_persistence::Snapshot;

    fn run(number: u64) -> RunId {
        RunId::new(Partition::from_index(3).unwrap(), Timestamp::EPOCH, number)
    }

    fn turn(run: RunId, first: u64, change: impl FnOnce(&mut QueuedTurn)) -> QueuedEntry {
        let mut turn = QueuedTurn {
            run,
            first: Sequence::new(first),
            last: Sequence::new(first),
            time: Timestamp::from_micros(first),
            opens: (first == 1).then(|| "id".into()),
            trims: false,
            closes: false,
            last_kind: 9,
            frames: Bytes::from(vec![0; 10]),
            run_bytes: 10 * first,
        };
        change(&mut turn);
        QueuedEntry::Turn(turn)
    }

    fn closing(turn: &mut QueuedTurn) {
        turn.closes = true;
    }

    fn trimming(turn: &mut QueuedTurn) {
        turn.trims = true;
    }

    fn built(entries: Vec<QueuedEntry>, len_max: usize) -> FlushRows {
        let mut retention = Retention::default();
        (retention.len_max, retention.expired_len_max) = (len_max, 1);
        let mut retained = FinishedFront::new(retention, 0, 0, 0, 0);
        let mut builder = RowsBuilder::default();
        entries.into_iter().for_each(|entry| builder.take(entry));
        let step_max = std::time::Duration::MAX;
        let mut believed = BelievedTime::new(Timestamp::EPOCH, Timestamp::EPOCH, step_max);
        let finished = builder.finish_runs(&mut retained, &mut believed);
        let mut dropped = Vec::new();
        let bounds = retained.bounds();
        let dropping = builder.drop_runs(&mut retained, (believed.now(None), &bounds), &mut dropped);
        assert_eq!(dropping, Ok(true));
        builder.rows(finished, &dropped, &retained)
    }

    fn sequences(rows: &FlushRows) -> Vec<u64> {
        rows.turns.iter().map(|turn| turn.first).collect()
    }

    #[test]
    fn a_run_that_opens_and_closes_in_one_flush_was_never_live() {
        let run = run(1);
        let rows = built(vec![turn(run, 1, |_| {}), turn(run, 2, closing)], 10);
        assert_eq!(sequences(&rows), [1, 2]);
        assert!(rows.opened.is_empty() && rows.closed.is_empty());
        let finished = &rows.finished[0];
        assert_eq!((finished.number, finished.head, finished.bytes), (Some(0), 2, 20));
        assert_eq!(finished.id.as_deref(), Some("id"));
    }

    #[test]
    fn what_a_trim_takes_away_is_not_written_by_the_same_flush() {
        let run = run(1);
        let entries = vec![turn(run, 5, |_| {}), turn(run, 6, trimming), turn(run, 7, |_| {})];
        let rows = built(entries, 10);
        assert_eq!(sequences(&rows), [6, 7]);
        assert_eq!(rows.trimmed, [(run, 6)]);
        assert_eq!(rows.no_snapshots, [run]);
        // A run that begins in this flush has no rows in the store.
        let rows = built(vec![turn(run, 1, |_| {}), turn(run, 2, trimming)], 10);
        assert_eq!((sequences(&rows), rows.trimmed.len()), (vec![2], 0));
    }

    #[test]
    fn what_retention_drops_at_once_leaves_a_name_and_then_nothing() {
        let entries = (0..3).map(|number| turn(run(number), 1, closing)).collect();
        let rows = built(entries, 0);
        assert_eq!((rows.turns.len(), rows.first, rows.forgotten), (0, 3, 2));
        let names: Vec<_> = rows.finished.iter().map(|row| row.number).collect();
        assert_eq!(names, [Some(2)]);
    }

    #[test]
    fn the_last_word_about_a_snapshot_holds() {
        let run = run(1);
        let put = || {
            QueuedEntry::Snapshot(Snapshot {
                run,
                sequence: Sequence::new(5),
                bytes: Bytes::from_static(b"folded"),
            })
        };
        let rows = built(vec![put(), QueuedEntry::NoSnapshot(run), put()], 10);
        assert_eq!((rows.snapshots.len(), rows.no_snapshots.len()), (1, 0));
        let rows = built(vec![put(), QueuedEntry::NoSnapshot(run)], 10);
        assert_eq!((rows.snapshots.len(), rows.no_snapshots.len()), (0, 1));
        let rows = built(vec![put(), turn(run, 6, closing), put()], 10);
        assert_eq!((rows.snapshots.len(), rows.no_snapshots.len()), (0, 1));
        assert_eq!(rows.closed, [run]);
    }
}
