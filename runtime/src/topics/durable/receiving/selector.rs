//! The filter of a wait as one number, so that a record can be looked up by the few numbers that its waits may have.

use std::collections::BTreeSet;

use millrun_workflow::{KeyFilter, RecordFilter};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::topics::durable::stored::StoredHeader;

/// The hash of a wait's filter. If different filters have the same hash, the run tells them apart when it takes the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SelectorHash(u64);

impl SelectorHash {
    /// Of all records.
    pub(super) const ANY: Self = Self(0);

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn of_key(key: &str) -> Self {
        Self(xxh3_64(key.as_bytes()).max(1))
    }

    fn of_prefix(prefix: &[u8]) -> Self {
        Self(xxh3_64_with_seed(prefix, 1).max(1))
    }

    /// The filter with an additional correlation.
    fn and(self, correlation: &str) -> Self {
        // The seed separates a correlation from a key with the same text.
        Self(xxh3_64_with_seed(correlation.as_bytes(), self.0.wrapping_add(2)).max(1))
    }
}

/// Which part of a record a filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Looks {
    key: LooksAtKey,
    at_correlation: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LooksAtKey {
    No,
    Whole,
    /// The first so many bytes of the key.
    Prefix(usize),
}

/// The key by which a wait is listed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selector {
    hash: SelectorHash,
    looks: Looks,
    /// The hash of the whole key, or else of the correlation, if the filter has one.
    broad: Option<SelectorHash>,
}

impl Selector {
    pub(super) fn of(filter: &RecordFilter) -> Self {
        let (key, mut hash) = match &filter.key {
            None => (LooksAtKey::No, SelectorHash::ANY),
            Some(KeyFilter::Is(key)) => (LooksAtKey::Whole, SelectorHash::of_key(key)),
            Some(KeyFilter::StartsWith(prefix)) => {
                let hash = SelectorHash::of_prefix(prefix.as_bytes());
                (LooksAtKey::Prefix(prefix.len()), hash)
            }
        };
        let correlation = filter.correlation.as_deref();
        let broad = match key {
            LooksAtKey::Whole => Some(hash),
            LooksAtKey::No | LooksAtKey::Prefix(_) => correlation.map(|text| SelectorHash::ANY.and(text)),
        };
        if let Some(correlation) = correlation {
            hash = hash.and(correlation);
        }
        let looks = Looks {
            key,
            at_correlation: correlation.is_some(),
        };
        Self { hash, looks, broad }
    }

    pub(super) fn hash(&self) -> SelectorHash {
        self.hash
    }

    /// A hash that each matching record has among its [`broad`](FilteredRecord::broad) ones; `None` if there is no such hash.
    pub(super) fn broad(&self) -> Option<SelectorHash> {
        self.broad
    }
}

/// The parts of records that the filters of listed waits look at: few, however many waits there are.
#[derive(Debug, Default)]
pub(super) struct LookedAt(BTreeSet<Looks>);

impl LookedAt {
    pub(super) fn note(&mut self, selector: &Selector) {
        self.0.insert(selector.looks);
    }

    pub(super) fn append(&mut self, other: &mut Self) {
        self.0.append(&mut other.0);
    }

    /// The hashes of the waits that this record may meet, each once.
    pub(super) fn hashes<'a>(
        &'a self,
        filtered: &'a FilteredRecord<'_>,
    ) -> impl Iterator<Item = SelectorHash> + 'a {
        self.0.iter().filter_map(|looks| filtered.hash(*looks))
    }
}

/// The parts of a record that filters look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilteredRecord<'a> {
    key: Option<&'a str>,
    correlation: Option<&'a str>,
    key_hash: Option<SelectorHash>,
}

impl<'a> FilteredRecord<'a> {
    pub(super) fn of(header: &StoredHeader<&'a str>) -> Self {
        Self {
            key: header.key,
            correlation: header.correlation,
            key_hash: header.key.map(SelectorHash::of_key),
        }
    }

    /// The hashes by which recent records are known.
    pub(super) fn broad(&self) -> impl Iterator<Item = SelectorHash> {
        let correlation = self.correlation.map(|text| SelectorHash::ANY.and(text));
        self.key_hash.into_iter().chain(correlation)
    }

    fn hash(&self, looks: Looks) -> Option<SelectorHash> {
        let hash = match looks.key {
            LooksAtKey::No => SelectorHash::ANY,
            LooksAtKey::Whole => self.key_hash?,
            LooksAtKey::Prefix(len) => SelectorHash::of_prefix(self.key?.as_bytes().get(..len)?),
        };
        match looks.at_correlation {
            true => Some(hash.and(self.correlation?)),
            false => Some(hash),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Sequence, Timestamp};
    use millrun_workflow::{Payload, RawRecord};
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Option<Box<str>>> {
        proptest::option::of("[aé]{1,3}".prop_map(Box::from))
    }

    proptest! {
        #[test]
        fn a_record_has_the_hashes_of_the_filters_that_it_meets_and_no_others(
            filters in proptest::collection::vec((text(), any::<bool>(), text()), 1..6),
            key in text(),
            correlation in text(),
        ) {
            let record = RawRecord {
                sequence: Sequence::ZERO,
                time: Timestamp::EPOCH,
                key,
                correlation,
                cause: None,
                value: Payload::encode(&()).unwrap(),
            };
            let header = StoredHeader {
                key: record.key.as_deref(),
                correlation: record.correlation.as_deref(),
                ..StoredHeader::default()
            };
            let (filtered, mut looked_at) = (FilteredRecord::of(&header), LookedAt::default());
            let filters: Vec<RecordFilter> = filters
                .into_iter()
                .map(|(key, is_whole, correlation)| {
                    let kind = if is_whole { KeyFilter::Is } else { KeyFilter::StartsWith };
                    RecordFilter { key: key.map(kind), correlation }
                })
                .collect();
            for filter in &filters {
                looked_at.note(&Selector::of(filter));
            }
            let hashes: Vec<_> = looked_at.hashes(&filtered).collect();
            for filter in &filters {
                let selector = Selector::of(filter);
                prop_assert_eq!(hashes.contains(&selector.hash()), filter.is_met_by(&record), "{:?}", filter);
                if filter.is_met_by(&record) {
                    prop_assert!(selector.broad().is_none_or(|broad| filtered.broad().any(|one| one == broad)));
                }
            }
            let once: BTreeSet<_> = hashes.iter().copied().collect();
            prop_assert_eq!(once.len(), hashes.len());
        }
    }
}
