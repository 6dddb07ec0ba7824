//! The effects of the trimmed part of a run. They are not in the history any more, but records and runs name the operation
//! that caused them, and so these are searched, some for each page.
//!
//! ```text
//!   trimmed: operations 0 to n, but for those that had not ended
//!      ▲            ▲
//!   records of    beginnings, signals and commands
//!   all topics    of all runs that may be younger
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use millrun_core::{Cause, RunId, Sequence, Timestamp};
use millrun_persistence::{ReadError, TopicNumber};
use millrun_workflow::{OperationId, OutcomeKind};

use super::bounds::TraceBounds;
use super::cursor::{CursorPlace, TraceCursor};
use super::error::TraceError;
use super::found::TraceBeginning;
use super::links::{TraceLink, TraceNode, TraceOf, TraceOutcome, TracePage, TraceRelation};
use super::records::SoughtInRuns;
use crate::Runtime;
use crate::topics::durable::stored::StoredHeader;

/// How much later than the run's own time a record of its trimmed part may be dated, because clocks of shards differ.
const LATER_MAX: Duration = Duration::from_secs(60);

/// For a topic: behind all records.
const BEHIND_ALL: Sequence = Sequence::new(u64::MAX);

/// The operations of a run that its history does not contain any more: all of them, or one.
pub(super) struct TrimmedPart {
    run: RunId,
    /// Their number; the first is number 1.
    operations_len: u32,
    /// Those that had not ended at the checkpoint: the history contains them.
    pending: BTreeSet<OperationId>,
    only: Option<u32>,
    from: Timestamp,
    until: Timestamp,
}

impl TrimmedPart {
    /// The trimmed part of a run, if it has one that contains this operation.
    pub(super) fn of(began: &TraceBeginning, operation: Option<u32>) -> Option<Self> {
        let (kept, _) = began.kept.as_ref()?;
        let later_max = u64::try_from(LATER_MAX.as_micros()).unwrap_or(u64::MAX);
        let trimmed = Self {
            run: began.run,
            operations_len: kept.operations_len(),
            pending: kept.ledger().pending().map(|(operation, _)| operation).collect(),
            only: operation,
            from: began.run.started(),
            until: Timestamp::from_micros(kept.recorded_at().as_micros().saturating_add(later_max)),
        };
        let is_of_it = operation.is_none_or(|operation| {
            trimmed.has(Cause {
                run: began.run,
                operation,
            })
        });
        is_of_it.then_some(trimmed)
    }

    fn has(&self, cause: Cause) -> bool {
        cause.run == self.run
            && cause.operation <= self.operations_len
            && self.only.is_none_or(|only| only == cause.operation)
            && !self.pending.contains(&OperationId::new(cause.operation))
    }
}

impl SoughtInRuns for TrimmedPart {
    fn since(&self) -> Timestamp {
        self.from
    }

    fn is_sought(&self, cause: &TraceLink) -> bool {
        matches!(cause.to, Some(TraceOf::Operation(operation)) if self.has(operation))
    }

    fn is_inherited(&self, cause: &TraceLink, began: &TraceBeginning) -> bool {
        // A run that continues another has that one's parent, which called the first.
        let is_of_beginning = matches!(cause.relation, TraceRelation::Child | TraceRelation::CausedBy);
        let origin = began.started.origin.as_deref();
        is_of_beginning && origin.is_some_and(|origin| origin.continued.is_some())
    }

    fn skips(&self, run: RunId) -> bool {
        run == self.run
    }

    fn effect(&self, mut cause: TraceLink, began: &TraceBeginning) -> TraceLink {
        if cause.relation == TraceRelation::Child {
            cause.outcome = match began.ended {
                None => TraceOutcome::Open,
                Some((OutcomeKind::Completed, _)) => TraceOutcome::Done,
                Some((OutcomeKind::Continued, _)) => {
                    TraceOutcome::Unknown("it goes on in another run, which its own trace tells".to_owned())
                }
                Some((OutcomeKind::Cancelled, _)) => TraceOutcome::Cancelled,
                Some((OutcomeKind::Failed, _)) => TraceOutcome::Failed("the child failed".to_owned()),
                Some((OutcomeKind::Terminated, _)) => {
                    TraceOutcome::Failed("the child was terminated".to_owned())
                }
                Some((OutcomeKind::TimedOut, _)) => {
                    TraceOutcome::Failed("the child was out of time".to_owned())
                }
            };
        }
        cause
    }
}

impl Runtime {
    /// Continues a page after the links of the history, from `place`.
    pub(super) async fn look_for_trimmed(
        &self,
        page: &mut TracePage,
        trimmed: &TrimmedPart,
        place: CursorPlace,
        bounds: &TraceBounds,
    ) -> Result<(), TraceError> {
        let mut runs_after = None;
        match place {
            CursorPlace::Runs(after) => runs_after = after,
            CursorPlace::Records(mut after) => {
                let is_done = self
                    .look_through_topics(page, trimmed, &mut after, bounds)
                    .await?;
                if !is_done || page.links_len() >= bounds.links_len_max {
                    page.next = Some(TraceCursor(match is_done {
                        true => CursorPlace::Runs(None),
                        false => CursorPlace::Records(after),
                    }));
                    return Ok(());
                }
            }
            CursorPlace::Event(_) | CursorPlace::Known(_) => return Err(TraceError::OtherCursor),
        }
        let is_done = self
            .look_through_runs(page, trimmed, &mut runs_after, bounds)
            .await?;
        page.next = (!is_done).then_some(TraceCursor(CursorPlace::Runs(runs_after)));
        Ok(())
    }

    /// Searches the records of the trimmed part, topic by topic. Returns whether all were searched.
    async fn look_through_topics(
        &self,
        page: &mut TracePage,
        trimmed: &TrimmedPart,
        after: &mut Option<(TopicNumber, Sequence)>,
        bounds: &TraceBounds,
    ) -> Result<bool, TraceError> {
        let inner = self.inner();
        let Some(streams) = inner.shared.journal.topics() else {
            return Ok(true);
        };
        let mut topics = streams.list();
        topics.retain(|topic| {
            let is_behind = after.is_none_or(|(at, sequence)| match sequence == BEHIND_ALL {
                true => topic.number > at,
                false => topic.number >= at,
            });
            is_behind && !topic.name.starts_with("millrun.")
        });
        topics.sort_unstable_by_key(|topic| topic.number);
        let bytes_max = inner.shared.config.topic_page_bytes_max;
        let mut left = bounds.records_len_max;
        for topic in topics {
            let number = topic.number;
            let mut at = match *after {
                Some((within, sequence)) if within == number => sequence,
                _ => {
                    // A topic without a record to examine counts, too.
                    let Some(fewer) = left.checked_sub(1) else {
                        return Ok(false);
                    };
                    left = fewer;
                    let at_time = inner.shared.reader.view_topic_at_time(number, trimmed.from);
                    match inner.lane_answer(at_time).await? {
                        Ok(at) => at,
                        Err(ReadError::UnknownTopic { .. }) => continue,
                        Err(error) => {
                            page.effects.push(unreadable(&topic.name, &error));
                            *after = Some((number, BEHIND_ALL));
                            continue;
                        }
                    }
                }
            };
            *after = Some((number, at));
            'topic: loop {
                let read = inner.shared.reader.view_topic_page(number, at, bytes_max);
                let records = match inner.lane_answer(read).await? {
                    Ok(records) => records,
                    Err(ReadError::UnknownTopic { .. }) => break,
                    Err(error) => {
                        page.effects.push(unreadable(&topic.name, &error));
                        *after = Some((number, BEHIND_ALL));
                        break;
                    }
                };
                if records.chunks.is_empty() {
                    break;
                }
                for record in records.records() {
                    if record.time > trimmed.until {
                        break 'topic;
                    }
                    if left == 0 || page.links_len() >= bounds.links_len_max {
                        return Ok(false);
                    }
                    left -= 1;
                    page.looked_at += 1;
                    at = record.sequence;
                    *after = Some((number, at));
                    let Ok((header, _)) = StoredHeader::decode(&record.body) else {
                        continue;
                    };
                    if let Some(cause) = header.cause
                        && header.record.is_none()
                        && trimmed.has(cause)
                    {
                        let to = TraceOf::Record {
                            topic: topic.name.clone(),
                            sequence: record.sequence,
                        };
                        let mut link = TraceLink::of(TraceRelation::Published).to(to).at(record.time);
                        link.operation = Some(OperationId::new(cause.operation));
                        page.effects.push(link.named(topic.name.as_str()));
                    }
                }
                at = records.last();
            }
        }
        Ok(true)
    }
}

impl TracePage {
    /// A page of a run, or of one of its operations, without a link.
    pub(super) fn bare(began: &TraceBeginning, operation: Option<u32>) -> Self {
        Self {
            of: match operation {
                Some(operation) => TraceOf::Operation(Cause {
                    run: began.run,
                    operation,
                }),
                None => TraceOf::Run(began.run),
            },
            about: TraceNode::of_run(began),
            causes: Vec::new(),
            effects: Vec::new(),
            trimmed_before: began.kept.as_ref().map(|(_, before)| *before),
            looked_at: 0,
            next: None,
        }
    }

    pub(super) fn links_len(&self) -> usize {
        self.causes.len() + self.effects.len()
    }
}

fn unreadable(topic: &str, error: &ReadError) -> TraceLink {
    let mut link = TraceLink::of(TraceRelation::Published).named(topic);
    link.outcome = TraceOutcome::Unknown(format!("the topic cannot be looked through: {error}"));
    link
}
