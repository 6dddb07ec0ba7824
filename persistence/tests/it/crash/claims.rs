//! What a checker was told, and whether a store keeps to it.
//!
//! Bodies are made from a seed, so that the checker knows every byte without having been told it:
//! a claim is only "this turn of this run was acknowledged, in this life".

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use millrun_core::{Epoch, InstanceId, RunId, Sequence, Timestamp};
use millrun_persistence::{Batch, Journal, Record, RecordView, TurnHeader};

use super::disk::Dice;

/// A turn, as its author and the checker know it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    /// Which child wrote it.
    pub(super) life: u64,
    pub(super) run: u64,
    /// The run's sequence before it.
    pub(super) head: u64,
    pub(super) records: u64,
    pub(super) closes: bool,
    /// When it was taken, by the clock of the child.
    pub(super) time: u64,
}

/// The place of a turn among all: its life, the offset of its batch, its place in the batch.
type Order = (u64, u64, u64);

impl Turn {
    /// The line that claims it.
    pub(super) fn line(&self, (offset, place): (u64, u64)) -> String {
        let Self {
            life,
            run,
            head,
            records,
            closes,
            time,
        } = self;
        let closes = u64::from(*closes);
        format!("turn {life} {run} {head} {records} {closes} {time} {offset} {place} end\n")
    }
}

fn instance(run: u64) -> InstanceId {
    InstanceId::new(&format!("run-{run}")).unwrap()
}

fn timestamp(time: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + time)
}

pub(super) fn run_id(run: u64) -> RunId {
    RunId::new(instance(run).partition(), timestamp(0), run)
}

/// The life and the time in which a record was written.
type Origin = (u64, u64);

/// What stands in a record: who wrote it, where it belongs, and a filling of any length.
fn body(seed: u64, (life, time): Origin, run: u64, sequence: u64) -> Vec<u8> {
    let mut dice = Dice::new(seed ^ time.rotate_left(40) ^ run.rotate_left(20) ^ sequence);
    let mut body: Vec<u8> = [life, time, run, sequence]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let len_max = if dice.one_in(50) { 20_000 } else { 200 };
    for _ in 0..dice.below(len_max) / 8 {
        body.extend_from_slice(&dice.roll().to_le_bytes());
    }
    body
}

/// Puts the turn into a batch.
pub(super) fn put(batch: &mut Batch, seed: u64, turn: &Turn, epoch: Epoch) {
    let id = instance(turn.run);
    let mut writer = batch.turn(TurnHeader {
        run: run_id(turn.run),
        head: Sequence::new(turn.head),
        epoch,
        time: timestamp(turn.time),
        opens: (turn.head == 0).then_some(&id),
    });
    for sequence in turn.head + 1..=turn.head + turn.records {
        let encode = |buffer: &mut Vec<u8>| {
            buffer.extend_from_slice(&body(seed, (turn.life, turn.time), turn.run, sequence));
            Ok::<_, Infallible>(())
        };
        writer.record(7, encode).unwrap();
    }
    writer.finish(turn.closes).unwrap();
}

/// All records of live runs, each as often as the journal hands it out.
pub(super) fn live_records(journal: &impl Journal) -> Result<BTreeMap<u64, Vec<Record>>, String> {
    let mut runs = BTreeMap::<RunId, (Option<u64>, Vec<Record>)>::new();
    let mut lane = |view: RecordView<'_>| {
        let (number, records) = runs.entry(view.run).or_default();
        if let Some(id) = view.opens {
            *number = id.strip_prefix("run-").and_then(|number| number.parse().ok());
        }
        records.push(view.to_record());
    };
    let report = journal
        .recover(&mut [&mut lane], &mut |_| {})
        .map_err(|error| error.to_string())?;
    if !report.damaged.is_empty() {
        return Err(format!("damage: {:?}", report.damaged));
    }
    runs.into_values()
        .map(|(number, records)| Some((number?, records)))
        .collect::<Option<_>>()
        .ok_or_else(|| "a live run has no first record".to_owned())
}

/// What is known of one run.
#[derive(Debug, Default)]
struct Claim {
    /// Where each record that was acknowledged, or found, comes from.
    records: Vec<Origin>,
    /// Its last turn, if that was acknowledged and nothing was found behind it.
    last: Option<Turn>,
    closed: Option<Order>,
}

/// All that was acknowledged or found, except runs that have expired since.
#[derive(Debug)]
pub(super) struct Claims {
    seed: u64,
    retained: usize,
    in_hand: usize,
    runs: BTreeMap<u64, Claim>,
    /// How many turns were acknowledged.
    pub(super) turns: u64,
    /// How many finished runs retention has dropped.
    pub(super) expired: u64,
}

impl Claims {
    /// Nothing yet. The store retains `retained` finished runs; `in_hand` turns are in hand at a time.
    pub(super) fn new(seed: u64, retained: usize, in_hand: usize) -> Self {
        Self {
            seed,
            retained,
            in_hand,
            runs: BTreeMap::new(),
            turns: 0,
            expired: 0,
        }
    }

    /// Hears the numbers of a [line](Turn::line).
    pub(super) fn hear(&mut self, numbers: &[&str]) {
        let numbers: Vec<u64> = numbers.iter().map(|number| number.parse().unwrap()).collect();
        let [life, run, head, records, closes, time, offset, place] = numbers[..] else {
            panic!("not a turn: {numbers:?}");
        };
        let turn = Turn {
            life,
            run,
            head,
            records,
            closes: closes == 1,
            time,
        };
        self.hear_turn(turn, (offset, place));
    }

    /// Hears that a turn was acknowledged.
    pub(super) fn hear_turn(&mut self, turn: Turn, (offset, place): (u64, u64)) {
        let claim = self.runs.entry(turn.run).or_default();
        assert_eq!(
            claim.records.len() as u64,
            turn.head,
            "whoever wrote {turn:?} had read another head"
        );
        claim
            .records
            .extend((0..turn.records).map(|_| (turn.life, turn.time)));
        claim.last = Some(turn);
        claim.closed = turn.closes.then_some((turn.life, offset, place));
        self.turns += 1;
    }

    /// The last turn of the last run that is live, as far as one is known.
    pub(super) fn last_of_a_live_run(&self) -> Option<Turn> {
        let mut claims = self.runs.values().rev().filter(|claim| claim.closed.is_none());
        claims.find_map(|claim| claim.last)
    }

    /// The last turn of a run that is finished and retained.
    pub(super) fn last_of_a_finished_run(&self) -> Option<Turn> {
        let mut claims = self.runs.values().filter(|claim| claim.closed.is_some());
        claims.find_map(|claim| claim.last)
    }

    /// Compares a store, opened after life number `life`, with all claims. What is found beyond them
    /// is a claim from then on. Returns how many records that were.
    pub(super) fn check(&mut self, journal: &impl Journal, life: u64) -> Result<u64, String> {
        let live = live_records(journal)?;
        let mut surplus = 0;
        for (run, records) in &live {
            let history = journal.history(run_id(*run)).map_err(|error| error.to_string())?;
            if history.records != *records || history.id != instance(*run) {
                return Err(format!("run {run}: its history is not what was handed out"));
            }
            surplus += self.check_run(*run, records, None)?;
        }
        let finished = journal
            .list_finished(None, usize::MAX)
            .map_err(|error| error.to_string())?;
        let mut retained = Vec::new();
        for (place, found) in (0..).zip(&finished) {
            let history = journal.history(found.run).map_err(|error| error.to_string())?;
            let number = found.id.as_str().strip_prefix("run-").map(str::parse);
            let Some(Ok(run)) = number else {
                return Err(format!("{} was never begun", found.id));
            };
            if history.head() != found.head || found.run != run_id(run) || live.contains_key(&run) {
                return Err(format!("run {run}: {found:?} does not fit its history"));
            }
            surplus += self.check_run(run, &history.records, Some((life, u64::MAX, place)))?;
            retained.push(run);
        }
        self.check_missing(&live, &retained)?;
        Ok(surplus)
    }

    /// The records of one run; `closed` is its place if it is listed as finished.
    fn check_run(&mut self, run: u64, records: &[Record], closed: Option<Order>) -> Result<u64, String> {
        let claim = self.runs.entry(run).or_default();
        let claimed = claim.records.len();
        if records.len() < claimed {
            return Err(format!(
                "run {run}: {claimed} records were acknowledged, {} are there",
                records.len()
            ));
        }
        for (sequence, record) in (1..).zip(records) {
            let word = |at: usize| {
                let bytes = record
                    .body
                    .get(at..at + 8)
                    .and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(0, u64::from_le_bytes)
            };
            let origin = (word(0), word(8));
            if record.sequence != Sequence::new(sequence) {
                return Err(format!(
                    "run {run}: record {} at place {sequence}",
                    record.sequence
                ));
            }
            let is_as_written =
                record.body == body(self.seed, origin, run, sequence) && record.time == timestamp(origin.1);
            if !is_as_written {
                return Err(format!("run {run}: record {sequence} is not what was written"));
            }
            let place = usize::try_from(sequence).unwrap() - 1;
            match claim.records.get(place) {
                Some(claimed) if *claimed != origin => {
                    return Err(format!(
                        "run {run}: record {sequence} of {claimed:?} was acknowledged, that of {origin:?} is there"
                    ));
                }
                Some(_) => {}
                None => claim.records.push(origin),
            }
        }
        let is_closed = records.last().is_some_and(|record| record.closes);
        if is_closed != closed.is_some() || (claim.closed.is_some() && !is_closed) {
            return Err(format!("run {run}: closed and not closed"));
        }
        let surplus = records.len() - claimed;
        if surplus > 0 {
            claim.last = None;
            claim.closed = closed;
        }
        Ok(surplus as u64)
    }

    /// Only finished runs may be missing: the earliest, and only when there are too many.
    fn check_missing(&mut self, live: &BTreeMap<u64, Vec<Record>>, retained: &[u64]) -> Result<(), String> {
        let mut closed = Vec::new();
        for (run, claim) in &self.runs {
            match claim.closed {
                None if live.contains_key(run) => {}
                None => return Err(format!("run {run} was acknowledged and is gone")),
                Some(order) => closed.push((order, *run)),
            }
        }
        closed.sort_unstable();
        let retained: BTreeSet<_> = retained.iter().copied().collect();
        let missing = closed.len() - retained.len();
        if retained.len() > self.retained || (missing > 0 && retained.len() < self.retained) {
            return Err(format!(
                "{} finished runs are retained, {missing} are gone",
                retained.len()
            ));
        }
        // A thread may lose the processor between taking the time and appending, with a few turns
        // in hand; whether it closed them before or after others depends on whom one asks.
        let late = closed[missing..]
            .iter()
            .filter(|(_, run)| !retained.contains(run))
            .count();
        if late > self.in_hand {
            return Err(format!(
                "{late} finished runs are gone, though others closed earlier"
            ));
        }
        for (_, run) in closed.iter().filter(|(_, run)| !retained.contains(run)) {
            self.runs.remove(run);
            self.expired += 1;
        }
        Ok(())
    }
}
