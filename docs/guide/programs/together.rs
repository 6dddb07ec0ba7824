//! Several things at once: calls in parallel, children, and the first answers of many.

use std::error::Error;

use millrun::prelude::*;
use millrun::workflow::{ParentClose, SignalInstanceError};

const PACK: Activity<String, u64> = Activity::named("warehouse.pack");
const QUOTE: Activity<String, (String, u64)> = Activity::named("courier.quote");
const SURVEY: Workflow<String, ()> = Workflow::named("survey");

async fn pack(_cx: ActivityContext, item: String) -> Result<u64, ActivityError> {
    Ok(item.len() as u64 * 100)
}

async fn quote(_cx: ActivityContext, courier: String) -> Result<(String, u64), ActivityError> {
    let cents = courier.len() as u64 * 100;
    Ok((courier, cents))
}

async fn survey(cx: WorkflowContext, customer: String) -> Result<(), WorkflowError> {
    cx.receive(Signal::<u8>::named("stars")).await?;
    println!("{customer} has answered");
    Ok(())
}

// ANCHOR: join_all
const PARCEL: Workflow<Vec<String>, u64> = Workflow::named("parcel");

async fn parcel(cx: WorkflowContext, items: Vec<String>) -> Result<u64, WorkflowError> {
    let packed = cx
        .join_all(items.into_iter().map(|item| cx.call(PACK, item)))
        .await;
    let mut grams = 0;
    for one in packed {
        grams += one?;
    }
    Ok(grams)
}
// ANCHOR_END: join_all

// ANCHOR: children
const ORDER: Workflow<Vec<Vec<String>>, u64> = Workflow::named("order");

async fn order(cx: WorkflowContext, parcels: Vec<Vec<String>>) -> Result<u64, WorkflowError> {
    let id = cx.instance_id();
    let mut children = cx.join_set();
    for (number, items) in parcels.into_iter().enumerate() {
        children.spawn(cx.child(PARCEL, format!("{id}/parcel-{number}"), items));
    }
    let mut grams = 0;
    while let Some(parcel) = children.next().await {
        grams += parcel?; // in the order in which they end
    }
    Ok(grams)
}
// ANCHOR_END: children

// ANCHOR: race_all
const CHEAPEST: Workflow<Vec<String>, String> = Workflow::named("cheapest");

async fn cheapest(cx: WorkflowContext, couriers: Vec<String>) -> Result<String, WorkflowError> {
    let mut quotes = cx.join_set();
    for courier in couriers {
        quotes.spawn(cx.call(QUOTE, courier));
    }
    let mut best: Option<(String, u64)> = None;
    while let Some(quote) = quotes.next().await {
        let (courier, cents) = quote?;
        if cents <= 400 {
            return Ok(format!("{courier} is cheap enough")); // the others are cancelled with the set
        }
        if best.as_ref().is_none_or(|(_, least)| cents < *least) {
            best = Some((courier, cents));
        }
    }
    best.map(|(courier, _)| courier)
        .ok_or_else(|| WorkflowError::failed("nobody has made an offer"))
}
// ANCHOR_END: race_all

// ANCHOR: signal_instance
const STOCK: Workflow<u64, u64> = Workflow::named("stock");
const TAKEN: Signal<u64> = Signal::named("taken");
const SALE: Workflow<u64, String> = Workflow::named("sale");

/// One instance for each item: what has been sold, until nothing is left.
async fn stock(cx: WorkflowContext, pieces: u64) -> Result<u64, WorkflowError> {
    let mut sold = 0;
    while sold < pieces {
        sold += cx.receive(TAKEN).await?;
    }
    Ok(sold)
}

async fn sale(cx: WorkflowContext, pieces: u64) -> Result<String, WorkflowError> {
    match cx.signal_instance(STOCK, "stock-of-tea", TAKEN, pieces).await {
        Ok(()) => Ok(format!("{pieces} sold")), // in the history of the stock, once
        Err(SignalInstanceError::NotFound | SignalInstanceError::Finished) => Ok("sold out".into()),
        Err(error) => Err(error.into()),
    }
}
// ANCHOR_END: signal_instance

// ANCHOR: handle
const COURIER: Workflow<String, String> = Workflow::named("courier");
const DOOR: Signal<String> = Signal::named("door");
const DELIVERY: Workflow<String, String> = Workflow::named("delivery");
const UNWANTED: Signal<()> = Signal::named("unwanted");

async fn courier(cx: WorkflowContext, parcel: String) -> Result<String, WorkflowError> {
    let door = cx.receive(DOOR).await?;
    let cancelled = cx.cancelled().await;
    Ok(format!(
        "{parcel} comes back from the {door}: {}",
        cancelled.reason().unwrap_or_default()
    ))
}

async fn delivery(cx: WorkflowContext, parcel: String) -> Result<String, WorkflowError> {
    let id = format!("{}/courier", cx.instance_id());
    let mut courier = cx.child(COURIER, id, parcel).start()?; // decided now
    courier.signal(DOOR, "back door".into()).await?; // in the courier's history
    match cx.race(&mut courier, cx.receive(UNWANTED)).await {
        millrun::workflow::Either::Left(delivered) => Ok(delivered?),
        millrun::workflow::Either::Right(unwanted) => {
            unwanted?;
            courier.cancel("nobody wants it");
            Ok(courier.await?)
        }
    }
}
// ANCHOR_END: handle

// ANCHOR: abandon
const FAREWELL: Workflow<String, ()> = Workflow::named("farewell");

async fn farewell(cx: WorkflowContext, customer: String) -> Result<(), WorkflowError> {
    let survey = cx.child(SURVEY, format!("survey-{customer}"), customer);
    let survey = survey.on_close(ParentClose::Abandon); // it lives on when this run has ended
    match cx
        .race(survey, cx.sleep(std::time::Duration::from_millis(5)))
        .await
    {
        millrun::workflow::Either::Left(answered) => Ok(answered?),
        millrun::workflow::Either::Right(slept) => Ok(slept?),
    }
}
// ANCHOR_END: abandon

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(String::from).collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::volatile()
        .register(PACK, pack)
        .register(QUOTE, quote)
        .register(SURVEY, survey)
        .register(PARCEL, parcel)
        .register(ORDER, order)
        .register(CHEAPEST, cheapest)
        .register(FAREWELL, farewell)
        .register(STOCK, stock)
        .register(SALE, sale)
        .register(COURIER, courier)
        .register(DELIVERY, delivery)
        .start()
        .await?;
    let order = runtime
        .start(ORDER, "order-42", vec![words("bread milk"), words("tea")])
        .await?;
    println!("{} grams", order.result().await?);
    let parcel = runtime.attach(PARCEL, "order-42/parcel-1")?;
    println!("the second parcel has {} of them", parcel.result().await?);

    let cheapest = runtime
        .start(CHEAPEST, "quotes-42", words("Hermes Iris Mercury"))
        .await?;
    println!("{}", cheapest.result().await?);

    let stock = runtime.start(STOCK, "stock-of-tea", 5).await?;
    for (number, pieces) in [2, 3].into_iter().enumerate() {
        let sale = runtime.start(SALE, &format!("sale-{number}"), pieces).await?;
        println!("{}", sale.result().await?);
    }
    println!("{} pieces of tea were there", stock.result().await?);
    let sale = runtime.start(SALE, "sale-2", 1).await?;
    println!("{}", sale.result().await?);

    let delivery = runtime.start(DELIVERY, "delivery-42", "the tea".into()).await?;
    delivery.signal(UNWANTED, ()).await?;
    println!("{}", delivery.result().await?);

    runtime
        .start(FAREWELL, "farewell-ada", "ada".into())
        .await?
        .result()
        .await?;
    let survey = runtime.attach(SURVEY, "survey-ada")?;
    survey.signal(Signal::<u8>::named("stars"), 5).await?;
    survey.result().await?;
    runtime.shutdown().await?;
    Ok(())
}
