//! What consumes the letters in the worker: a durable subscription whose consumer answers in all ways, and a trigger.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrun::Runtime;
use millrun::topics::{DurableSubscription, DurableTrigger, RecordDelivery, SubscriptionReadError};

use super::reports;
use crate::programs::{Input, Kind, LETTERS, Letter, NOTE, mailbox_of};
use crate::wire::{LetterStep, Report};

/// How long the consumer may take; it sometimes does not answer at all.
const LEASE: Duration = Duration::from_millis(150);
const IN_FLIGHT_MAX: usize = 64;

/// The subscription and the trigger, from when each is open.
#[derive(Debug, Default)]
pub(super) struct PostOffice {
    subscription: Mutex<Option<DurableSubscription<Letter>>>,
    trigger: Mutex<Option<DurableTrigger>>,
}

impl PostOffice {
    /// Opens both, again and again where a part fails meanwhile, and consumes.
    pub(super) fn open(runtime: &Runtime) -> Arc<Self> {
        let post = Arc::new(Self::default());
        tokio::spawn(consume(runtime.clone(), Arc::clone(&post)));
        tokio::spawn(trigger(runtime.clone(), Arc::clone(&post)));
        post
    }

    /// How many letters the one has not acknowledged that is further behind.
    pub(super) fn behind(&self) -> u64 {
        let subscription = self.subscription.lock().unwrap_or_else(PoisonError::into_inner);
        let trigger = self.trigger.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*subscription, &*trigger) {
            (Some(subscription), Some(trigger)) => subscription.status().lag.max(trigger.status().lag),
            _ => u64::MAX,
        }
    }
}

async fn consume(runtime: Runtime, post: Arc<PostOffice>) {
    let topic = runtime.durable_topic(LETTERS).expect("it is declared");
    let subscription = loop {
        let opening = topic
            .subscribe("reader")
            .in_flight_max(IN_FLIGHT_MAX)
            .lease(LEASE);
        match opening.await {
            Ok(subscription) => break subscription,
            Err(_) if runtime.stop_cause().is_some() => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    *post.subscription.lock().unwrap_or_else(PoisonError::into_inner) = Some(subscription.clone());
    loop {
        match subscription.next().await {
            Ok(delivery) => answer(delivery).await,
            // It does not go on in this process; in a runtime that lives it stays behind, which the supervisor sees.
            Err(SubscriptionReadError::Lost(_)) => return,
            Err(error) => reports::tell(&Report::PartFailed {
                part: "subscription".to_owned(),
                message: error.to_string(),
            }),
        }
    }
}

/// Answers a delivery, or not: by its number and how often it was given.
async fn answer(delivery: RecordDelivery<Letter>) {
    let sequence = delivery.record().token().sequence().get();
    let tell = move |step| reports::tell(&Report::Letter { sequence, step });
    tell(LetterStep::Given);
    match (sequence + 3 * u64::from(delivery.deliveries())) % 16 {
        // Its lease ends.
        0 => drop(delivery),
        1 | 2 => drop(delivery.send_back(Duration::from_millis(sequence % 20), "not now")),
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

async fn trigger(runtime: Runtime, post: Arc<PostOffice>) {
    let topic = runtime.durable_topic(LETTERS).expect("it is declared");
    let trigger = loop {
        let opening = topic.trigger("mailboxes");
        let opening = opening.start_with_signal(Kind::Mailbox.workflow(), NOTE, |record| {
            let id = mailbox_of(&record.payload().to);
            let input = Input {
                id: id.clone(),
                ..Input::default()
            };
            (id, input, record.payload().value)
        });
        match opening.await {
            Ok(trigger) => break trigger,
            Err(_) if runtime.stop_cause().is_some() => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    *post.trigger.lock().unwrap_or_else(PoisonError::into_inner) = Some(trigger);
}
