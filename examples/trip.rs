//! A trip of several bookings that waits to be paid, for the signal `PAID`: when a booking fails or the
//! trip is cancelled, what was booked before is given back, the last one first.
//!
//! The stack of what to undo is part of the code's state: it is there again after a crash, and a
//! request to cancel the trip does not stop the undoing.

use std::error::Error;
use std::fmt;

use millrun::workflow::Saga;
use millrun::{
    Activity, ActivityContext, Runtime, RuntimeBuilder, Signal, TypedError, Workflow, WorkflowContext,
    WorkflowError,
};
use serde::{Deserialize, Serialize};

pub(crate) const BOOK: Activity<String, u64, NoneLeft> = Activity::named("book");
pub(crate) const GIVE_BACK: Activity<(String, u64), (), NoneLeft> = Activity::named("give-back");
const PAID: Signal<()> = Signal::named("paid");
pub(crate) const TRIP: Workflow<Vec<String>, Vec<u64>> = Workflow::named("trip");

/// An error of our own: it arrives in the workflow as it is, not as a text.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NoneLeft {
    pub(crate) what: String,
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

/// Books everything and waits to be paid, and says on the way how each booking is given back.
async fn book_all(
    cx: &WorkflowContext,
    saga: &mut Saga,
    wanted: Vec<String>,
) -> Result<Vec<u64>, WorkflowError> {
    let mut booked = Vec::new();
    for what in wanted {
        cx.check_cancelled()?;
        // A request to cancel would cut the call off, which may have booked all the same: who would give
        // that back? Behind a shield, it gives the number, or an error that says that there is none.
        // (Where a call could fail by a timeout and yet have booked, push before it, and give back by name.)
        let number = cx.shielded().call(BOOK, what.clone()).await?;
        booked.push(number);
        saga.push(async move |cx| Ok(cx.call(GIVE_BACK, (what, number)).await?));
    }
    cx.receive(PAID).await?;
    Ok(booked)
}

async fn trip(cx: WorkflowContext, wanted: Vec<String>) -> Result<Vec<u64>, WorkflowError> {
    let mut saga = cx.saga();
    let booked = book_all(&cx, &mut saga, wanted).await;
    match booked {
        Ok(_) => saga.complete(),
        // Whatever it was: nothing left to book, or a request to cancel, between two bookings or while
        // it waited to be paid.
        Err(_) => saga.compensate().await?,
    }
    booked
}

pub(crate) fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(BOOK, book)
        .register(GIVE_BACK, give_back)
        .register(TRIP, trip)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = registered(Runtime::volatile()).start().await?;
    for (id, wanted) in [
        ("ada", ["flight", "hotel"].as_slice()),
        ("alan", &["flight", "hotel", "car"]),
        ("grace", &["train", "hotel"]),
    ] {
        let wanted = wanted.iter().map(ToString::to_string).collect();
        let run = runtime.start(TRIP, id, wanted).await?;
        match id {
            "ada" => run.signal(PAID, ()).await?,
            "grace" => {
                run.until_described(|run| run.awaits(PAID.name())).await?;
                run.cancel("she is ill").await?;
            }
            _ => {}
        }
        match run.result().await {
            Ok(numbers) => println!("{id} travels: {numbers:?}"),
            Err(error) => println!("{id} stays at home: {error}"),
        }
    }
    runtime.shutdown().await?;
    Ok(())
}
