//! Reads what redb's trees still tell: where current rows are, and what cannot be known.
//!
//! ```text
//!   latest slot ─► tables ─┬─► log, kept, kept2 ─► extents: current rows are in here, others are stale
//!                          │                   └─► unread: keys whose rows may be anywhere
//!                          ├─► meta ─► low, opens
//!                          └─► manifest, closed ─► which finished runs are retained
//! ```
//!
//! A page that its parent's checksum confirms is current. A page that it does not confirm is damaged, and still current if
//! the parent is undamaged; below a damaged parent only confirmed pages are trusted.
//!
//! Invariants: a hint decides which of several copies is used and whether a run was dropped; it never creates a record. Any
//! bytes give hints, in time linear in the file: no page is read twice.

use std::ops::RangeInclusive;

use millrun_core::RunId;
use rustc_hash::FxHashSet;

use super::pages::{self, Page, Pointer, Widths};
use super::source::{Bytes, Window};
use crate::wire::settled::{self, Manifest};
use crate::wire::superblock;
use crate::wire::{inventory, kept_head};

const SHIFT: u64 = superblock::BYTES as u64;
/// The deepest tree that is followed.
const DEPTH_MAX: usize = 24;
/// A larger page is the value of a single row; it is not read for a hint.
const CHECKED_BYTES_MAX: usize = 64 << 20;

/// The tables of turns that were moved out of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Kept,
    More,
}

/// What is known of a table that holds turns.
#[derive(Debug, Default)]
pub(crate) struct HintRows {
    /// The keys whose rows could not be looked up.
    unread: Vec<RangeInclusive<u128>>,
    /// One more than the greatest key that was looked up.
    behind: u128,
    /// From this key on there may be rows that no slot leads to.
    tail: Option<u128>,
}

impl HintRows {
    /// Whether a row with this key may be current although no tree leads to it.
    pub(crate) fn may_hold(&self, key: u128) -> bool {
        self.unread.iter().any(|range| range.contains(&key)) || self.tail.is_some_and(|tail| key >= tail)
    }

    /// Whether nothing at all is known.
    fn is_unknown(&self) -> bool {
        self.unread.contains(&(0..=u128::MAX))
    }

    /// Whether all its current rows are known.
    pub(crate) fn is_whole(&self) -> bool {
        self.unread.is_empty() && self.tail.is_none()
    }

    /// Whether the last rows cannot be read, where `greatest` is the greatest key that was found.
    pub(crate) fn is_end_missing(&self, greatest: u128) -> bool {
        let mut to_end = self.unread.iter().filter(|range| *range.end() == u128::MAX);
        to_end.any(|range| *range.start() == 0 || *range.start() >= greatest)
    }
}

/// What is known of the file without reading its frames.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// Whether the store was closed properly.
    pub(crate) is_clean: bool,
    /// Whether the latest of redb's two commit slots was found undamaged, or seems so.
    pub(crate) slots: usize,
    /// Where current leaves are in the file, in order.
    extents: Vec<Extent>,
    /// How many pages lie beyond the end of the file.
    cut_off: u64,
    pub(crate) log: HintRows,
    pub(crate) kept: HintRows,
    pub(crate) more: HintRows,
    /// Where the log begins.
    pub(crate) low: Option<u64>,
    pub(crate) opens: Option<u64>,
    pub(crate) settled: SettledHint,
    pub(crate) second: Second,
}

/// What the log's inventory and the heads of kept runs tell: which records there were.
#[derive(Debug, Default)]
pub(crate) struct Second {
    /// The last record of each run that is listed, and whether the run ends with it; by run.
    runs: Vec<(RunId, u32, bool)>,
    /// Whether all turns below `to` are listed.
    is_whole: bool,
    to: u64,
}

impl Second {
    /// The last record of a run that is listed, and whether the run ends with it.
    pub(crate) fn last(&self, run: RunId) -> Option<(u32, bool)> {
        let index = self.runs.binary_search_by_key(&run, |(run, ..)| *run).ok()?;
        let (_, last, closes) = self.runs[index];
        Some((last, closes))
    }

    /// All runs that are listed.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (RunId, u32, bool)> {
        self.runs.iter().copied()
    }

    /// Whether every run that lost records before this position of the log is known by name.
    pub(crate) fn has_all_below(&self, position: u64) -> bool {
        self.is_whole && position <= self.to
    }

    fn add(&mut self, run: RunId, last: u32, closes: bool) {
        self.runs.push((run, last, closes));
        // One entry for each run is enough.
        if self.runs.len() == self.runs.capacity() {
            self.keep_last();
            self.runs.reserve(self.runs.len());
        }
    }

    fn keep_last(&mut self) {
        self.runs
            .sort_unstable_by_key(|(run, last, _)| (*run, std::cmp::Reverse(*last)));
        self.runs.dedup_by_key(|(run, ..)| *run);
    }
}

/// A current leaf of turns and its place in the file.
#[derive(Clone, Copy, Debug)]
struct Extent {
    from: u64,
    to: u64,
    /// How wide its keys are.
    width: usize,
}

/// Which finished runs are settled and retained.
#[derive(Debug, Default)]
pub(crate) enum SettledHint {
    /// Not known.
    #[default]
    Unknown,
    /// No run is settled.
    Nothing,
    Known {
        /// Runs whose closing turn begins before this position are settled, or were dropped.
        position: u64,
        /// The number of the earliest retained run.
        first: u64,
        /// The runs that are listed with their numbers, by run; some of them were dropped.
        runs: Vec<(RunId, u64)>,
        /// The same by hash, if not all are known by run.
        hashes: Vec<(u64, u64)>,
        /// Whether all retained runs are listed.
        is_whole: bool,
        /// Whether this is the latest state of the index.
        is_current: bool,
    },
}

impl Hints {
    /// The number of current leaves of turns in which nothing was found: `has_any` says whether something was found between
    /// two places.
    pub(crate) fn count_lost(&self, has_any: impl Fn(u64, u64) -> bool) -> u64 {
        let lost = self
            .extents
            .iter()
            .filter(|extent| !has_any(extent.from, extent.to));
        lost.count() as u64 + self.cut_off
    }

    /// Whether a byte of the file is part of a current row of turns.
    pub(crate) fn is_current(&self, at: u64) -> bool {
        self.key_width(at).is_some()
    }

    /// How wide the keys are in the current leaf that this byte is part of.
    pub(crate) fn key_width(&self, at: u64) -> Option<usize> {
        let behind = self.extents.partition_point(|extent| extent.from <= at);
        let extent = self.extents.get(behind.checked_sub(1)?)?;
        (at < extent.to).then_some(extent.width)
    }

    /// Whether nothing at all is known of a table of turns.
    pub(crate) fn is_any_unknown(&self) -> bool {
        self.log.is_unknown() || self.kept.is_unknown() || self.more.is_unknown()
    }

    /// Whether all current rows of turns are known.
    pub(crate) fn is_whole(&self) -> bool {
        self.log.is_whole() && self.kept.is_whole() && self.more.is_whole()
    }

    /// Memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let settled = match &self.settled {
            SettledHint::Known { runs, hashes, .. } => {
                runs.capacity() * size_of::<(RunId, u64)>() + hashes.capacity() * size_of::<(u64, u64)>()
            }
            SettledHint::Unknown | SettledHint::Nothing => 0,
        };
        let second = self.second.runs.capacity() * size_of::<(RunId, u32, bool)>();
        self.extents.capacity() * size_of::<Extent>() + settled + second
    }
}

/// What the index tells of a finished run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListedHint {
    Retained { number: u64 },
    Dropped,
}

impl SettledHint {
    /// What the index lists for a run; `None` if nothing.
    pub(crate) fn listed(&self, run: RunId) -> Option<ListedHint> {
        let Self::Known {
            first, runs, hashes, ..
        } = self
        else {
            return None;
        };
        let number = match runs.binary_search_by_key(&run, |(run, _)| *run) {
            Ok(index) => runs[index].1,
            Err(_) => {
                let hash = settled::run_hash(run);
                let index = hashes.binary_search_by_key(&hash, |(hash, _)| *hash).ok()?;
                hashes[index].1
            }
        };
        Some(if number < *first {
            ListedHint::Dropped
        } else {
            ListedHint::Retained { number }
        })
    }
}

/// Reads what can be read.
pub(crate) fn read<B: Bytes + ?Sized>(bytes: &B) -> Hints {
    let mut walk = Walk {
        window: Window::of(bytes, 16 << 10),
        seen: FxHashSet::default(),
        cut_off: 0,
    };
    let header = pages::header(walk.window.get(SHIFT, pages::HEADER_BYTES));
    let mut hints = Hints {
        is_clean: header.is_clean,
        slots: header.slots.len(),
        ..Hints::default()
    };
    let all = || vec![0..=u128::MAX];
    let Some(slot) = header.slots.first() else {
        for rows in [&mut hints.log, &mut hints.kept, &mut hints.more] {
            rows.unread = all();
        }
        return hints;
    };
    let mut tables = HintTables::default();
    match slot.tables {
        Some(root) => walk.tables(root, &mut tables),
        None => tables.is_whole = true,
    }
    hints.log = walk.rows(&tables, "millrun.log", 8, &mut hints.extents);
    hints.kept = walk.rows(&tables, "millrun.kept", 16, &mut hints.extents);
    hints.more = walk.rows(&tables, "millrun.kept.more", 24, &mut hints.extents);
    hints.extents.sort_unstable_by_key(|extent| extent.from);
    if hints.slots < 2 && !hints.is_clean {
        // The other slot may have been the later one: its commit comes after this.
        hints.log.tail = Some(hints.log.behind);
    }
    hints.cut_off = walk.cut_off;
    hints.second = walk.second(&tables);
    walk.meta(&tables, &mut hints);
    hints.settled = walk.settled(&tables);
    hints
}

/// The tables that were found.
#[derive(Debug, Default)]
struct HintTables {
    /// With their roots, and whether these are certain.
    found: Vec<(String, Option<(Pointer, bool)>)>,
    /// Whether the whole tree could be read.
    is_whole: bool,
}

impl HintTables {
    /// The root of a table; `Err` if nothing is known of it.
    fn root(&self, name: &str) -> Result<Option<(Pointer, bool)>, ()> {
        let found = self.found.iter().find(|(found, _)| found == name);
        match found {
            Some((_, root)) => Ok(*root),
            None if self.is_whole => Ok(None),
            None => Err(()),
        }
    }
}

struct Walk<'a, B: Bytes + ?Sized> {
    window: Window<'a, B>,
    seen: FxHashSet<u64>,
    /// Pages beyond the end of the file.
    cut_off: u64,
}

/// What a walk over a table finds: a leaf, with whether its checksum holds, or a range of keys about which nothing is known.
enum FoundHint<'a> {
    Leaf {
        pointer: Pointer,
        /// Its contents, if its parts can be separated.
        leaf: Option<pages::Leaf<'a>>,
        /// Whether its sum holds.
        is_sound: bool,
        span: HintSpan,
    },
    Unread(HintSpan),
}

/// Keys from one to another, both included, where known.
type HintSpan = (Option<Vec<u8>>, Option<Vec<u8>>);

impl<B: Bytes + ?Sized> Walk<'_, B> {
    /// Calls `found` for each leaf below a page. `is_sure` says that the page is the intended one, whatever its contents.
    fn each(
        &mut self,
        (pointer, is_sure): (Pointer, bool),
        widths: Widths,
        span: HintSpan,
        depth: usize,
        found: &mut dyn FnMut(FoundHint<'_>),
    ) {
        let end = pointer
            .at
            .saturating_add(SHIFT)
            .saturating_add(pointer.bytes as u64);
        let is_readable = depth < DEPTH_MAX && end <= self.window.len() && pointer.bytes <= CHECKED_BYTES_MAX;
        self.cut_off += u64::from(is_sure && end > self.window.len());
        if !is_readable || !self.seen.insert(pointer.at) {
            return found(FoundHint::Unread(span));
        }
        let bytes = self.window.get(pointer.at + SHIFT, pointer.bytes);
        let page = pages::read(bytes, widths);
        let is_sound = page
            .as_ref()
            .is_some_and(|page| page.checksum() == pointer.checksum);
        if !is_sound && !is_sure {
            return found(FoundHint::Unread(span));
        }
        match page {
            Some(Page::Leaf(leaf)) => found(FoundHint::Leaf {
                pointer,
                leaf: Some(leaf),
                is_sound,
                span,
            }),
            Some(Page::Branch(branch)) => {
                let children: Vec<_> = branch
                    .children()
                    .map(|(child, (before, behind))| {
                        let from = before.map(<[u8]>::to_vec).or_else(|| span.0.clone());
                        let to = behind.map(<[u8]>::to_vec).or_else(|| span.1.clone());
                        (child, (from, to))
                    })
                    .collect();
                for (child, span) in children {
                    match child {
                        Some(child) => self.each((child, is_sound), widths, span, depth + 1, found),
                        None => found(FoundHint::Unread(span)),
                    }
                }
            }
            // It may be a leaf or a branch; its rows are inside of it either way.
            None => found(FoundHint::Leaf {
                pointer,
                leaf: None,
                is_sound,
                span,
            }),
        }
    }

    fn tables(&mut self, root: Pointer, tables: &mut HintTables) {
        tables.is_whole = true;
        let mut add = |found: FoundHint<'_>| {
            let FoundHint::Leaf {
                leaf: Some(leaf),
                is_sound,
                ..
            } = found
            else {
                tables.is_whole = false;
                return;
            };
            tables.is_whole &= is_sound;
            for (name, definition) in leaf.entries() {
                let name = String::from_utf8_lossy(name).into_owned();
                match pages::table(definition) {
                    // In a damaged leaf, a root is trusted if its own checksum confirms it.
                    Some(table) if is_sound || table.root.is_some() => {
                        let root = table.root.map(|root| (root, is_sound));
                        tables.found.push((name, root));
                    }
                    Some(_) | None => tables.is_whole = false,
                }
            }
        };
        self.each((root, true), pages::TABLES, (None, None), 0, &mut add);
    }

    fn rows(&mut self, tables: &HintTables, name: &str, width: usize, extents: &mut Vec<Extent>) -> HintRows {
        let widths = Widths {
            key: Some(width),
            value: None,
        };
        let mut rows = HintRows::default();
        match tables.root(name) {
            Ok(None) => {}
            Err(()) => rows.unread.push(0..=u128::MAX),
            Ok(Some(root)) => self.each(root, widths, (None, None), 0, &mut |found| match found {
                FoundHint::Leaf {
                    pointer,
                    leaf,
                    is_sound,
                    span,
                } => {
                    let from = pointer.at + SHIFT;
                    let to = from + pointer.bytes as u64;
                    extents.push(Extent { from, to, width });
                    let leaf = leaf.filter(|_| is_sound);
                    match leaf.and_then(|leaf| leaf.entries().last().map(|(last, _)| number(last))) {
                        Some(last) => rows.behind = rows.behind.max(last.saturating_add(1)),
                        // It may have had more rows than can be read.
                        None => rows.unread.push(range(span)),
                    }
                }
                FoundHint::Unread(span) => rows.unread.push(range(span)),
            }),
        }
        rows
    }

    fn meta(&mut self, tables: &HintTables, hints: &mut Hints) {
        let widths = Widths {
            key: None,
            value: Some(8),
        };
        let Ok(Some(root)) = tables.root("millrun.meta") else {
            return;
        };
        self.each(root, widths, (None, None), 0, &mut |found| {
            let FoundHint::Leaf {
                leaf: Some(leaf),
                is_sound: true,
                ..
            } = found
            else {
                return;
            };
            for (name, value) in leaf.entries() {
                let value = value.try_into().ok().map(u64::from_le_bytes);
                match name {
                    b"low" => hints.low = value,
                    b"opens" => hints.opens = value,
                    _ => {}
                }
            }
            hints.low = hints.low.or(Some(0));
        });
    }

    /// Which turns there were.
    fn second(&mut self, tables: &HintTables) -> Second {
        let mut second = Second::default();
        let Ok(Some(root)) = tables.root("millrun.inventory") else {
            return second;
        };
        let mut spans = Vec::new();
        self.values(root, 8, &mut |_, row| {
            let Ok(inventory) = inventory::read(row) else {
                return;
            };
            spans.push((inventory.from, inventory.end));
            for turn in inventory.turns {
                second.add(turn.run, turn.last, turn.closes);
            }
        });
        // A missing row is a gap between two others.
        second.is_whole = spans.is_sorted() && spans.windows(2).all(|pair| pair[0].1 >= pair[1].0);
        second.to = spans.last().map_or(0, |(_, end)| *end);
        if let Ok(Some(root)) = tables.root("millrun.kept.heads") {
            self.values(root, 16, &mut |key, row| {
                let run = key.try_into().ok().map(u128::from_le_bytes);
                let run = run.and_then(RunId::from_bits);
                if let Some((run, head)) = run.and_then(|run| Some((run, kept_head::read(run, row)?))) {
                    second.add(run, head.last, false);
                }
            });
        }
        second.keep_last();
        second
    }

    /// Which finished runs are settled.
    fn settled(&mut self, tables: &HintTables) -> SettledHint {
        let manifest = match tables.root("millrun.manifest") {
            Ok(None) => return SettledHint::Nothing,
            Ok(Some(root)) => {
                let mut read = None;
                self.values(root, 8, &mut |_, row| read = settled::read_manifest(row).ok());
                read
            }
            Err(()) => None,
        };
        let is_current = manifest.is_some();
        let Some(manifest) = manifest.or_else(|| self.earlier_manifest()) else {
            return SettledHint::Unknown;
        };
        let mut runs = Vec::new();
        if let Ok(Some(closed)) = tables.root("millrun.closed") {
            self.values(closed, 8, &mut |_, row| {
                let Ok((number, found)) = settled::read_closed(row) else {
                    return;
                };
                runs.extend(found.iter().map(|finished| finished.run).zip(number..));
            });
        }
        let mut numbers: Vec<_> = runs.iter().map(|(_, number)| *number).collect();
        let mut is_whole = covers(&mut numbers, &manifest);
        let mut hashes = Vec::new();
        // The index has each of them a second time, by a hash.
        if !is_whole && let Ok(Some(index)) = tables.root("millrun.index") {
            self.values(index, 8, &mut |_, row| {
                let Ok((base, pairs)) = settled::read_index(row) else {
                    return;
                };
                let of_runs = pairs.iter().filter(|pair| pair.is_run());
                hashes.extend(of_runs.map(|pair| (pair.hash, base.saturating_add(pair.relative().into()))));
            });
            numbers.extend(hashes.iter().map(|(_, number)| *number));
            is_whole = covers(&mut numbers, &manifest);
        }
        runs.sort_unstable();
        hashes.sort_unstable();
        SettledHint::Known {
            position: manifest.position,
            first: manifest.first,
            runs,
            hashes,
            is_whole,
            is_current,
        }
    }

    /// The latest of the replaced manifests, if any are left.
    fn earlier_manifest(&mut self) -> Option<Manifest> {
        let (mut at, mut latest): (u64, Option<Manifest>) = (0, None);
        while at < self.window.len() {
            let page = self.window.get(at, pages::PAGE_BYTES);
            let rows = pages::leaf_head(page, 8).unwrap_or_default();
            let manifests = rows.iter().filter_map(|(_, from, len)| {
                let row = page.get(*from..from.checked_add(*len)?)?;
                settled::read_manifest(row).ok()
            });
            let order = |manifest: &Manifest| (manifest.end, manifest.first, manifest.position);
            latest = latest.into_iter().chain(manifests).max_by_key(order);
            at += pages::PAGE_BYTES as u64;
        }
        latest
    }

    /// Calls `row` with each row of a table that can be separated from its neighbours, and its key; each row has its own
    /// checksum.
    fn values(&mut self, root: (Pointer, bool), key: usize, row: &mut dyn FnMut(&[u8], &[u8])) {
        let widths = Widths {
            key: Some(key),
            value: None,
        };
        self.each(root, widths, (None, None), 0, &mut |found| {
            if let FoundHint::Leaf { leaf: Some(leaf), .. } = found {
                leaf.entries().for_each(|(key, value)| row(key, value));
            }
        });
    }
}

/// Whether all numbers are there that the manifest lists as retained.
fn covers(numbers: &mut Vec<u64>, manifest: &Manifest) -> bool {
    numbers.sort_unstable();
    numbers.dedup();
    let retained = numbers.partition_point(|number| *number < manifest.first);
    let end = numbers.partition_point(|number| *number < manifest.end);
    (end - retained) as u64 == manifest.end.saturating_sub(manifest.first)
}

fn range((from, to): HintSpan) -> RangeInclusive<u128> {
    let from = from.map_or(0, |key| number(&key));
    from..=to.map_or(u128::MAX, |key| number(&key).max(from))
}

/// A key as a number: a position, or a run.
fn number(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let len = key.len().min(16);
    bytes[..len].copy_from_slice(&key[..len]);
    u128::from_le_bytes(bytes)
}
