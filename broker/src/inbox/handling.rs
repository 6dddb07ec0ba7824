//! Marks that an envelope is being handled, outside of a service.
//!
//! A service does this itself. An actor, or a task with a receiver, must do it:
//!
//! ```
//! # use millrun_broker::{Broker, BrokerConfig, SubscriptionConfig};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Broker::without_host(BrokerConfig::default());
//! let mut placed = broker.subscribe::<u32>("placed", SubscriptionConfig::default())?.into_receiver();
//! let mut paid = broker.subscribe::<u32>("paid", SubscriptionConfig::default())?.into_receiver();
//! let payments = broker.topic::<u32>("paid")?;
//! broker.topic::<u32>("placed")?.publish(42).await?;
//!
//! let order = placed.recv().await.expect("the subscription is open");
//! let handling = placed.inbox().handling(&order);
//! handling.run(|| payments.publish(*order.payload())).await?;
//!
//! let payment = paid.recv().await.expect("the subscription is open");
//! assert_eq!(payment.causation(), Some(order.id()));
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;

use crate::envelope::AnyEnvelope;
use crate::envelope::Scope;
use crate::inbox::Inbox;
use crate::watch::tap::AtWork;

/// An envelope being handled; see [`Inbox::handling`]. The handling ends when this is dropped.
#[must_use = "it does nothing unless work is run in it"]
pub struct Handling {
    scope: Scope,
    _told: Option<AtWork>,
}

impl<E: AnyEnvelope + ?Sized> Inbox<E> {
    /// Marks `envelope`, received from this inbox, as being handled now. Envelopes that the work inside of it publishes name
    /// it as their cause, and if such a publish has to wait, the wait is known to delay this subscription: a cycle of such
    /// waits is [reported](crate::BrokerEvent::LongWait).
    ///
    /// Inside a [service](Inbox::serve) this happens automatically.
    pub fn handling(&self, envelope: &E) -> Handling {
        Handling {
            scope: Scope::new(envelope, self.id()),
            _told: self.hub().tap().begin(envelope, self.id()),
        }
    }
}

impl Handling {
    /// Makes the future of `work` and runs it as part of the handling, which ends with it. It takes a closure because a
    /// publish gets its cause when it is made. The future may be moved to its own task.
    ///
    /// # Cancel safety
    /// As the future of `work`; dropping this one ends the handling.
    pub async fn run<F: Future>(self, work: impl FnOnce() -> F) -> F::Output {
        let mut work = pin!(self.scope.enter(work));
        poll_fn(|cx| self.scope.enter(|| work.as_mut().poll(cx))).await
    }

    /// Runs `work`, which does not await anything, as part of the handling.
    pub fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        self.scope.enter(work)
    }
}

impl fmt::Debug for Handling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handling")
            .field("envelope", &self.scope.lineage.causation)
            .field("subscription", &self.scope.subscription)
            .finish()
    }
}
