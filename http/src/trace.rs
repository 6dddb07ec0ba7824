//! Traces: what led to a run or a record, and what followed from it.
//!
//! ```text
//!   instance, run, operation ─┐
//!   record of a topic ────────┴─► Runtime::trace ──► a page of links, each with the address of what to trace next
//! ```
//!
//! Records of topics that are not exposed are traced as well, since the lists of topics and subscriptions show these too; but
//! their keys, their correlations and the words of consumers about them are left out.

use millrun::operating::{TraceBounds, TraceCursor, TraceDirection, TraceError, TraceOf, TracePage};
use millrun::store::Sequence;
use millrun::topics::{RecordToken, RecordTokenError};
use millrun::workflow::Cause;
use millrun::{InstanceId, RunError, RunId, Runtime};

use crate::problem::Problem;
use crate::query::{next_of, number, page_limit, parameters, wrong};
use crate::router::Served;
use crate::topics::ExposedTopic;
use crate::view::{Json, TraceShown, trace};

/// The page of a trace that is asked for.
struct TraceQuery {
    after: Option<TraceCursor>,
    bounds: TraceBounds,
    /// Both directions by default.
    direction: Option<TraceDirection>,
}

impl TraceQuery {
    fn of(after: Option<String>, limit: Option<String>, direction: Option<String>) -> Result<Self, Problem> {
        let after = after.map(|after| after.parse()).transpose();
        let mut bounds = TraceBounds::default();
        bounds.links_len_max = page_limit(limit)?;
        Ok(Self {
            after: after.map_err(|_| wrong("after", "it is no cursor that a page of a trace has given"))?,
            bounds,
            direction: match direction.as_deref() {
                None => None,
                Some("causes") => Some(TraceDirection::Causes),
                Some("effects") => Some(TraceDirection::Effects),
                Some(_) => return Err(wrong("direction", "causes or effects")),
            },
        })
    }

    async fn page(&self, runtime: &Runtime, of: TraceOf) -> Result<TracePage, Problem> {
        Ok(runtime.trace(of, self.after, &self.bounds).await?)
    }

    fn told(&self, page: &TracePage, query: &str, is_exposed: bool) -> Json {
        let shown = TraceShown {
            direction: self.direction,
            is_exposed,
        };
        trace(page, shown, |cursor| next_of(query, cursor))
    }
}

/// A page of the trace of an instance's latest run.
pub(crate) async fn trace_instance(runtime: &Runtime, id: &str, query: &str) -> Result<Json, Problem> {
    let [after, limit, direction] = parameters(query, ["after", "limit", "direction"])?;
    let asked = TraceQuery::of(after, limit, direction)?;
    let page = asked.page(runtime, InstanceId::new(id)?.into()).await?;
    Ok(asked.told(&page, query, true))
}

/// A page of the trace of a run, or of one of its operations.
pub(crate) async fn trace_run(runtime: &Runtime, run: RunId, query: &str) -> Result<Json, Problem> {
    let names = ["after", "limit", "direction", "operation"];
    let [after, limit, direction, operation] = parameters(query, names)?;
    let asked = TraceQuery::of(after, limit, direction)?;
    let of = match operation {
        None => run.into(),
        Some(operation) => Cause {
            run,
            operation: u32::try_from(number("operation", &operation)?)
                .map_err(|_| wrong("operation", "a whole number below 2^32 is expected"))?,
        }
        .into(),
    };
    let page = asked.page(runtime, of).await?;
    Ok(asked.told(&page, query, true))
}

/// A page of the trace of a record in a durable topic, named by a token, a number, or the id with which it was published. To
/// a caller that may not read the topic, the topic is shown as one that is not exposed.
pub(crate) async fn trace_record(
    served: &Served,
    topic: &str,
    query: &str,
    may_read: bool,
) -> Result<Json, Problem> {
    // A topic that the caller may not read is treated as one that does not exist.
    if may_read {
        served.topics.refuse_volatile(topic)?;
    }
    let names = ["after", "limit", "direction", "token", "sequence", "id"];
    let [after, limit, direction, token, sequence, id] = parameters(query, names)?;
    let asked = TraceQuery::of(after, limit, direction)?;
    let name = || topic.to_owned();
    let of = match (token, sequence, id) {
        (Some(token), None, None) => TraceOf::Token(record_token(&token)?),
        (None, Some(sequence), None) => TraceOf::Record {
            topic: name(),
            sequence: Sequence::new(number("sequence", &sequence)?),
        },
        (None, None, Some(id)) => TraceOf::RecordId { topic: name(), id },
        _ => return Err(wrong("token", "one of token, sequence and id is expected")),
    };
    let page = asked.page(&served.runtime, of).await?;
    // A token itself names the topic of its record.
    if !matches!(&page.of, TraceOf::Record { topic: of, .. } if of == topic) {
        let detail = format!("the token is of a record of another topic than {topic:?}");
        return Err(Problem::new("other-topic", detail));
    }
    let is_exposed = may_read && matches!(served.topics.get(topic), Ok(ExposedTopic::Durable(_)));
    Ok(asked.told(&page, query, is_exposed))
}

fn record_token(token: &str) -> Result<RecordToken, Problem> {
    // Forms and scripts write a space for a plus; a token may contain a plus that a client has not encoded.
    let token: Result<RecordToken, _> = token.replace(' ', "+").parse();
    token.map_err(|error: RecordTokenError| Problem::new("record-token", error.to_string()))
}

impl From<TraceError> for Problem {
    fn from(error: TraceError) -> Self {
        let told = error.to_string();
        match error {
            TraceError::Run(error) => error.into(),
            TraceError::UnknownTopic { .. } => Self::new("no-topic", told),
            TraceError::OtherStore => Self::new("other-store", told),
            TraceError::UnknownId { .. } => Self::new("no-record", told),
            TraceError::Trimmed { .. } => Self::new("record-gone", told),
            TraceError::NotYet { .. } => Self::new("record-not-yet", told),
            TraceError::Read(source) => Self::new("read", format!("{told}: {source}")),
            TraceError::Undecodable { .. } => Self::new("damaged", told),
            TraceError::OtherCursor => wrong("after", &told),
            TraceError::Stopped(cause) => RunError::Stopped(cause).into(),
            _ => Self::new("unknown", told),
        }
    }
}
