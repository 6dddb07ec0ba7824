//! The last seat, and two who want it: one workflow asks and then takes, and between the two another can do the same; the other
//! one takes and is told whether it could.
//!
//! In a program that runs, the first one goes well nearly always. `tests/it/worlds.rs` lets a world find the order in which it
//! does not, and kills the process at every commit of the second one.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use millrun::{
    Activity, ActivityContext, ActivityError, Runtime, RuntimeBuilder, Workflow, WorkflowContext,
    WorkflowError,
};

const ARE_LEFT: Activity<(), bool> = Activity::named("seats.are-left");
const TAKE: Activity<(), ()> = Activity::named("seats.take");
pub(crate) const TAKE_IF_LEFT: Activity<(), bool> = Activity::named("seats.take-if-left");
/// Gives whether there is a ticket.
pub(crate) const HASTY: Workflow<(), bool> = Workflow::named("hasty");
pub(crate) const CAREFUL: Workflow<(), bool> = Workflow::named("careful");

/// A hall with few seats, each of which is taken under the idempotency key of a call: once, however often that is tried.
#[derive(Clone, Debug)]
pub(crate) struct Hall {
    seats_len: usize,
    taken: Arc<Mutex<BTreeSet<String>>>,
}

impl Hall {
    pub(crate) fn with_seats(seats_len: usize) -> Self {
        let taken = Arc::default();
        Self { seats_len, taken }
    }

    /// Takes a seat, if a condition on how many are taken holds. Whether the key has one then.
    fn take(&self, key: String, is_allowed: impl FnOnce(usize) -> bool) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if !taken.contains(&key) && is_allowed(taken.len()) {
            taken.insert(key.clone());
        }
        taken.contains(&key)
    }

    pub(crate) fn taken_len(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// For the next evening.
    pub(crate) fn empty(&self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

async fn are_left(hall: Hall, _cx: ActivityContext, (): ()) -> Result<bool, ActivityError> {
    Ok(hall.taken_len() < hall.seats_len)
}

async fn take(hall: Hall, cx: ActivityContext, (): ()) -> Result<(), ActivityError> {
    hall.take(cx.idempotency_key(), |_| true);
    Ok(())
}

async fn take_if_left(hall: Hall, cx: ActivityContext, (): ()) -> Result<bool, ActivityError> {
    let seats_len = hall.seats_len;
    Ok(hall.take(cx.idempotency_key(), |taken_len| taken_len < seats_len))
}

/// What it was told may have changed when it acts on it.
async fn hasty(cx: WorkflowContext, (): ()) -> Result<bool, WorkflowError> {
    if !cx.call(ARE_LEFT, ()).await? {
        return Ok(false);
    }
    cx.call(TAKE, ()).await?;
    Ok(true)
}

async fn careful(cx: WorkflowContext, (): ()) -> Result<bool, WorkflowError> {
    Ok(cx.call(TAKE_IF_LEFT, ()).await?)
}

pub(crate) fn registered(builder: RuntimeBuilder, hall: &Hall) -> RuntimeBuilder {
    builder
        .register_with(hall.clone(), ARE_LEFT, are_left)
        .register_with(hall.clone(), TAKE, take)
        .register_with(hall.clone(), TAKE_IF_LEFT, take_if_left)
        .register(HASTY, hasty)
        .register(CAREFUL, careful)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let hall = Hall::with_seats(1);
    let runtime = registered(Runtime::volatile(), &hall).start().await?;
    for evening in ["friday", "saturday"] {
        hall.empty();
        let ada = runtime.start(CAREFUL, &format!("ada-{evening}"), ()).await?;
        let alan = runtime.start(CAREFUL, &format!("alan-{evening}"), ()).await?;
        let tickets = [ada.result().await?, alan.result().await?];
        let sold = tickets.iter().filter(|has_ticket| **has_ticket).count();
        println!("{evening}: {sold} of 2 has the last seat");
    }
    runtime.shutdown().await?;
    Ok(())
}
