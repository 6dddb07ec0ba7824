//! Errors and retries: an error type of one's own, and who decides whether to try again.

use std::error::Error;
use std::time::Duration;

use millrun::CallError;
use millrun::prelude::*;

// ANCHOR: error
#[derive(Debug, serde::Serialize, serde::Deserialize, thiserror::Error)]
enum ChargeError {
    #[error("the card was declined")]
    Declined,
    #[error("the bank does not answer")]
    Unreachable,
}

impl TypedError for ChargeError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Declined => false, // asking again would not help
            Self::Unreachable => true,
        }
    }
}

const CHARGE: Activity<Card, String, ChargeError> = Activity::named("payments.charge");
// ANCHOR_END: error

const ORDER: Workflow<Card, String> = Workflow::named("order");
const PARCEL: Activity<(), String> = Activity::named("parcels.print-label");
const LABEL: Workflow<(), String> = Workflow::named("label");

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Card {
    number: u64,
    has_money: bool,
}

// ANCHOR: charge
async fn charge(cx: ActivityContext, card: Card) -> Result<String, ChargeError> {
    println!("card {}: attempt {}", card.number, cx.attempt());
    if cx.attempt() < 3 {
        return Err(ChargeError::Unreachable);
    }
    if !card.has_money {
        return Err(ChargeError::Declined);
    }
    Ok(format!("card {} charged", card.number))
}
// ANCHOR_END: charge

// ANCHOR: order
async fn order(cx: WorkflowContext, card: Card) -> Result<String, WorkflowError> {
    let patience = Retry::exponential()
        .first_pause(Duration::from_millis(10)) // then 20 ms, 40 ms, …
        .attempts(5);
    let charged = cx
        .call(CHARGE, card)
        .retry(patience)
        .start_to_close(Duration::from_secs(30)) // of one attempt
        .schedule_to_close(Duration::from_secs(300)) // of all attempts and pauses together
        .await;
    match charged {
        Ok(receipt) => Ok(receipt),
        Err(CallError::Failed(ChargeError::Declined)) => {
            Err(WorkflowError::failed("please use another card"))
        }
        Err(error) => Err(error.into()),
    }
}
// ANCHOR_END: order

// ANCHOR: ready_made
async fn print_label(cx: ActivityContext, (): ()) -> Result<String, ActivityError> {
    match cx.attempt() {
        // The printer says when to come again: that pause counts, not the policy's.
        1 => Err(ActivityError::retryable("out of paper").after(Duration::from_millis(50))),
        // Any error converts: `?` makes one that is tried again.
        2 => Ok("42 labels".parse::<u64>().map(|number| number.to_string())?),
        // Nothing will help: no further attempt.
        _ => Err(ActivityError::fatal("the printer is on fire")),
    }
}
// ANCHOR_END: ready_made

async fn label(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
    let quickly = Retry::exponential().first_pause(Duration::from_millis(1));
    Ok(cx.call(PARCEL, ()).retry(quickly).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::volatile()
        .register(CHARGE, charge)
        .register(ORDER, order)
        .register(PARCEL, print_label)
        .register(LABEL, label)
        .start()
        .await?;
    // ANCHOR: result
    for (number, has_money) in [(1, true), (2, false)] {
        let card = Card { number, has_money };
        let run = runtime.start(ORDER, &format!("order-{number}"), card).await?;
        match run.result().await {
            Ok(receipt) => println!("{receipt}"),
            Err(millrun::ResultError::Failed(error)) => println!("card {number} failed: {error}"),
            Err(other) => return Err(other.into()),
        }
    }
    // ANCHOR_END: result
    if let Err(error) = runtime.start(LABEL, "label-1", ()).await?.result().await {
        println!("{error}");
    }
    runtime.shutdown().await?;
    Ok(())
}
