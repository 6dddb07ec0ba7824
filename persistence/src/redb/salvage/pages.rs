//! Parses as much of redb's file as helps to tell what is current: commit slots, branches and leaves.
//!
//! ```text
//!   header ─► slot, slot ─► root ─► branch ─► leaf: keys, values
//! ```
//!
//! According to redb's `docs/design.md` (file format 3). Every function is total: any bytes give a value or `None`, and
//! nothing is read beyond them. A page's checksum is in the page above it.
//!
//! Left out: the allocator's state and redb's own tables, which are not needed.

use xxhash_rust::xxh3::xxh3_128;

/// The size of redb's pages; larger ones are powers of two of it.
pub(crate) const PAGE_BYTES: usize = 4_096;
/// Bytes of redb's header that are used.
pub(crate) const HEADER_BYTES: usize = 320;
const MAGIC: &[u8; 9] = b"redb\x1a\x0a\xa9\x0d\x0a";
const GOD_AT: usize = 9;
const RECOVERY_REQUIRED: u8 = 2;
const SLOT_BYTES: usize = 128;
const SLOTS_AT: [usize; 2] = [64, 192];
/// Regions have this many pages, and no header of their own.
const REGION_PAGES: u64 = 1 << 20;
/// The largest order of a page.
const ORDER_MAX: u32 = 20;
const LEAF: u8 = 1;
const BRANCH: u8 = 2;

/// A reference to a page, with the checksum that the page should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// The page's place in redb's file.
    pub(crate) at: u64,
    pub(crate) bytes: usize,
    pub(crate) checksum: u128,
}

/// A commit slot whose checksum holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageSlot {
    pub(crate) transaction: u64,
    /// The tree of tables; `None` if there is none.
    pub(crate) tables: Option<Pointer>,
}

/// redb's header.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageHeader {
    /// Whether the store was closed properly.
    pub(crate) is_clean: bool,
    /// The slots whose checksums hold, the latest first.
    pub(crate) slots: Vec<PageSlot>,
}

pub(crate) fn header(bytes: &[u8]) -> PageHeader {
    let Some(bytes) = bytes.get(..HEADER_BYTES) else {
        return PageHeader::default();
    };
    let slots = SLOTS_AT
        .iter()
        .filter_map(|at| slot(&bytes[*at..at + SLOT_BYTES]));
    let mut slots: Vec<_> = slots.collect();
    slots.sort_by_key(|slot| std::cmp::Reverse(slot.transaction));
    PageHeader {
        is_clean: bytes.starts_with(MAGIC) && bytes[GOD_AT] & RECOVERY_REQUIRED == 0,
        slots,
    }
}

fn slot(bytes: &[u8]) -> Option<PageSlot> {
    let (fields, sum) = bytes.split_at_checked(SLOT_BYTES - 16)?;
    if xxh3_128(fields).to_le_bytes() != sum {
        return None;
    }
    Some(PageSlot {
        transaction: u64_at(fields, 104)?,
        tables: if fields[1] == 0 {
            None
        } else {
            Some(pointer(fields, 8)?)
        },
    })
}

/// A page's number, followed by its checksum.
fn pointer(bytes: &[u8], at: usize) -> Option<Pointer> {
    page(u64_at(bytes, at)?, u128_at(bytes, at + 8)?)
}

fn page(number: u64, checksum: u128) -> Option<Pointer> {
    let order = u32::try_from(number >> 59).ok()?;
    if order > ORDER_MAX {
        return None;
    }
    let index = number & (0x000f_ffff >> order);
    let region = (number >> 20) & 0x000f_ffff;
    let bytes = PAGE_BYTES << order;
    let at = PAGE_BYTES as u64 + region * REGION_PAGES * PAGE_BYTES as u64 + index * bytes as u64;
    Some(Pointer { at, bytes, checksum })
}

/// How the keys and values of a table are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Widths {
    pub(crate) key: Option<usize>,
    pub(crate) value: Option<usize>,
}

/// A table, as the tree of tables names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageTable {
    pub(crate) root: Option<Pointer>,
}

/// How the tree of tables is stored.
pub(crate) const TABLES: Widths = Widths {
    key: None,
    value: None,
};

/// The definition of a table.
pub(crate) fn table(value: &[u8]) -> Option<PageTable> {
    Some(PageTable {
        root: if *value.get(9)? == 0 {
            None
        } else {
            Some(pointer(value, 10)?)
        },
    })
}

/// A page of a tree.
#[derive(Debug)]
pub(crate) enum Page<'a> {
    Leaf(Leaf<'a>),
    Branch(Branch<'a>),
}

/// Reads a page; `None` if its parts do not lie within it.
pub(crate) fn read(bytes: &[u8], widths: Widths) -> Option<Page<'_>> {
    match *bytes.first()? {
        LEAF => leaf(bytes, widths).map(Page::Leaf),
        BRANCH => branch(bytes, widths.key).map(Page::Branch),
        _ => None,
    }
}

impl Page<'_> {
    /// The checksum of the used part of the page.
    pub(crate) fn checksum(&self) -> u128 {
        match self {
            Self::Leaf(leaf) => xxh3_128(leaf.used),
            Self::Branch(branch) => xxh3_128(branch.used),
        }
    }
}

/// A leaf whose keys and values are adjacent.
#[derive(Debug)]
pub(crate) struct Leaf<'a> {
    used: &'a [u8],
    entries: usize,
    widths: Widths,
}

/// Reads a leaf whose values may lie beyond `bytes`, as in the first page of a large one; returns where each value begins and
/// how long it is, with its key.
pub(crate) fn leaf_head(bytes: &[u8], key: usize) -> Option<Vec<(&[u8], usize, usize)>> {
    if *bytes.first()? != LEAF {
        return None;
    }
    let entries = usize::from(u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?));
    let keys = 4 + 4 * entries;
    let mut from = keys + key * entries;
    if entries == 0 || from > bytes.len() {
        return None;
    }
    let mut values = Vec::with_capacity(entries);
    for entry in 0..entries {
        let end = u32_at(bytes, 4 + 4 * entry)?;
        let len = end.checked_sub(from)?;
        values.push((&bytes[keys + key * entry..][..key], from, len));
        from = end;
    }
    Some(values)
}

fn leaf(bytes: &[u8], widths: Widths) -> Option<Leaf<'_>> {
    let entries = usize::from(u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?));
    let mut leaf = Leaf {
        used: bytes,
        entries,
        widths,
    };
    let (mut key, mut value) = (leaf.keys_at(), leaf.key(entries.checked_sub(1)?)?.1);
    for entry in 0..entries {
        let ((key_from, key_to), (from, to)) = (leaf.key(entry)?, leaf.value(entry)?);
        if key_from != key || key_to < key || from != value || to < value {
            return None;
        }
        (key, value) = (key_to, to);
    }
    leaf.used = bytes.get(..value)?;
    Some(leaf)
}

impl<'a> Leaf<'a> {
    fn keys_at(&self) -> usize {
        let ends = usize::from(self.widths.key.is_none()) + usize::from(self.widths.value.is_none());
        4 + 4 * ends * self.entries
    }

    fn key(&self, entry: usize) -> Option<(usize, usize)> {
        match self.widths.key {
            Some(width) => Some((
                self.keys_at() + width * entry,
                self.keys_at() + width * (entry + 1),
            )),
            None => {
                let end = |entry: usize| u32_at(self.used, 4 + 4 * entry);
                let from = entry.checked_sub(1).map_or(Some(self.keys_at()), end)?;
                Some((from, end(entry)?))
            }
        }
    }

    fn value(&self, entry: usize) -> Option<(usize, usize)> {
        let begin = self.key(self.entries - 1)?.1;
        match self.widths.value {
            Some(width) => Some((begin + width * entry, begin + width * (entry + 1))),
            None => {
                let ends = 4 + 4 * usize::from(self.widths.key.is_none()) * self.entries;
                let end = |entry: usize| u32_at(self.used, ends + 4 * entry);
                let from = entry.checked_sub(1).map_or(Some(begin), end)?;
                Some((from, end(entry)?))
            }
        }
    }

    /// All keys with their values.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        (0..self.entries).filter_map(|entry| {
            let ((key, key_end), (value, value_end)) = (self.key(entry)?, self.value(entry)?);
            Some((self.used.get(key..key_end)?, self.used.get(value..value_end)?))
        })
    }
}

/// A branch: children, and keys between them.
#[derive(Debug)]
pub(crate) struct Branch<'a> {
    used: &'a [u8],
    keys: usize,
    width: Option<usize>,
}

fn branch(bytes: &[u8], width: Option<usize>) -> Option<Branch<'_>> {
    let keys = usize::from(u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?));
    let mut branch = Branch {
        used: bytes,
        keys,
        width,
    };
    let mut end = branch.keys_at();
    for key in 0..keys {
        let to = branch.key_end(key)?;
        if to < end {
            return None;
        }
        end = to;
    }
    branch.used = bytes.get(..end).filter(|_| keys > 0)?;
    Some(branch)
}

impl<'a> Branch<'a> {
    fn keys_at(&self) -> usize {
        let ends = if self.width.is_none() { 4 * self.keys } else { 0 };
        8 + 24 * (self.keys + 1) + ends
    }

    fn key_end(&self, key: usize) -> Option<usize> {
        match self.width {
            Some(width) => Some(self.keys_at() + width * (key + 1)),
            None => u32_at(self.used, 8 + 24 * (self.keys + 1) + 4 * key),
        }
    }

    fn key(&self, key: usize) -> Option<&'a [u8]> {
        let from = match key.checked_sub(1) {
            None => self.keys_at(),
            Some(before) => self.key_end(before)?,
        };
        self.used.get(from..self.key_end(key)?)
    }

    /// The children, each with the key before it and the key after it.
    pub(crate) fn children(&self) -> impl Iterator<Item = (Option<Pointer>, Between<'a>)> {
        (0..=self.keys).map(|child| {
            let number = u64_at(self.used, 8 + 16 * (self.keys + 1) + 8 * child);
            let checksum = u128_at(self.used, 8 + 16 * child);
            let pointer = number.zip(checksum).and_then(|(number, sum)| page(number, sum));
            let before = child.checked_sub(1).and_then(|key| self.key(key));
            let behind = (child < self.keys).then(|| self.key(child)).flatten();
            (pointer, (before, behind))
        })
    }
}

/// The keys on both sides of a child, where there are any.
pub(crate) type Between<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*word)).ok()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u128_at(bytes: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
