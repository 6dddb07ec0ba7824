//! Waiting: for time, for a signal, for the first of several, for a promise.

use std::error::Error;
use std::time::Duration;

use millrun::prelude::*;
use millrun::workflow::{Either, PromiseToken};

const REMIND: Activity<String, ()> = Activity::named("mail.remind");
const ASK_COURIER: Activity<String, ()> = Activity::named("courier.ask");

// ANCHOR: signal
const PAID: Signal<u64> = Signal::named("paid");
const INVOICE: Workflow<Duration, String> = Workflow::named("invoice");

async fn invoice(cx: WorkflowContext, patience: Duration) -> Result<String, WorkflowError> {
    for reminders in 0..2 {
        match cx.race(cx.receive(PAID), cx.sleep(patience)).await {
            Either::Left(cents) => return Ok(format!("{} cents after {reminders} reminders", cents?)),
            Either::Right(slept) => slept?,
        }
        cx.call(REMIND, cx.instance_id().to_string()).await?;
    }
    Err(WorkflowError::failed("nobody has paid"))
}
// ANCHOR_END: signal

// ANCHOR: deadline
const DELIVERY: Workflow<Duration, String> = Workflow::named("delivery");
const KNOCKED: Signal<bool> = Signal::named("knocked");

async fn delivery(cx: WorkflowContext, hours: Duration) -> Result<String, WorkflowError> {
    let deadline = cx.now() + hours;
    loop {
        match cx.race(cx.receive(KNOCKED), cx.sleep_until(deadline)).await {
            Either::Left(is_opened) => {
                if is_opened? {
                    return Ok("delivered".into());
                } // else nobody is at home: the same deadline holds for the next try
            }
            Either::Right(_) => return Ok("left with a neighbour".into()),
        }
    }
}
// ANCHOR_END: deadline

// ANCHOR: promise
const COURIER: Workflow<(), String> = Workflow::named("courier");

async fn courier(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
    let picked_up = cx.promise::<String>();
    cx.call(ASK_COURIER, picked_up.token().to_string()).await?;
    Ok(format!("picked up by {}", picked_up.await?))
}
// ANCHOR_END: promise

async fn remind(_cx: ActivityContext, id: String) -> Result<(), ActivityError> {
    println!("a reminder for {id}");
    Ok(())
}

// ANCHOR: keep_promise
/// The courier's web hook, which here answers at once.
async fn ask_courier(cx: ActivityContext, token: String) -> Result<(), ActivityError> {
    let token: PromiseToken = token.parse()?;
    cx.runtime()?.keep_promise(token, "Grace").await?;
    Ok(())
}
// ANCHOR_END: keep_promise

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::volatile()
        .register(REMIND, remind)
        .register(ASK_COURIER, ask_courier)
        .register(INVOICE, invoice)
        .register(DELIVERY, delivery)
        .register(COURIER, courier)
        .start()
        .await?;

    // ANCHOR: send
    let paid = runtime
        .start(INVOICE, "invoice-1", Duration::from_secs(86_400))
        .await?;
    paid.signal(PAID, 1_999).await?; // durable when this returns
    println!("{}", paid.result().await?);
    // ANCHOR_END: send
    let ignored = runtime
        .start(INVOICE, "invoice-2", Duration::from_millis(5))
        .await?;
    if let Err(error) = ignored.result().await {
        println!("{error}");
    }

    // ANCHOR: until_described
    let delivery = runtime
        .start(DELIVERY, "delivery-1", Duration::from_secs(3_600))
        .await?;
    let waiting = delivery.until_described(|run| run.awaits(KNOCKED.name())).await?;
    println!("the delivery waits for {} timer", waiting.pending.len());
    // ANCHOR_END: until_described
    delivery.signal(KNOCKED, false).await?;
    delivery.signal(KNOCKED, true).await?;
    println!("{}", delivery.result().await?);

    println!(
        "{}",
        runtime.start(COURIER, "courier-1", ()).await?.result().await?
    );
    runtime.shutdown().await?;
    Ok(())
}
