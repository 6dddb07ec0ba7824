//! Orders that take from a stock: the stock is an entity, which each order commands.
//!
//! A workflow is a course of steps; an entity is a state that many send commands to. Two orders want the last bolts at the
//! same time: one gets them, the other is told that there are too few, and gives back what it has taken. What falls low
//! is told to a durable topic, in the commit of the command that took it.

use std::error::Error;

use millrun::topics::ReadFrom;
use millrun::workflow::EntityStepError;
use millrun::{
    DurableTopic, Entity, EntityCommand, EntityContext, EntityState, Query, Runtime, Topic, Workflow,
    WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};

const STOCK: Entity<Stock> = Entity::named("stock");
const DELIVER: EntityCommand<Stock, u64, u64> = EntityCommand::named("deliver");
const TAKE: EntityCommand<Stock, u64, u64> = EntityCommand::named("take");
const LEFT: Query<Stock, (), u64> = Query::named("left");
const LOW: DurableTopic<String> = Topic::named("stock.low").durable();
const ORDER: Workflow<Vec<(String, u64)>, String> = Workflow::named("order");

#[derive(Serialize, Deserialize)]
struct Stock(u64);

#[derive(Serialize, Deserialize)]
enum StockEvent {
    Delivered(u64),
    Taken(u64),
}

impl EntityState for Stock {
    type Event = StockEvent;

    fn begin(_key: &str) -> Self {
        Self(0)
    }

    fn apply(&mut self, event: StockEvent) {
        match event {
            StockEvent::Delivered(len) => self.0 += len,
            StockEvent::Taken(len) => self.0 -= len,
        }
    }
}

fn deliver(stock: &Stock, len: u64, cx: &mut EntityContext<'_, Stock>) -> Result<u64, WorkflowError> {
    cx.emit(StockEvent::Delivered(len));
    Ok(stock.0 + len)
}

fn take(stock: &Stock, len: u64, cx: &mut EntityContext<'_, Stock>) -> Result<u64, WorkflowError> {
    let Some(left) = stock.0.checked_sub(len) else {
        return Err(WorkflowError::failed(format!(
            "{} {} are left",
            stock.0,
            cx.key()
        )));
    };
    cx.emit(StockEvent::Taken(len));
    if left < 5 {
        cx.publish(LOW, format!("{left} {}", cx.key()));
    }
    Ok(left)
}

/// Takes all of it, or nothing.
async fn order(cx: WorkflowContext, wanted: Vec<(String, u64)>) -> Result<String, WorkflowError> {
    let mut taken = Vec::new();
    for (what, len) in wanted {
        match cx.command(STOCK, &what, TAKE, len).await {
            Ok(_) => taken.push((what, len)),
            Err(EntityStepError::Rejected(error)) => {
                for (what, len) in taken {
                    cx.command(STOCK, &what, DELIVER, len).await?;
                }
                return Ok(format!("sorry, {error}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok("on its way".into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let stock = STOCK
        .command(DELIVER, deliver)
        .command(TAKE, take)
        .query(LEFT, |stock, ()| stock.0);
    let runtime = Runtime::open("stock.redb")
        .entity(stock)
        .durable_topic(LOW)
        .register(ORDER, order)
        .start()
        .await?;
    for (what, len) in [("bolts", 10), ("nuts", 100)] {
        runtime
            .entity(STOCK, what)
            .call(DELIVER, len)
            .request("first")
            .await?;
    }
    for name in ["ada", "alan"] {
        let wanted = vec![("nuts".to_string(), 8), ("bolts".to_string(), 8)];
        let run = runtime.start(ORDER, name, wanted).await?;
        println!("{name}: {}", run.result().await?);
    }
    for what in ["bolts", "nuts"] {
        println!(
            "{} {what} are left",
            runtime.entity(STOCK, what).read(LEFT, ()).await?
        );
    }
    let mut low = runtime.durable_topic(LOW)?.read(ReadFrom::Beginning).await?;
    println!("to be ordered: {}", low.next().await?.payload());
    runtime.shutdown().await?;
    Ok(())
}
