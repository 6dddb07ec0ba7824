//! The one writer: seals what is queued, commits it, and reports how far the log is durable.
//!
//! ```text
//!            ┌──────────── nothing queued ────────────┐
//!            ▼                                        │
//!   idle ── bell ──► decide ── commit ──► seal ─► commit ─► publish ─► ring ──► decide
//!                      └── wait (convoy, window) ─► plan what the next commit takes along of
//!                                                   settling ─► idle until bell or time
//! ```
//!
//! The settling work of a commit is planned while no caller waits, if there is such a pause between two commits. Where there
//! mostly is a pause, a commit that follows another without one does only the work that is planned by then, but at most two
//! such commits in a row: a slow sync delays those behind it, and more work would delay them further. Nothing that a plan
//! rests on changes before its commit: runs leave retention only here, after a commit and before the next plan.
//!
//! An upkeep uses the turns in which nothing is queued: it drops what is due, then plans and commits until nothing is left.
//!
//! A failed commit ends the writer: it does not try the disk again until the store is reopened.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use millrun_core::{Bell, Next, Part, Timestamp};

use super::convoy::{Convoy, ConvoyDecision};
use super::queued::{Piece, RingAt};
use super::settle::{self, Settling};
use crate::config::Durability;
use crate::error::{JournalFailure, ReadError};
use crate::redb::database::slice::Slice;
use crate::redb::database::store::{Committed, Store};
use crate::redb::finished::finished_runs::{self, TrimStep};
use crate::redb::finished::settler::IndexRows;
use crate::redb::shared::JournalShared;
use crate::redb::state::JournalState;
use crate::upkeep::{UpkeepNumber, UpkeepUndone};
use crate::wire::inventory::{Listed, in_order};

/// How many runs the writer looks up at a time, under the lock, to list them.
const LISTED_AT_ONCE: usize = 256;
/// How long a compaction waits before it checks again whether the store is being read.
const COMPACT_RETRY: Duration = Duration::from_millis(10);
/// Why the writer has its store.
const KEPT: &str = "the store is kept until the writer ends";

pub(crate) struct Writer {
    shared: Arc<JournalShared>,
    store: Option<Arc<Store>>,
    convoy: Convoy,
    settling: Settling,
    pauses: Pauses,
    /// Size of the last commit's turns: an estimate for the next one.
    last_bytes: usize,
    /// When the last commit ended, on the host's clock.
    synced_at: Duration,
    /// When the file was last checked, on the host's clock.
    seen_at: Duration,
    /// When a requested compaction is tried, on the host's clock.
    compact_at: Duration,
    /// The latest upkeep for which the archive was asked to write.
    archive_asked_for: UpkeepNumber,
    /// The latest upkeep whose time has been applied.
    upkeep_begun: UpkeepNumber,
}

/// Whether there has been time between the latest commits: a bit for each, the last one lowest.
#[derive(Debug, Default)]
struct Pauses(u32);

impl Pauses {
    fn note(&mut self, was_there: bool) {
        self.0 = self.0 << 1 | u32::from(was_there);
    }

    /// Whether to expect a pause before one of the next commits: there was one before most of the latest, and before one of
    /// the last three. After two commits in a row without one, the third does not count on it.
    fn will_come(&self) -> bool {
        self.0 & 0b111 != 0 && self.0.count_ones() >= u32::BITS / 2
    }
}

/// What the next turn is for.
enum WriterWork {
    Compact,
    Commit(Arc<Piece>),
    Upkeep(UpkeepNumber, Timestamp),
    Plan,
    Look,
    Wait(Duration),
    Idle,
    End,
}

impl Writer {
    pub(crate) fn new(shared: Arc<JournalShared>, store: Arc<Store>, rows: IndexRows) -> Self {
        let synced_at = shared.host.elapsed();
        Self {
            shared,
            store: Some(store),
            convoy: Convoy::default(),
            settling: Settling::new(rows),
            pauses: Pauses::default(),
            last_bytes: 0,
            synced_at,
            seen_at: synced_at,
            compact_at: synced_at,
            archive_asked_for: UpkeepNumber::default(),
            upkeep_begun: UpkeepNumber::default(),
        }
    }

    /// How long the next check of the file may be delayed; `None` if the file cannot be lost.
    fn look_within(&self, now: Duration) -> Option<Duration> {
        let every = self.shared.config.store.file_check_every;
        let can_be_lost = !every.is_zero() && self.store.as_ref().is_some_and(|store| store.can_be_lost());
        can_be_lost.then(|| (self.seen_at + every).saturating_sub(now))
    }

    /// Checks whether the file is still there.
    fn look(&mut self) -> Result<(), JournalFailure> {
        let now = self.shared.host.elapsed();
        if self.look_within(now).is_some() {
            self.store.as_ref().expect(KEPT).check_file()?;
            self.seen_at = now;
        }
        Ok(())
    }

    fn next(&mut self) -> WriterWork {
        let now = self.shared.host.elapsed();
        let mut state = self.shared.lock();
        if state.failure.is_some() {
            return WriterWork::End;
        }
        let compact_within = state.is_compacting.then(|| self.compact_at.saturating_sub(now));
        if compact_within == Some(Duration::ZERO) {
            return WriterWork::Compact;
        }
        let queued = state.open.len();
        // A claim is answered, and an upkeep begins, when what was queued before it is in the store.
        let upkeep = state.upkeeps.next();
        let must_commit = state.is_closing || state.was_full || !state.claims.is_empty() || upkeep.is_some();
        let has_snapshots = state.snapshots.is_waiting();
        let is_volatile = self.shared.config.journal.durability == Durability::Volatile;
        if queued == 0 && has_snapshots && (must_commit || !is_volatile) {
            return WriterWork::Commit(state.seal(now));
        }
        if queued == 0 && state.is_closing {
            // A file that is closed properly has every turn listed in its inventory too.
            let store = self.store.as_ref().expect(KEPT);
            let is_left = state.has_unlisted() || state.topics.table.has_changed();
            return if is_left && !store.is_of_earlier_format() {
                WriterWork::Commit(state.seal(now))
            } else {
                WriterWork::End
            };
        }
        if let Some((number, at)) = upkeep
            && queued == 0
            && !state.is_archive_asked
        {
            return WriterWork::Upkeep(number, at);
        }
        let look_within = self.look_within(now);
        let decision = if queued > 0 && must_commit {
            ConvoyDecision::Commit
        } else {
            self.decide(queued, state.queued_bytes(), now)
        };
        let half_full = self.shared.config.journal.batch_bytes_max.div_ceil(2);
        match decision {
            ConvoyDecision::Commit => WriterWork::Commit(state.seal(now)),
            ConvoyDecision::Wait { .. } | ConvoyDecision::Idle if !self.settling.is_planned() => {
                WriterWork::Plan
            }
            ConvoyDecision::Wait { .. } | ConvoyDecision::Idle if look_within == Some(Duration::ZERO) => {
                WriterWork::Look
            }
            ConvoyDecision::Wait { time, turns } => {
                state.ring_at = RingAt {
                    turns,
                    bytes: half_full,
                };
                let within = [look_within, compact_within].into_iter().flatten().min();
                WriterWork::Wait(within.map_or(time, |within| within.min(time)))
            }
            ConvoyDecision::Idle => {
                state.ring_at = match self.shared.config.journal.durability {
                    Durability::Volatile => RingAt {
                        turns: usize::MAX,
                        bytes: half_full,
                    },
                    Durability::Durable | Durability::Eventual { .. } => RingAt::FIRST,
                };
                compact_within.map_or(WriterWork::Idle, WriterWork::Wait)
            }
        }
    }

    fn decide(&self, queued: usize, bytes: usize, now: Duration) -> ConvoyDecision {
        if queued > 0 && bytes >= self.shared.config.journal.batch_bytes_max.div_ceil(2) {
            return ConvoyDecision::Commit;
        }
        match self.shared.config.journal.durability {
            Durability::Durable => self.convoy.decide(queued, now),
            Durability::Volatile => ConvoyDecision::Idle,
            Durability::Eventual { .. } if queued == 0 => ConvoyDecision::Idle,
            Durability::Eventual { window } => {
                let time = (self.synced_at + window).saturating_sub(now);
                if time.is_zero() {
                    ConvoyDecision::Commit
                } else {
                    ConvoyDecision::Wait {
                        time,
                        turns: usize::MAX,
                    }
                }
            }
        }
    }

    /// Compacts the file if no reader has it open now; otherwise leaves it for a later turn and commits meanwhile. Returns
    /// whether the writer may go on.
    fn compact(&mut self) -> bool {
        self.store = None;
        let (store, outcome) = self.shared.compact();
        self.store = store;
        match outcome {
            Ok(true) => true,
            Ok(false) => {
                self.compact_at = self.shared.host.elapsed() + COMPACT_RETRY;
                true
            }
            Err(failure) => {
                self.give_up(failure);
                false
            }
        }
    }

    /// Stops the journal. If the file was lost, that is reported as the cause and not the error that it led to.
    fn give_up(&mut self, failure: JournalFailure) {
        let failure = self.look().err().unwrap_or(failure);
        self.shared.fail(failure);
    }

    /// Plans a part of the next commit's work while there is no commit to make.
    fn plan(&mut self) -> Result<(), JournalFailure> {
        let store = self.store.as_ref().expect(KEPT);
        self.settling.plan_on(store, &self.shared, self.last_bytes)
    }

    /// One transaction: the piece, and a slice of settling if one is due.
    fn write(&mut self, store: &Store, piece: &Piece) -> Result<(Option<Slice>, Committed), JournalFailure> {
        self.pauses.note(self.settling.is_planned());
        let waits = self.pauses.will_come() && !self.settling.is_behind();
        while !waits && !self.settling.is_planned() {
            self.settling.plan_on(store, &self.shared, piece.bytes.len())?;
        }
        let slice = self.settling.take(&self.shared);
        let listed = self.list(piece);
        let committed = store.commit_listing(piece, &listed, slice.as_ref())?;
        Ok((slice, committed))
    }

    /// What must be listed with a piece; the lock is held for some runs at a time.
    fn list(&self, piece: &Piece) -> Vec<Listed> {
        let Some(unlisted) = &piece.unlisted else {
            return Vec::new();
        };
        let mut listed = unlisted.closed.clone();
        for runs in unlisted.live.chunks(LISTED_AT_ONCE) {
            self.shared.lock().list(runs, piece.end(), &mut listed);
        }
        in_order(listed)
    }

    /// The next step of an upkeep that is due at `at`, while nothing is queued; returns whether the writer may go on.
    ///
    /// First commits what has been planned: retention drops nothing while there is a plan, which rests on it. Then retention,
    /// the archive where retention waits for it, and one commit after the other until nothing is due.
    fn keep_up(&mut self, number: UpkeepNumber, at: Timestamp) -> bool {
        if self.settling.has_slice() {
            return self.commit_step();
        }
        let store = self.store.clone().expect(KEPT);
        let mut state = self.shared.lock();
        // Only once: each look at a time that is too far ahead would move the trusted time a little further.
        if self.upkeep_begun != number {
            state.finished.age.see(at, self.shared.host.elapsed());
            self.upkeep_begun = number;
        }
        let now = state.finished.age.now();
        let mut state = drop_expired(&self.shared, state, &store, now);
        if self.shared.config.store.archive.is_some() && state.is_archive_due() {
            let was_asked = self.archive_asked_for == number;
            if was_asked && state.is_archive_failing {
                let told = state.upkeeps.finish(number, Err(UpkeepUndone::Archive));
                drop(state);
                drop(told);
                return true;
            }
            state.is_archive_asked = true;
            let watchers = state.watchers.clone();
            drop(state);
            self.archive_asked_for = number;
            watchers.iter().for_each(Bell::ring);
            return true;
        }
        let is_time_wanted = state.finished.age.want_stored();
        let is_topic_due = state.topics.is_due(now) || state.topics.table.has_changed();
        state.topics.looks_at_all = is_topic_due;
        drop(state);
        if let Err(failure) = self.settling.plan_upkeep(&store, &self.shared) {
            self.give_up(failure);
            return false;
        }
        if self.settling.has_slice() || is_time_wanted || is_topic_due {
            return self.commit_step();
        }
        let mut state = self.shared.lock();
        let is_stopped =
            state.is_settling_blocked || state.finished.is_blocked() || state.topics.is_blocked();
        let outcome = if is_stopped {
            Err(UpkeepUndone::Damaged)
        } else {
            Ok(())
        };
        let told = state.upkeeps.finish(number, outcome);
        drop(state);
        drop(told);
        true
    }

    /// Commits what has been planned, with whatever is queued by now.
    fn commit_step(&mut self) -> bool {
        let piece = self.shared.lock().seal(self.shared.host.elapsed());
        self.commit(piece)
    }

    /// Commits a piece; says whether the writer may go on.
    fn commit(&mut self, piece: Arc<Piece>) -> bool {
        let store = self.store.clone().expect(KEPT);
        self.last_bytes = piece.bytes.len();
        let began = self.shared.host.elapsed();
        let written = self.write(&store, &piece);
        // If the file was lost, that explains a failure, and forbids acknowledging a success.
        let outcome = self.look().and(written);
        let ended = self.shared.host.elapsed();
        let took = ended.saturating_sub(began);
        let (slice, committed) = match outcome {
            Ok(written) => written,
            Err(failure) => {
                self.shared.fail(failure);
                return false;
            }
        };
        let acknowledged = (piece.batches, piece.turns);
        let offset = piece.offset;
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if let Some(mut slice) = slice {
            settle::done(&mut slice, committed.kept_removed, &mut state);
        }
        if let Some(now) = state.committed(piece, &committed.topics, took) {
            state = drop_expired(&shared, state, &store, now);
        }
        self.convoy.committed(acknowledged, state.open.len(), took, ended);
        self.synced_at = ended;
        self.shared.publish(offset);
        let watchers = state.watchers.clone();
        drop(state);
        for bell in watchers {
            bell.ring();
        }
        true
    }
}

/// Drops what retention does not keep at `now`; releases the lock while it reads.
fn drop_expired<'a>(
    shared: &'a JournalShared,
    mut state: MutexGuard<'a, JournalState>,
    store: &Store,
    now: Timestamp,
) -> MutexGuard<'a, JournalState> {
    while let TrimStep::Load(number) = state.trim(now) {
        drop(state);
        let row = store.moment().map_err(ReadError::Failed);
        let row = row.and_then(|moment| finished_runs::row(&moment, number));
        state = shared.lock();
        state.finished.load(row);
    }
    state
}

impl Part for Writer {
    fn turn(&mut self, now: Timestamp, _budget: usize) -> Next {
        match self.next() {
            WriterWork::Commit(piece) => {
                if self.commit(piece) {
                    return Next::Again;
                }
            }
            WriterWork::Compact => {
                if self.compact() {
                    return Next::Again;
                }
            }
            WriterWork::Upkeep(number, at) => {
                if self.keep_up(number, at) {
                    return Next::Again;
                }
            }
            WriterWork::Plan => match self.plan() {
                Ok(()) => return Next::Again,
                Err(failure) => self.give_up(failure),
            },
            WriterWork::Look => match self.look() {
                Ok(()) => return Next::Again,
                Err(failure) => self.shared.fail(failure),
            },
            WriterWork::Wait(time) => return Next::At(now + time),
            WriterWork::Idle => {
                let within = self.look_within(self.shared.host.elapsed());
                return within.map_or(Next::Idle, |within| Next::IdleUntil(now + within));
            }
            WriterWork::End => {
                if let Err(failure) = self.look() {
                    self.shared.fail(failure);
                }
            }
        }
        self.store = None;
        self.shared.fail(JournalFailure::closed());
        Next::Stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_waited_for_where_there_mostly_is_one_and_by_two_commits_in_a_row_at_most() {
        let mut pauses = Pauses::default();
        for _ in 0..15 {
            pauses.note(true);
            assert!(!pauses.will_come(), "there were too few to rely on");
        }
        pauses.note(true);
        assert!(pauses.will_come());
        for _ in 0..2 {
            pauses.note(false);
            assert!(pauses.will_come());
        }
        pauses.note(false);
        assert!(!pauses.will_come(), "two have not planned, the third does");
        pauses.note(true);
        assert!(pauses.will_come());
    }

    #[test]
    fn where_commits_follow_each_other_without_a_pause_none_is_waited_for() {
        let mut pauses = Pauses::default();
        for number in 0..200 {
            pauses.note(number % 3 == 0);
            assert!(!pauses.will_come());
        }
    }
}
