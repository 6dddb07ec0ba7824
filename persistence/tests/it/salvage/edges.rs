//! Files that are cut, emptied, in use, or no stores; targets that are there.

use std::fs;

use millrun_persistence::{JournalConfig, RedbJournal, SalvageError, SalvageOptions, salvage};

use super::flipper::Chance;
use super::world::World;
use crate::golden;
use crate::host::HandHost;

#[test]
fn a_closed_store_comes_back_as_it_is() {
    let world = World::closed();
    let judged = world.judge(&world.image, "nothing");
    assert_eq!(
        (judged.back, judged.forgotten),
        (world.runs.len(), 0),
        "{:?}",
        judged.report
    );
    assert!(
        judged.report.is_complete() && judged.report.is_clean,
        "{:?}",
        judged.report
    );
    let salvaged = world.read(&world.path("salvaged"));
    assert_eq!(salvaged, (world.runs.clone(), world.closed.clone()));
}

/// Stores that earlier releases have written have one source less to tell whose a damaged record was.
#[test]
fn a_store_of_each_format_comes_back_and_so_it_does_with_a_flipped_bit() {
    let mut chance = Chance::new(31);
    for format in [1, 2] {
        for image in [golden::image(format), golden::settled_image(format)] {
            let world = World::of(image);
            let judged = world.judge(&world.image, "nothing");
            assert_eq!(
                judged.back,
                world.runs.len(),
                "format {format}: {:?}",
                judged.report
            );
            assert_eq!(
                world.read(&world.path("salvaged")).1,
                world.closed,
                "format {format}"
            );
            let used: Vec<_> = (0..world.image.len())
                .filter(|at| world.image[*at] != 0)
                .collect();
            for _ in 0..8 {
                let (at, bit) = (used[chance.below(used.len())], chance.below(8));
                let mut damaged = world.image.clone();
                damaged[at] ^= 1 << bit;
                let judged = world.judge(&damaged, &format!("format {format}: bit {bit} of byte {at}"));
                assert!(judged.back + 1 >= world.runs.len(), "{:?}", judged.report);
            }
        }
    }
}

#[test]
fn a_file_that_is_cut_gives_what_is_before_the_cut() {
    let world = World::crashed();
    let mut chance = Chance::new(3);
    let (mut back, mut best) = (0, 0);
    for _ in 0..12 {
        let len = 8_192 + chance.below(world.image.len() - 8_192);
        let judged = world.judge(&world.image[..len], &format!("cut at {len}"));
        back += judged.back;
        best = best.max(judged.back);
    }
    assert!(back > 0 && best > world.runs.len() / 2, "{back}, {best} at best");
}

#[test]
fn a_page_of_zeros_costs_what_stood_in_it() {
    let world = World::crashed();
    let mut back = Vec::new();
    let pages = world.image.len() / 4_096;
    for page in (2..pages).step_by(pages / 20) {
        let mut damaged = world.image.clone();
        damaged[page * 4_096..][..4_096].fill(0);
        back.push(world.judge(&damaged, &format!("page {page}")).back);
    }
    let whole = world.runs.len() * back.len();
    assert!(back.iter().sum::<usize>() * 10 > whole * 9, "{back:?}");
}

/// Nothing tells any more which copies are current, and which runs were dropped.
#[test]
fn without_redbs_header_everything_comes_back_and_the_report_says_that_more_may() {
    let world = World::crashed();
    for len in [320, 4_096] {
        let mut damaged = world.image.clone();
        damaged[4_096..][..len].fill(0);
        let judged = world.judge(&damaged, &format!("{len} bytes of the header"));
        assert!(
            judged.back * 100 >= world.runs.len() * 99,
            "{} of {}",
            judged.back,
            world.runs.len()
        );
        assert!(!judged.report.unknown.is_empty());
    }
}

#[test]
fn what_holds_nothing_of_a_store_is_refused() {
    let world = World::crashed();
    let (source, target) = (world.path("source"), world.path("target"));
    let mut chance = Chance::new(9);
    let noise = (0..100_000).map(|_| chance.below(256).to_le_bytes()[0]).collect();
    let text = b"a text of some length\n".repeat(1_000);
    for bytes in [Vec::new(), vec![0; 50_000], text, noise] {
        fs::write(&source, &bytes).unwrap();
        let outcome = world.salvage(&source, &target);
        assert!(
            matches!(outcome, Err(SalvageError::NotAStore { .. })),
            "{outcome:?}"
        );
        assert!(!target.exists() && !world.path("target.new").exists());
    }
    let host = HandHost::new();
    let options = SalvageOptions::default();
    for nothing in [world.path("absent"), world.folder.path().to_owned()] {
        let outcome = salvage(&nothing, &target, &options, &*host, &mut |_| {});
        assert!(matches!(outcome, Err(SalvageError::Read { .. })), "{outcome:?}");
    }
    assert!(!target.exists());
}

#[test]
fn a_later_format_and_a_target_that_exists_are_refused() {
    let world = World::crashed();
    let (source, target) = (world.path("source"), world.path("target"));
    fs::write(&source, &world.image).unwrap();
    fs::write(&target, b"precious").unwrap();
    let host = HandHost::new();
    let options = SalvageOptions::default();
    let outcome = salvage(&source, &target, &options, &*host, &mut |_| {});
    assert!(matches!(outcome, Err(SalvageError::Exists { .. })), "{outcome:?}");
    assert_eq!(fs::read(&target).unwrap(), b"precious");

    let mut later = world.image.clone();
    later[16] = 99;
    let sum = crc32c(&later[..32]);
    later[32..36].copy_from_slice(&sum.to_le_bytes());
    fs::write(&source, &later).unwrap();
    let outcome = world.salvage(&source, &target);
    assert!(
        matches!(outcome, Err(SalvageError::NewerFormat { found: 99, .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_store_that_is_open_is_refused() {
    let world = World::closed();
    let (source, target) = (world.path("source"), world.path("target"));
    fs::write(&source, &world.image).unwrap();
    let host = HandHost::new();
    let journal = RedbJournal::open(&source, JournalConfig::default(), host.clone()).unwrap();
    let options = SalvageOptions::default();
    let outcome = salvage(&source, &target, &options, &*host, &mut |_| {});
    assert!(matches!(outcome, Err(SalvageError::InUse { .. })), "{outcome:?}");
    assert!(!target.exists());
    drop(journal);
}

/// Killed at any moment, a salvage leaves nothing that looks complete: the target has another name until
/// all of it is durable, and what is left of it is made anew.
#[test]
fn a_salvage_that_is_cut_off_leaves_no_target() {
    let world = World::crashed();
    let (source, target, draft) = (
        world.path("source"),
        world.path("target"),
        world.path("target.new"),
    );
    fs::write(&source, &world.image).unwrap();
    let options = SalvageOptions::default();
    let mut seen = Vec::new();
    let host = HandHost::new();
    let mut look = |progress: millrun_persistence::SalvageProgress| {
        assert!(!target.exists(), "it is not there before its end");
        assert!(progress.bytes_done <= progress.bytes_total);
        seen.push((progress.is_writing, draft.exists()));
    };
    salvage(&source, &target, &options, &*host, &mut look).unwrap();
    assert!(
        seen.contains(&(false, false)) && seen.contains(&(true, true)),
        "{seen:?}"
    );
    assert!(target.exists() && !draft.exists());

    // What a salvage that was killed has left is in nobody's way.
    fs::remove_file(&target).unwrap();
    fs::write(&draft, b"half of something").unwrap();
    salvage(&source, &target, &options, &*host, &mut |_| {}).unwrap();
    assert_eq!(world.read(&target), (world.runs.clone(), world.closed.clone()));
}

#[test]
fn with_little_memory_the_source_is_read_several_times_and_as_much_comes_back() {
    let world = World::crashed();
    let (source, target) = (world.path("source"), world.path("target"));
    fs::write(&source, &world.image).unwrap();
    let host = HandHost::new();
    let mut options = SalvageOptions::default();
    options.index_bytes_max = 1 << 20;
    let report = loop {
        options.index_bytes_max = options.index_bytes_max / 4 * 3;
        let report = salvage(&source, &target, &options, &*host, &mut |_| {}).unwrap();
        if report.passes > 1 {
            break report;
        }
        fs::remove_file(&target).unwrap();
    };
    assert_eq!(report.live_runs + report.finished_runs, world.runs.len() as u64);
    let (runs, _) = world.read(&target);
    assert_eq!(runs, world.runs);

    fs::remove_file(&target).unwrap();
    options.index_bytes_max = 100;
    let outcome = salvage(&source, &target, &options, &*host, &mut |_| {});
    assert!(
        matches!(outcome, Err(SalvageError::TooLarge { bytes: 100, .. })),
        "{outcome:?}"
    );
    assert!(!target.exists() && !world.path("target.new").exists());
}

/// crc32c, bit by bit: nothing of the store's.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}
