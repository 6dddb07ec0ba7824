//! Damages a file, and knows what it hits.
//!
//! It reads the file by itself, with nothing of the store: what it believes of the layout stands here a
//! second time, so that a mistake in one reading is not repeated by the other.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Dice of its own: xorshift64*.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number % bound as u64).unwrap()
    }
}

/// Changes one bit of a file.
pub(crate) fn flip(path: &Path, at: usize, bit: usize) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, at as u64).unwrap();
}

/// A part of the file, by what is stored there.
pub(crate) type Regions = BTreeMap<String, Vec<(usize, usize)>>;

const PAGE: usize = 4_096;

/// The parts of a store's file: the first page, redb's header, the pages of each table with what is used
/// of them, branches apart from leaves, redb's own tables, and the rest, which is free.
pub(crate) fn regions(file: &[u8]) -> Regions {
    let mut regions = Regions::new();
    let mut add = |name: &str, from: usize, len: usize| {
        regions
            .entry(name.to_owned())
            .or_default()
            .push((from, from + len));
    };
    add("first page", 0, 36);
    add("redb's header", PAGE, 320);
    let slots = [PAGE + 64, PAGE + 192];
    let slot = slots
        .into_iter()
        .max_by_key(|slot| long(file, slot + 104))
        .unwrap();
    let mut used = Vec::new();
    for (name, root) in [("tables", slot + 8), ("redb's own tables", slot + 40)] {
        let flag = slot + if name == "tables" { 1 } else { 2 };
        if file[flag] == 0 {
            continue;
        }
        let mut tables = Vec::new();
        tree(
            file,
            long(file, root),
            None,
            None,
            &mut |is_leaf, at, bytes, entries| {
                used.push((at, bytes.next_multiple_of(PAGE)));
                add(if is_leaf { name } else { "branches" }, at, bytes);
                tables.extend(entries);
            },
        );
        for (key, (value, _)) in tables {
            let table = String::from_utf8_lossy(&file[key.0..key.1]).into_owned();
            if file[value + 9] == 0 {
                continue;
            }
            let width = |at: usize| (file[at] != 0).then(|| word(file, at + 1));
            // What redb keeps for itself may be rows of several values, which are not looked into.
            let (keys, values) = (width(value + 42), width(value + 47));
            let name = if name == "tables" { table.as_str() } else { name };
            tree(
                file,
                long(file, value + 10),
                keys,
                values,
                &mut |is_leaf, at, bytes, _| {
                    used.push((at, bytes.next_multiple_of(PAGE)));
                    add(if is_leaf { name } else { "branches" }, at, bytes);
                },
            );
        }
    }
    used.sort_unstable();
    let mut at = 2 * PAGE;
    for (from, len) in used {
        if from > at {
            add("free", at, from - at);
        }
        at = at.max(from + len);
    }
    if file.len() > at {
        add("free", at, file.len() - at);
    }
    regions
}

/// Where something begins and ends in the file.
type Range = (usize, usize);

/// Calls `visit` with each page of a tree: whether it is a leaf, where it begins, how much of it is used,
/// and its keys with their values.
fn tree(
    file: &[u8],
    number: u64,
    key: Option<usize>,
    value: Option<usize>,
    visit: &mut dyn FnMut(bool, usize, usize, Vec<(Range, Range)>),
) {
    let order = number >> 59;
    let index = usize::try_from(number & (0xf_ffff >> order)).unwrap();
    let at = 2 * PAGE + index * (PAGE << order);
    let count = usize::from(u16::from_le_bytes(file[at + 2..at + 4].try_into().unwrap()));
    if file[at] == 1 {
        let ends = |which: usize, entry: usize| word(file, at + 4 + 4 * (which * count + entry));
        let flexible = usize::from(key.is_none()) + usize::from(value.is_none());
        let keys = 4 + 4 * flexible * count;
        let key_end = |entry: usize| key.map_or_else(|| ends(0, entry), |width| keys + width * (entry + 1));
        let values = key_end(count - 1);
        let which = usize::from(key.is_none());
        let value_end =
            |entry: usize| value.map_or_else(|| ends(which, entry), |width| values + width * (entry + 1));
        let entries = (0..count).map(|entry| {
            let (key, value) = match entry {
                0 => (keys, values),
                _ => (key_end(entry - 1), value_end(entry - 1)),
            };
            (
                (at + key, at + key_end(entry)),
                (at + value, at + value_end(entry)),
            )
        });
        visit(true, at, value_end(count - 1), entries.collect());
    } else {
        assert_eq!(file[at], 2, "a branch at {at}");
        let keys = 8 + 24 * (count + 1);
        let bytes = match key {
            Some(width) => keys + width * count,
            None => word(file, at + keys + 4 * (count - 1)),
        };
        visit(false, at, bytes, Vec::new());
        for child in 0..=count {
            let number = long(file, at + 8 + 16 * (count + 1) + 8 * child);
            tree(file, number, key, value, visit);
        }
    }
}

fn word(file: &[u8], at: usize) -> usize {
    u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize
}

fn long(file: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(file[at..at + 8].try_into().unwrap())
}
