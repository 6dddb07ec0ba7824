//! The memory of topics without records, named and deleted, is what `docs/limits.md` says.
//!
//! A binary of its own, with one test, because it counts every allocation of the process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::System;

use millrun_persistence::{Journal, JournalConfig, MemoryJournal, TopicRetention};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Lists and tables double as they grow: of this many topics, they have just done so.
const TOPICS: usize = (8 << 10) + 1;
/// What the limits say, rounded up.
const BYTES_MAX: usize = 600;

/// Bytes that are allocated now and were not at the beginning of the region.
fn held(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated - change.bytes_deallocated
}

#[test]
fn a_topic_without_records_takes_as_many_bytes_as_the_limits_say_and_a_deleted_one_no_more() {
    let mut config = JournalConfig::default();
    config.topics_len_max = 4 * TOPICS;
    let journal = MemoryJournal::new(config).unwrap();
    let topics = journal.topics().unwrap();
    let region = Region::new(COUNTED);
    let mut numbers = Vec::with_capacity(TOPICS);
    let before = held(&region);
    for number in 0..TOPICS {
        let name = format!("orders.of.customer.{number:08}");
        numbers.push(topics.declare(&name, TopicRetention::default()).unwrap());
    }
    let named = (held(&region) - before) / TOPICS;
    topics.delete(&numbers).unwrap();
    let deleted = (held(&region) - before) / TOPICS;
    println!("a topic takes {named} bytes, a deleted one {deleted}");
    assert!((200..BYTES_MAX).contains(&named), "{named} bytes for each topic");
    assert!(
        (200..BYTES_MAX).contains(&deleted),
        "{deleted} bytes for each deleted topic"
    );
}
