//! Damage to a store's file: flipped bits, zeroed pages, cut ends.
//!
//! Whatever is damaged, a run's history is either what was written or a typed error; a run that is
//! missing is named, or the damage is reported; nothing panics.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use millrun_core::{Partition, RunId};
use millrun_persistence::contract::Author;
use millrun_persistence::{Batch, Journal, ReadError, Reads, RedbJournal};

use super::disk::{Dice, SimDisk};
use super::workload::{Record, open, open_short_settling};
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

/// A store in which three runs have lived long, their turns of 4 KiB each, while others came and went:
/// what they have recorded is kept in several rows each.
fn kept_store() -> (Vec<u8>, Vec<Author>) {
    let host = HandHost::new();
    let disk = SimDisk::new(Vec::new(), 1);
    let journal = open_short_settling(disk.clone(), &host).unwrap();
    let mut long: Vec<_> = (0..3)
        .map(|number| Author::new(&journal, &format!("long-{number}"), number))
        .collect();
    go_on(&journal, &host, &mut long, 0..60);
    journal.begin_close();
    host.run();
    (disk.current(), long)
}

/// A commit for each number: every run takes a turn, and a large one begins and ends, which retention
/// drops soon. All that is not refused is durable afterwards. Says which of the runs were refused a turn.
fn go_on(
    journal: &RedbJournal,
    host: &Arc<HandHost>,
    long: &mut [Author],
    numbers: Range<u64>,
) -> BTreeSet<RunId> {
    let mut refused = BTreeSet::new();
    for number in numbers {
        let mut short = Author::new(journal, &format!("short-{number}"), 100 + number);
        let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
        let epoch = journal.take_over(&all).unwrap();
        let mut batch = Batch::new();
        for author in &mut *long {
            author.epoch = epoch;
            author.put(&mut batch, &[&[number.to_le_bytes()[0]; 4_000]], false);
        }
        short.epoch = epoch;
        short.put(&mut batch, &[&[1; 20_000]], true);
        let enqueued = journal.enqueue(&batch).unwrap();
        refused.extend(enqueued.refused.iter().map(|refused| long[refused.turn].run));
        host.run();
        assert_eq!(journal.failure(), None);
        assert!(journal.high_watermark() >= enqueued.offset);
    }
    refused
}

/// Where the rows of kept turns of a run stand in an image, and copies of them that are free by now:
/// the records in a row of the log are of several runs.
fn kept_rows(image: &[u8], run: RunId) -> Vec<usize> {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let is_kept = |at: &usize| {
        let header = &image[*at..*at + 16];
        if header[..4] != [1, 0, 0, 0] || crc32c::crc32c(&header[..12]) != word(at + 12) {
            return false;
        }
        let (end, mut frame) = (at + 16 + word(at + 4) as usize, at + 16);
        let mut frames = 0;
        while frame + 48 <= end.min(image.len()) && image[frame + 24..][..16] == run.bits().to_le_bytes() {
            frame += word(frame + 12) as usize;
            frames += 1;
        }
        frame == end && frames > 1
    };
    (0..image.len() - 16).filter(is_kept).collect()
}

/// Opens a store with a bit flipped in each of the kept rows of one run, `offset` bytes behind the row's
/// beginning, and lets it work on twice. Says how often the run could not be read.
fn flip_kept(offset: usize, is_refused: bool) -> usize {
    let (image, long) = kept_store();
    let victim = long[1].run;
    let mut noticed = 0;
    for at in kept_rows(&image, victim) {
        let mut damaged = image.clone();
        damaged[at + offset] ^= 0x10;
        let (mut image, mut long) = (damaged, long.clone());
        let mut was_noticed = false;
        for numbers in [60..90, 90..120] {
            let host = HandHost::new();
            let disk = SimDisk::new(image, 2);
            let journal = open_short_settling(disk.clone(), &host).unwrap();
            let refused = go_on(&journal, &host, &mut long, numbers);
            for author in long.iter().filter(|author| author.run != victim) {
                author.assert_history(&journal);
            }
            let is_noticed = match journal.history(victim) {
                Ok(history) => {
                    assert_eq!(history.records.len(), long[1].written.len());
                    false
                }
                Err(ReadError::Damaged { run, .. }) => {
                    assert_eq!(run, Some(victim));
                    true
                }
                Err(error) => panic!("row at {at}: {error}"),
            };
            let expected = (is_noticed && is_refused).then_some(victim);
            assert_eq!(refused, expected.into_iter().collect());
            assert!(is_noticed || !was_noticed, "row at {at}");
            was_noticed = is_noticed;
            journal.begin_close();
            host.run();
            image = disk.current();
        }
        noticed += usize::from(was_noticed);
    }
    noticed
}

#[test]
fn a_kept_row_whose_header_is_damaged_is_read_all_the_same() {
    assert_eq!(flip_kept(5, false), 0, "the records have checksums of their own");
}

/// The run's first record is one of those: nothing but the row's key tells whose it was.
#[test]
fn damaged_lengths_and_runs_in_kept_rows_quarantine_the_run_that_the_key_names() {
    // The length of the row's first record, and its run.
    for offset in [16 + 15, 16 + 30] {
        assert!(flip_kept(offset, true) > 3);
    }
}
