//! Traces: the causes and effects of a run or a record, one page of links at a time.
//!
//! ```text
//!   record ─► run ─► record ─► run ─► command of an entity ─► record ─► undelivered ─► sent back
//!      ◄────────────────────────── causes ─────────────────────────
//!      ─────────────────────────── effects ────────────────────────►
//! ```
//!
//! Links are made from durable data: histories name what caused a run, records name their publishers, and requests of
//! triggers name the record. Invariants: no run is woken, shards only serve searches, and histories are read in the lane of
//! observers. Nothing is stored for traces while runs are going on, so what only a history can tell is searched in the
//! histories, a bounded number for each page.

mod bounds;
mod cursor;
mod error;
mod fold;
mod found;
mod links;
mod outcome;
mod places;
mod records;
mod runs;
mod trimmed;
mod walk;

pub use bounds::TraceBounds;
pub use cursor::{TraceCursor, TraceCursorError};
pub use error::TraceError;
pub(crate) use found::TraceBeginning;
pub use links::{TraceLink, TraceNode, TraceOf, TraceOutcome, TracePage, TraceRelation};
pub use walk::{TraceDirection, TraceWalk, WalkedNode};

use crate::Runtime;
use crate::mail::{Target, Wake};

impl Runtime {
    /// One page of the causes and effects of a run, an operation of a run, or a record of a durable topic. Each link names
    /// what to trace next, so that a caller can walk in both directions; [`trace_walk`](Self::trace_walk) does that.
    ///
    /// `after` is the end of an earlier page of the same trace; `bounds` limit what one page reads. No run is woken. What a
    /// page shows is durable.
    ///
    /// - **A run**: what started it (a record by a trigger, a parent, an operation of another run, the run that it
    ///   continues), the signals, commands, updates and records that it got; its activities with their attempts, children,
    ///   signals, timers, and its publishes, with the place of each record.
    /// - **An operation of a run**: what the run had got before it, for an entity the command that began it; and its effects.
    /// - **A record**: the operation that published it, or the record that it was made from; each durable subscription of its
    ///   topic with the state of the record there; where it was buried or sent back; and the runs that have it in their
    ///   histories: started, signalled or commanded by it, or having received it. These are searched among the live runs and
    ///   those that ended after the record was appended, [some](TraceBounds::runs_len_max) for each page, so that a page may
    ///   have no such link and still have a [next](TracePage::next).
    ///
    /// For a trimmed history, a page says [before which event](TracePage::trimmed_before) it is removed. The publishes,
    /// starts, signals and commands of that part still name their operation, and so lead to the run and its beginning, and
    /// further up. Downwards they are searched, after the links of the history: among the
    /// [records](TraceBounds::records_len_max) of all durable topics and the [runs](TraceBounds::runs_len_max), some for each
    /// page. The run's activities, timers and inputs of that part are lost. An in-memory topic keeps no records, so a run
    /// that was started through one only leads to the publishing operation.
    ///
    /// ```
    /// use millrun::operating::{TraceBounds, TraceOf, TraceRelation};
    /// use millrun::{DurableTopic, Runtime, Topic, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
    /// const ORDER: Workflow<u64, u64> = Workflow::named("order");
    ///
    /// async fn order(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    ///     Ok(number)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().durable_topic(PLACED).register(ORDER, order).start().await?;
    /// let placed = runtime.durable_topic(PLACED)?;
    /// let trigger = placed.trigger("orders").start_each(ORDER, |record| *record.payload()).await?;
    /// let record = placed.publish(&7).await?.token();
    /// # while trigger.handled() == 0 { tokio::task::yield_now().await; }
    /// let bounds = TraceBounds::default();
    /// let page = runtime.trace(record, None, &bounds).await?;
    /// let started = page.effects.iter().find(|link| link.relation == TraceRelation::Triggered);
    /// let run = started.and_then(|link| link.to.clone()).expect("the trigger has handled the record");
    /// let page = runtime.trace(run, None, &bounds).await?;
    /// let of_record = TraceOf::Record { topic: "orders.placed".into(), sequence: record.sequence() };
    /// assert_eq!(page.causes[0].to, Some(of_record));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`TraceError`]. A link that cannot be followed is no error: its [outcome](TraceLink::outcome) has the reason.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn trace(
        &self,
        of: impl Into<TraceOf>,
        after: Option<TraceCursor>,
        bounds: &TraceBounds,
    ) -> Result<TracePage, TraceError> {
        self.trace_page(of.into(), after, &bounds.clamped()).await
    }

    async fn trace_page(
        &self,
        of: TraceOf,
        after: Option<TraceCursor>,
        bounds: &TraceBounds,
    ) -> Result<TracePage, TraceError> {
        let inner = self.inner();
        match of {
            TraceOf::Run(run) => self.trace_run(run, None, after, bounds).await,
            TraceOf::Operation(cause) => {
                self.trace_run(cause.run, Some(cause.operation), after, bounds)
                    .await
            }
            TraceOf::Instance(id) => {
                let target = Target::Latest(std::sync::Arc::new(crate::mail::Latest { id, workflow: None }));
                let run = inner.describe(target, Wake::Never).await?.run;
                self.trace_run(run, None, after, bounds).await
            }
            TraceOf::Record { topic, sequence } => {
                let known = inner.known_topic(&topic)?;
                self.trace_record((known, topic), sequence, after, bounds).await
            }
            TraceOf::Token(token) => {
                let topic = inner.topic_of(token)?;
                let known = inner.known_topic(&topic)?;
                self.trace_record((known, topic), token.sequence(), after, bounds)
                    .await
            }
            TraceOf::RecordId { topic, id } => {
                let known = inner.known_topic(&topic)?;
                let found = inner.record_with_id(known.number, &id);
                let sequence = found.ok_or(TraceError::UnknownId { topic: topic.clone() })?;
                self.trace_record((known, topic), sequence, after, bounds).await
            }
        }
    }
}
