//! The shop's activities. Each makes one effect in the [book](super::book), under its
//! idempotency key, and behaves as the order says: a busy payment provider, an unknown address.

use std::sync::Arc;

use millrun::ActivityContext;

use super::book::Book;
use super::orders::{Address, Card};
use super::workflow::{Parcel, Payment, ShopError};

/// At how many attempts a busy provider turns a payment away.
const BUSY_ATTEMPTS: u32 = 2;

/// The shop: what the activities work with. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    book: Arc<Book>,
}

impl Shop {
    pub(crate) fn new(book: Book) -> Self {
        Self { book: Arc::new(book) }
    }

    pub(crate) async fn reserve(self, cx: ActivityContext, parcel: Parcel) -> Result<(), ShopError> {
        self.enter(&cx, format!("{} reserve {} pieces", parcel.order, parcel.pieces))
            .await
    }

    pub(crate) async fn release(self, cx: ActivityContext, parcel: Parcel) -> Result<(), ShopError> {
        self.enter(&cx, format!("{} release {} pieces", parcel.order, parcel.pieces))
            .await
    }

    pub(crate) async fn charge(self, cx: ActivityContext, payment: Payment) -> Result<(), ShopError> {
        match payment.card {
            Card::Declined => Err(ShopError::Declined),
            Card::Busy if cx.attempt() <= BUSY_ATTEMPTS => Err(ShopError::Busy),
            Card::Busy | Card::Valid => {
                self.enter(&cx, format!("{} charge {} cents", payment.order, payment.cents))
                    .await
            }
        }
    }

    pub(crate) async fn refund(self, cx: ActivityContext, payment: Payment) -> Result<(), ShopError> {
        self.enter(&cx, format!("{} refund {} cents", payment.order, payment.cents))
            .await
    }

    pub(crate) async fn ship(self, cx: ActivityContext, parcel: Parcel) -> Result<(), ShopError> {
        match parcel.address {
            Address::Unknown => Err(ShopError::AddressUnknown),
            Address::Known => {
                self.enter(&cx, format!("{} ship {} pieces", parcel.order, parcel.pieces))
                    .await
            }
        }
    }

    /// Makes an effect. The book waits for the disk, so it is kept off the async threads.
    async fn enter(self, cx: &ActivityContext, effect: String) -> Result<(), ShopError> {
        let key = cx.idempotency_key();
        // Escaped, so that an id with a tab or a line end in it stays on one line.
        let effect = effect.escape_debug().to_string();
        let entered = tokio::task::spawn_blocking(move || self.book.enter(&key, &effect)).await;
        match entered {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(ShopError::Book(error.to_string())),
            Err(error) => Err(ShopError::Book(error.to_string())),
        }
    }
}
