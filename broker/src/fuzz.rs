//! The functions that take names from outside of the program, for fuzzers (feature `fuzz`).
//!
//! Each takes any bytes and panics only if a function breaks its contract.

use crate::name::trie::Trie;
use crate::name::{Filter, TopicName};

/// A name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 1] = [("names", names)];

/// Lines, each tried as a name and as a filter. The tree must find the same as a comparison one by one.
pub fn names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.split('\n').take(64).collect();
    let names: Vec<_> = lines
        .iter()
        .filter_map(|line| TopicName::new(line).ok())
        .collect();
    let filters: Vec<_> = lines.iter().filter_map(|line| Filter::new(line).ok()).collect();
    let (mut by_filter, mut by_name) = (Trie::new(), Trie::new());
    for (place, filter) in filters.iter().enumerate() {
        by_filter.insert(filter.tokens(), place);
    }
    for (place, name) in names.iter().enumerate() {
        assert!(name.as_str().len() <= TopicName::BYTES_MAX);
        let alone = Filter::new(name.as_str()).expect("every name is a filter");
        assert!(alone.matches(name), "a name as a filter matches itself");
        by_name.insert(name.tokens(), place);
    }
    for name in &names {
        let mut found = by_filter.matching_filters(name.tokens());
        found.sort_unstable();
        let one_by_one = (0..filters.len()).filter(|place| filters[*place].matches(name));
        assert_eq!(found, one_by_one.collect::<Vec<_>>(), "the filters of {name:?}");
    }
    for filter in &filters {
        let mut found = by_name.matching_names(filter.tokens());
        found.sort_unstable();
        let one_by_one = (0..names.len()).filter(|place| filter.matches(&names[*place]));
        assert_eq!(found, one_by_one.collect::<Vec<_>>(), "the names of {filter:?}");
    }
}
