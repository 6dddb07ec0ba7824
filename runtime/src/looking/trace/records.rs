//! The page of a record: its origin, the subscriptions of its topic, and the runs that have it in their histories.

use millrun_core::{Cause, RunId, Sequence, Timestamp};
use millrun_persistence::{TimeRange, TopicRecord};

use super::bounds::TraceBounds;
use super::cursor::{CursorPlace, TraceCursor};
use super::error::TraceError;
use super::found::TraceBeginning;
use super::links::{TraceLink, TraceNode, TraceOf, TraceOutcome, TracePage, TraceRelation};
use crate::RunError;
use crate::Runtime;
use crate::inner::Inner;
use crate::looking::find::{RunCursor, RunSearch};
use crate::topics::RecordToken;
use crate::topics::durable::declared::KnownTopic;
use crate::topics::durable::standing::{RecordAtSubscription, StandingOfRecord};
use crate::topics::durable::stored::StoredHeader;

/// How many links to one run a page has at most.
const LINKS_OF_ONE_RUN_MAX: usize = 100;

/// Something that is searched in the histories of runs, as a cause.
pub(super) trait SoughtInRuns {
    /// Runs that ended earlier cannot have it.
    fn since(&self) -> Timestamp;

    /// Whether this cause of a run is it.
    fn is_sought(&self, cause: &TraceLink) -> bool;

    /// Whether the run has taken this cause over from the run that it continues.
    fn is_inherited(&self, _cause: &TraceLink, _began: &TraceBeginning) -> bool {
        false
    }

    /// Whether this run is skipped.
    fn skips(&self, _run: RunId) -> bool {
        false
    }

    /// The cause of a run, turned into an effect of what is searched.
    fn effect(&self, cause: TraceLink, _began: &TraceBeginning) -> TraceLink {
        cause
    }
}

/// A record that is searched in histories.
struct SoughtRecord {
    of: TraceOf,
    token: TraceOf,
    since: Timestamp,
}

impl SoughtInRuns for SoughtRecord {
    fn since(&self) -> Timestamp {
        self.since
    }

    fn is_sought(&self, cause: &TraceLink) -> bool {
        cause
            .to
            .as_ref()
            .is_some_and(|to| *to == self.token || *to == self.of)
    }
}

impl Runtime {
    pub(super) async fn trace_record(
        &self,
        (known, topic): (KnownTopic, String),
        sequence: Sequence,
        after: Option<TraceCursor>,
        bounds: &TraceBounds,
    ) -> Result<TracePage, TraceError> {
        let (skipped, mut runs_after) = match after.map(|after| after.0) {
            None => (Some(0), None),
            Some(CursorPlace::Known(len)) => (Some(len), None),
            Some(CursorPlace::Runs(after)) => (None, after),
            Some(CursorPlace::Event(_) | CursorPlace::Records(_)) => return Err(TraceError::OtherCursor),
        };
        let inner = self.inner();
        let record = inner.traced_record((known.number, &topic), sequence).await?;
        let header = match StoredHeader::decode(&record.body) {
            Ok((header, _)) => header,
            Err(error) => {
                let problem = error.to_string();
                return Err(TraceError::Undecodable {
                    topic,
                    sequence,
                    problem,
                });
            }
        };
        let mut page = TracePage {
            of: TraceOf::Record {
                topic: topic.clone(),
                sequence,
            },
            about: TraceNode::Record {
                token: RecordToken::new(known.store, known.number, sequence),
                appended_at: record.time,
                key: header.key.as_deref().map(Into::into),
                correlation: header.correlation.as_deref().map(Into::into),
                trace: header.trace,
            },
            causes: Vec::new(),
            effects: Vec::new(),
            trimmed_before: None,
            looked_at: 1,
            next: None,
        };
        if let Some(skipped) = skipped {
            let (causes, effects) = inner.known_of_record(known, &topic, &record, &header).await?;
            let all = causes.into_iter().map(|link| (true, link));
            let mut all = all
                .chain(effects.into_iter().map(|link| (false, link)))
                .skip(skipped);
            let taken: Vec<_> = all.by_ref().take(bounds.links_len_max).collect();
            let (len, has_more) = (taken.len(), all.next().is_some());
            for (is_cause, link) in taken {
                match is_cause {
                    true => page.causes.push(link),
                    false => page.effects.push(link),
                }
            }
            if has_more {
                page.next = Some(TraceCursor(CursorPlace::Known(skipped + len)));
                return Ok(page);
            }
            if len == bounds.links_len_max {
                page.next = Some(TraceCursor(CursorPlace::Runs(None)));
                return Ok(page);
            }
        }
        let sought = SoughtRecord {
            of: page.of.clone(),
            token: TraceOf::Token(RecordToken::new(known.store, known.number, sequence)),
            since: record.time,
        };
        let is_done = self
            .look_through_runs(&mut page, &sought, &mut runs_after, bounds)
            .await?;
        page.next = (!is_done).then_some(TraceCursor(CursorPlace::Runs(runs_after)));
        Ok(page)
    }

    /// Searches the histories of runs: live ones, and then those that ended later than it. Returns whether all were searched.
    pub(super) async fn look_through_runs(
        &self,
        page: &mut TracePage,
        sought: &impl SoughtInRuns,
        after: &mut Option<RunCursor>,
        bounds: &TraceBounds,
    ) -> Result<bool, TraceError> {
        let is_live = |cursor: &Option<RunCursor>| cursor.is_none_or(|cursor| cursor.is_among_live());
        let ended = TimeRange {
            from: sought.since(),
            ..TimeRange::default()
        };
        let finished = RunSearch::new().finished().ended(ended);
        let live = RunSearch::new().live();
        let (mut runs_left, mut events_left) = (bounds.runs_len_max, bounds.events_len_max as u64);
        loop {
            let is_among_live = is_live(after);
            let filter = if is_among_live { &live } else { &finished };
            let found = self.find(filter, *after, runs_left.min(64)).await?;
            for run in &found.runs {
                *after = Some(RunCursor::behind(run));
                runs_left -= 1;
                page.looked_at += 1;
                let events = match sought.skips(run.run) {
                    true => 0,
                    false => self.inner().effects_in_run(page, sought, run.run).await?,
                };
                page.looked_at += events;
                events_left = events_left.saturating_sub(events);
                if runs_left == 0 || events_left == 0 || page.links_len() >= bounds.links_len_max {
                    return Ok(false);
                }
            }
            match found.next {
                Some(next) => *after = Some(next),
                None if is_among_live => *after = Some(RunCursor::before_finished()),
                None => return Ok(true),
            }
            if found.runs.is_empty() && found.next.is_some() {
                // Many were skipped: the next page continues.
                return Ok(false);
            }
        }
    }
}

impl Inner {
    /// Adds the occurrences in this run's history. Returns the number of events that were read.
    async fn effects_in_run(
        &self,
        page: &mut TracePage,
        sought: &impl SoughtInRuns,
        run: RunId,
    ) -> Result<u64, TraceError> {
        let (began, causes, events) = match self.causes_of(run).await {
            Ok(found) => found,
            // It has ended since it was found, and is not retained.
            Err(TraceError::Run(RunError::NotFound | RunError::Expired)) => return Ok(0),
            Err(TraceError::Run(error)) => {
                let mut link = TraceLink::of(TraceRelation::Outside).to(run);
                link.outcome = TraceOutcome::Unknown(error.to_string());
                page.effects.push(link);
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
        let mut told = 0;
        for link in causes {
            let is_unread = matches!(link.outcome, TraceOutcome::Unknown(_)) && link.to.is_none();
            if !is_unread && (!sought.is_sought(&link) || sought.is_inherited(&link, &began)) {
                continue;
            }
            if told == LINKS_OF_ONE_RUN_MAX {
                let mut more = TraceLink::of(link.relation).to(run);
                more.outcome = TraceOutcome::Unknown("there are more of this run".to_owned());
                page.effects.push(more);
                break;
            }
            told += 1;
            let mut link = sought.effect(link, &began);
            link.to = Some(TraceOf::Run(run));
            link.instance = Some(began.id.clone());
            page.effects.push(link);
        }
        Ok(events)
    }

    /// The links of a record that are known without searching runs.
    async fn known_of_record(
        &self,
        known: KnownTopic,
        topic: &str,
        record: &TopicRecord,
        header: &StoredHeader,
    ) -> Result<(Vec<TraceLink>, Vec<TraceLink>), TraceError> {
        let mut causes = Vec::new();
        if let Some(token) = header.record {
            let relation = match token.topic() == known.number {
                true => TraceRelation::SentBack,
                false => TraceRelation::Buried,
            };
            let mut link = TraceLink::of(relation).at(record.time);
            match self.topic_of(token) {
                Ok(topic) => {
                    let sequence = token.sequence();
                    link.to = Some(TraceOf::Record { topic, sequence });
                }
                Err(error) => link.outcome = TraceOutcome::Unknown(error.to_string()),
            }
            causes.push(link);
        } else if let Some(cause) = header.cause {
            causes.push(published_by(cause).at(record.time));
        } else {
            causes.push(TraceLink::of(TraceRelation::Outside).at(record.time));
        }
        let mut effects = Vec::new();
        for at in self
            .record_at_subscriptions((known, topic), record.sequence)
            .await?
        {
            effects.extend(of_subscription(topic, at));
        }
        Ok((causes, effects))
    }
}

fn published_by(cause: Cause) -> TraceLink {
    let mut link = TraceLink::of(TraceRelation::CausedBy).to(cause);
    link.operation = Some(millrun_workflow::OperationId::new(cause.operation));
    link
}

fn of_subscription(topic: &str, at: RecordAtSubscription) -> impl Iterator<Item = TraceLink> {
    let RecordAtSubscription {
        subscription,
        standing,
        buried,
        sent_back,
    } = at;
    let link = |relation| TraceLink::of(relation).named(subscription.as_str());
    let mut stands = link(TraceRelation::Subscription);
    stands.outcome = match standing {
        StandingOfRecord::Acknowledged => TraceOutcome::Done,
        StandingOfRecord::Waiting => TraceOutcome::Open,
        StandingOfRecord::Leased => TraceOutcome::Leased,
        StandingOfRecord::Returned { deliveries, error } => {
            stands.attempts = Some(deliveries);
            TraceOutcome::Returned(error)
        }
        StandingOfRecord::Unknown(why) => TraceOutcome::Unknown(why),
    };
    let record = |topic: String, sequence| TraceOf::Record { topic, sequence };
    let buried = buried.map(|(topic, sequence)| link(TraceRelation::Buried).to(record(topic, sequence)));
    let sent_back =
        sent_back.map(|sequence| link(TraceRelation::SentBack).to(record(topic.to_owned(), sequence)));
    [Some(stands), buried, sent_back].into_iter().flatten()
}
