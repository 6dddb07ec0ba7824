//! The recorder's data, behind its one lock.
//!
//! Lock order: the book, then a mailbox or the broker's list of waits. The broker calls in without holding either of these
//! locks.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

use millrun_broker::{
    AnyEnvelope, EnvelopeId, FlowEvent, InboxProbe, SubscriptionId, TopicId, TopicName, Undeliverable,
};

use super::config::FlowConfig;
use super::flow::{Delivery, Fate, Flow, Kept};

pub(super) type Keeper = fn(&dyn AnyEnvelope) -> Option<Kept>;

#[derive(Default)]
pub(super) struct Book {
    pub(super) config: FlowConfig,
    pub(super) entries: BTreeMap<EnvelopeId, Entry>,
    /// The envelopes in the order in which they were first seen.
    pub(super) order: BTreeMap<u64, EnvelopeId>,
    pub(super) subscriptions: BTreeMap<SubscriptionId, Inscription>,
    pub(super) aside: BTreeSet<SubscriptionId>,
    pub(super) keepers: BTreeMap<TypeId, Keeper>,
    /// Envelopes that were delivered and not yet seen to be taken.
    queued: BTreeMap<SubscriptionId, BTreeSet<EnvelopeId>>,
    /// What is being handled, by how many consumers, and how often a handling was begun.
    pub(super) at_work: BTreeMap<(SubscriptionId, EnvelopeId), usize>,
    pub(super) begun: u64,
    /// The callers that wait until nothing moves any more.
    settling: Vec<Waker>,
    pub(super) forgotten: u64,
    steps: usize,
    next: u64,
}

/// One envelope.
pub(super) struct Entry {
    pub(super) number: u64,
    steps: usize,
    topic: TopicId,
    correlation: EnvelopeId,
    pub(super) causation: Option<EnvelopeId>,
    payload_type: &'static str,
    payload: Option<Kept>,
    unrouted: bool,
    deliveries: Vec<Noted>,
}

/// One envelope at one subscription.
struct Noted {
    subscription: SubscriptionId,
    fate: Fate,
    failures: Vec<String>,
}

/// One subscription.
pub(super) struct Inscription {
    pub(super) name: String,
    pub(super) filter: String,
    /// None once it is finished.
    pub(super) probe: Option<InboxProbe>,
}

impl Inscription {
    pub(super) fn label(&self, id: SubscriptionId) -> String {
        if self.name.is_empty() {
            format!("{:?} ({id})", self.filter)
        } else {
            format!("{:?} ({id}, {})", self.name, self.filter)
        }
    }
}

impl Book {
    /// Records a step, and returns the wakers to wake because of it. `kept` is the payload's copy, if it is the first step of
    /// its envelope.
    pub(super) fn write(&mut self, event: &FlowEvent<'_>, kept: Option<Kept>) -> Vec<Waker> {
        match *event {
            FlowEvent::Subscribed(probe) => self.inscribe(probe),
            FlowEvent::Delivered { envelope, to } => {
                self.step(envelope, kept, to, |delivery| {
                    // A fast consumer may have reported the end already.
                    if matches!(
                        delivery.fate,
                        Fate::Waiting | Fate::Refused | Fate::LeftTheLine | Fate::Queued
                    ) {
                        delivery.fate = Fate::Queued;
                    }
                });
            }
            FlowEvent::Waits { envelope, at } => {
                self.step(envelope, kept, at, |delivery| delivery.fate = Fate::Waiting);
            }
            FlowEvent::WaitOver { envelope } => {
                if let Some(entry) = self.entries.get_mut(&envelope) {
                    for delivery in &mut entry.deliveries {
                        if delivery.fate == Fate::Waiting {
                            delivery.fate = Fate::LeftTheLine;
                        }
                    }
                }
                return self.wake();
            }
            FlowEvent::Refused { envelope, by } => {
                self.step(envelope, kept, by, |delivery| delivery.fate = Fate::Refused);
            }
            FlowEvent::Begun { envelope, by } => {
                self.begun += 1;
                *self.at_work.entry((by, envelope.id())).or_default() += 1;
                self.step(envelope, kept, by, |delivery| delivery.fate = Fate::AtWork);
            }
            FlowEvent::Failed {
                envelope, by, cause, ..
            } => self.step(envelope, kept, by, |delivery| {
                delivery.failures.push(cause.to_owned());
            }),
            FlowEvent::Handled { envelope, by } => {
                self.step(envelope, kept, by, |delivery| delivery.fate = Fate::Handled);
            }
            FlowEvent::PutBack { envelope, by } => {
                self.step(envelope, kept, by, |delivery| delivery.fate = Fate::Queued);
            }
            FlowEvent::Ended { envelope, by } => {
                self.end(envelope, by);
                return self.wake();
            }
            FlowEvent::GivenUp {
                envelope,
                reason,
                subscription,
            } => {
                self.give_up(envelope, kept, reason, subscription);
                return self.wake();
            }
            FlowEvent::Emptied(subscription) => {
                self.take_all(subscription);
                return self.wake();
            }
            // A kind of step that this recorder does not know yet.
            _ => {}
        }
        Vec::new()
    }

    /// Adds a waker to be woken when a step has ended.
    pub(super) fn call_back(&mut self, waker: &Waker) {
        if !self.settling.iter().any(|held| held.will_wake(waker)) {
            self.settling.push(waker.clone());
        }
    }

    fn wake(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.settling)
    }

    fn inscribe(&mut self, probe: &InboxProbe) {
        // Names of subscriptions that ended are kept only as long as there are not too many.
        if self.subscriptions.len() >= self.config.steps_max.max(1) {
            self.subscriptions.retain(|_, known| known.probe.is_some());
        }
        self.subscriptions.insert(
            probe.id(),
            Inscription {
                name: probe.name().to_owned(),
                filter: probe.filter().to_string(),
                probe: Some(probe.clone()),
            },
        );
    }

    fn end(&mut self, envelope: EnvelopeId, by: SubscriptionId) {
        if let Some(count) = self.at_work.get_mut(&(by, envelope)) {
            *count -= 1;
            if *count > 0 {
                return;
            }
            self.at_work.remove(&(by, envelope));
        }
        let entry = self.entries.get_mut(&envelope);
        let delivery = entry.and_then(|entry| entry.at(by));
        if let Some(delivery) = delivery
            && delivery.fate == Fate::AtWork
        {
            delivery.fate = Fate::Taken;
        }
    }

    fn give_up(
        &mut self,
        envelope: &dyn AnyEnvelope,
        kept: Option<Kept>,
        reason: Undeliverable,
        subscription: Option<SubscriptionId>,
    ) {
        let Some(subscription) = subscription else {
            if let Some(entry) = self.entry(envelope, kept) {
                entry.unrouted = true;
            }
            return;
        };
        self.step(envelope, kept, subscription, |delivery| {
            delivery.fate = Fate::GivenUp(reason);
        });
    }

    /// Everything that was delivered there has been taken, and its reader has come back for more.
    fn take_all(&mut self, subscription: SubscriptionId) {
        for envelope in self.queued.remove(&subscription).unwrap_or_default() {
            let entry = self.entries.get_mut(&envelope);
            if let Some(delivery) = entry.and_then(|entry| entry.at(subscription))
                && delivery.fate == Fate::Queued
            {
                delivery.fate = Fate::Taken;
            }
        }
    }

    /// Changes the notes on an envelope at a subscription.
    fn step(
        &mut self,
        envelope: &dyn AnyEnvelope,
        kept: Option<Kept>,
        subscription: SubscriptionId,
        change: impl FnOnce(&mut Noted),
    ) {
        let Some(entry) = self.entry(envelope, kept) else {
            return;
        };
        let known = entry
            .deliveries
            .iter()
            .position(|delivery| delivery.subscription == subscription);
        let index = known.unwrap_or_else(|| {
            entry.deliveries.push(Noted {
                subscription,
                fate: Fate::Queued,
                failures: Vec::new(),
            });
            entry.deliveries.len() - 1
        });
        change(&mut entry.deliveries[index]);
        let is_queued = entry.deliveries[index].fate == Fate::Queued;
        if is_queued {
            self.queued.entry(subscription).or_default().insert(envelope.id());
        } else if let Some(queued) = self.queued.get_mut(&subscription) {
            queued.remove(&envelope.id());
        }
    }

    /// Counts a step of an envelope, and makes room for it. `None` if this envelope has used all the room.
    fn entry(&mut self, envelope: &dyn AnyEnvelope, kept: Option<Kept>) -> Option<&mut Entry> {
        let id = envelope.id();
        while self.steps >= self.config.steps_max {
            match self.order.first_key_value().map(|(number, id)| (*number, *id)) {
                Some((number, oldest)) if oldest != id => self.forget(number, oldest),
                _ => {
                    self.forgotten += 1;
                    return None;
                }
            }
        }
        self.steps += 1;
        let (next, order) = (&mut self.next, &mut self.order);
        let entry = self.entries.entry(id).or_insert_with(|| {
            *next += 1;
            order.insert(*next, id);
            Entry::new(*next, envelope, kept)
        });
        entry.steps += 1;
        Some(entry)
    }

    fn forget(&mut self, number: u64, id: EnvelopeId) {
        self.order.remove(&number);
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        self.steps -= entry.steps;
        self.forgotten += entry.steps as u64;
        for delivery in &entry.deliveries {
            if let Some(queued) = self.queued.get_mut(&delivery.subscription) {
                queued.remove(&id);
            }
        }
    }

    /// Forgets all envelopes at the caller's wish: they do not count as forgotten.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.queued.clear();
        self.steps = 0;
        self.forgotten = 0;
    }

    pub(super) fn label(&self, subscription: SubscriptionId) -> String {
        self.subscriptions
            .get(&subscription)
            .map_or_else(|| subscription.to_string(), |known| known.label(subscription))
    }

    /// The topic of an envelope.
    pub(super) fn topic_of(&self, id: EnvelopeId) -> Option<TopicId> {
        self.entries.get(&id).map(|entry| entry.topic)
    }

    /// An envelope's steps as data.
    pub(super) fn flow(&self, id: EnvelopeId, topic: Option<TopicName>) -> Option<Flow> {
        let entry = self.entries.get(&id)?;
        let deliveries = entry.deliveries.iter().map(|noted| Delivery {
            subscription: noted.subscription,
            label: self.label(noted.subscription),
            fate: noted.fate,
            failures: noted.failures.clone(),
        });
        Some(Flow {
            id,
            topic,
            correlation: entry.correlation,
            causation: entry.causation,
            payload_type: entry.payload_type,
            payload: entry.payload.clone(),
            unrouted: entry.unrouted,
            deliveries: deliveries.collect(),
        })
    }
}

impl Entry {
    fn new(number: u64, envelope: &dyn AnyEnvelope, payload: Option<Kept>) -> Self {
        Self {
            number,
            steps: 0,
            topic: envelope.topic(),
            correlation: envelope.correlation(),
            causation: envelope.causation(),
            payload_type: envelope.payload_type(),
            payload,
            unrouted: false,
            deliveries: Vec::new(),
        }
    }

    fn at(&mut self, subscription: SubscriptionId) -> Option<&mut Noted> {
        self.deliveries
            .iter_mut()
            .find(|delivery| delivery.subscription == subscription)
    }
}

/// Copies a payload of one type.
pub(super) fn keeper<T: Clone + std::fmt::Debug + Send + Sync + 'static>() -> Keeper {
    |envelope| {
        let payload = envelope.any_payload().downcast_ref::<T>()?;
        Some(Kept {
            value: Arc::new(payload.clone()),
            show: |value| {
                value
                    .downcast_ref::<T>()
                    .map_or_else(String::new, |value| format!("{value:?}"))
            },
        })
    }
}
