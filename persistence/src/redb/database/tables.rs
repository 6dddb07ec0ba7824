//! The thirteen tables of the file.
//!
//! ```text
//!   meta   "opens" ─► how often the store has been opened, and taken over while it was open
//!          "low"   ─► log position below which there are no rows any more
//!   log    position ─► piece (see `wire::piece`), without gaps
//!   kept   run ─► piece: the turns of a run that stood in the log below "low",
//!   kept2  run, sequence of the first record ─► piece: as far as they did not fit into the first
//!
//!   inventory   position ─► which turns stand in a stretch of the log  ┐ the second source: what is lost
//!   kept.heads  run ─► how far its kept turns reach                    ┘ of the log is known by name
//!
//!   closed    number of the first ─► finished runs (see `wire::settled`)    ┐ derived from the log;
//!   index     sorted run and row ─► hashes and numbers                      │ may be lost and are
//!   manifest  0 ─► which sorted runs there are, and what they cover         ┘ written anew
//!   snapshots run ─► folded state (see `wire::snapshot`); may be lost
//!
//!   topics         number ─► a topic of which records are kept    ┐
//!   topic.records  topic, sequence of the first ─► its records    │ see `wire::topic_row`
//!   topic.ids      number of the first ─► ids of the latest ones  ┘
//! ```
//!
//! Invariants: every table has its name and its types here and nowhere else; a new store has all of them from its first
//! opening on ([`count_open`](super::store::Store::count_open)). The meaning of the rows is documented in `wire` and where
//! they are written.

use redb::TableDefinition;

pub(in crate::redb) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("millrun.meta");
/// The name of the log's table.
pub(crate) const LOG_TABLE: &str = "millrun.log";
pub(in crate::redb) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new(LOG_TABLE);
pub(in crate::redb) const KEPT: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("millrun.kept");
pub(in crate::redb) const KEPT_MORE: TableDefinition<'_, (u128, u64), &[u8]> =
    TableDefinition::new("millrun.kept.more");
pub(in crate::redb) const INVENTORY: TableDefinition<'_, u64, &[u8]> =
    TableDefinition::new("millrun.inventory");
pub(in crate::redb) const KEPT_HEADS: TableDefinition<'_, u128, &[u8]> =
    TableDefinition::new("millrun.kept.heads");
pub(in crate::redb) const CLOSED: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("millrun.closed");
pub(in crate::redb) const INDEX: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("millrun.index");
pub(in crate::redb) const MANIFEST: TableDefinition<'_, u64, &[u8]> =
    TableDefinition::new("millrun.manifest");
pub(in crate::redb) const SNAPSHOTS: TableDefinition<'_, u128, &[u8]> =
    TableDefinition::new("millrun.snapshots");
pub(in crate::redb) const TOPICS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("millrun.topics");
pub(in crate::redb) const TOPIC_RECORDS: TableDefinition<'_, (u32, u64), &[u8]> =
    TableDefinition::new("millrun.topic.records");
pub(in crate::redb) const TOPIC_IDS: TableDefinition<'_, u64, &[u8]> =
    TableDefinition::new("millrun.topic.ids");
pub(in crate::redb) const OPENS: &str = "opens";
pub(in crate::redb) const LOW: &str = "low";
/// The time that the ages of finished runs are measured by, in microseconds.
pub(in crate::redb) const AGED: &str = "aged";

/// The log position below which all trimmed records are archived.
pub(in crate::redb) const TRIMS_ARCHIVED: &str = "trims archived";
