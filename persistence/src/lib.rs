//! The append-only journal of millrun.
//!
//! A [`Journal`] takes [batches](Batch) of turns, each turn as a whole or not at all, makes them durable in group commits,
//! and returns the history of every run.
//!
//! ```
//! use std::convert::Infallible;
//! use millrun_core::{InstanceId, RunId, Sequence, Timestamp};
//! use millrun_persistence::{Batch, Journal, JournalConfig, MemoryJournal, Reads, TurnHeader};
//!
//! let journal = MemoryJournal::new(JournalConfig::default())?;
//! let id = InstanceId::new("order-42")?;
//! let time = Timestamp::from_micros(1_700_000_000_000_000);
//! let run = RunId::new(id.partition(), time, 1);
//! let epoch = journal.take_over(&[id.partition()])?;
//!
//! let mut batch = Batch::new();
//! let mut turn = batch.turn(TurnHeader { run, head: Sequence::ZERO, epoch, time, opens: Some(&id) });
//! turn.record(1, |body| { body.extend_from_slice(b"started"); Ok::<_, Infallible>(()) })?;
//! turn.finish(false)?;
//!
//! let enqueued = journal.enqueue(&batch)?;
//! assert!(enqueued.refused.is_empty());
//! assert!(journal.high_watermark() >= enqueued.offset);
//! assert_eq!(journal.history(run)?.records[0].body, "started");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
mod claim;
mod conditions;
mod config;
mod error;
mod finished;
mod fold;
mod heads;
mod journal;
mod mail;
mod memory;
mod nodes;
mod numbers;
mod owners;
mod record;
mod redb;
mod resolve;
mod scan;
mod search;
mod together;
mod topics;
mod upkeep;
mod wire;

#[cfg(feature = "appender")]
pub mod appender;
#[cfg(feature = "contract")]
pub mod contract;
#[cfg(feature = "floor")]
pub mod floor;
pub mod frames;
#[cfg(feature = "fuzz")]
pub mod fuzz;

pub use batch::{
    Batch, GroupView, GroupWriter, TURN_BYTES_MAX_DEFAULT, TopicRecordHeader, TopicRecordView, TurnHeader,
    TurnRecords, TurnView, TurnWriter,
};
pub use claim::{
    Claim, ClaimNews, ClaimNumber, ClaimRefused, Claimant, Granted, Owned, Owner, PartitionReport,
};
pub use config::{Durability, JournalConfig, Retention};
pub use error::{
    EnqueueError, FailureKind, JournalFailure, ReadError, SnapshotRefused, StoreError, TopicChangeRefused,
    TopicRefused, TurnError, TurnRefused,
};
pub use fold::Fold;
pub use journal::{
    Enqueued, Glance, Journal, Lane, Progress, Reads, RecoveryReport, RefusedTurn, Ringing, Stats,
};
pub use mail::{HandledMail, MailAddress, MailStep, NodeMail, OutgoingMail, UnreadMail};
pub use memory::MemoryJournal;
pub use nodes::{NodeKey, NodeSeen, NodeTerms, NodesSeen, SharedStore};
pub use owners::OwnerTable;
pub use record::{FinishedRun, History, HistoryPage, Record, RecordView, Snapshot, Trimmed};
pub use redb::{
    Archive, BackupError, Compacted, Disk, Exported, FileDisk, FileLoss, ImportError, Imported,
    READ_ONLY_BYTES_MAX, RedbConfig, RedbJournal, StoreConfig, Verified, compact, import,
};
pub use redb::{
    NotWhole, SalvageError, SalvageOptions, SalvageProgress, SalvageReport, WithoutOwner, salvage,
};
pub use resolve::Resolved;
pub use search::{FinishedFound, FinishedHead, FinishedSearch, RecordKinds, TimeRange};
pub use together::{EachRead, ToRead, WasRead};
pub use topics::{
    LatestRecords, PurgedRecords, TopicAppend, TopicChunk, TopicNumber, TopicPage, TopicRecord, TopicRecords,
    TopicRename, TopicRetention, TopicStreams, TopicSummary,
};
pub use topics::{
    SealedTopics, StoredTopicId, StoredTopicName, StoredTopicRow, TopicDrops, TopicRegister, TopicRowOutline,
    topic_page,
};
pub use upkeep::{UpkeepNumber, UpkeepUndone, Upkeeps};
