//! The recorder as a test sees it.

use std::any::type_name;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use millrun_broker::{AlreadyTapped, Broker, EnvelopeId, Filter, FlowEvent, SubscriptionId, Tap};

use super::book::{Book, keeper};
use super::chain::Chain;
use super::config::FlowConfig;
use super::flow::{Flow, Kept};
use super::settle::{Settle, Unsettled};

/// Records the envelopes of a broker: which inboxes got each one, what happened to it there, and what it caused. See the
/// [crate's first page](crate#flows-through-a-broker) for an example.
///
/// It records everything from the moment at which it is attached. What it keeps is bounded by [`FlowConfig`].
///
/// # Ordering
/// Envelopes are listed in the order in which the first step of each was seen. That is the order of publication for one
/// publisher; between publishers on several threads it is one possible order.
pub struct FlowRecorder {
    broker: Broker,
    notes: Arc<Notebook>,
}

/// The tap. It does not keep the broker alive, which keeps it.
#[derive(Default)]
struct Notebook(Mutex<Book>);

impl Notebook {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The payload's copy, if this is the first step of an envelope of a type that is kept.
    fn copy(&self, event: &FlowEvent<'_>) -> Option<Kept> {
        let envelope = match event {
            FlowEvent::Delivered { envelope, .. }
            | FlowEvent::Waits { envelope, .. }
            | FlowEvent::Refused { envelope, .. }
            | FlowEvent::Begun { envelope, .. }
            | FlowEvent::GivenUp { envelope, .. } => *envelope,
            _ => return None,
        };
        let keeper = {
            let book = self.book();
            if book.entries.contains_key(&envelope.id()) {
                return None;
            }
            *book.keepers.get(&envelope.any_payload().type_id())?
        };
        // The payload's own code runs without the lock.
        keeper(envelope)
    }
}

impl Tap for Notebook {
    fn on_flow(&self, event: &FlowEvent<'_>) {
        let kept = self.copy(event);
        let woken = self.book().write(event, kept);
        for waker in woken {
            waker.wake();
        }
    }
}

impl FlowRecorder {
    /// Records what flows through this broker from now on, within the default bounds.
    ///
    /// # Errors
    /// When the broker has a tap already: another recorder, for example.
    pub fn attach(broker: &Broker) -> Result<Self, AlreadyTapped> {
        Self::with_config(broker, FlowConfig::default())
    }

    /// As [`FlowRecorder::attach`], within these bounds.
    ///
    /// # Errors
    /// As [`FlowRecorder::attach`].
    pub fn with_config(broker: &Broker, config: FlowConfig) -> Result<Self, AlreadyTapped> {
        let notes = Arc::new(Notebook::default());
        notes.book().config = config;
        broker.tap(Arc::clone(&notes) as Arc<dyn Tap>)?;
        Ok(Self {
            broker: broker.clone(),
            notes,
        })
    }

    /// Keeps a copy of each payload of this type from now on, so that tests can read it and failures show it. The envelope
    /// itself is not kept: that would change what a consumer sees that takes the payload out of it, or that drops a request.
    #[must_use = "it gives the recorder back"]
    pub fn keep<T: Clone + fmt::Debug + Send + Sync + 'static>(self) -> Self {
        self.book()
            .keepers
            .insert(std::any::TypeId::of::<T>(), keeper::<T>());
        self
    }

    /// Leaves a subscription out of [`FlowRecorder::settle`]: one whose inbox only the test reads, when it likes. It is
    /// recorded all the same.
    pub fn set_aside(&self, subscription: SubscriptionId) {
        self.book().aside.insert(subscription);
    }

    /// Waits until nothing moves any more: no envelope is in an inbox, in a consumer's hand or being handled, none waits for
    /// its next attempt, no publish waits for room. There is no time limit: pauses are waited for, however long they are, and
    /// nothing is ready before its time.
    ///
    /// A consumer has finished with an envelope when its service reports that, when it comes back to the inbox for more, or,
    /// with [`Inbox::handling`](millrun_broker::Inbox::handling), when the handling is over. Work that a consumer passes to
    /// another task is only known in the last case. Inboxes that no consumer empties make this wait forever, unless they are
    /// [set aside](FlowRecorder::set_aside): [`FlowRecorder::unsettled`] names them.
    ///
    /// In a [`SimHost`](crate::SimHost) call [`FlowRecorder::settle_in`].
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn settle(&self) {
        Settle(self).await;
    }

    /// As [`FlowRecorder::settle`], but at most until `limit` (a sleep, for example) is ready.
    ///
    /// # Errors
    /// What has not finished when `limit` is ready.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn settle_unless(&self, limit: impl Future) -> Result<(), Unsettled> {
        let mut settle = Settle(self);
        let mut limit = pin!(limit);
        poll_fn(|cx| {
            if pin!(&mut settle).poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if limit.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            Poll::Ready(self.unsettled().map_or(Ok(()), Err))
        })
        .await
    }

    /// Runs a simulated world until nothing moves any more; its clock jumps over pauses.
    ///
    /// # Errors
    /// What has not finished when the world is idle or its steps are used up.
    ///
    /// # Panics
    /// When called from within a step of the world.
    #[cfg(feature = "sim")]
    pub fn settle_in(&self, world: &crate::SimHost) -> Result<(), Unsettled> {
        match world.block_on(self.settle()) {
            Ok(()) => Ok(()),
            Err(_) => self.unsettled().map_or(Ok(()), Err),
        }
    }

    /// What is known of an envelope; `None` if it was not seen, or is forgotten.
    #[must_use]
    pub fn flow_of(&self, id: EnvelopeId) -> Option<Flow> {
        let topic = self.book().topic_of(id)?;
        // The broker's table is not read while the book is locked.
        let topic = self.broker.topic_name(topic);
        self.book().flow(id, topic)
    }

    /// All envelopes of topics that the filter selects, in order.
    ///
    /// # Panics
    /// When `filter` is not one.
    #[must_use]
    #[track_caller]
    pub fn flows(&self, filter: &str) -> Vec<Flow> {
        let filter = parse(filter);
        let ids: Vec<EnvelopeId> = self.book().order.values().copied().collect();
        let flows = ids.into_iter().filter_map(|id| self.flow_of(id));
        flows
            .filter(|flow| flow.topic.as_ref().is_some_and(|topic| filter.matches(topic)))
            .collect()
    }

    /// The payloads of all envelopes that carry a `T`, of topics that the filter selects, in order.
    ///
    /// # Panics
    /// When `filter` is not one, or `T` is not [kept](FlowRecorder::keep).
    #[must_use]
    #[track_caller]
    pub fn payloads<T: Clone + 'static>(&self, filter: &str) -> Vec<T> {
        let kept = self.book().keepers.contains_key(&std::any::TypeId::of::<T>());
        assert!(
            kept,
            "payloads of type {} are not kept: call `keep::<{0}>()` when the recorder is attached",
            type_name::<T>()
        );
        let flows = self.flows(filter);
        flows.iter().filter_map(|flow| flow.payload().cloned()).collect()
    }

    /// The whole chain of causes and consequences to which an envelope belongs; none if it was not
    /// seen, or is forgotten.
    #[must_use]
    pub fn chain_of(&self, id: EnvelopeId) -> Option<Chain> {
        Chain::around(self, id)
    }

    /// How many steps were forgotten because there were more than [`FlowConfig::steps_max`].
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.book().forgotten
    }

    /// Forgets all envelopes seen so far, for the next phase of a test.
    pub fn clear(&self) {
        self.book().clear();
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.notes.book()
    }

    pub(super) const fn broker(&self) -> &Broker {
        &self.broker
    }
}

#[track_caller]
pub(super) fn parse(filter: &str) -> Filter {
    Filter::new(filter).unwrap_or_else(|error| panic!("{filter:?} is not a filter: {error}"))
}

impl Drop for FlowRecorder {
    /// The broker keeps its tap, which from now on records nothing.
    fn drop(&mut self) {
        let steps_max = 0;
        let former = std::mem::take(&mut *self.book());
        self.book().config = FlowConfig { steps_max };
        drop(former);
    }
}

impl fmt::Display for FlowRecorder {
    /// All that is known, envelope by envelope.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<EnvelopeId> = self.book().order.values().copied().collect();
        for flow in ids.into_iter().filter_map(|id| self.flow_of(id)) {
            writeln!(f, "{flow}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for FlowRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let book = self.book();
        f.debug_struct("FlowRecorder")
            .field("envelopes", &book.entries.len())
            .field("forgotten", &book.forgotten)
            .finish_non_exhaustive()
    }
}
