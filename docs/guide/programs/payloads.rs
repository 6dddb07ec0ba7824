//! Types that change while runs are alive: old payloads are read by new code.

use std::error::Error;
use std::path::Path;

use millrun::prelude::*;

const CONFIRMED: Signal<()> = Signal::named("confirmed");

// ANCHOR: before
mod before {
    use millrun::prelude::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(crate) struct Order {
        pub(crate) item: String,
        pub(crate) cents: u64,
    }

    pub(crate) const ORDER: Workflow<Order, String> = Workflow::named("order");
}
// ANCHOR_END: before

// ANCHOR: after
mod after {
    use millrun::prelude::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(crate) struct Order {
        #[serde(alias = "item")] // the field has a new name
        pub(crate) article: String,
        pub(crate) cents: u64,
        #[serde(default)] // the field is new, and old orders lack it
        pub(crate) coupon: Option<String>,
    }

    pub(crate) const ORDER: Workflow<Order, String> = Workflow::named("order");
}
// ANCHOR_END: after

// ANCHOR: broken
mod broken {
    use millrun::prelude::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(crate) struct Order {
        pub(crate) article: String,
        pub(crate) coupon: String, // old orders lack it, and there is no default
    }

    pub(crate) const ORDER: Workflow<Order, String> = Workflow::named("order");
}
// ANCHOR_END: broken

async fn first(cx: WorkflowContext, order: before::Order) -> Result<String, WorkflowError> {
    cx.receive(CONFIRMED).await?;
    Ok(format!("{} for {} cents", order.item, order.cents))
}

async fn second(cx: WorkflowContext, order: after::Order) -> Result<String, WorkflowError> {
    cx.receive(CONFIRMED).await?;
    let coupon = order.coupon.unwrap_or_else(|| "no coupon".into());
    Ok(format!("{} for {} cents, {coupon}", order.article, order.cents))
}

async fn hasty(cx: WorkflowContext, order: broken::Order) -> Result<String, WorkflowError> {
    cx.receive(CONFIRMED).await?;
    Ok(format!("{}, {}", order.article, order.coupon))
}

async fn story(store: &Path) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::open(store)
        .register(before::ORDER, first)
        .start()
        .await?;
    let order = before::Order {
        item: "bread".into(),
        cents: 399,
    };
    let run = runtime.start(before::ORDER, "order-1", order).await?;
    run.until_described(|run| run.awaits(CONFIRMED.name())).await?;
    runtime.shutdown().await?;
    drop((run, runtime));

    // ANCHOR: parked
    // The code that cannot read the order parks the run; nothing is lost.
    let runtime = Runtime::open(store)
        .register(broken::ORDER, hasty)
        .start()
        .await?;
    let run = runtime.attach(broken::ORDER, "order-1")?;
    run.signal(CONFIRMED, ()).await?; // recorded all the same
    if let Err(error) = run.result().await {
        println!("{error}");
    }
    // ANCHOR_END: parked
    runtime.shutdown().await?;
    drop((run, runtime));

    let runtime = Runtime::open(store)
        .register(after::ORDER, second)
        .start()
        .await?;
    println!("{}", runtime.attach(after::ORDER, "order-1")?.result().await?);
    runtime.shutdown().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    story(&directory.path().join("shop.redb")).await
}
