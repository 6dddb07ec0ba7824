//! A trip of several bookings: when one of them fails, those before it are given back, the last one
//! first.
//!
//! The stack of what to undo is part of the code's state: it is there again after a crash, and a
//! request to cancel the trip does not stop the undoing.

use std::error::Error;
use std::fmt;

use millrun::{
    Activity, ActivityContext, CallError, Runtime, TypedError, Workflow, WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};

const BOOK: Activity<String, u64, NoneLeft> = Activity::named("book");
const GIVE_BACK: Activity<(String, u64), (), NoneLeft> = Activity::named("give-back");
const TRIP: Workflow<Vec<String>, Vec<u64>> = Workflow::named("trip");

/// An error of our own: it arrives in the workflow as it is, not as a text.
#[derive(Debug, Serialize, Deserialize)]
struct NoneLeft {
    what: String,
}

impl fmt::Display for NoneLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} is left", self.what)
    }
}

impl TypedError for NoneLeft {
    // Asking again would not help.
    fn is_retryable(&self) -> bool {
        false
    }
}

async fn book(_cx: ActivityContext, what: String) -> Result<u64, NoneLeft> {
    if what == "car" {
        return Err(NoneLeft { what });
    }
    println!("{what} booked");
    Ok(what.len() as u64)
}

async fn give_back(_cx: ActivityContext, (what, number): (String, u64)) -> Result<(), NoneLeft> {
    println!("{what} {number} given back");
    Ok(())
}

async fn trip(cx: WorkflowContext, wanted: Vec<String>) -> Result<Vec<u64>, WorkflowError> {
    let mut saga = cx.saga();
    let mut booked = Vec::new();
    for what in wanted {
        match cx.call(BOOK, what.clone()).await {
            Ok(number) => {
                booked.push(number);
                saga.push(async move |cx| Ok(cx.call(GIVE_BACK, (what, number)).await?));
            }
            Err(CallError::Failed(error)) => {
                saga.compensate().await?;
                return Err(WorkflowError::failed(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    saga.complete();
    Ok(booked)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::volatile()
        .register(BOOK, book)
        .register(GIVE_BACK, give_back)
        .register(TRIP, trip)
        .start()
        .await?;
    for (id, wanted) in [
        ("ada", ["flight", "hotel"].as_slice()),
        ("alan", &["flight", "hotel", "car"]),
    ] {
        let wanted = wanted.iter().map(ToString::to_string).collect();
        match runtime.start(TRIP, id, wanted).await?.result().await {
            Ok(numbers) => println!("{id} travels: {numbers:?}"),
            Err(error) => println!("{id} stays at home: {error}"),
        }
    }
    runtime.shutdown().await?;
    Ok(())
}
