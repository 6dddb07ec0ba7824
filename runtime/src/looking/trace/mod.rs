//! What led to a run or a record of a durable topic, and what came of it, one page of links at a time.
//!
//! ```text
//!   record ─► run ─► record ─► run ─► command of an entity ─► record ─► undelivered ─► sent back
//!      ◄────────────────────────── causes ─────────────────────────
//!      ─────────────────────────── effects ────────────────────────►
//! ```
//!
//! Links are made of what is durable: histories name what caused a run, records name what published them, and requests of
//! triggers name the record. Invariants: no run is woken, no shard is asked for more than a search asks of it, and histories
//! are read in the lane of observers. Nothing is kept for it while runs go on, so what only a history can tell is looked for
//! in the histories, a bounded number for each page.

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
    /// One page of what led to a run, an operation of a run, or a record of a durable topic, and of what came of it. Each
    /// link names what to trace next, so that a caller walks on in both directions;
    /// [`trace_walk`](Self::trace_walk) does it by itself.
    ///
    /// `after` is where an earlier page of the same ended; the bounds say how much one page reads at most. The run is not
    /// woken, nor is any other. What a page tells is durable.
    ///
    /// - **A run**: what started it (a record by a trigger, a parent, an operation of another run, the run that it
    ///   continues), the signals, commands, updates and records that it got; its activities with their attempts, children,
    ///   signals, timers, and what it published, with the place of each record.
    /// - **An operation of a run**: what the run had got before it, and of an entity the command that began it; and what it
    ///   led to.
    /// - **A record**: the operation that published it, or the record that it stems from; each durable subscription of its
    ///   topic and how the record stands there; where it was buried or sent back; and the runs that have it in their
    ///   histories, started, signalled or commanded by it, or having received it. Those are looked for among the live runs
    ///   and those that ended after the record was appended, [some](TraceBounds::runs_len_max) for each page, so that a page
    ///   may have no such link and yet have a [next](TracePage::next).
    ///
    /// Of a trimmed history it is said [before which event](TracePage::trimmed_before) it is gone. What that part published,
    /// started, signalled or commanded names its operation all the same, and so leads to the run, to how it began, and
    /// further up; and down from the run it is looked for, behind what the history tells: among the
    /// [records](TraceBounds::records_len_max) of all durable topics and the [runs](TraceBounds::runs_len_max), some for each
    /// page. Its activities, its timers, and what it got from others are gone. An in-memory topic keeps no records, so that
    /// only the operation that published leads to a run that was started by it.
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
    /// See [`TraceError`]. A link that cannot be followed is no error: its [outcome](TraceLink::outcome) says why.
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
