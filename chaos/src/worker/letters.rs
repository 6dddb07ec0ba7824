//! What consumes the records in the worker: durable subscriptions whose consumers answer in all ways, and triggers.
//!
//! ```text
//!   letters ─┬─► reader, a subscription
//!            └─► trigger ─► mailboxes
//!   replies ─┬─► clerk, a subscription ─► dead ─► returns, a subscription ─┐
//!            ├─► trigger ─► tills                                           │
//!            ▲                                                              │
//!            └────────────────────────── sent back ─────────────────────────┘
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrun::Runtime;
use millrun::topics::{
    DurableRecord, DurableSubscription, DurableTrigger, RecordDelivery, SubscriptionReadError,
    SubscriptionStatus,
};
use serde::de::DeserializeOwned;

use super::reports;
use crate::programs::{DEAD, ENTER, Input, Kind, LETTERS, Letter, NOTE, REPLIES, TILL, mailbox_of};
use crate::wire::{LetterStep, Report};

/// How long a consumer may take; it sometimes does not answer at all.
const LEASE: Duration = Duration::from_millis(150);
const IN_FLIGHT_MAX: usize = 64;
/// How often the clerk is given a reply before it is dead.
const DELIVERIES_MAX: u32 = 2;

/// What tells how a subscription or trigger stands.
type Stand = Box<dyn Fn() -> SubscriptionStatus + Send>;

/// The subscriptions and triggers, from when each is open.
#[derive(Default)]
pub(super) struct PostOffice {
    open: Mutex<Vec<Stand>>,
}

/// How many there are.
const OPEN_LEN: usize = 5;

impl PostOffice {
    /// Opens all, again and again where a part fails meanwhile, and consumes.
    pub(super) fn open(runtime: &Runtime) -> Arc<Self> {
        let post = Arc::new(Self::default());
        tokio::spawn(read(runtime.clone(), Arc::clone(&post)));
        tokio::spawn(file(runtime.clone(), Arc::clone(&post)));
        tokio::spawn(send_back(runtime.clone(), Arc::clone(&post)));
        tokio::spawn(bring(runtime.clone(), Arc::clone(&post)));
        tokio::spawn(enter(runtime.clone(), Arc::clone(&post)));
        post
    }

    /// Keeps one that is open: a trigger works as long as it is kept.
    fn add<S: Send + 'static>(&self, one: S, status: impl Fn(&S) -> SubscriptionStatus + Send + 'static) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push(Box::new(move || status(&one)));
    }

    /// How many records the one has not acknowledged that is furthest behind. All are asked twice: one record may go on from one
    /// that is still to be asked to one that was asked already.
    pub(super) fn behind(&self) -> u64 {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let furthest = open.iter().chain(open.iter()).map(|stand| stand().lag).max();
        furthest.filter(|_| open.len() == OPEN_LEN).unwrap_or(u64::MAX)
    }
}

/// What this opens, which is tried again until it is open; returns when the runtime has stopped.
macro_rules! opened {
    ($runtime:expr, $open:expr) => {
        loop {
            match $open.await {
                Ok(open) => break open,
                Err(_) if $runtime.stop_cause().is_some() => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
}

/// The next record, as long as the subscription goes on in this process; in a runtime that lives, one that does not stays
/// behind, which the supervisor sees.
async fn next<T: DeserializeOwned>(subscription: &DurableSubscription<T>) -> Option<RecordDelivery<T>> {
    loop {
        match subscription.next().await {
            Ok(delivery) => return Some(delivery),
            Err(SubscriptionReadError::Lost(_)) => return None,
            Err(error) => reports::tell(&Report::PartFailed {
                part: "subscription".to_owned(),
                message: error.to_string(),
            }),
        }
    }
}

/// The letters.
async fn read(runtime: Runtime, post: Arc<PostOffice>) {
    let topic = runtime.durable_topic(LETTERS).expect("it is declared");
    let subscribe = || {
        topic
            .subscribe("reader")
            .lease(LEASE)
            .in_flight_max(IN_FLIGHT_MAX)
    };
    let subscription = opened!(runtime, subscribe());
    post.add(subscription.clone(), DurableSubscription::status);
    while let Some(delivery) = next(&subscription).await {
        let (sequence, deliveries) = (of(&delivery), u64::from(delivery.deliveries()));
        let tell = move |step| reports::tell(&Report::Letter { sequence, step });
        answer(delivery, (sequence + 3 * deliveries) % 16, tell);
    }
}

/// The replies: more of them are given back than letters, so that some are dead. What was sent back is always taken.
async fn file(runtime: Runtime, post: Arc<PostOffice>) {
    let topic = runtime.durable_topic(REPLIES).expect("it is declared");
    let subscribe = || {
        let subscribe = topic.subscribe("clerk").lease(LEASE);
        let subscribe = subscribe.in_flight_max(IN_FLIGHT_MAX);
        subscribe.undelivered_to(DEAD, DELIVERIES_MAX)
    };
    let subscription = opened!(runtime, subscribe());
    post.add(subscription.clone(), DurableSubscription::status);
    while let Some(delivery) = next(&subscription).await {
        let (sequence, deliveries) = (of(&delivery), u64::from(delivery.deliveries()));
        let tell = move |step| reports::tell(&Report::Reply { sequence, step });
        let how = match delivery.record().stems_from() {
            Some(_) => ALWAYS,
            None => (sequence + 7 * deliveries) % 6,
        };
        answer(delivery, how, tell);
    }
}

/// Sends back what is dead.
async fn send_back(runtime: Runtime, post: Arc<PostOffice>) {
    let dead = runtime.durable_topic(DEAD).expect("it is declared");
    let subscription = opened!(runtime, dead.subscribe("returns").lease(LEASE));
    post.add(subscription.clone(), DurableSubscription::status);
    while let Some(delivery) = next(&subscription).await {
        // What is not sent back is given again.
        if dead.send_back(delivery.payload()).await.is_ok() {
            drop(delivery.ack());
        }
    }
}

/// The trigger that brings letters to mailboxes.
async fn bring(runtime: Runtime, post: Arc<PostOffice>) {
    let topic = runtime.durable_topic(LETTERS).expect("it is declared");
    let make = |record: &DurableRecord<Letter>| {
        let id = mailbox_of(&record.payload().to);
        let input = Input {
            id: id.clone(),
            ..Input::default()
        };
        (id, input, record.payload().value)
    };
    let workflow = Kind::Mailbox.workflow();
    let trigger = opened!(
        runtime,
        topic.trigger("mailboxes").start_with_signal(workflow, NOTE, make)
    );
    post.add(trigger, DurableTrigger::status);
}

/// The trigger that enters replies, also those that were sent back, in the till of their postman.
async fn enter(runtime: Runtime, post: Arc<PostOffice>) {
    let topic = runtime.durable_topic(REPLIES).expect("it is declared");
    let make = |record: &DurableRecord<Letter>| {
        let sequence = record.token().sequence().get();
        (record.payload().to.clone(), sequence)
    };
    let trigger = opened!(runtime, topic.trigger("tills").command(TILL, ENTER, make));
    post.add(trigger, DurableTrigger::status);
}

fn of<T>(delivery: &RecordDelivery<T>) -> u64 {
    delivery.record().token().sequence().get()
}

/// Of the ways to answer, that which acknowledges and waits.
const ALWAYS: u64 = 4;

/// Answers a delivery in one of the ways that there are, or not at all.
fn answer(
    delivery: RecordDelivery<Letter>,
    how: u64,
    tell: impl Fn(LetterStep) + Copy + Send + Sync + 'static,
) {
    tell(LetterStep::Given);
    match how {
        // Its lease ends.
        0 => drop(delivery),
        1 | 2 => {
            let pause = Duration::from_millis(of(&delivery) % 20);
            drop(delivery.send_back(pause, "not now"));
        }
        // Nobody waits until it is kept.
        3 => {
            tell(LetterStep::Acknowledging);
            drop(delivery.ack());
        }
        _ => {
            tell(LetterStep::Acknowledging);
            let Ok(saved) = delivery.ack() else { return };
            tokio::spawn(async move {
                if saved.await.is_ok() {
                    tell(LetterStep::Kept);
                }
            });
        }
    }
}
