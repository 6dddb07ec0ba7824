//! Power cuts at random moments, with a second cut while the store is being opened again.
//!
//! For each seed: a workload, a cut in the middle of it (between any two accesses of the disk),
//! what the cut has left is opened (sometimes cut again while it is being repaired), and
//! everything is compared with the workload's own record. Then the work goes on in the store
//! that was found, so that a fault which only shows later shows as well.

use std::sync::Arc;

use millrun_persistence::{Disk, RedbJournal, StoreError};

use super::disk::{Dice, Plan, SimDisk};
use super::workload::{Record, open, open_settling, open_short, open_short_settling};
use crate::host::HandHost;

/// A way to open a journal.
type Open = fn(Arc<dyn Disk>, &Arc<HandHost>) -> Result<RedbJournal, StoreError>;

/// What one seed came to.
#[derive(Debug, Default)]
struct Outcome {
    cuts: u64,
    /// Cuts that left zeros where the last writes should be.
    zero_tails: u64,
    batches: usize,
    acknowledged: usize,
    /// More was found than had been acknowledged.
    surplus: usize,
}

/// Runs one seed; the error says what was violated.
fn run(seed: u64, plan: Plan) -> Result<Outcome, String> {
    let mut dice = Dice::new(seed);
    let mut outcome = Outcome::default();
    // Half of the seeds drop finished runs, and their part of the log, all the time; half of either
    // settle all the time.
    let is_short = seed % 2 == 1;
    let open: Open = match seed % 4 {
        0 => open,
        1 => open_short,
        2 => open_settling,
        _ => open_short_settling,
    };
    let mut record = if is_short { Record::short() } else { Record::new() };
    if seed % 8 >= 4 {
        record = record.trimming();
    }
    if seed % 16 >= 8 {
        record = record.grouping();
    }
    if seed.is_multiple_of(3) {
        record = record.publishing();
    }
    let mut image = Vec::new();
    let mut base = 0;
    for life in 0..3_u64 {
        let host = HandHost::new();
        let disk = SimDisk::planned(image.clone(), seed ^ (life << 32), Plan::default());
        let journal = open(disk.clone(), &host).map_err(|error| format!("life {life}: {error}"))?;
        // The next life may only begin when there is something to lose.
        record.resume(&journal, base);
        disk.set_plan(plan);
        disk.cut_after(dice.below(150));
        let acknowledged = work_until_cut(&disk, &journal, &host, &mut record, &mut dice, &mut outcome);
        outcome.acknowledged += acknowledged;
        image = disk.image().unwrap_or_else(|| disk.cut_now());
        outcome.cuts += 1;
        outcome.zero_tails += disk.zero_tails();
        drop(journal);
        // The writer and its host have each other, and the disk: thousands of them are much memory.
        host.end_parts();
        if dice.one_in(2) {
            image = cut_while_opening(image, seed, &mut dice, open)?;
            outcome.cuts += 1;
        }
        let host = HandHost::new();
        let disk = SimDisk::new(image.clone(), seed);
        let found = open(disk.clone(), &host).map_err(|error| format!("after the cut: {error}"))?;
        base = record.check(&found, acknowledged)?;
        outcome.surplus += base - acknowledged;
        drop(found);
        host.run();
        host.end_parts();
        image = disk.current();
    }
    Ok(outcome)
}

/// Works until the cut has happened; returns how many batches were acknowledged before it.
fn work_until_cut(
    disk: &SimDisk,
    journal: &RedbJournal,
    host: &HandHost,
    record: &mut Record,
    dice: &mut Dice,
    outcome: &mut Outcome,
) -> usize {
    let mut acknowledged = 0;
    for _ in 0..100 {
        for _ in 0..dice.below(4) {
            if record.enqueue(journal, dice) {
                outcome.batches += 1;
            }
        }
        for _ in 0..dice.below(6) {
            host.step();
            if disk.image().is_some() {
                return acknowledged;
            }
            acknowledged = record.acknowledged(journal);
        }
    }
    acknowledged
}

/// Opens what a cut has left and cuts the power again before that is done.
fn cut_while_opening(image: Vec<u8>, seed: u64, dice: &mut Dice, open: Open) -> Result<Vec<u8>, String> {
    let host = HandHost::new();
    let disk = SimDisk::new(image, seed.rotate_left(17));
    disk.cut_after(dice.below(20));
    let journal = open(disk.clone(), &host).map_err(|error| format!("before the second cut: {error}"))?;
    drop(journal);
    host.run();
    host.end_parts();
    Ok(disk.image().unwrap_or_else(|| disk.cut_now()))
}

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("MILLRUN_CRASH_SEEDS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(300);
    let first = std::env::var("MILLRUN_CRASH_FIRST")
        .ok()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0);
    first..first + count
}

#[test]
fn no_power_cut_loses_what_was_acknowledged() {
    let mut total = Outcome::default();
    for seed in seeds() {
        let outcome = run(seed, Plan::default()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        total.cuts += outcome.cuts;
        total.zero_tails += outcome.zero_tails;
        total.batches += outcome.batches;
        total.acknowledged += outcome.acknowledged;
        total.surplus += outcome.surplus;
    }
    println!("{total:?}");
    assert!(
        total.acknowledged > 0 && total.batches > total.acknowledged,
        "the cuts came too early or too late"
    );
    assert!(total.zero_tails > 0, "no cut left a tail of zeros");
}

/// A process was killed while it created a store on a disk of its own, and the file was refused as damaged from
/// then on. The cuts of our tests began when the store was open, and a store at a path is made beside its place.
#[test]
fn a_creation_that_is_cut_short_is_begun_anew() {
    let accesses = {
        let disk = SimDisk::new(Vec::new(), 0);
        drop(open(disk.clone(), &HandHost::new()).unwrap());
        disk.accesses()
    };
    let mut cuts = 0;
    for seed in 0..20 {
        for ahead in 0..accesses {
            let cut = |image: Vec<u8>| {
                let (disk, host) = (SimDisk::new(image, seed ^ ahead << 8), HandHost::new());
                disk.cut_after(ahead);
                drop(
                    open(disk.clone(), &host).unwrap_or_else(|error| panic!("seed {seed}, {ahead}: {error}")),
                );
                host.end_parts();
                disk.image()
            };
            // What was cut short is cut short once more.
            let Some(once) = cut(Vec::new()) else { break };
            cuts += 1;
            let left = cut(once.clone()).unwrap_or(once);
            let (disk, host) = (SimDisk::new(left, seed), HandHost::new());
            let journal = open(disk.clone(), &host)
                .unwrap_or_else(|error| panic!("seed {seed}, cut before write {ahead}: {error}"));
            let mut record = Record::new();
            record.resume(&journal, 0);
            record.enqueue(&journal, &mut Dice::new(seed));
            host.run();
            let acknowledged = record.acknowledged(&journal);
            assert_eq!(acknowledged, 1);
            drop(journal);
            host.end_parts();
            let again = open(SimDisk::new(disk.cut_now(), seed), &HandHost::new()).unwrap();
            record.check(&again, acknowledged).unwrap();
        }
    }
    assert!(cuts > 100, "{cuts}");
}

/// The control: if the simulation could not notice a loss, the test above would mean nothing.
#[test]
fn a_disk_that_lies_about_syncs_is_caught() {
    let lying = Plan {
        lies_one_in: Some(50),
        ..Plan::default()
    };
    let caught = (0..300).find_map(|seed| run(seed, lying).err().map(|error| (seed, error)));
    println!("{caught:?}");
    assert!(caught.is_some());
}
