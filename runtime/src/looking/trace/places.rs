//! The places of records: by a topic's name, a token, or the operation that published one.

use millrun_core::{Cause, RunId, Sequence};
use millrun_persistence::{ReadError, TopicNumber, TopicRecord};

use super::bounds::TraceBounds;
use super::error::TraceError;
use super::links::{TraceLink, TraceOf, TraceOutcome, TraceRelation};
use crate::StopCause;
use crate::inner::Inner;
use crate::topics::RecordToken;
use crate::topics::durable::declared::KnownTopic;
use crate::topics::durable::stored::StoredHeader;

impl Inner {
    /// The topic of this name in the journal, whether or not it is registered with the runtime.
    pub(super) fn known_topic(&self, name: &str) -> Result<KnownTopic, TraceError> {
        let unknown = || TraceError::UnknownTopic {
            name: name.to_owned(),
        };
        let declared = self.shared.durable.named(name);
        if let Some(known) = declared.filter(|known| !self.shared.durable.is_deleted(known.number)) {
            return Ok(known);
        }
        let streams = self.shared.journal.topics().ok_or_else(unknown)?;
        let own = name.starts_with("millrun.");
        let all = streams.list();
        let found = all.iter().find(|topic| topic.name == name && !own);
        Ok(KnownTopic {
            number: found.ok_or_else(unknown)?.number,
            store: streams.store_number(),
        })
    }

    /// The name of the topic of a token.
    pub(super) fn topic_of(&self, token: RecordToken) -> Result<String, TraceError> {
        let streams = self.shared.journal.topics().ok_or(TraceError::OtherStore)?;
        if streams.store_number() != token.store() {
            return Err(TraceError::OtherStore);
        }
        let summary = streams.summary(token.topic());
        summary.map(|summary| summary.name).ok_or(TraceError::OtherStore)
    }

    /// A record of a topic.
    pub(super) async fn traced_record(
        &self,
        (topic, name): (TopicNumber, &str),
        sequence: Sequence,
    ) -> Result<TopicRecord, TraceError> {
        let topic_name = || name.to_owned();
        let before = Sequence::new(sequence.get().saturating_sub(1));
        let read = self.record_behind(topic, before).await?;
        let read = read.map_err(|error| match error {
            ReadError::UnknownTopic { .. } => TraceError::UnknownTopic { name: topic_name() },
            error => TraceError::Read(error),
        })?;
        if let Some(record) = read
            && record.sequence == sequence
        {
            return Ok(record);
        }
        let (first, last) = match self.streams().summary(topic) {
            Some(summary) => (summary.first, summary.last),
            None => (Sequence::new(1), Sequence::ZERO),
        };
        Err(match sequence < first {
            true => TraceError::Trimmed {
                topic: topic_name(),
                sequence,
                before: first,
            },
            false => TraceError::NotYet {
                topic: topic_name(),
                sequence,
                last,
            },
        })
    }

    /// Completes the other end of a link: a token gets its record, and a publish its place.
    pub(super) async fn resolve(
        &self,
        run: RunId,
        link: &mut TraceLink,
        bounds: &TraceBounds,
        looked_at: &mut u64,
    ) -> Result<(), StopCause> {
        if let Some(TraceOf::Token(token)) = link.to {
            link.to = None;
            match self.topic_of(token) {
                Ok(topic) => {
                    let sequence = token.sequence();
                    link.to = Some(TraceOf::Record { topic, sequence });
                }
                Err(error) => link.outcome = TraceOutcome::Unknown(error.to_string()),
            }
        }
        if link.relation == TraceRelation::Published
            && link.outcome == TraceOutcome::Done
            && let Err(error) = self.find_published(run, link, bounds, looked_at).await?
        {
            link.outcome = TraceOutcome::Unknown(format!("the record cannot be looked for: {error}"));
        }
        Ok(())
    }

    /// Looks for the record of a publish: it was appended in the turn that told the run so, and names the operation.
    async fn find_published(
        &self,
        run: RunId,
        link: &mut TraceLink,
        bounds: &TraceBounds,
        looked_at: &mut u64,
    ) -> Result<Result<(), ReadError>, StopCause> {
        let (Some(topic), Some(at), Some(operation)) = (link.name.clone(), link.at, link.operation) else {
            return Ok(Ok(()));
        };
        // A topic in memory keeps no records.
        let Ok(KnownTopic { number, .. }) = self.known_topic(&topic) else {
            return Ok(Ok(()));
        };
        let cause = Cause {
            run,
            operation: operation.get(),
        };
        let at_time = self.shared.reader.view_topic_at_time(number, at);
        let mut after = match self.lane_answer(at_time).await? {
            Ok(after) => after,
            Err(error) => return Ok(Err(error)),
        };
        let bytes_max = self.shared.config.topic_page_bytes_max;
        let mut left = bounds.records_len_max;
        while left > 0 {
            let read = self.shared.reader.view_topic_page(number, after, bytes_max);
            let page = match self.lane_answer(read).await? {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            for record in page.records().take(left) {
                left -= 1;
                *looked_at += 1;
                let header = StoredHeader::decode(&record.body);
                if header.is_ok_and(|(header, _)| header.cause == Some(cause) && header.record.is_none()) {
                    let sequence = record.sequence;
                    link.to = Some(TraceOf::Record { topic, sequence });
                    return Ok(Ok(()));
                }
            }
            if page.chunks.is_empty() {
                break;
            }
            after = page.last();
        }
        let first = self
            .streams()
            .summary(number)
            .map_or(Sequence::ZERO, |summary| summary.first);
        link.outcome = TraceOutcome::Unknown(match left {
            0 => "the record was not found among those that were looked at".to_owned(),
            _ => format!("the record is gone: trimmed before {first}"),
        });
        Ok(Ok(()))
    }
}
