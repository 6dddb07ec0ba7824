//! Records of a durable subscription for an actor of the user's own.
//!
//! ```text
//!   subscription ─► task ─► records in advance, a few ─► turn() of the actor ─► its answers
//!                    └────── doorbell, one at most ─────────┘
//! ```
//!
//! Invariants: of a doorbell message the actor has at most one in its mailbox that it has not answered with a turn. What waits
//! in advance when the actor ends is given to the next consumer at once, and that was no delivery.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use ractor::{ActorRef, Message};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::consumer::{DurableSubscription, SubscriptionReadError};
use super::delivery::RecordDelivery;

/// How many records wait for the actor in advance.
const IN_ADVANCE: usize = 64;
/// How many records a turn takes before other messages of the actor get theirs.
const PER_TURN: usize = 256;

type Item<T> = Result<RecordDelivery<T>, SubscriptionReadError>;

/// A record in advance; dropped with the actor that it waits for, it is given back.
struct Waiting<T>(Option<Item<T>>);

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        if let Some(Ok(delivery)) = self.0.take()
            && let Err(lost) = delivery.postpone(Duration::ZERO)
        {
            tracing::trace!(%lost, "a record that waited for an actor is given again");
        }
    }
}

/// A durable subscription that rings for an actor; made by [`DurableSubscription::attach`].
pub struct AttachedSubscription<T> {
    waiting: mpsc::Receiver<Waiting<T>>,
    bell: Arc<Doorbell>,
}

/// Sends the actor one message, until a turn has answered it.
struct Doorbell {
    is_rung: AtomicBool,
    send: Box<dyn Fn() + Send + Sync>,
}

impl Doorbell {
    fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            (self.send)();
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> DurableSubscription<T> {
    /// Lets this consumer ring for `actor`, by the message that `doorbell` makes, when there are records; the actor then takes
    /// what there is with a [turn](AttachedSubscription::turn). Up to 64 records wait for it in advance, with their leases
    /// running; others stay with the subscription. To be called where the actor starts: its successor attaches a clone of the
    /// subscription again, and gets what the former one had not answered.
    ///
    /// ```
    /// use millrun::topics::{AttachedSubscription, DurableSubscription};
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
    ///         _: ActorRef<Message>,
    ///         Message::OrdersWaiting: Message,
    ///         orders: &mut Self::State,
    ///     ) -> Result<(), ActorProcessingErr> {
    ///         for order in orders.turn() {
    ///             let order = order?;
    ///             println!("{}", order.payload());
    ///             order.ack()?;
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
            send: Box::new(move || {
                // An actor that is gone takes nothing: the records are given back with its state.
                drop(actor.send_message(doorbell()));
            }),
        });
        let (sender, waiting) = mpsc::channel(IN_ADVANCE);
        let host = Arc::clone(self.host());
        let feeding = feed(self, sender, Arc::clone(&bell));
        drop(host.spawn("millrun-attached", Box::pin(feeding)));
        AttachedSubscription { waiting, bell }
    }
}

/// Gives records in advance, until the subscription or the actor is gone.
async fn feed<T: DeserializeOwned>(
    consumer: DurableSubscription<T>,
    sender: mpsc::Sender<Waiting<T>>,
    bell: Arc<Doorbell>,
) {
    // No record is asked for before there is room for it: its lease would run.
    while let Ok(room) = sender.reserve().await {
        let (next, gone) = (pin!(consumer.next()), pin!(sender.closed()));
        let Either::Left((item, _)) = select(next, gone).await else {
            return;
        };
        let is_last = matches!(item, Err(SubscriptionReadError::Lost(_)));
        room.send(Waiting(Some(item)));
        bell.ring();
        if is_last {
            return;
        }
    }
}

impl<T> AttachedSubscription<T> {
    /// The records that wait, to be called when the doorbell message arrives. After 256 of them the turn ends, and if there are
    /// more it rings for the next one, so that the actor can also be stopped, supervised and sent other messages. An error
    /// stands in place of a record; behind one that says that the subscription is
    /// [lost](SubscriptionReadError::Lost) nothing comes any more.
    ///
    /// # Ordering
    /// Records of one key come in their order. Between records and the actor's own messages there is no order.
    ///
    /// # Cancel safety
    /// A turn that is dropped early, as by a panic or a kill of the actor, has taken what it has handed out and nothing else. A
    /// record that was handed out and not answered is given again when its lease ends.
    pub fn turn(&mut self) -> RecordTurn<'_, T> {
        // Before it looks: what comes from here on rings again. A swap, so that a ring that this answers is seen with what it
        // was rung for.
        self.bell.is_rung.swap(false, Ordering::AcqRel);
        RecordTurn {
            attached: self,
            left: PER_TURN,
        }
    }
}

impl<T> fmt::Debug for AttachedSubscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachedSubscription")
            .field("waiting", &self.waiting.len())
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

impl<T> Iterator for RecordTurn<'_, T> {
    type Item = Item<T>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.attached.waiting.try_recv().ok()?.0.take()
    }
}

impl<T> Drop for RecordTurn<'_, T> {
    fn drop(&mut self) {
        if !self.attached.waiting.is_empty() {
            self.attached.bell.ring();
        }
    }
}
