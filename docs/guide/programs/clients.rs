//! Activities with a client: state, the idempotency key, and a queue that protects the far side.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrun::prelude::*;

/// The answers of a bank that is somewhere else.
#[derive(Clone, Copy)]
enum Answer {
    Paid(u64),
    ComeAgain(Duration),
    Declined,
}

/// A client of that bank: cheap to clone, as clients of HTTP and pools of connections are.
#[derive(Clone, Default)]
struct Bank {
    payments: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Bank {
    /// How many payments were made.
    fn len(&self) -> usize {
        self.payments.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The bank knows each key: the same one is charged once.
    #[expect(clippy::unused_async, reason = "a client of a real bank waits for its answer")]
    async fn charge(&self, key: String, cents: u64) -> Answer {
        let mut payments = self.payments.lock().unwrap_or_else(PoisonError::into_inner);
        if cents > 100_000 {
            return Answer::Declined;
        }
        let number = payments.len() as u64 + 1;
        match payments.insert(key.clone(), number) {
            // The payment is made, and its answer is lost on the way.
            None => Answer::ComeAgain(Duration::from_millis(10)),
            Some(number) => {
                payments.insert(key, number);
                Answer::Paid(number)
            }
        }
    }
}

// ANCHOR: charge
const CHARGE: Activity<u64, u64> = Activity::named("payments.charge").on_queue("bank");

async fn charge(bank: Bank, cx: ActivityContext, cents: u64) -> Result<u64, ActivityError> {
    match bank.charge(cx.idempotency_key(), cents).await {
        Answer::Paid(number) => Ok(number),
        Answer::ComeAgain(pause) => Err(ActivityError::retryable("the bank is busy").after(pause)),
        Answer::Declined => Err(ActivityError::fatal("the card was declined")),
    }
}
// ANCHOR_END: charge

const ORDER: Workflow<u64, u64> = Workflow::named("order");

async fn order(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    Ok(cx.call(CHARGE, cents).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // ANCHOR: register
    let bank = Bank::default();
    let runtime = Runtime::volatile()
        .register_with(bank.clone(), CHARGE, charge)
        .register(ORDER, order)
        // The bank allows four connections.
        .configure(|config| config.queue_running_max = [("bank".into(), 4)].into())
        .start()
        .await?;
    // ANCHOR_END: register
    for (id, cents) in [("order-1", 1_999), ("order-2", 200_000)] {
        match runtime.start(ORDER, id, cents).await?.result().await {
            Ok(number) => println!("{id}: payment {number}"),
            Err(error) => println!("{id}: {error}"),
        }
    }
    println!("the bank has {} payment", bank.len());
    runtime.shutdown().await?;
    Ok(())
}
