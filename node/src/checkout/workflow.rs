//! The checkout: reserve, wait for approval if it is a large order, charge, ship; when a later step fails, undo the earlier
//! ones in reverse order.
//!
//! ```text
//!   reserve ──► large? ──► approval or timeout ──► charge ──► ship ──► Shipped
//!                 │ no ────────────────────────────▲ │          │
//!                 │            refused, timed out    │declined  │given back
//!                 └───────────────► release ◄────────┴── refund ◄┘
//! ```

use std::fmt;
use std::time::Duration;

use millrun::workflow::Either;
use millrun::{
    Activity, CallError, Retry, Signal, SignalError, TypedError, Workflow, WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};

use super::orders::{Address, Approval, Card, Order};

/// From this price on a large order needs approval.
pub(crate) const APPROVAL_FROM_CENTS: u64 = 50_000;

pub(crate) const CHECKOUT: Workflow<Request, Decision> = Workflow::named("shop.checkout");
pub(crate) const APPROVAL: Signal<Approval> = Signal::named("shop.approval");

pub(crate) const RESERVE: Activity<Parcel, (), ShopError> = Activity::named("shop.reserve");
pub(crate) const RELEASE: Activity<Parcel, (), ShopError> = Activity::named("shop.release");
pub(crate) const CHARGE: Activity<Payment, (), ShopError> = Activity::named("shop.charge");
pub(crate) const REFUND: Activity<Payment, (), ShopError> = Activity::named("shop.refund");
pub(crate) const SHIP: Activity<Parcel, (), ShopError> = Activity::named("shop.ship");

/// What a checkout is started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) order: Order,
    /// How long a large order waits for its approval.
    pub(crate) approval_within_ms: u32,
}

/// What is reserved and sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parcel {
    pub(crate) order: String,
    /// Of all articles together.
    pub(crate) pieces: u64,
    pub(crate) address: Address,
}

/// What is paid or paid back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Payment {
    pub(crate) order: String,
    pub(crate) cents: u64,
    pub(crate) card: Card,
}

/// How a checkout ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Decision {
    Shipped {
        cents: u64,
    },
    /// No approval came in time.
    Expired,
    /// The customer or the shop has refused.
    Refused,
    /// The card was declined, or the provider gave up.
    NotPaid {
        reason: String,
    },
    /// The courier gave the parcel back; the payment was returned.
    GivenBack {
        reason: String,
    },
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shipped { cents } => write!(f, "shipped, {}.{:02} paid", cents / 100, cents % 100),
            Self::Expired => f.write_str("nobody approved in time; stock released"),
            Self::Refused => f.write_str("approval refused; stock released"),
            Self::NotPaid { reason } => write!(f, "not paid: {reason}; stock released"),
            Self::GivenBack { reason } => write!(f, "given back: {reason}; payment refunded, stock released"),
        }
    }
}

/// What the shop's activities fail with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum ShopError {
    #[error("the card was declined")]
    Declined,
    #[error("the payment provider is busy")]
    Busy,
    #[error("the address is unknown")]
    AddressUnknown,
    #[error("the shop's book cannot be written: {0}")]
    Book(String),
}

impl TypedError for ShopError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Declined | Self::AddressUnknown => false,
            Self::Busy | Self::Book(_) => true,
        }
    }
}

/// The workflow's code.
pub(crate) async fn checkout(cx: WorkflowContext, request: Request) -> Result<Decision, WorkflowError> {
    let Request {
        order,
        approval_within_ms,
    } = request;
    let cents = order.price_cents();
    let pieces = order.items.iter().map(|item| u64::from(item.pieces)).sum();
    let parcel = Parcel {
        order: order.id.clone(),
        pieces,
        address: order.address,
    };
    let payment = Payment {
        order: order.id,
        cents,
        card: order.card,
    };

    cx.call(RESERVE, parcel.clone()).await?;
    match sell(
        &cx,
        &parcel,
        &payment,
        Duration::from_millis(approval_within_ms.into()),
    )
    .await
    {
        Ok(Decision::Shipped { cents }) => Ok(Decision::Shipped { cents }),
        unsold => {
            // Shielded: a request to cancel ends the sale, but must not end the undoing.
            cx.shielded().call(RELEASE, parcel).await?;
            unsold
        }
    }
}

/// Everything that happens while the stock is reserved.
async fn sell(
    cx: &WorkflowContext,
    parcel: &Parcel,
    payment: &Payment,
    approval_within: Duration,
) -> Result<Decision, WorkflowError> {
    if payment.cents >= APPROVAL_FROM_CENTS {
        match approve(cx, approval_within).await? {
            Some(Approval::Granted) => {}
            Some(Approval::Refused) => return Ok(Decision::Refused),
            None => return Ok(Decision::Expired),
        }
    }
    let patient = Retry::exponential().attempts(5);
    match cx.call(CHARGE, payment.clone()).retry(patient).await {
        Ok(()) => {}
        Err(CallError::Failed(error)) => {
            return Ok(Decision::NotPaid {
                reason: error.to_string(),
            });
        }
        Err(error) => return Err(error.into()),
    }
    let shipped = cx.call(SHIP, parcel.clone()).await;
    if shipped.is_err() {
        cx.shielded().call(REFUND, payment.clone()).await?;
    }
    match shipped {
        Ok(()) => Ok(Decision::Shipped { cents: payment.cents }),
        Err(CallError::Failed(error)) => Ok(Decision::GivenBack {
            reason: error.to_string(),
        }),
        Err(error) => Err(error.into()),
    }
}

/// Waits for an answer, but not forever.
async fn approve(cx: &WorkflowContext, within: Duration) -> Result<Option<Approval>, SignalError> {
    match cx.race(cx.receive(APPROVAL), cx.sleep(within)).await {
        Either::Left(approval) => approval.map(Some),
        Either::Right(slept) => slept.map(|()| None).map_err(SignalError::Cancelled),
    }
}
