//! Orders come one by one and go out as parcels of three: whichever order is the first starts the
//! parcel, the next ones find it, and the one behind a full parcel starts another.
//!
//! Nobody asks first whether there is a parcel: the start and its signal are one commit.

use std::collections::BTreeMap;
use std::error::Error;

use millrun::{OnConflict, Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};

const ORDERED: Signal<String> = Signal::named("ordered");
const PARCEL: Workflow<usize, Vec<String>> = Workflow::named("parcel");

async fn parcel(cx: WorkflowContext, full: usize) -> Result<Vec<String>, WorkflowError> {
    let mut items = Vec::new();
    while items.len() < full {
        items.push(cx.receive(ORDERED).await?);
    }
    Ok(items)
}

pub(crate) fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.register(PARCEL, parcel)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = registered(Runtime::volatile()).start().await?;
    let orders = [
        ("ada", "bread"),
        ("grace", "ink"),
        ("ada", "milk"),
        ("ada", "tea"),
        ("grace", "paper"),
        ("ada", "salt"),
        ("grace", "pens"),
        ("ada", "rice"),
        ("ada", "oil"),
    ];
    let mut parcels = BTreeMap::new();
    for (customer, item) in orders {
        let on_conflict = OnConflict::RestartFinished;
        let told = runtime
            .start(PARCEL, customer, 3)
            .on_conflict(on_conflict)
            .with_signal(ORDERED, item.to_owned());
        let parcel = told.await?;
        let number = parcels.len() + 1;
        parcels
            .entry(parcel.run_id())
            .or_insert((number, customer, parcel));
    }
    let mut parcels: Vec<_> = parcels.into_values().collect();
    parcels.sort_by_key(|(number, ..)| *number);
    for (number, customer, parcel) in parcels {
        println!(
            "parcel {number}, {customer}: {}",
            parcel.result().await?.join(", ")
        );
    }
    runtime.shutdown().await?;
    Ok(())
}
