//! The part of the storage port that is about topics.

use millrun_core::{Epoch, Offset, Sequence, Timestamp};

use super::{TopicNumber, TopicPage, TopicRetention};
use crate::error::{ReadError, TopicChangeRefused, TopicRefused};

/// The operations on topics of a [`Journal`](crate::Journal) that keeps their records. Records are appended with
/// [batches](crate::Batch::topic_record).
///
/// [`read`](Self::read) and [`at_time`](Self::at_time) may wait for the disk, and must be called on threads that may block;
/// the other methods never wait.
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
    /// Makes the journal keep a topic's records, and returns the number of the topic. A topic that is known by this name gets
    /// this retention. It becomes durable with the next commit, before any record of the topic.
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

    /// A number that distinguishes this journal's store from others, and that is stored with it; zero in memory.
    fn store_number(&self) -> u64;

    /// A summary of this topic; `None` if there is none of this number.
    fn summary(&self, topic: TopicNumber) -> Option<TopicSummary>;

    /// The durable records after `after`, as far as they are in memory: whole chunks of about `bytes_max` bytes in all, and
    /// at least one if there are any. A page without a chunk says that `after` is the last durable record.
    ///
    /// # Errors
    /// [`ReadError::UnknownTopic`], or when the journal was closed.
    fn latest(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
    ) -> Result<LatestRecords, ReadError>;

    /// As [`latest`](Self::latest), but also reads records that are only on disk.
    ///
    /// # Errors
    /// As [`latest`](Self::latest); [`ReadError::TopicDamaged`] when the first record to be read is damaged, or is in a
    /// damaged row. The error says after which record reading can go on.
    fn read(&self, topic: TopicNumber, after: Sequence, bytes_max: usize) -> Result<TopicPage, ReadError>;

    /// The sequence after which all records come that were appended at `time` or later, if the times of a topic's records
    /// grow. Exact to the row in which that record was written: earlier records of the row come after it too.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn at_time(&self, topic: TopicNumber, time: Timestamp) -> Result<Sequence, ReadError>;

    /// The durable record of this topic that was appended with this id, as long as the journal remembers the id
    /// ([`topic_ids_len_max`](crate::JournalConfig::topic_ids_len_max)). By default a journal has none.
    fn appended_with(&self, _topic: TopicNumber, _id: u128) -> Option<Sequence> {
        None
    }

    /// Notes how far a reader of `topic` that keeps its place in the topic `reader` has read: it is done with all records up
    /// to `through`. Retention holds back later records, as [`TopicRetention::unread_bytes_max`] says. Call it when the place
    /// is durable. A reader's place never goes back, and is forgotten when the topic `reader` is deleted; if either topic is
    /// not known, nothing is noted.
    ///
    /// The note is not stored: repeat it when the journal has been opened again, see
    /// [`all_readers_noted`](Self::all_readers_noted).
    fn note_reader(&self, topic: TopicNumber, reader: TopicNumber, through: Sequence);

    /// Says that every reader of a topic that keeps its place here has been noted since this journal was opened. Until then
    /// no record counts as read by all; from then on, records are held back for the noted readers.
    fn all_readers_noted(&self, topic: TopicNumber);

    /// Drops the records of a topic up to `through`, or up to the last durable one if that is earlier, even if retention
    /// would keep them. They cannot be read from then on, and count as dropped; numbers go on. It becomes durable with the
    /// returned offset. Their space is freed as the journal writes, a share with each commit, and in an
    /// [upkeep](crate::Journal::upkeep) completely. A purge of records that are dropped already changes nothing.
    ///
    /// By default a journal does not purge.
    ///
    /// # Errors
    /// See [`TopicChangeRefused`]; nothing is changed then.
    fn purge(&self, topic: TopicNumber, _through: Sequence) -> Result<PurgedRecords, TopicChangeRefused> {
        let _ = topic;
        Err(TopicChangeRefused::Unsupported)
    }

    /// Deletes topics, all in one commit: their records are dropped as by a [purge](Self::purge), also queued ones, their
    /// names are free and no longer count, and their numbers are not known any more. A topic that is later declared under
    /// such a name gets its own number, and its records are numbered on from the last of the deleted topic, so that no number
    /// identifies two records. It becomes durable with the returned offset.
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
    /// on, so that no number identifies two records of this topic number, and ids are remembered as before. For topics that
    /// are created and deleted often, as numbers of [deleted](Self::delete) ones are never used again. It becomes durable
    /// with the returned offset, and before any record that is appended later.
    ///
    /// By default a journal does not support it.
    ///
    /// # Errors
    /// See [`TopicChangeRefused`]; [`Unknown`](TopicChangeRefused::Unknown) also if the topic is not named `from`, because
    /// another caller has replaced it. Nothing is changed then.
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

    /// Gives topics other names, and [deletes](Self::delete) others, which may have had these names, all in one commit. Each
    /// renamed topic keeps its number, records, ids and readers' places. Its former name is free, and is remembered as that
    /// of a topic deleted with as many records: a topic that is later declared under it continues with higher record numbers.
    /// That uses one more topic number for each. It becomes durable with the returned offset, and before anything that is
    /// queued later.
    ///
    /// By default a journal does not rename.
    ///
    /// # Errors
    /// See [`TopicChangeRefused`]; nothing is changed then. [`Unknown`](TopicChangeRefused::Unknown) also if a topic is not
    /// named [`from`](TopicRename::from), and [`Numbers`](TopicChangeRefused::Numbers) if a deleted topic of the name
    /// [`to`](TopicRename::to) had more records than this one: readers with a place under that name would skip records.
    fn rename(&self, renames: &[TopicRename], deleted: &[TopicNumber]) -> Result<Offset, TopicChangeRefused> {
        let _ = (renames, deleted);
        Err(TopicChangeRefused::Unsupported)
    }
}

/// A topic to be renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRename {
    /// The topic.
    pub topic: TopicNumber,
    /// Its present name.
    pub from: String,
    /// Its new name.
    pub to: String,
}

/// The state of a topic at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicSummary {
    /// Its number.
    pub number: TopicNumber,
    /// Its name.
    pub name: String,
    /// How long its records are kept.
    pub retention: TopicRetention,
    /// The first existing record, or the next one to come.
    pub first: Sequence,
    /// The last durable record; the one before `first` if there is none.
    pub last: Sequence,
    /// Bytes of the records from `first` to `last`, and of purged ones that share a row with them or are not freed yet.
    pub bytes: u64,
}

/// The result of a [purge](TopicStreams::purge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgedRecords {
    /// How many existing records it has dropped.
    pub count: u64,
    /// The first remaining record, or the next one to come.
    pub first: Sequence,
    /// The purge is durable when this offset is.
    pub offset: Offset,
}

/// The records that memory has of those that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LatestRecords {
    /// These records follow.
    Page(TopicPage),
    /// Only the disk has them: call [`TopicStreams::read`].
    Ask,
}

/// The outcome for a record of a topic when its batch was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicAppend {
    /// It has this sequence, and is durable when the offset of the batch is.
    Appended(Sequence),
    /// A record with its id has been appended before, under this sequence; it is durable when the offset of the batch is.
    AlreadyAppended(Sequence),
    /// The turn that it belongs to was refused, so it was not appended; if that turn has been appended before, so has this
    /// record.
    WithTurn,
    /// Another owner has its partition, under this epoch: it was not appended.
    Fenced {
        /// The partition's epoch.
        current: Epoch,
    },
    /// There is no topic of its number: it was not appended.
    UnknownTopic,
}
