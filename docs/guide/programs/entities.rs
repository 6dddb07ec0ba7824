//! A hall with seats: held for a while, booked, and told to others.

use std::error::Error;
use std::time::Duration;

use millrun::topics::ReadFrom;
use millrun::{
    CommandError, DurableTopic, Entity, EntityCommand, EntityContext, EntityState, Query, Runtime, Topic,
    WorkflowError,
};
use serde::{Deserialize, Serialize};

// ANCHOR: definitions
const HALL: Entity<Hall> = Entity::named("hall");
const HOLD: EntityCommand<Hall, String, u32> = EntityCommand::named("hold");
const BOOK: EntityCommand<Hall, String, ()> = EntityCommand::named("book");
const LET_GO: EntityCommand<Hall, (), ()> = EntityCommand::named("let-go");
const FREE: Query<Hall, (), u32> = Query::named("free");
const BOOKED: DurableTopic<String> = Topic::named("seats.booked").durable();

/// How many seats are free, and who holds one.
#[derive(Serialize, Deserialize)]
struct Hall {
    free: u32,
    held_by: Option<String>,
}

#[derive(Serialize, Deserialize)]
enum HallEvent {
    Held(String),
    Booked,
    LetGo,
}
// ANCHOR_END: definitions

// ANCHOR: state
impl EntityState for Hall {
    type Event = HallEvent;

    fn begin(_key: &str) -> Self {
        Self {
            free: 2,
            held_by: None,
        }
    }

    fn apply(&mut self, event: HallEvent) {
        match event {
            HallEvent::Held(by) => {
                self.free -= 1;
                self.held_by = Some(by);
            }
            HallEvent::Booked => self.held_by = None,
            HallEvent::LetGo => {
                self.free += 1;
                self.held_by = None;
            }
        }
    }
}
// ANCHOR_END: state

// ANCHOR: handlers
fn hold(hall: &Hall, by: String, cx: &mut EntityContext<'_, Hall>) -> Result<u32, WorkflowError> {
    if let Some(holder) = &hall.held_by {
        return Err(WorkflowError::failed(format!("{holder} holds the next seat")));
    }
    if hall.free == 0 {
        return Err(WorkflowError::failed("there is no seat left"));
    }
    cx.emit(HallEvent::Held(by));
    cx.set_timer_in(LET_GO, Duration::from_secs(600));
    Ok(hall.free - 1)
}

fn book(hall: &Hall, by: String, cx: &mut EntityContext<'_, Hall>) -> Result<(), WorkflowError> {
    if hall.held_by.as_ref() != Some(&by) {
        return Err(WorkflowError::failed(format!("{by} holds no seat")));
    }
    cx.emit(HallEvent::Booked);
    cx.clear_timer(LET_GO);
    cx.publish(BOOKED, format!("{by} in hall {}", cx.key()));
    Ok(())
}

fn let_go(_hall: &Hall, (): (), cx: &mut EntityContext<'_, Hall>) -> Result<(), WorkflowError> {
    cx.emit(HallEvent::LetGo);
    Ok(())
}
// ANCHOR_END: handlers

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("halls.redb");
    // ANCHOR: register
    let open = || {
        let hall = HALL
            .command(HOLD, hold)
            .command(BOOK, book)
            .command(LET_GO, let_go)
            .query(FREE, |hall, ()| hall.free);
        Runtime::open(&path).entity(hall).durable_topic(BOOKED)
    };
    // ANCHOR_END: register
    let runtime = open().start().await?;
    // ANCHOR: calls
    let hall = runtime.entity(HALL, "north");
    println!("{} free", hall.read(FREE, ()).await?);
    let left = hall.call(HOLD, "ada".into()).request("hold-1").await?;
    let again = hall.call(HOLD, "ada".into()).request("hold-1").await?;
    println!("{left} left, and asked again {again}");
    match hall.call(HOLD, "grace".into()).await {
        Err(CommandError::Rejected(error)) => println!("{error}"),
        other => println!("{other:?}"),
    }
    hall.call(BOOK, "ada".into()).await?;
    // ANCHOR_END: calls
    runtime.shutdown().await?;

    let runtime = open().start().await?;
    let mut booked = runtime.durable_topic(BOOKED)?.read(ReadFrom::Beginning).await?;
    println!("booked: {}", booked.next().await?.payload());
    // ANCHOR: list
    for key in ["south", "nook"] {
        runtime.entity(HALL, key).call(HOLD, "alan".into()).await?;
    }
    let mut keys = runtime.entities(HALL).prefix("no").page(None, 10).await?.keys;
    keys.sort();
    println!("{keys:?}");
    let north = runtime.entity(HALL, "north");
    north.delete().await?;
    println!("{} free", north.read(FREE, ()).await?);
    // ANCHOR_END: list
    runtime.shutdown().await?;
    Ok(())
}
