//! The supervision tree: list it, watch it, kill a branch, and see it back with all it had.

use std::error::Error;

use millrun::broker::{Envelope, SubscriptionConfig};
use millrun::operating::{PartChange, PartEvent};
use millrun::{Runtime, Signal, Workflow, WorkflowContext, WorkflowError};

const GO: Signal<u64> = Signal::named("go");
const ADD: Workflow<u64, u64> = Workflow::named("add");

async fn add(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number + cx.receive(GO).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::volatile().register(ADD, add).start().await?;
    for part in runtime.parts() {
        println!("{}, restarted {} times", part.name, part.restarts);
    }
    let mut events = runtime
        .broker()
        .subscribe::<PartEvent>("millrun.parts", SubscriptionConfig::default())?
        .into_receiver();
    let run = runtime.start(ADD, "forty-two", 40).await?;

    // The shard that hosts the run fails, as if its code had a bug.
    runtime.kill("shard 0")?;
    while let Some(event) = events.recv().await.map(Envelope::into_payload) {
        let Ok(PartEvent { part, change, .. }) = event else {
            continue;
        };
        match change {
            PartChange::Failed { message } => println!("{part} failed: {message}"),
            PartChange::Restarted { restarts } => {
                println!("{part} was restarted, {restarts} in all");
                break;
            }
            other => println!("{part}: {other:?}"),
        }
    }
    run.signal(GO, 2).await?;
    println!("the run gives {}", run.result().await?);
    runtime.shutdown().await?;
    Ok(())
}
