//! A disk error at each access of a fixed workload, once and for good.
//!
//! After an error the journal must say so, acknowledge nothing more, and what it had
//! acknowledged must be there when the store is opened again.

use std::sync::Arc;

use millrun_persistence::{Disk, FailureKind, Journal, RedbJournal, StoreError};

use super::disk::{Dice, Plan, SimDisk};
use super::workload::{Record, open, open_settling};
use crate::host::HandHost;

/// A way to open a journal.
type Open = fn(Arc<dyn Disk>, &Arc<HandHost>) -> Result<RedbJournal, StoreError>;

/// Accesses of opening an empty disk and doing the work without any error.
fn accesses(open: Open) -> u64 {
    let disk = SimDisk::new(Vec::new(), 1);
    work(&disk, open, Plan::default());
    disk.accesses()
}

/// The workload: returns what it knows, and how much of it was acknowledged; `None` if the
/// store could not be opened.
fn work(disk: &Arc<SimDisk>, open: Open, plan: Plan) -> Option<(Record, usize)> {
    let host = HandHost::new();
    let journal = open(disk.clone(), &host).ok()?;
    let mut record = Record::new();
    record.resume(&journal, 0);
    let mut dice = Dice::new(7);
    let mut taken = 0;
    for _ in 0..12 {
        taken += usize::from(record.enqueue(&journal, &mut dice));
        host.run();
    }
    let acknowledged = record.acknowledged(&journal);
    if let Some(failure) = journal.failure() {
        let expected = FailureKind::Io(plan.kind());
        assert_eq!(failure.kind(), expected, "{plan:?}: {failure}");
        assert!(acknowledged <= taken);
        assert!(
            !record.enqueue(&journal, &mut dice),
            "a failed journal takes nothing"
        );
        host.run();
        assert_eq!(
            record.acknowledged(&journal),
            acknowledged,
            "a failed journal acknowledges nothing"
        );
    } else {
        assert_eq!(
            acknowledged, taken,
            "without a failure everything is acknowledged"
        );
    }
    journal.begin_close();
    host.run();
    assert!(journal.is_closed());
    Some((record, acknowledged))
}

fn check(plan: Plan, open: Open) {
    let disk = SimDisk::planned(Vec::new(), 3, plan);
    let outcome = work(&disk, open, plan);
    // Both of what the process had written, and of what a power cut would have left.
    for image in [disk.current(), disk.cut_now()] {
        let host = HandHost::new();
        let reopened = open(SimDisk::new(image, 4), &host);
        match (&outcome, reopened) {
            (Some((record, acknowledged)), Ok(journal)) => {
                let found = record.check(&journal, *acknowledged);
                assert!(found.is_ok(), "{plan:?}: {found:?}");
            }
            (Some(_), Err(error)) => panic!("{plan:?}: {error}"),
            // The store was never made, so there is nothing to find.
            (None, _) => {}
        }
        // The writer and its host have each other, and the disk.
        host.end_parts();
    }
}

#[test]
fn an_error_at_any_access_loses_nothing_that_was_acknowledged() {
    let accesses = accesses(open);
    assert!(accesses > 50, "the workload makes {accesses} accesses");
    for at in 0..accesses {
        for (is_sticky, is_short) in [(false, false), (true, false), (false, true)] {
            let plan = Plan {
                fails_at: Some(at),
                is_sticky,
                is_short,
                ..Plan::default()
            };
            check(plan, open);
        }
    }
}

#[test]
fn an_error_at_any_access_of_settling_loses_nothing_that_was_acknowledged() {
    let accesses = accesses(open_settling);
    for at in 0..accesses {
        let plan = Plan {
            fails_at: Some(at),
            is_short: at % 2 == 0,
            ..Plan::default()
        };
        check(plan, open_settling);
    }
}

/// Reading goes on, and with room again the store is as it was.
#[test]
fn a_disk_that_is_full_from_any_access_on_is_named_and_loses_nothing_that_was_acknowledged() {
    for open in [open as Open, open_settling] {
        for at in 0..accesses(open) {
            let plan = Plan {
                fails_at: Some(at),
                is_full: true,
                is_short: at % 2 == 0,
                ..Plan::default()
            };
            check(plan, open);
        }
    }
}
