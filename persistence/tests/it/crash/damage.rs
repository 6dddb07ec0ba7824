//! One damaged region, anywhere in the frames and pieces of a store that was closed in good order.
//!
//! The story: one flipped bit in the run id of a run's last record made an acknowledged event vanish. The
//! frame was damage of a run that does not exist, and what was left of the run passed for a shorter
//! history; the next signal took the event's place. The suite beside this one did not find it, because it
//! took any report of damage anywhere for notice, and asked of no run whether it was named.
//!
//! So here every run is asked: it is exactly what was acknowledged, or it is quarantined, which means that
//! the report names it, its history gives the damage, nothing is appended to it, and its instance's id is
//! taken. A store that cannot be opened at all says so. redb checks no page when it reads, so that a row is
//! damaged where it stands in the file; rows go missing through redb itself.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};

use millrun_core::{Partition, RunId};
use millrun_persistence::contract::Author;
use millrun_persistence::{Journal, ReadError, Reads, RedbJournal, StoreError, TurnRefused};
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};

use super::disk::{Dice, SimDisk};
use super::workload::{Record, open, open_settling, open_short_settling};
use crate::host::HandHost;

type Open = fn(Arc<dyn millrun_persistence::Disk>, &Arc<HandHost>) -> Result<RedbJournal, StoreError>;

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("millrun.log");
const KEPT: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("millrun.kept");
const KEPT_MORE: TableDefinition<'_, (u128, u64), &[u8]> = TableDefinition::new("millrun.kept.more");
const INVENTORY: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("millrun.inventory");
const KEPT_HEADS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("millrun.kept.heads");

/// What stands before redb's own file.
const FIRST_PAGE: usize = 4_096;
const SECTOR: usize = 512;
const PAGE: usize = 4_096;

/// redb's part of an image.
#[derive(Clone, Debug)]
struct Image(Arc<Mutex<Vec<u8>>>);

impl StorageBackend for Image {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        out.copy_from_slice(&self.0.lock().unwrap()[at..at + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        self.0.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }
}

/// What `work` does to the tables of a store, and what it gives.
fn through_redb<T>(image: &mut Vec<u8>, work: impl FnOnce(&Database) -> T) -> T {
    let inner = Image(Arc::new(Mutex::new(image[FIRST_PAGE..].to_vec())));
    let db = Database::builder().create_with_backend(inner.clone()).unwrap();
    let outcome = work(&db);
    drop(db);
    image.truncate(FIRST_PAGE);
    image.extend_from_slice(&inner.0.lock().unwrap());
    outcome
}

/// A store that was closed in good order, and what is to be found in it.
struct Sound {
    open: Open,
    image: Vec<u8>,
    /// Runs that are retained.
    authors: Vec<Author>,
    /// All that there ever were.
    known: BTreeSet<RunId>,
}

impl Sound {
    /// Works on a store until enough has happened.
    fn new(open: Open, mut record: Record, batches: usize, seed: u64) -> Self {
        let host = HandHost::new();
        let disk = SimDisk::new(Vec::new(), 1);
        let journal = open(disk.clone(), &host).unwrap();
        record.resume(&journal, 0);
        let mut dice = Dice::new(seed);
        for _ in 0..batches {
            assert!(record.enqueue(&journal, &mut dice));
            host.run();
        }
        journal.begin_close();
        host.run();
        Self::of(open, disk.current(), record.authors())
    }

    fn of(open: Open, image: Vec<u8>, authors: &[Author]) -> Self {
        let mut sound = Self {
            open,
            image,
            authors: Vec::new(),
            known: authors.iter().map(|author| author.run).collect(),
        };
        let host = HandHost::new();
        let journal = open(SimDisk::new(sound.image.clone(), 2), &host).unwrap();
        let is_retained = |author: &&Author| journal.history(author.run).is_ok();
        sound.authors = authors.iter().filter(is_retained).cloned().collect();
        assert!(!sound.authors.is_empty());
        sound.look(sound.image.clone(), "nothing is damaged", &mut Found::default());
        sound
    }

    /// A store of the same runs of which no turn is listed, as an earlier release has left it.
    fn unlisted(&self) -> Self {
        let mut image = self.image.clone();
        through_redb(&mut image, |db| {
            let txn = db.begin_write().unwrap();
            txn.delete_table(INVENTORY).unwrap();
            txn.delete_table(KEPT_HEADS).unwrap();
            txn.commit().unwrap();
        });
        Self::of(self.open, image, &self.authors)
    }

    /// The store after this release has written to it, and closed it in good order.
    fn written_to(&self) -> Self {
        let (image, author) = self.write_on(self.image.clone());
        let mut authors = self.authors.clone();
        authors.push(author);
        Self::of(self.open, image, &authors)
    }

    /// Opens an image, appends a turn, and closes it in good order.
    fn write_on(&self, image: Vec<u8>) -> (Vec<u8>, Author) {
        let (host, disk) = (HandHost::new(), SimDisk::new(image, 2));
        let journal = (self.open)(disk.clone(), &host).unwrap();
        let mut author = Author::new(&journal, "written today", 1 << 40);
        let enqueued = journal.enqueue(&author.batch(&[b"today"], false)).unwrap();
        assert_eq!(enqueued.refused, []);
        host.run();
        journal.begin_close();
        host.run();
        (disk.current(), author)
    }

    /// Opens a damaged image: each run is what was acknowledged, or is quarantined.
    fn look(&self, image: Vec<u8>, what: &str, found: &mut Found) {
        let host = HandHost::new();
        let disk = SimDisk::new(image, 2);
        let Ok(journal) = (self.open)(disk, &host) else {
            found.refused += 1;
            return;
        };
        let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
        let epoch = journal.take_over(&all).unwrap();
        let report = journal.recover(&mut [&mut |_| {}], &mut |_| {}).unwrap();
        let named: BTreeSet<RunId> = report.damaged.iter().filter_map(run_of).collect();
        let (mut hit, mut only_read) = (BTreeSet::new(), 0);
        for author in &self.authors {
            let (id, run) = (&author.id, author.run);
            let finished = journal.finished(id);
            match journal.history(run) {
                Ok(history) => {
                    let bodies = history.records.iter().map(|record| record.body.to_vec());
                    assert_eq!(
                        bodies.collect::<Vec<_>>(),
                        author.left(),
                        "{what}: {id} is not whole"
                    );
                    let kept = history.trimmed.as_ref().map(|trimmed| &trimmed.kept[..]);
                    let is_trimmed = author.trimmed > 0;
                    assert_eq!(kept, is_trimmed.then(|| author.kept()).as_deref(), "{what}: {id}");
                    assert!(!named.contains(&run), "{what}: {id} is whole, and reported");
                    match finished {
                        // It may have had a run that is lost; that it is live is known before.
                        Err(ReadError::Damaged { run: of, .. }) if of != Some(run) => {
                            assert!(!history.is_closed(), "{what}: {id}");
                        }
                        finished => {
                            let is_finished = finished.unwrap().is_some_and(|finished| finished.run == run);
                            assert_eq!(is_finished, history.is_closed(), "{what}: {id}");
                        }
                    }
                }
                Err(ReadError::Damaged { run: Some(of), .. }) if of == run => {
                    // Damage that is found only where the run is read is reported there.
                    let is_read = !named.contains(&run);
                    only_read += usize::from(is_read);
                    assert!(!is_read || found.may_be_read, "{what}: {id} is not named");
                    assert!(
                        is_read || matches!(finished, Err(ReadError::Damaged { .. })),
                        "{what}: the id {id} is free: {finished:?}"
                    );
                    if !is_read {
                        let mut author = author.clone();
                        author.epoch = epoch;
                        let enqueued = journal.enqueue(&author.batch(&[b"more"], false)).unwrap();
                        assert_eq!(
                            enqueued.refused[0].error,
                            TurnRefused::Quarantined,
                            "{what}: {id}"
                        );
                    }
                    hit.insert(run);
                }
                // Nothing at all is left of it, and nothing lists it: then its id is taken all the same.
                Err(ReadError::UnknownRun { .. } | ReadError::Damaged { run: None, .. })
                    if found.may_be_unknown =>
                {
                    assert!(
                        matches!(finished, Err(ReadError::Damaged { .. })),
                        "{what}: {id} is free"
                    );
                    hit.insert(run);
                }
                Err(error) => panic!("{what}: {id}: {error}"),
            }
        }
        assert!(
            named.is_subset(&self.known),
            "{what}: a run is named that there is not"
        );
        assert!(
            hit.len() == only_read || !report.damaged.is_empty(),
            "{what}: nothing says so"
        );
        // The image is let go of: there are thousands.
        journal.begin_close();
        host.run();
        found.whole += usize::from(hit.is_empty());
        found.hit_most = found.hit_most.max(hit.len());
        found.hit += usize::from(!hit.is_empty());
    }

    /// Where the rows of a table stand in the image, by their bytes: of large rows every copy.
    fn places(&self, rows: &[Vec<u8>]) -> Vec<Vec<usize>> {
        let places = |row: &Vec<u8>| {
            let head = &row[..row.len().min(24)];
            let starts = memchr_all(&self.image, head);
            let starts = starts.filter(|at| self.image[*at..].starts_with(row));
            starts.collect::<Vec<_>>()
        };
        rows.iter().map(places).collect()
    }

    /// All rows that hold turns.
    fn rows(&self) -> Vec<Vec<u8>> {
        let mut image = self.image.clone();
        through_redb(&mut image, |db| {
            let txn = db.begin_read().unwrap();
            let mut rows = Vec::new();
            for row in txn.open_table(LOG).unwrap().iter().unwrap() {
                rows.push(row.unwrap().1.value().to_vec());
            }
            for row in txn.open_table(KEPT).unwrap().iter().unwrap() {
                rows.push(row.unwrap().1.value().to_vec());
            }
            for row in txn.open_table(KEPT_MORE).unwrap().iter().unwrap() {
                rows.push(row.unwrap().1.value().to_vec());
            }
            rows
        })
    }

    /// Damages each part of each row of turns, as `damage` says: the row's bytes, where they stand in
    /// the page, and the dice.
    fn damage_rows(
        &self,
        found: &mut Found,
        dice: &mut Dice,
        parts: impl Fn(usize, usize, &mut Dice) -> Vec<(usize, usize)>,
        damage: impl Fn(&mut [u8], &mut Dice),
    ) {
        let rows = self.rows();
        let places = self.places(&rows);
        for (number, (row, copies)) in rows.iter().zip(&places).enumerate() {
            let Some(first) = copies.first() else {
                panic!("row {number} of {} bytes is not in the file", row.len())
            };
            for (from, to) in parts(*first, row.len(), dice) {
                let mut bad = row.clone();
                damage(&mut bad[from..to], dice);
                if bad == *row {
                    continue;
                }
                let mut image = self.image.clone();
                for at in copies {
                    image[*at..*at + row.len()].copy_from_slice(&bad);
                }
                self.look(
                    image,
                    &format!("row {number}, bytes {from}..{to} of {}", row.len()),
                    found,
                );
            }
        }
    }
}

/// What was found, and what may be.
#[derive(Debug, Default)]
struct Found {
    /// Images in which all runs are whole,
    whole: usize,
    /// in which one is not, or several, and how many at most,
    hit: usize,
    hit_most: usize,
    /// and which are not opened.
    refused: usize,
    /// A run may be lost without a trace: its turns are not listed.
    may_be_unknown: bool,
    /// A run may be damaged only where it is read.
    may_be_read: bool,
}

fn run_of(error: &ReadError) -> Option<RunId> {
    match error {
        ReadError::Damaged { run, .. } => *run,
        _ => None,
    }
}

fn memchr_all<'a>(image: &'a [u8], head: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let last = image.len().saturating_sub(head.len());
    (0..=last).filter(move |at| image[*at] == head[0] && image[*at..].starts_with(head))
}

/// Every byte.
fn bytes(_: usize, len: usize, _: &mut Dice) -> Vec<(usize, usize)> {
    (0..len).map(|at| (at, at + 1)).collect()
}

/// Some bytes of each row, more where it begins: there stand the headers.
fn some_bytes(_: usize, len: usize, dice: &mut Dice) -> Vec<(usize, usize)> {
    let some = |dice: &mut Dice, below: usize| usize::try_from(dice.below(below as u64)).unwrap();
    let mut starts: Vec<_> = (0..3).map(|_| some(dice, len)).collect();
    starts.extend((0..4).map(|_| some(dice, len.min(200))));
    starts.into_iter().map(|at| (at, at + 1)).collect()
}

/// The parts of a row that stand in one aligned block of the file.
fn blocks(size: usize) -> impl Fn(usize, usize, &mut Dice) -> Vec<(usize, usize)> {
    move |at, len, _| {
        let (first, last) = (at / size, (at + len - 1) / size);
        let part = |block: usize| {
            (
                (block * size).max(at) - at,
                ((block + 1) * size).min(at + len) - at,
            )
        };
        (first..=last).map(part).collect()
    }
}

fn flip(part: &mut [u8], dice: &mut Dice) {
    part[0] ^= 1 << dice.below(8);
}

fn garble(part: &mut [u8], dice: &mut Dice) {
    part.fill_with(|| dice.roll().to_le_bytes()[0]);
}

fn zero(part: &mut [u8], _: &mut Dice) {
    part.fill(0);
}

fn small() -> Sound {
    Sound::new(open, Record::tiny(), 12, 4)
}

fn in_the_log() -> Sound {
    Sound::new(open, Record::new(), 40, 11)
}

fn settled() -> Sound {
    Sound::new(open_settling, Record::new(), 60, 12)
}

fn short() -> Sound {
    Sound::new(open_short_settling, Record::short(), 80, 13)
}

/// Stores in which runs were trimmed: what they were trimmed of still stands there, or has left.
fn trimmed() -> [Sound; 4] {
    [
        Sound::new(open, Record::tiny().trimming(), 14, 5),
        Sound::new(open, Record::new().trimming(), 50, 15),
        Sound::new(open_settling, Record::new().trimming(), 80, 16),
        Sound::new(open_short_settling, Record::short().trimming(), 90, 17),
    ]
}

/// What a run was trimmed of may be damaged at will; the turn that has trimmed it may not.
#[test]
fn damage_to_stores_of_trimmed_runs_leaves_each_run_whole_or_quarantined() {
    for (seed, store) in (30..).zip(trimmed()) {
        assert!(store.authors.iter().any(|author| author.trimmed > 0));
        let mut dice = Dice::new(seed);
        let mut found = Found {
            may_be_read: true,
            ..Found::default()
        };
        store.damage_rows(&mut found, &mut dice, some_bytes, flip);
        assert!(found.hit > 20 && found.hit_most == 1, "{found:?}");
        for size in [SECTOR, PAGE] {
            store.damage_rows(&mut found, &mut dice, blocks(size), zero);
            store.damage_rows(&mut found, &mut dice, blocks(size), garble);
        }
        without_rows(&store, LOG, &mut found);
        without_rows(&store, KEPT, &mut found);
        without_rows(&store, KEPT_MORE, &mut found);
        let mut second = Found::default();
        without_rows(&store, INVENTORY, &mut second);
        without_rows(&store, KEPT_HEADS, &mut second);
        assert!(second.hit == 0, "{second:?}");
    }
}

#[test]
fn any_flipped_bit_of_a_log_leaves_each_run_whole_or_quarantined() {
    let (store, mut dice, mut found) = (small(), Dice::new(1), Found::default());
    store.damage_rows(&mut found, &mut dice, bytes, flip);
    assert!(found.hit > 500 && found.hit_most == 1, "{found:?}");
    // The pages of redb are sound: only what stands in them is not.
    assert_eq!(found.refused, 0);
}

#[test]
fn any_garbled_byte_of_a_log_leaves_each_run_whole_or_quarantined() {
    let (store, mut dice, mut found) = (small(), Dice::new(2), Found::default());
    store.damage_rows(&mut found, &mut dice, bytes, garble);
    assert!(found.hit > 500 && found.hit_most == 1, "{found:?}");
}

#[test]
fn flipped_bits_in_settled_stores_leave_each_run_whole_or_quarantined() {
    for (seed, store) in (3..).zip([in_the_log(), settled(), short()]) {
        let mut dice = Dice::new(seed);
        let mut found = Found {
            may_be_read: true,
            ..Found::default()
        };
        store.damage_rows(&mut found, &mut dice, some_bytes, flip);
        assert!(found.hit > 100 && found.hit_most == 1, "{found:?}");
    }
}

#[test]
fn lost_sectors_and_pages_leave_each_run_whole_or_quarantined() {
    for (seed, store) in (6..).zip([small(), in_the_log(), settled(), short()]) {
        let mut dice = Dice::new(seed);
        let mut found = Found {
            may_be_read: true,
            ..Found::default()
        };
        for size in [SECTOR, PAGE] {
            store.damage_rows(&mut found, &mut dice, blocks(size), zero);
            store.damage_rows(&mut found, &mut dice, blocks(size), garble);
        }
        assert!(found.hit > 10, "{found:?}");
    }
}

/// Nothing but the frames' headers and back-pointers says whose the records are.
#[test]
fn damage_to_a_store_of_an_earlier_format_is_put_down_to_all_runs_that_it_can_be_of() {
    let (store, mut dice) = (small().unlisted(), Dice::new(20));
    let mut found = Found {
        may_be_unknown: true,
        may_be_read: true,
        ..Found::default()
    };
    store.damage_rows(&mut found, &mut dice, bytes, flip);
    assert!(found.hit > 500 && found.hit_most <= 1, "{found:?}");
    for size in [SECTOR, PAGE] {
        store.damage_rows(&mut found, &mut dice, blocks(size), zero);
        store.damage_rows(&mut found, &mut dice, blocks(size), garble);
    }
    for (seed, store) in (21..).zip([in_the_log(), settled()]) {
        let mut dice = Dice::new(seed);
        store
            .unlisted()
            .damage_rows(&mut found, &mut dice, some_bytes, flip);
    }
}

/// With its first commit this release lists the turns of an earlier one.
#[test]
fn a_store_of_an_earlier_format_is_guarded_from_the_first_commit_on() {
    for (seed, store) in (30..).zip([small(), settled()]) {
        let (store, mut dice) = (store.unlisted().written_to(), Dice::new(seed));
        let mut found = Found {
            may_be_read: true,
            ..Found::default()
        };
        store.damage_rows(&mut found, &mut dice, some_bytes, flip);
        store.damage_rows(&mut found, &mut dice, blocks(SECTOR), zero);
        assert!(found.hit > 20, "{found:?}");
    }
}

/// What was found damaged is so at every later opening, whatever has been written and listed since.
#[test]
fn damage_is_not_forgotten_when_the_store_is_written_to() {
    for (seed, store) in (40..).zip([small(), small().unlisted()]) {
        let (rows, mut dice) = (store.rows(), Dice::new(seed));
        let places = store.places(&rows);
        let mut found = Found {
            may_be_unknown: true,
            ..Found::default()
        };
        for (row, copies) in rows.iter().zip(&places) {
            for at in (16..row.len()).step_by(5) {
                let bit = 1 << dice.below(8);
                let mut image = store.image.clone();
                for copy in copies {
                    image[copy + at] ^= bit;
                }
                let mut known = Sound {
                    open: store.open,
                    image: Vec::new(),
                    authors: store.authors.clone(),
                    known: store.known.clone(),
                };
                let before = found.hit;
                known.look(image.clone(), "damaged", &mut found);
                let is_hit = found.hit > before;
                let (image, author) = store.write_on(image);
                known.known.insert(author.run);
                let before = found.hit;
                known.look(image, "damaged, and written to", &mut found);
                assert_eq!(found.hit > before, is_hit, "byte {at} of {}", row.len());
            }
        }
        assert!(found.hit > 100, "{found:?}");
    }
}

/// Takes each row of a table away, one at a time.
fn without_rows<K: redb::Key + 'static>(
    store: &Sound,
    table: TableDefinition<'_, K, &'static [u8]>,
    found: &mut Found,
) {
    let mut number = 0;
    loop {
        let mut image = store.image.clone();
        let has_removed = through_redb(&mut image, |db| {
            let txn = db.begin_write().unwrap();
            let mut at = 0;
            let removed = {
                let mut table = txn.open_table(table).unwrap();
                let mut removed = table
                    .extract_if(|_, _| {
                        at += 1;
                        at == number + 1
                    })
                    .unwrap();
                removed.by_ref().map(Result::unwrap).count()
            };
            txn.commit().unwrap();
            removed == 1
        });
        if !has_removed {
            return;
        }
        store.look(image, &format!("row {number} of {table} is missing"), found);
        number += 1;
    }
}

#[test]
fn missing_rows_leave_each_run_whole_or_quarantined() {
    for store in [small(), in_the_log(), settled(), short()] {
        let mut found = Found {
            may_be_read: true,
            ..Found::default()
        };
        without_rows(&store, LOG, &mut found);
        without_rows(&store, KEPT, &mut found);
        without_rows(&store, KEPT_MORE, &mut found);
        assert!(found.hit > 3, "{found:?}");
        // What says of the turns a second time may be lost: the turns are there.
        let mut found = Found::default();
        without_rows(&store, INVENTORY, &mut found);
        without_rows(&store, KEPT_HEADS, &mut found);
        assert!(found.whole > 0 && found.hit == 0, "{found:?}");
    }
}
