//! Which runs are in memory. A run is brought back from its history when something wakes it, unloaded when it has waited
//! longest, and kept for a while after its end.

use std::collections::VecDeque;

use millrun_core::RunId;
use millrun_workflow::{Instance, Moment};
use rustc_hash::FxHashSet;

use super::Shard;
use super::runs::entry::{Entry, Errand, Loading, Parking, Residence};
use super::runs::line::Spot;
use super::runs::roster::Roster;
use super::sweeps::answers::Response;
use crate::code::version_trials::TriedRun;
use crate::mail::{Load, LoadToReset, Standing, Story, Tell};
use crate::ownership::partition_set::PartitionSet;
use crate::timers::{Alarm, TimerCommand};
use crate::{RunError, RuntimeConfig};

/// How many runs one pass looks at to find some to unload.
const STEPS_MAX: usize = 4_096;

/// How many runs are read at a time to be tried on newer code, while no run is read for another reason.
const TRIALS_IN_FLIGHT_MAX: usize = 4;

/// Which runs have their code in memory, and which are being read.
#[derive(Debug, Default)]
pub(super) struct Residency {
    /// Runs whose code is in memory, those that have waited longest first (second chance).
    hot: VecDeque<Spot>,
    hot_len: usize,
    hot_bytes: usize,
    /// Runs to be read once their turns are durable and there is room.
    loads: VecDeque<RunId>,
    /// Runs that may move to the newest version of their workflow. They are read when no other run is to be.
    to_move: VecDeque<RunId>,
    /// The runs whose histories are being read.
    loads_in_flight: FxHashSet<RunId>,
}

impl Residency {
    /// How many runs have their code in memory.
    #[inline]
    pub(super) fn hot_len(&self) -> usize {
        self.hot_len
    }

    /// Enters a run whose code is in memory from now on. Its memory is [counted](Self::weigh) apart.
    #[inline]
    pub(super) fn enter(&mut self, run: RunId, entries: &mut Roster) {
        self.hot_len += 1;
        let Some(entry) = entries.get_mut(run) else {
            return;
        };
        // A run enters at the back: it is considered after all others.
        entry.is_touched = false;
        if !std::mem::replace(&mut entry.is_listed, true)
            && let Some(spot) = entries.spot(run)
        {
            self.hot.push_back(spot);
        }
    }

    /// Counts out a run whose code is dropped. Its place in the list is skipped later.
    #[inline]
    pub(super) fn leave(&mut self, entry: &mut Entry) {
        self.hot_len -= 1;
        self.hot_bytes -= std::mem::take(&mut entry.hot_bytes) as usize;
    }

    /// Counts the memory that a run holds now, in place of the former amount.
    #[inline]
    pub(super) fn weigh(&mut self, entry: &mut Entry) {
        let bytes = entry.memory_bytes();
        self.hot_bytes -= std::mem::replace(&mut entry.hot_bytes, bytes) as usize;
        self.hot_bytes += bytes as usize;
    }

    /// Has a run read, once its turns are durable and there is room.
    #[inline]
    pub(super) fn read(&mut self, run: RunId) {
        self.loads.push_back(run);
    }

    /// Leaves a run on disk that was loading, and for which nothing waits any more.
    pub(super) fn leave_on_disk(run: RunId, entries: &mut Roster, durable_len: u64) {
        let Some(entry) = entries.get_mut(run) else {
            return;
        };
        entry.residence = Residence::Cold;
        if entry.last_sweep <= durable_len {
            entries.put_to_sleep(run);
        }
    }

    /// Has a run read when no other is to be read, so that it is tried on the newest version of its workflow.
    pub(super) fn move_later(&mut self, run: RunId) {
        self.to_move.push_back(run);
    }

    /// Whether no runs but the `read` ones are to be read, and another may be tried on newer code.
    fn has_room_to_move_beside(&self, read: usize) -> bool {
        self.loads.len() == read && self.loads_in_flight.len() + read < TRIALS_IN_FLIGHT_MAX
    }

    /// How many runs are being read, or wait for that.
    #[inline]
    pub(super) fn loading_len(&self) -> usize {
        self.loads.len() + self.loads_in_flight.len()
    }

    /// The runs that are being read, or wait for that.
    pub(super) fn loading(&self) -> impl Iterator<Item = RunId> {
        self.loads.iter().chain(&self.loads_in_flight).copied()
    }

    /// Forgets the reads of runs in these partitions.
    pub(super) fn lose(&mut self, lost: &PartitionSet) {
        self.loads.retain(|run| !lost.contains(run.partition()));
        self.to_move.retain(|run| !lost.contains(run.partition()));
        self.loads_in_flight.retain(|run| !lost.contains(run.partition()));
    }

    /// Takes runs off the list of reads whose turns are all in the first `durable_len` sweeps, while fewer than `len_max` are
    /// being read.
    fn start_loads(
        &mut self,
        entries: &Roster,
        durable_len: u64,
        len_max: usize,
        mut start: impl FnMut(RunId, Option<LoadToReset>),
    ) {
        for _ in 0..self.loads.len() {
            if self.loads_in_flight.len() >= len_max {
                return;
            }
            let Some(run) = self.loads.pop_front() else { return };
            let Some(entry) = entries.get(run) else {
                continue;
            };
            if entry.last_sweep > durable_len {
                // Some of its turns are not durable yet. The bell rings with the next commit.
                self.loads.push_back(run);
                continue;
            }
            self.loads_in_flight.insert(run);
            start(run, entry.to_be_reset());
        }
    }

    /// Unloads the runs that have waited longest, while there are too many in memory.
    fn unload(&mut self, entries: &mut Roster, durable_len: u64, config: &RuntimeConfig) {
        // At most one pass over the list: a run that cannot be unloaded now is considered again in the next turn.
        for _ in 0..self.hot.len().min(STEPS_MAX) {
            // A single run larger than the budget stays: it would be read again for each message.
            let is_heavy = self.hot_bytes > config.hot_bytes_max && self.hot_len > 1;
            let is_over = self.hot_len > config.hot_len_max || is_heavy;
            if !is_over && self.hot.len() <= 2 * self.hot_len + STEPS_MAX {
                return;
            }
            let Some(spot) = self.hot.pop_front() else { return };
            // Most runs in the list have ended since.
            let Some(run) = entries.run_at(spot) else {
                continue;
            };
            let Some(entry) = entries.get_mut(run) else {
                continue;
            };
            if !matches!(entry.residence, Residence::Hot(_)) {
                entry.is_listed = false;
                if entry.last_sweep <= durable_len {
                    entries.put_to_sleep(run);
                }
                continue;
            }
            let is_touched = std::mem::take(&mut entry.is_touched) && config.hot_len_max > 0;
            if is_touched || entry.last_sweep > durable_len || !is_over {
                self.hot.push_back(spot);
                continue;
            }
            entry.is_listed = false;
            entry.residence = Residence::Cold;
            entry.forget_starter();
            self.leave(entry);
            entries.put_to_sleep(run);
        }
    }
}

impl Shard {
    /// Asks the reader for the histories of runs that are to be read, as far as there is room.
    #[inline]
    pub(super) fn start_loads(&mut self) {
        if !self.asking.is_empty() {
            self.start_asks();
        }
        if !self.residency.to_move.is_empty() {
            self.read_to_move();
        }
        if self.residency.loads.is_empty() {
            return;
        }
        let len_max = self.shared.config.loads_in_flight_max;
        let (epochs, reader) = (&self.epochs, &self.shared.reader);
        let durable_len = self.sweeps.durable_len();
        self.residency
            .start_loads(&self.entries, durable_len, len_max, |run, to_reset| {
                let life = epochs.of(run);
                reader.load(Load { run, life, to_reset });
            });
    }

    /// Has some runs read that may move to newer code, if no run is read for another reason.
    #[cold]
    fn read_to_move(&mut self) {
        let mut read = 0;
        while read < TRIALS_IN_FLIGHT_MAX && self.residency.has_room_to_move_beside(read) {
            let Some(run) = self.residency.to_move.pop_front() else {
                return;
            };
            // A run in memory was tried on newer code when it was read.
            if let Some(entry) = self.entries.get_mut(run)
                && matches!(entry.residence, Residence::Cold)
            {
                entry.residence = Residence::Loading(Box::default());
                self.residency.read(run);
                read += 1;
            }
        }
    }

    /// A history has been read: brings the run back, and performs the errands that waited for it.
    pub(super) fn on_loaded(&mut self, load: Load, history: Option<Result<Story, RunError>>, moment: Moment) {
        let run = load.run;
        self.note_read(run);
        let before = self.effects.work_on(run);
        self.bring_back(run, history, moment);
        self.effects.resume(before);
    }

    /// What was asked of the reader has come.
    pub(super) fn note_read(&mut self, run: RunId) {
        self.residency.loads_in_flight.remove(&run);
    }

    /// Has a run read that is loading.
    pub(super) fn bring_back(
        &mut self,
        run: RunId,
        history: Option<Result<Story, RunError>>,
        moment: Moment,
    ) {
        let Some(history) = history else {
            // The reader failed: its successor reads the run, or the runtime stops with the reader.
            return self.residency.read(run);
        };
        self.census.note_load();
        let Some(entry) = self.entries.get_mut(run) else {
            return;
        };
        let Residence::Loading(loading) = &entry.residence else {
            return;
        };
        if let Ok(history) = &history
            && history.events.last().is_some_and(|(event, _)| event.is_last())
        {
            return self.let_go_ended(run, moment);
        }
        let is_parked_here = loading.park.is_some();
        let workflows = &self.shared.workflows;
        let workflow = entry.workflow.as_str();
        let replayed = history.and_then(|mut story| {
            if let Some(TriedRun { instance, is_fit }) = story.tried.take() {
                return Ok((instance, is_fit));
            }
            let implementation = workflows.code_of((workflow, story.version, &entry.id));
            let mut instance = self.shared.replay(implementation, run, story)?;
            if implementation.is_none() {
                instance.note_registered(workflows.versions_of(workflow));
            }
            Ok((Box::new(instance), false))
        });
        let replayed = replayed.map(|(instance, is_moving)| (instance, is_moving && !is_parked_here));
        self.take_up(run, replayed, moment);
    }

    /// A run that was loading is in memory, unless it could not be brought back: what waited for it is done. It moves to other
    /// code then, perhaps.
    pub(super) fn take_up(
        &mut self,
        run: RunId,
        replayed: Result<(Box<Instance>, bool), RunError>,
        moment: Moment,
    ) {
        let Some(entry) = self.entries.get_mut(run) else {
            return;
        };
        let Residence::Loading(loading) = &mut entry.residence else {
            return;
        };
        let Loading {
            held,
            park,
            in_memory: _,
            mut to_reset,
        } = std::mem::take(&mut **loading);
        match replayed {
            Ok((mut instance, is_moving)) => {
                if let Some(reason) = park {
                    instance.park(reason);
                }
                // The turn that set another version was refused.
                let version = instance.ledger().version();
                self.census.set_version(entry, version);
                if let Some(reason) = instance.park_reason()
                    && Parking::of(Some(reason)).is_parked()
                    && !entry.is_parked()
                {
                    tracing::warn!(%run, id = %entry.id, %reason, "a run is parked");
                }
                // The run is not parked if the turn that parked it was refused, or if only a failed read had parked it.
                let parking = Parking::of(instance.park_reason());
                self.census.set_parking(entry, parking);
                // A timeout that came while the run could not be read is lost, and its timer with it.
                if let Some(deadline) = instance.ledger().deadline()
                    && deadline.at <= moment.now
                {
                    let again = TimerCommand::Set(deadline.at, run, Alarm::TimeOut);
                    self.alarms.want(again);
                }
                entry.residence = Residence::Hot(instance);
                self.residency.weigh(entry);
                self.residency.enter(run, &mut self.entries);
                if is_moving {
                    self.change_version(run, moment);
                }
                for errand in held {
                    match (errand, to_reset.take()) {
                        (Errand::Tell(Tell::Reset(order), reply), Some(reading)) => {
                            self.reset(run, *order, reading, reply, moment);
                        }
                        (errand, _) => self.apply_fresh(run, errand, moment),
                    }
                }
                self.answer_if_parked(run, moment);
            }
            Err(error) => {
                tracing::error!(%run, id = %entry.id, %error, "a run cannot be brought back");
                entry.residence = Residence::Cold;
                // A later caller that asks for the result must not wait for a run that nothing wakes.
                if !entry.is_parked() {
                    self.census.set_parking(entry, Parking::Parked);
                }
                let parent = entry.parent().filter(|_| matches!(error, RunError::Damaged(_)));
                let parent = parent.copied();
                for waiter in entry.take_waiters() {
                    self.effects
                        .answer(Response::Standing(waiter, Err(error.clone())));
                }
                for errand in held {
                    match errand {
                        // The values behind it need not wait for it.
                        Errand::Republish(_, topic) => self.feed_topic(topic, moment),
                        errand => self.answer_unknown(errand, error.clone()),
                    }
                }
                if let Some(parent) = parent {
                    self.refuse_child(&parent, error.to_string());
                }
            }
        }
    }

    /// If a run in memory is parked and a caller waits for its result, the run goes on if its code is registered; otherwise
    /// the caller is told that the run does not go on.
    pub(super) fn answer_if_parked(&mut self, run: RunId, moment: Moment) {
        let is_parked = |entry: &Entry| match &entry.residence {
            Residence::Hot(instance) => instance.final_park_reason().is_some() && entry.is_waited_for(),
            Residence::Cold | Residence::Loading(_) | Residence::Ended(_) => false,
        };
        if self.entries.get(run).is_some_and(is_parked) {
            self.apply_fresh(run, Errand::Resume, moment);
        }
        let Some(entry) = self.entries.get_mut(run) else {
            return;
        };
        let Residence::Hot(instance) = &entry.residence else {
            return;
        };
        let Some(reason) = instance.final_park_reason().cloned() else {
            return;
        };
        for waiter in entry.take_waiters() {
            let standing = Ok(Standing::Parked(reason.clone()));
            self.effects.answer(Response::Standing(waiter, standing));
        }
    }

    /// Unloads the runs that have waited longest, while there are too many in memory.
    #[inline]
    pub(super) fn unload_coldest(&mut self) {
        let config = &self.shared.config;
        let durable_len = self.sweeps.durable_len();
        self.residency.unload(&mut self.entries, durable_len, config);
    }

    /// Takes note of the runs whose ends have become durable: `ended_len` in all. Their results stay at hand until there are
    /// too many.
    pub(super) fn retire(&mut self, ended_len: u64) {
        let every = self.shared.config.replay_check_every;
        while let Some(run) = self.results.next_durable(ended_len) {
            if every > 0 && self.results.is_checked(every) {
                self.shared.reader.check(run);
            }
        }
        let config = &self.shared.config;
        let (len_max, bytes_max) = (config.result_cache_len_max, config.result_cache_bytes_max);
        while let Some(oldest) = self.results.let_go(len_max, bytes_max) {
            self.entries.remove(oldest);
        }
    }
}
