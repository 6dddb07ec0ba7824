//! The part of the storage port that is about topics.

use millrun_core::{Epoch, Offset, Sequence, Timestamp};

use super::{TopicNumber, TopicPage, TopicRetention};
use crate::error::{ReadError, TopicChangeRefused, TopicRefused};

/// What a [`Journal`](crate::Journal) that keeps the records of topics has beside histories. Records come in with
/// [batches](crate::Batch::topic_record).
///
/// [`read`](Self::read) and [`at_time`](Self::at_time) may wait for the disk, and belong on threads that may be held up; nothing
/// else here does.
///
/// ```
/// use millrun_core::{InstanceId, Sequence, Timestamp};
/// use millrun_persistence::{
///     Batch, Journal, JournalConfig, LatestRecords, MemoryJournal, TopicRecordHeader, TopicRetention, TopicStreams,
/// };
///
/// let journal = MemoryJournal::new(JournalConfig::default())?;
/// let topics = journal.topics().ok_or("this journal keeps no topics")?;
/// let topic = topics.declare("orders.placed", TopicRetention::default())?;
/// let partition = InstanceId::new("order-42")?.partition();
/// let epoch = journal.take_over(&[partition])?;
///
/// let mut batch = Batch::new();
/// let time = Timestamp::from_micros(1_700_000_000_000_000);
/// batch.topic_record(TopicRecordHeader { topic, partition, epoch, time, id: None, with: None }, &[b"placed"])?;
/// let enqueued = journal.enqueue(&batch)?;
/// assert!(journal.high_watermark() >= enqueued.offset);
///
/// let LatestRecords::Page(page) = topics.latest(topic, Sequence::ZERO, 1 << 20)? else { panic!() };
/// assert_eq!(page.records().next().map(|record| record.body), Some("placed".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TopicStreams: Send + Sync {
    /// Has the journal keep a topic's records, and gives the number of the topic. One that is known by this name gets this
    /// retention. It becomes durable with the next commit, before any record of the topic.
    ///
    /// # Errors
    /// See [`TopicRefused`]; nothing is changed then.
    fn declare(&self, name: &str, retention: TopicRetention) -> Result<TopicNumber, TopicRefused>;

    /// The topics that were declared, in the order of their numbers, those of earlier openings too. The name of one is empty if
    /// it is [lost](TopicRefused::NameLost).
    fn list(&self) -> Vec<TopicSummary>;

    /// The number of the topic that was declared by this name, if there is one.
    fn number(&self, name: &str) -> Option<TopicNumber> {
        let mut all = self.list().into_iter();
        all.find(|topic| topic.name == name).map(|topic| topic.number)
    }

    /// A number that tells this journal's store apart from others, which it keeps; zero in memory.
    fn store_number(&self) -> u64;

    /// What the journal has of this topic; `None` if there is none of this number.
    fn summary(&self, topic: TopicNumber) -> Option<TopicSummary>;

    /// The durable records behind `after`, as far as they are in memory: whole chunks of about `bytes_max` bytes in all, and at
    /// least one if there are any. A page without a chunk says that `after` is the last that is durable.
    ///
    /// # Errors
    /// [`ReadError::UnknownTopic`], or when the journal was closed.
    fn latest(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
    ) -> Result<LatestRecords, ReadError>;

    /// As [`latest`](Self::latest), also what stands on a disk alone.
    ///
    /// # Errors
    /// As [`latest`](Self::latest); [`ReadError::TopicDamaged`] when the first record to be read is damaged, or stands in a row
    /// with one that is. It says behind which record reading goes on.
    fn read(&self, topic: TopicNumber, after: Sequence, bytes_max: usize) -> Result<TopicPage, ReadError>;

    /// The sequence behind which all records stand that were appended at `time` or later, as far as the times of a topic's
    /// records grow. Exact to the row in which that record was written: those before it in its row are behind too.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn at_time(&self, topic: TopicNumber, time: Timestamp) -> Result<Sequence, ReadError>;

    /// The durable record of this topic that was appended with this id, as far as the journal remembers ids
    /// ([`topic_ids_len_max`](crate::JournalConfig::topic_ids_len_max)). A journal that does not tell has none.
    fn appended_with(&self, _topic: TopicNumber, _id: u128) -> Option<Sequence> {
        None
    }

    /// Notes how far a reader of `topic` has come that keeps its place in the topic `reader`: it is done with all records up to
    /// `through`. Retention holds back what is behind that, as [`TopicRetention::unread_bytes_max`] says. Say it when the
    /// place is durable. A reader does not go back, and is forgotten when the topic `reader` is deleted; where either topic
    /// is not known, nothing is noted.
    ///
    /// Nothing of it is stored: it is said again when the journal was opened again, see
    /// [`all_readers_noted`](Self::all_readers_noted).
    fn note_reader(&self, topic: TopicNumber, reader: TopicNumber, through: Sequence);

    /// Says that every reader of a topic is noted that keeps its place here, since this journal was opened. Until then no
    /// record counts as read by all; from then on, one is held back for the readers that are noted.
    fn all_readers_noted(&self, topic: TopicNumber);

    /// Drops the records of a topic up to `through`, or up to the last that is durable if that is earlier, whatever its
    /// retention keeps. They are not read any more from then on, and count as dropped; numbers go on. It becomes
    /// durable with the offset that this gives. Their space is given back as the journal writes, a share with each
    /// commit, and in an [upkeep](crate::Journal::upkeep) exactly. A purge of what is dropped already changes nothing.
    ///
    /// By default a journal does not purge.
    ///
    /// # Errors
    /// See [`TopicChangeRefused`]; nothing is changed then.
    fn purge(&self, topic: TopicNumber, _through: Sequence) -> Result<PurgedRecords, TopicChangeRefused> {
        let _ = topic;
        Err(TopicChangeRefused::Unsupported)
    }

    /// Deletes topics, all in one commit: their records are dropped as by a [purge](Self::purge), those that are queued
    /// included, their names are free and count no more, and their numbers are not known any more. A topic that is
    /// declared under such a name later gets a number of its own, and its records are numbered on from the last
    /// of the deleted one, so that no number names two records. It becomes durable with the offset that this gives.
    ///
    /// By default a journal does not delete.
    ///
    /// # Errors
    /// See [`TopicChangeRefused`]; nothing is changed then.
    fn delete(&self, topics: &[TopicNumber]) -> Result<Offset, TopicChangeRefused> {
        let _ = topics;
        Err(TopicChangeRefused::Unsupported)
    }

    /// Gives the number of a topic to a new one, in one commit: its records are dropped as by a [purge](Self::purge), its
    /// name is free, and the topic of this number has the name `name` and this retention from then on. Records are numbered
    /// on, so that no number names two records of this topic number, and ids are remembered as before. For topics that come
    /// and go, as numbers of [deleted](Self::delete) ones are never given again. It becomes durable with the offset that this
    /// gives, and before any record that is appended later.
    ///
    /// By default a journal does not do that.
    ///
    /// # Errors
    /// See [`TopicChangeRefused`]; [`Unknown`](TopicChangeRefused::Unknown) also if the topic is not named `from`, which somebody else
    /// may have replaced. Nothing is changed then.
    fn replace(
        &self,
        topic: TopicNumber,
        from: &str,
        name: &str,
        _retention: TopicRetention,
    ) -> Result<Offset, TopicChangeRefused> {
        let _ = (topic, from, name);
        Err(TopicChangeRefused::Unsupported)
    }

    /// Gives topics other names, and [deletes](Self::delete) others, which may have had these names, all in one commit. Number,
    /// records, ids and what is noted of readers stay with each renamed topic. Its former name is free, and is remembered
    /// as that of a topic deleted with as many records: one that is declared under it later is numbered on behind them.
    /// That takes one further number of a topic for each. It becomes durable with the offset that this gives, and before
    /// anything that is queued later.
    ///
    /// By default a journal does not rename.
    ///
    /// # Errors
    /// See [`TopicChangeRefused`]; nothing is changed then. [`Unknown`](TopicChangeRefused::Unknown) also if a topic is not named
    /// [`from`](TopicRename::from), and [`Numbers`](TopicChangeRefused::Numbers) if a deleted topic of the name
    /// [`to`](TopicRename::to) had more records than this one: places that were kept under that name would skip records.
    fn rename(&self, renames: &[TopicRename], deleted: &[TopicNumber]) -> Result<Offset, TopicChangeRefused> {
        let _ = (renames, deleted);
        Err(TopicChangeRefused::Unsupported)
    }
}

/// A topic that gets another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRename {
    /// The topic.
    pub topic: TopicNumber,
    /// The name that it has.
    pub from: String,
    /// The name that it gets.
    pub to: String,
}

/// What a journal has of a topic, at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicSummary {
    /// Its number.
    pub number: TopicNumber,
    /// Its name.
    pub name: String,
    /// How long its records stay.
    pub retention: TopicRetention,
    /// The first record that is there, or will be.
    pub first: Sequence,
    /// The last durable record; the one before `first` if there is none.
    pub last: Sequence,
    /// Bytes of the records from `first` to `last`, and of those purged ones that share a row with them or wait to be given
    /// back.
    pub bytes: u64,
}

/// What a [purge](TopicStreams::purge) has dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgedRecords {
    /// How many records it has dropped that were there.
    pub count: u64,
    /// The first record that is there now, or will be.
    pub first: Sequence,
    /// The purge is durable when this offset is.
    pub offset: Offset,
}

/// What is in memory of the records that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LatestRecords {
    /// These follow.
    Page(TopicPage),
    /// The disk knows: [`TopicStreams::read`] tells.
    Ask,
}

/// What became of a record of a topic when its batch was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicAppend {
    /// It has this sequence, and is durable when the offset of the batch is.
    Appended(Sequence),
    /// A record with its id has been appended before, under this sequence; it is durable when the offset of the batch is.
    AlreadyAppended(Sequence),
    /// The turn that it goes with was refused, so it was not appended; if that turn has been appended before, so has this.
    WithTurn,
    /// Another owner has its partition, under this epoch: it was not appended.
    Fenced {
        /// The partition's epoch.
        current: Epoch,
    },
    /// There is no topic of its number: it was not appended.
    UnknownTopic,
}
