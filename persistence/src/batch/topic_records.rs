//! Records of topics in a batch: with turns, or by themselves.

use std::ops::Range;

use millrun_core::{Epoch, Partition, Timestamp};

use super::Batch;
use crate::error::TurnError;
use crate::topics::TopicNumber;
use crate::wire::topic_frame;

/// Which topic a record is appended to, and under which conditions.
#[derive(Clone, Copy, Debug)]
pub struct TopicRecordHeader {
    /// The topic, as the journal has [declared](crate::TopicStreams::declare) it.
    pub topic: TopicNumber,
    /// The partition that the record belongs to.
    pub partition: Partition,
    /// The epoch under which the writer owns the partition.
    pub epoch: Epoch,
    /// When it is appended.
    pub time: Timestamp,
    /// An id of the writer's choice. A record of the topic with an id that is remembered
    /// ([`topic_ids_len_max`](crate::JournalConfig::topic_ids_len_max)) is not appended again.
    pub id: Option<u128>,
    /// The index of the turn in this batch that the record belongs to: the record is appended if that turn is taken.
    pub with: Option<usize>,
}

/// A record of a topic in a [`Batch`], made by [`Batch::topic_record_views`].
#[derive(Clone, Copy, Debug)]
pub struct TopicRecordView<'a> {
    /// Which topic it is appended to, and under which conditions.
    pub header: TopicRecordHeader,
    /// The bytes that the writer wrote.
    pub body: &'a [u8],
}

/// The records of topics in a batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchTopics {
    bytes: Vec<u8>,
    spans: Vec<TopicRecordSpan>,
}

/// Where a record of a topic stands in its batch, and under which conditions it may be appended.
#[derive(Clone, Debug)]
pub(crate) struct TopicRecordSpan {
    frame: Range<usize>,
    pub(crate) topic: TopicNumber,
    pub(crate) partition: Partition,
    pub(crate) epoch: Epoch,
    pub(crate) time: Timestamp,
    pub(crate) id: Option<u128>,
    pub(crate) with: Option<usize>,
}

impl BatchTopics {
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn spans(&self) -> &[TopicRecordSpan] {
        &self.spans
    }

    pub(crate) fn frame(&self, span: &TopicRecordSpan) -> &[u8] {
        &self.bytes[span.frame.clone()]
    }
}

impl Batch {
    /// Adds a record of a topic, with a body that is given in pieces. Returns its index among the records of topics;
    /// [`Enqueued::topic_appends`](crate::Enqueued::topic_appends) has its outcome at that index. The record counts towards
    /// the size of the batch, not of a turn.
    ///
    /// ```
    /// # use millrun_core::{Epoch, Partition, Timestamp};
    /// # use millrun_persistence::{Batch, TopicNumber, TopicRecordHeader};
    /// let mut batch = Batch::new();
    /// let header = TopicRecordHeader {
    ///     topic: TopicNumber::new(0),
    ///     partition: Partition::of(b"order-42"),
    ///     epoch: Epoch::new(1),
    ///     time: Timestamp::from_micros(1_700_000_000_000_000),
    ///     id: Some(42),
    ///     with: None,
    /// };
    /// assert_eq!(batch.topic_record(header, &[b"header", b"payload"])?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TurnError::TooLarge`] above the batch's `turn_bytes_max`, [`TurnError::NoSuchTurn`] if it belongs to a turn that is
    /// not in the batch. The batch is then unchanged.
    pub fn topic_record(&mut self, header: TopicRecordHeader, body: &[&[u8]]) -> Result<usize, TurnError> {
        let body_bytes: usize = body.iter().map(|piece| piece.len()).sum();
        let (bytes, max) = (
            body_bytes.saturating_add(topic_frame::HEADER_BYTES + 16),
            self.turn_bytes_max,
        );
        if bytes > max {
            return Err(TurnError::TooLarge { bytes, max });
        }
        if header.with.is_some_and(|turn| turn >= self.turns.len()) {
            return Err(TurnError::NoSuchTurn);
        }
        let topics = self.topics.get_or_insert_default();
        let start = topics.bytes.len();
        topic_frame::put(&mut topics.bytes, header.partition, header.time, header.id, body);
        topics.spans.push(TopicRecordSpan {
            frame: start..topics.bytes.len(),
            topic: header.topic,
            partition: header.partition,
            epoch: header.epoch,
            time: header.time,
            id: header.id,
            with: header.with,
        });
        (self.topics_len, self.topics_bytes) = (topics.spans.len(), topics.bytes.len());
        Ok(self.topics_len - 1)
    }

    /// Removes all records of topics.
    #[cold]
    pub(super) fn clear_topics(&mut self) {
        (self.topics_len, self.topics_bytes) = (0, 0);
        if let Some(topics) = &mut self.topics {
            topics.bytes.clear();
            topics.spans.clear();
        }
    }

    /// The records of topics, in order: what a journal takes.
    ///
    /// ```
    /// # let batch = millrun_persistence::Batch::new();
    /// for record in batch.topic_record_views() {
    ///     println!("{} bytes for {}", record.body.len(), record.header.topic);
    /// }
    /// ```
    pub fn topic_record_views(&self) -> impl Iterator<Item = TopicRecordView<'_>> + '_ {
        let topics = self.topics.as_deref();
        topics.into_iter().flat_map(|topics| {
            topics.spans.iter().map(|span| {
                let id_bytes = if span.id.is_some() { 16 } else { 0 };
                TopicRecordView {
                    header: TopicRecordHeader {
                        topic: span.topic,
                        partition: span.partition,
                        epoch: span.epoch,
                        time: span.time,
                        id: span.id,
                        with: span.with,
                    },
                    body: &topics.frame(span)[topic_frame::HEADER_BYTES + id_bytes..],
                }
            })
        })
    }

    /// How many records of topics it has.
    #[must_use]
    pub fn topic_records(&self) -> usize {
        self.topics_len
    }

    /// The records of topics; `None` if there are none.
    pub(crate) fn topics(&self) -> Option<&BatchTopics> {
        if self.topics_len == 0 {
            return None;
        }
        self.topics.as_deref()
    }
}
