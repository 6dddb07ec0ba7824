//! A meter that is read for ever, with a history that stays short.
//!
//! A checkpoint lets the code begin again from a typed state: what stands before it is not replayed any
//! more. Going on in another run also lets the file forget it, once retention drops the former run. Either
//! way, readings that have come and were not taken go along, and a caller that waits for the meter need not know.

use std::error::Error;

use millrun::{Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
use serde::{Deserialize, Serialize};

const READING: Signal<u64> = Signal::named("reading");
const METER: Workflow<Meter, u64> = Workflow::named("meter");

/// All that the code needs to begin again.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Meter {
    sum: u64,
    readings: u64,
}

/// Sums readings until one is zero.
async fn meter(cx: WorkflowContext, given: Meter) -> Result<u64, WorkflowError> {
    let mut meter: Meter = cx.checkpointed().transpose()?.unwrap_or(given);
    loop {
        match cx.receive(READING).await? {
            0 => return Ok(meter.sum),
            reading => meter.sum += reading,
        }
        meter.readings += 1;
        if meter.readings.is_multiple_of(100) {
            return Ok(cx.continue_as_new(METER, meter).await?);
        }
        if meter.readings.is_multiple_of(10) {
            return Ok(cx.checkpoint(&meter).await?);
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::volatile().register(METER, meter).start().await?;
    let run = runtime.start(METER, "meter-7", Meter::default()).await?;
    let first = run.describe().await?.run;
    for reading in 1..=250 {
        run.signal(READING, reading).await?;
    }
    let now = run.describe().await?;
    let events = now.sequence;
    println!("250 readings; this run's history has {events} events");
    println!("it is the run that began: {}", now.run == first);
    run.signal(READING, 0).await?;
    println!("the sum is {}", run.result().await?);
    runtime.shutdown().await?;
    Ok(())
}
