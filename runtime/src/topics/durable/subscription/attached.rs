//! Records of a durable subscription for an actor of the user's own.
//!
//! ```text
//!   subscription ─► task ─► doorbell, one at most ─► turn() of the actor ─► takes records ─► its answers
//!                    ▲                                     │
//!                    └────────── the turn has ended ───────┘
//! ```
//!
//! Invariants: the actor has at most one doorbell message in its mailbox that no turn has answered. A record's lease begins when
//! a turn hands it out; until then it is any consumer's.

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

/// How many records a turn takes before other messages of the actor get theirs.
const PER_TURN: usize = 256;
/// The pause after the actor was told that the topic cannot be read now.
const PAUSE: Duration = Duration::from_secs(1);

/// A durable subscription that rings for an actor; made by [`DurableSubscription::attach`].
pub struct AttachedSubscription<T> {
    consumer: DurableSubscription<T>,
    bell: Arc<Doorbell>,
    /// The task that rings ends when this is dropped.
    _attached: mpsc::Receiver<Infallible>,
}

/// Sends the actor one message, until a turn has answered it.
struct Doorbell {
    is_rung: AtomicBool,
    /// A turn has told that the subscription is lost: there is nothing more to ring for.
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
    /// Lets this consumer ring for `actor`, by the message that `doorbell` makes, when there are records; the actor then takes
    /// what there is with a [turn](AttachedSubscription::turn). A record's lease begins when a turn hands it out. To be called
    /// where the actor starts: its successor attaches a clone of the subscription again, and gets what the former one had not
    /// answered, of which it was handed out when its lease ends.
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
                // An actor that is gone takes nothing, and this task ends with its state.
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
    /// The records that there are, to be called when the doorbell message arrives. After 256 of them the turn ends, and if there
    /// are more it rings for the next one, so that the actor can also be stopped, supervised and sent other messages. An error
    /// stands in place of a record; behind one that says that the subscription is [lost](SubscriptionReadError::Lost) nothing
    /// comes any more. A turn at another message than the doorbell's may make the bell ring twice for the same records.
    ///
    /// # Ordering
    /// Records of one key come in their order. Between records and the actor's own messages there is no order.
    ///
    /// # Cancel safety
    /// A turn that is dropped early, as by a panic or a kill of the actor, has taken what it has handed out and nothing else. A
    /// record that was handed out and not answered is given again when its lease ends.
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
