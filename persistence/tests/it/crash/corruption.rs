//! Damage to a store's file: flipped bits, zeroed pages, cut ends.
//!
//! Whatever is damaged, a run's history is either what was written or a typed error; a run that is
//! missing is named, or the damage is reported; nothing panics.

use std::sync::Arc;

use millrun_persistence::{Journal, ReadError};

use super::disk::{Dice, SimDisk};
use super::workload::{Record, open};
use crate::host::HandHost;

fn store() -> (Vec<u8>, Record) {
    let host = HandHost::new();
    let disk = SimDisk::new(Vec::new(), 1);
    let journal = open(disk.clone(), &host).unwrap();
    let mut record = Record::new();
    record.resume(&journal, 0);
    let mut dice = Dice::new(11);
    for _ in 0..40 {
        assert!(record.enqueue(&journal, &mut dice));
        host.run();
    }
    journal.begin_close();
    host.run();
    (disk.current(), record)
}

/// Opens a damaged image. Says whether anything was noticed.
fn look(image: Vec<u8>, record: &Record, what: &str) -> bool {
    let host = HandHost::new();
    let disk: Arc<SimDisk> = SimDisk::new(image, 2);
    let Ok(journal) = open(disk, &host) else {
        return true;
    };
    let Ok(report) = journal.recover(&mut [&mut |_| {}], &mut |_| {}) else {
        return true;
    };
    let mut is_noticed = !report.damaged.is_empty();
    let mut is_missing = false;
    for author in record.authors() {
        match journal.history(author.run) {
            Ok(history) => {
                let bodies: Vec<_> = history
                    .records
                    .iter()
                    .map(|record| record.body.to_vec())
                    .collect();
                assert_eq!(
                    bodies,
                    author.written[..bodies.len()],
                    "{what}: wrong data for {}",
                    author.id
                );
                is_missing |= bodies.len() < author.written.len();
            }
            Err(ReadError::UnknownRun { .. }) => is_missing = true,
            Err(_) => is_noticed = true,
        }
    }
    assert!(
        is_noticed || !is_missing,
        "{what}: something is missing, and nothing says so"
    );
    is_noticed
}

#[test]
fn a_sound_store_is_not_called_damaged() {
    let (image, record) = store();
    assert!(!look(image, &record, "nothing"));
}

#[test]
fn flipped_bits_are_noticed_or_harmless() {
    let (image, record) = store();
    let mut dice = Dice::new(5);
    let mut noticed = 0;
    for _ in 0..400 {
        let mut damaged = image.clone();
        let at = usize::try_from(dice.below(image.len() as u64)).unwrap();
        damaged[at] ^= 1 << dice.below(8);
        noticed += usize::from(look(damaged, &record, &format!("bit at {at}")));
    }
    assert!(noticed > 0);
}

#[test]
fn zeroed_pages_are_noticed_or_harmless() {
    let (image, record) = store();
    let mut noticed = 0;
    for page in 0..image.len() / 4_096 {
        if image[page * 4_096..][..4_096].iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut damaged = image.clone();
        damaged[page * 4_096..][..4_096].fill(0);
        noticed += usize::from(look(damaged, &record, &format!("page {page}")));
    }
    assert!(noticed > 0);
}

#[test]
fn cut_ends_are_noticed_or_harmless() {
    let (image, record) = store();
    let mut dice = Dice::new(9);
    let mut noticed = 0;
    for _ in 0..60 {
        let len = usize::try_from(dice.below(image.len() as u64)).unwrap();
        noticed += usize::from(look(image[..len].to_vec(), &record, &format!("cut at {len}")));
    }
    assert!(noticed > 0);
}

#[test]
fn flipped_bits_in_the_first_pages_are_noticed_or_harmless() {
    let (image, record) = store();
    let mut noticed = 0;
    // Our own first page and the header of redb's file: what all else hangs on.
    for at in (0..40).chain(4_096..4_096 + 330) {
        let mut damaged = image.clone();
        damaged[at] ^= 1 << (at % 8);
        noticed += usize::from(look(damaged, &record, &format!("byte {at}")));
    }
    assert!(noticed > 0);
}
