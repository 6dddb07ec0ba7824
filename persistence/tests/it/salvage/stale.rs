//! Old pages that redb leaves where they are.

use std::fs;
use std::sync::Arc;

use millrun_persistence::contract::Author;
use millrun_persistence::{Journal, Reads, RedbConfig, RedbJournal, SalvageOptions, salvage};

use crate::crash::disk::SimDisk;
use crate::host::HandHost;

const PAGE: usize = 4_096;
/// The pages of the turn that is cut off, with room to spare.
const PAGES: usize = 5;

fn find(image: &[u8], sought: &[u8]) -> usize {
    let found = image.windows(sought.len()).position(|bytes| bytes == sought);
    found.unwrap()
}

/// The image of a store in which a run has a first turn and then one with these bodies, and its author.
fn store(bodies: &[&[u8]]) -> (Vec<u8>, Author) {
    let (host, disk) = (HandHost::new(), SimDisk::new(Vec::new(), 1));
    let mut config = RedbConfig::default();
    config.store.zero_ahead_bytes = 0;
    let journal = RedbJournal::open_disk(disk.clone(), "simulated", config, Arc::clone(&host) as _).unwrap();
    let mut author = Author::new(&journal, "a", 1);
    for bodies in [&[&b"begun"[..]][..], bodies] {
        let batch = author.batch(bodies, false);
        assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
        host.run();
    }
    let image = disk.current();
    drop(journal);
    host.end_parts();
    (image, author)
}

/// A crash came when all pages of a commit were written and its slot was not: its turn was never
/// acknowledged, and the run went on otherwise. Both turns follow the same record, and their sums hold.
#[test]
fn a_turn_that_was_cut_off_does_not_stand_for_the_one_that_was_committed() {
    let (cut_off, _) = store(&[&[0x5a; 9_000], b"cut off"]);
    let (mut image, author) = store(&[b"committed"]);
    let from = find(&cut_off, &[0x5a; 9_000]) / PAGE * PAGE;
    let mut places = (2 * PAGE..image.len() - PAGES * PAGE).step_by(PAGE);
    let is_free = |at: &usize| image[*at..at + PAGES * PAGE].iter().all(|byte| *byte == 0);
    let to = places.find(is_free).unwrap();
    image[to..to + PAGES * PAGE].copy_from_slice(&cut_off[from..from + PAGES * PAGE]);

    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    fs::write(&source, &image).unwrap();
    let host = HandHost::new();
    let report = salvage(&source, &target, &SalvageOptions::default(), &*host, &mut |_| {}).unwrap();
    assert!(report.is_complete() && report.live_runs == 1, "{report:?}");
    assert!(report.records_left > 0, "the other turn was found");
    let journal = RedbJournal::open(&target, RedbConfig::default(), Arc::clone(&host) as _).unwrap();
    let history = journal.history(author.run).unwrap();
    let bodies: Vec<_> = history.records.iter().map(|record| &record.body[..]).collect();
    assert_eq!(bodies, [&b"begun"[..], b"committed"]);
    drop(journal);
    host.run();
    host.end_parts();
}
