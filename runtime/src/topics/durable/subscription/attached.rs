//! Records of a durable subscription for a user's own actor.
//!
//! ```text
//!   subscription ─► task ─► doorbell, one at most ─► turn() of the actor ─► takes records ─► its answers
//!                    ▲                                     │
//!                    └────────── the turn has ended ───────┘
//! ```
//!
//! Invariants: the actor's mailbox has at most one doorbell message that no turn has answered. A record's lease begins when a
//! turn delivers it; until then any consumer may get it.

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::select;
use ractor::{ActorRef, Message};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, mpsc};

use super::consumer::{DurableSubscription, Readiness, SubscriptionReadError};
use super::delivery::RecordDelivery;

/// How many records a turn takes before the actor handles other messages.
const PER_TURN: usize = 256;
/// The pause after the actor was told that the topic cannot be read now.
const PAUSE: Duration = Duration::from_secs(1);

/// A durable subscription that sends doorbell messages to an actor; made by [`DurableSubscription::attach`].
pub struct AttachedSubscription<T> {
    consumer: DurableSubscription<T>,
    bell: Arc<Doorbell>,
    /// Dropping this ends the task that rings.
    _attached: mpsc::Receiver<Infallible>,
}

/// Sends the actor one message, and no other until a turn has answered it.
struct Doorbell {
    is_rung: AtomicBool,
    /// Whether a turn has told the actor that the subscription is lost: then it does not ring any more.
    has_told_lost: AtomicBool,
    answered: Notify,
    send: Box<dyn Fn() + Send + Sync>,
}

impl Doorbell {
    /// Rings, and waits until a turn has answered.
    async fn ring(&self) {
        self.is_rung.store(true, Ordering::Release);
        (self.send)();
        self.answered.notified().await;
    }

    fn answer(&self) {
        if self.is_rung.swap(false, Ordering::AcqRel) {
            self.answered.notify_one();
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> DurableSubscription<T> {
    /// Sends `actor` the message that `doorbell` makes when there are records; the actor then takes them with a
    /// [turn](AttachedSubscription::turn). A record's lease begins when a turn delivers it. Call it when the actor starts.
    /// After a restart the new actor attaches a clone of the subscription again, and gets the unanswered records; those that
    /// were delivered before when their leases end.
    ///
    /// ```
    /// use millrun::topics::{AttachedSubscription, DurableSubscription, SubscriptionReadError};
    /// use ractor::{Actor, ActorProcessingErr, ActorRef};
    ///
    /// struct Printer;
    ///
    /// enum Message {
    ///     OrdersWaiting,
    /// }
    ///
    /// impl Actor for Printer {
    ///     type Msg = Message;
    ///     type State = AttachedSubscription<u64>;
    ///     type Arguments = DurableSubscription<u64>;
    ///
    ///     async fn pre_start(
    ///         &self,
    ///         myself: ActorRef<Message>,
    ///         orders: Self::Arguments,
    ///     ) -> Result<Self::State, ActorProcessingErr> {
    ///         Ok(orders.attach(&myself, || Message::OrdersWaiting))
    ///     }
    ///
    ///     async fn handle(
    ///         &self,
    ///         myself: ActorRef<Message>,
    ///         Message::OrdersWaiting: Message,
    ///         orders: &mut Self::State,
    ///     ) -> Result<(), ActorProcessingErr> {
    ///         for order in orders.turn() {
    ///             match order {
    ///                 Ok(order) => {
    ///                     println!("{}", order.payload());
    ///                     // An order whose lease has ended meanwhile is given again.
    ///                     order.ack().ok();
    ///                 }
    ///                 // The runtime stops, or the topic was deleted: a successor would be told the same.
    ///                 Err(SubscriptionReadError::Lost(lost)) => myself.stop(Some(lost.to_string())),
    ///                 Err(passing) => eprintln!("{passing}"),
    ///             }
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// ```
    pub fn attach<M: Message>(
        self,
        actor: &ActorRef<M>,
        doorbell: impl Fn() -> M + Send + Sync + 'static,
    ) -> AttachedSubscription<T> {
        let actor = actor.clone();
        let bell = Arc::new(Doorbell {
            is_rung: AtomicBool::new(false),
            has_told_lost: AtomicBool::new(false),
            answered: Notify::new(),
            send: Box::new(move || {
                // If the actor is gone, it takes nothing, and this task ends with its state.
                drop(actor.send_message(doorbell()));
            }),
        });
        let (attached, is_attached) = mpsc::channel(1);
        let ringing = ring_while_attached(self.clone(), Arc::clone(&bell), attached);
        drop(self.host().spawn("millrun-attached", Box::pin(ringing)));
        AttachedSubscription {
            consumer: self,
            bell,
            _attached: is_attached,
        }
    }
}

/// Rings whenever there is something for a turn, until the subscription is lost or the actor is gone.
async fn ring_while_attached<T>(
    consumer: DurableSubscription<T>,
    bell: Arc<Doorbell>,
    attached: mpsc::Sender<Infallible>,
) {
    let ringing = pin!(async {
        while !bell.has_told_lost.load(Ordering::Acquire) {
            let ready = consumer.until_ready().await;
            bell.ring().await;
            if ready == Readiness::Unreadable {
                let host = consumer.host();
                host.sleep_until(host.now() + PAUSE).await;
            }
        }
    });
    select(ringing, pin!(attached.closed())).await;
}

impl<T> AttachedSubscription<T> {
    /// The records that there are; call it when the doorbell message arrives. After 256 records the turn ends, and rings
    /// again if there are more, so that the actor can also be stopped, supervised and sent other messages. An error takes the
    /// place of a record; after the error that the subscription is [lost](SubscriptionReadError::Lost) nothing follows. A
    /// turn at another message than the doorbell's may make the bell ring twice for the same records.
    ///
    /// # Ordering
    /// Records of one key come in their order. Between records and the actor's own messages there is no order.
    ///
    /// # Cancel safety
    /// If a turn is dropped early, by a panic or a kill of the actor, only the records that it has delivered are taken. A
    /// record that was delivered and not answered is delivered again when its lease ends.
    pub fn turn(&mut self) -> RecordTurn<'_, T> {
        RecordTurn {
            attached: self,
            left: PER_TURN,
        }
    }
}

impl<T> fmt::Debug for AttachedSubscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachedSubscription")
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

/// One turn of an attached actor: the records to handle, in order; made by [`AttachedSubscription::turn`].
#[derive(Debug)]
#[must_use = "records are handed out as it is iterated"]
pub struct RecordTurn<'a, T> {
    attached: &'a mut AttachedSubscription<T>,
    left: usize,
}

impl<T: DeserializeOwned> Iterator for RecordTurn<'_, T> {
    type Item = Result<RecordDelivery<T>, SubscriptionReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let has_told_lost = &self.attached.bell.has_told_lost;
        if has_told_lost.load(Ordering::Acquire) {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let next = self.attached.consumer.try_next();
        if matches!(next, Some(Err(SubscriptionReadError::Lost(_)))) {
            has_told_lost.store(true, Ordering::Release);
        }
        next
    }
}

impl<T> Drop for RecordTurn<'_, T> {
    fn drop(&mut self) {
        self.attached.bell.answer();
    }
}
