//! Envelopes for actors of the `ractor` crate; nothing else in this crate depends on that one.
//!
//! A ractor mailbox is unbounded and costs more per message than the broker does. So the inbox stays beside the actor, and
//! the actor's own mailbox gets one small message, the doorbell, when the inbox stops being empty. The handler then takes
//! everything that is there:
//!
//! ```
//! use millrun_broker::actor::{Attached, attach};
//! use millrun_broker::{Broker, BrokerConfig, Envelope, Inbox, SubscriptionConfig};
//! use ractor::{Actor, ActorProcessingErr, ActorRef};
//!
//! struct Printer;
//!
//! enum Message {
//!     OrdersWaiting,
//! }
//!
//! impl Actor for Printer {
//!     type Msg = Message;
//!     type State = Attached<Envelope<String>>;
//!     type Arguments = Inbox<Envelope<String>>;
//!
//!     async fn pre_start(
//!         &self,
//!         myself: ActorRef<Message>,
//!         inbox: Self::Arguments,
//!     ) -> Result<Self::State, ActorProcessingErr> {
//!         Ok(attach(inbox, &myself, || Message::OrdersWaiting))
//!     }
//!
//!     async fn handle(
//!         &self,
//!         _: ActorRef<Message>,
//!         Message::OrdersWaiting: Message,
//!         orders: &mut Self::State,
//!     ) -> Result<(), ActorProcessingErr> {
//!         let mut turn = orders.turn();
//!         while let Some(order) = turn.next_ref() {
//!             println!("{}", order.payload());
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Broker::without_host(BrokerConfig::default());
//! let inbox = broker.subscribe::<String>("orders.>", SubscriptionConfig::default())?;
//! let (printer, ended) = Actor::spawn(None, Printer, inbox.clone()).await?;
//! broker.topic::<String>("orders.eu")?.publish("order-42".to_owned()).await?;
//! printer.drain()?;
//! ended.await?;
//! assert_eq!(inbox.stats().taken, 1);
//! # Ok(())
//! # }
//! ```
//!
//! An actor that publishes while it handles an envelope wraps the publish, so that the new envelopes name their cause:
//! `inbox.handling(&order).run(|| payments.publish(payment)).await`, see [`Inbox::handling`](crate::Inbox::handling).
//!
//! The inbox outlives the actor. A supervisor that keeps a clone of it and hands it to the actor's successor loses nothing:
//! the envelopes that the old actor had in hand are back at the front, and the doorbell rings for the successor as soon as it
//! attaches.

use std::fmt;
use std::sync::Arc;

use ractor::{ActorRef, Message};

use crate::envelope::AnyEnvelope;
use crate::inbox::Envelopes;
use crate::inbox::Inbox;

/// How many batches a turn takes before the actor's other messages are handled.
const BATCHES_PER_TURN: u32 = 4;

/// An inbox that rings for an actor.
pub struct Attached<E: AnyEnvelope + ?Sized> {
    /// Returned to the inbox between turns. Dropped before the inbox, which may be closed with its last handle.
    batch: Envelopes<E>,
    inbox: Inbox<E>,
}

/// Makes `inbox` ring for `actor`, in place of any actor before, by sending it the message that `doorbell` makes. If
/// envelopes are waiting already, it rings at once.
pub fn attach<E: AnyEnvelope + ?Sized, M: Message>(
    inbox: Inbox<E>,
    actor: &ActorRef<M>,
    doorbell: impl Fn() -> M + Send + Sync + 'static,
) -> Attached<E> {
    let actor = actor.clone();
    inbox.bell().connect(move || {
        // A dead actor takes no message; the inbox keeps everything for the next one.
        drop(actor.send_message(doorbell()));
    });
    // Waiting envelopes may have rung for an actor that died before the message arrived.
    if !inbox.is_empty() {
        inbox.bell().ring();
    }
    Attached {
        batch: inbox.empty_batch(),
        inbox,
    }
}

impl<E: AnyEnvelope + ?Sized> Attached<E> {
    /// The envelopes that are there now, to be called when the doorbell message arrives. After a few batches the turn ends
    /// and, if there is more, rings for the next turn, so that the actor can also be stopped, supervised and sent other
    /// messages.
    ///
    /// # Ordering
    /// Envelopes come in the inbox's order, from turn to turn and from one actor to its successor.
    /// Between them and the actor's own messages there is no order.
    ///
    /// # Cancel safety
    /// If the turn is dropped early, by a panic, an error or a kill of the actor, it returns the envelopes that were not
    /// handed out to the inbox, and rings.
    pub fn turn(&mut self) -> ActorTurn<'_, E> {
        self.inbox.bell().answer();
        ActorTurn {
            inbox: &self.inbox,
            batch: &mut self.batch,
            batches_left: BATCHES_PER_TURN,
            has_seen_all: false,
        }
    }

    /// The inbox.
    #[must_use]
    pub const fn inbox(&self) -> &Inbox<E> {
        &self.inbox
    }
}

impl<E: AnyEnvelope + ?Sized> fmt::Debug for Attached<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached")
            .field("inbox", &self.inbox)
            .finish_non_exhaustive()
    }
}

/// One turn of an attached actor: the envelopes to handle, in order.
#[must_use = "dropping the turn puts everything back"]
pub struct ActorTurn<'a, E: AnyEnvelope + ?Sized> {
    inbox: &'a Inbox<E>,
    batch: &'a mut Envelopes<E>,
    batches_left: u32,
    /// The inbox was empty: later envelopes have rung.
    has_seen_all: bool,
}

impl<'a, E: AnyEnvelope + ?Sized> ActorTurn<'a, E> {
    /// The inbox, which outlives the turn's loop: `let inbox = turn.inbox();` before the loop allows
    /// [`inbox.handling(&envelope)`](Inbox::handling) inside of it.
    #[must_use]
    pub const fn inbox(&self) -> &'a Inbox<E> {
        self.inbox
    }

    /// The next envelope, lent until the next call; `None` at the end of the turn.
    ///
    /// Cheaper than [`Iterator::next`] if the envelope went to no other inbox, see [`Envelopes`]. Its payload is dropped at
    /// the next call, if no other reader has it; a payload of a bundle that inboxes share is dropped with the last of the
    /// bundle. Plain bytes may be freed a little later, by the publisher.
    #[inline]
    pub fn next_ref(&mut self) -> Option<&E> {
        if self.advance() { self.batch.lend() } else { None }
    }

    #[inline]
    fn advance(&mut self) -> bool {
        loop {
            if self.batch.advance_in(self.inbox) {
                return true;
            }
            if self.batches_left == 0 {
                return false;
            }
            self.batches_left -= 1;
            self.batch.refill();
            if self.batch.is_empty() {
                self.batches_left = 0;
                self.has_seen_all = true;
                return false;
            }
        }
    }

    /// Tells waiting publishers how much has been handed out so far. Call it before awaiting anything within a turn.
    pub fn announce(&mut self) {
        self.batch.announce();
    }
}

impl<E: AnyEnvelope + ?Sized> Iterator for ActorTurn<'_, E> {
    type Item = Arc<E>;

    fn next(&mut self) -> Option<Arc<E>> {
        if self.advance() {
            self.batch.give_away()
        } else {
            None
        }
    }
}

impl<E: AnyEnvelope + ?Sized> Drop for ActorTurn<'_, E> {
    fn drop(&mut self) {
        // If anything is left, here or in the queue, another turn is needed.
        self.batch.put_down();
        if !self.has_seen_all && !self.inbox.is_empty() {
            self.inbox.bell().ring();
        }
    }
}

impl<E: AnyEnvelope + ?Sized> fmt::Debug for ActorTurn<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActorTurn")
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}
