//! Records of durable topics on their way into the journal: those of callers go alone, those of runs with a turn.
//!
//! ```text
//!   caller ─► Append ──────────────────────────────► record ─┐           ┌─► answer, once durable
//!                                                            ├─► batch ──┤
//!   turn ─► Publish ─► before the sweep is queued:           │           └─► (the run knows already)
//!                      Published, a turn of its own ─ with ─► record ─┘
//! ```
//!
//! Invariant: a record of a run is in the journal if and only if the run's history says that it was published, as both are in
//! one turn of one batch. So a pending publish was never performed, whatever happened in between; it is performed when the
//! run is in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use millrun_core::{Cause, Epoch, InstanceId, Partition, RunId, Sequence, TraceContext};
use millrun_persistence::{TopicAppend, TopicNumber, TopicRecordHeader};
use millrun_workflow::{Input, Moment, OperationId, Pending, PublishOutcome, PublishScheduled};

use crate::mail::{AppendRequest, Reply};
use crate::ownership::partition_set::PartitionSet;
use crate::shard::Shard;
use crate::shard::partitions::owned::of_no_run;
use crate::shard::runs::entry::{Errand, Residence, Sender};
use crate::shard::sweeps::answers::Response;
use crate::topics::durable::publish::{Appended, DurablePublishError, record_bytes_max};
use crate::topics::durable::stored::StoredHeader;

/// What is to be appended to durable topics.
#[derive(Debug, Default)]
pub(in crate::shard) struct Appends {
    /// What runs have decided to publish in this sweep.
    decided: VecDeque<(RunId, OperationId)>,
    /// Callers whose records are in the present batch.
    asked: Vec<AskedAppend>,
}

/// A caller whose record is in the present batch.
#[derive(Debug)]
struct AskedAppend {
    /// Its index among the records of the batch.
    index: usize,
    partition: Partition,
    epoch: Epoch,
    reply: Reply<Appended, DurablePublishError>,
}

/// What a run publishes to a durable topic.
pub(in crate::shard) struct RunRecord {
    topic: TopicNumber,
    scheduled: Arc<PublishScheduled>,
    /// The id of the run's instance.
    id: InstanceId,
    trace: Option<TraceContext>,
}

impl Appends {
    /// Whether runs have decided to publish records that are not in the batch yet.
    #[inline]
    pub(in crate::shard) fn are_due(&self) -> bool {
        !self.decided.is_empty()
    }

    /// Whether callers have records in the present batch.
    #[inline]
    pub(in crate::shard) fn has_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Notes that a run publishes to a durable topic. The record joins the batch before the sweep is queued.
    pub(in crate::shard) fn decide(&mut self, run: RunId, operation: OperationId) {
        self.decided.push_back((run, operation));
    }
}

impl Shard {
    /// Puts a caller's record into the sweep's batch.
    #[cold]
    pub(in crate::shard) fn on_append(&mut self, request: AppendRequest, moment: Moment) {
        let AppendRequest {
            topic,
            partition,
            id,
            body,
            payload_len,
            more,
            unless_changed,
            reply,
        } = request;
        let is_as_known = unless_changed.is_none_or(|(topic, last)| self.is_last_record(topic, last));
        let Some(epoch) = self.epochs.get(partition).filter(|_| is_as_known) else {
            reply.send(Err(DurablePublishError::Moved { partition }));
            return;
        };
        let record = TopicRecordHeader {
            topic,
            partition,
            epoch,
            time: moment.now,
            id,
            with: None,
        };
        let mut appended = self.sweeps.append(record, &[&body]);
        for body in more {
            // All records are in one batch, so the result of the last holds for each.
            appended = appended.and_then(|_| self.sweeps.append(record, &[&body]));
        }
        match appended {
            Ok(index) => self.appends.asked.push(AskedAppend {
                index,
                partition,
                epoch,
                reply,
            }),
            Err(_) => {
                let bytes_max = record_bytes_max(self.shared.config.journal.turn_bytes_max);
                let bytes = payload_len;
                reply.send(Err(DurablePublishError::TooLarge { bytes, bytes_max }));
            }
        }
    }

    /// Whether `last` is the latest record of a topic that only the owner of one partition writes. While this shard owns the
    /// partition, no former owner can add a record, and the summary has each record of this shard once its writer has been
    /// answered.
    fn is_last_record(&self, topic: TopicNumber, last: Sequence) -> bool {
        let streams = self.shared.journal.topics();
        let summary = streams.and_then(|streams| streams.summary(topic));
        summary.is_some_and(|summary| summary.last == last)
    }

    /// The batch is queued: its callers are answered once their records are durable.
    #[cold]
    pub(in crate::shard) fn answer_appends(&mut self) {
        let appends = self.sweeps.take_topic_appends();
        let asked = std::mem::take(&mut self.appends.asked);
        let append_of = |asked: &AskedAppend| appends.get(asked.index);
        let is_fenced = |asked: &&AskedAppend| matches!(append_of(asked), Some(TopicAppend::Fenced { .. }));
        let fenced = asked.iter().filter(is_fenced);
        let here = fenced.filter(|asked| self.epochs.get(asked.partition) == Some(asked.epoch));
        let lost: PartitionSet = here.map(|asked| asked.partition).collect();
        self.lose(&lost);
        for asked in asked {
            let partition = asked.partition;
            let answer = match append_of(&asked) {
                Some(TopicAppend::Appended(sequence)) => Ok((*sequence, false)),
                Some(TopicAppend::AlreadyAppended(sequence)) => Ok((*sequence, true)),
                Some(TopicAppend::Fenced { .. }) => Err(DurablePublishError::Moved { partition }),
                Some(_) | None => Err(DurablePublishError::UnknownTopic),
            };
            let before = self.effects.work_on(partition);
            self.effects.answer(Response::Append(asked.reply, answer));
            self.effects.resume(before);
        }
    }

    /// Performs the publishes that runs have decided in this sweep. Each run is told that it has published, in a turn that
    /// carries the record, and may publish further in it. What does not fit the batch goes into the next sweep.
    #[cold]
    pub(in crate::shard) fn append_decided(&mut self) {
        let moment = of_no_run(self.shared.host.now());
        let bytes_max = (self.shared.config.journal.batch_bytes_max / 2).max(1);
        let mut left = self.shared.config.sweep_len_max;
        while left > 0
            && self.sweeps.bytes() < bytes_max
            && let Some((run, operation)) = self.appends.decided.pop_front()
        {
            self.with_run(run, Errand::Append(operation), moment);
            left -= 1;
        }
    }

    /// The record that a run in memory publishes with this operation; `None` if the operation is not pending, or its topic is
    /// not durable.
    pub(in crate::shard) fn record_of(&self, run: RunId, operation: OperationId) -> Option<RunRecord> {
        if self.shared.durable.is_empty() {
            return None;
        }
        let entry = self.entries.get(run)?;
        let Residence::Hot(instance) = &entry.residence else {
            return None;
        };
        let Some(Pending::Publish { scheduled, .. }) = instance.ledger().pending_operation(operation) else {
            return None;
        };
        Some(RunRecord {
            topic: self.shared.durable.number(&scheduled.topic)?,
            scheduled: Arc::clone(scheduled),
            id: entry.id.clone(),
            trace: entry.trace().copied(),
        })
    }

    /// Performs a run's publish to a durable topic: writes the turn that tells the run, with the record in it.
    pub(in crate::shard) fn append(&mut self, run: RunId, record: &RunRecord, moment: Moment) {
        let operation = record.scheduled.operation;
        let cause = Cause {
            run,
            operation: operation.get(),
        };
        let texts = record.scheduled.texts.as_deref();
        let header = StoredHeader {
            key: Some(
                texts
                    .and_then(|texts| texts.key.as_deref())
                    .unwrap_or(record.id.as_str()),
            ),
            correlation: texts.and_then(|texts| texts.correlation.as_deref()),
            content_type: texts.and_then(|texts| texts.content_type.as_deref()),
            cause: Some(cause),
            trace: record.trace.map(|trace| trace.at_operation(cause)),
            record: None,
        };
        let payload = &record.scheduled.value;
        let (bytes, bytes_max) = (
            payload.len(),
            record_bytes_max(self.shared.config.journal.turn_bytes_max),
        );
        let is_small = bytes <= bytes_max;
        let is_deleted = self.shared.durable.is_deleted(record.topic);
        let outcome = if is_deleted {
            Err("the topic was deleted".to_owned())
        } else if is_small {
            Ok(PublishOutcome::Taken)
        } else {
            Err(format!(
                "the value has {bytes} bytes, a record may have {bytes_max}"
            ))
        };
        let turn = self.sweeps.turns_len();
        // If the turn cannot be recorded, the publish stays pending and is tried again.
        let input = Input::Published { operation, outcome };
        drop(self.apply(run, input, moment, Sender::Append(operation)));
        if !is_small || is_deleted || self.sweeps.turns_len() == turn {
            return;
        }
        let header_of_record = TopicRecordHeader {
            topic: record.topic,
            partition: run.partition(),
            epoch: self.epoch_of(run),
            time: moment.now,
            id: None,
            with: Some(turn),
        };
        self.sweeps
            .append(header_of_record, &[&header.encode(), payload.as_bytes()])
            .expect("its size was checked, and its turn is in the batch");
    }
}
