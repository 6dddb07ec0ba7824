//! Orders become payments, and payments become parcels: three workflows and an entity that know each other by durable
//! topics only, and two services outside of millrun that each do a thing once, by its key.
//!
//! ```text
//!  standard input ─► orders.placed ─► ORDER ─► stock.wanted ─► STOCK (an entity) ─┬► orders.accepted
//!                                       ▲                                         └► orders.refused ─► a signal to ORDER
//!                                       │
//!        parcels.sent, which ORDER waits for ◄─ SHIPPING ◄─ payments.taken ◄─ PAYMENT ◄─ orders.accepted
//!                                                  └► the post, outside    the bank, outside ◄┘
//! ```
//!
//! An order is a line of standard input: its number, which its customer has chosen, an article, how many. Try it:
//!
//! ```sh
//! printf '%s\n' '1 bolts 30' '2 bolts 900' | cargo run -p millrun-examples --bin pipeline
//! ```
//!
//! Kill it whenever you like and give it the same lines again. Each order is paid and sent once: `just pipeline` does that
//! two hundred times and counts.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use millrun::topics::{DurableTrigger, UndeliveredRecord};
use millrun::workflow::Either;
use millrun::{
    Activity, ActivityContext, ActivityError, DurableTopic, Entity, EntityCommand, EntityContext,
    EntityState, Query, Runtime, Signal, Topic, Workflow, WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlacedOrder {
    pub(crate) number: u64,
    pub(crate) article: String,
    pub(crate) pieces: u64,
}

// What the parts of the pipeline know of each other. Each topic carries the order on.
pub(crate) type Orders = DurableTopic<PlacedOrder>;
pub(crate) const PLACED: Orders = Topic::named("orders.placed").durable();
pub(crate) const WANTED: Orders = Topic::named("stock.wanted").durable();
pub(crate) const ACCEPTED: Orders = Topic::named("orders.accepted").durable();
pub(crate) const REFUSED: Orders = Topic::named("orders.refused").durable();
pub(crate) const PAID: Orders = Topic::named("payments.taken").durable();
pub(crate) const SENT: Orders = Topic::named("parcels.sent").durable();
/// The number of an order that is done, and whether its parcel is on its way.
pub(crate) const DONE: DurableTopic<(u64, bool)> = Topic::named("orders.done").durable();
/// Records that no trigger could do anything with: there should never be one.
pub(crate) const STRANDED: DurableTopic<UndeliveredRecord> = Topic::named("pipeline.stranded").durable();

// The order: asks for what it wants, and waits for what comes of it.

pub(crate) const ORDER: Workflow<PlacedOrder, bool> = Workflow::named("order");
const SOLD_OUT: Signal<()> = Signal::named("sold-out");

async fn order(cx: WorkflowContext, order: PlacedOrder) -> Result<bool, WorkflowError> {
    let number = order.number;
    cx.publish(WANTED, order).await?;
    // What a run publishes has the id of its instance as its key: this is the parcel of this order, and no other.
    let sent = cx.receive_from(SENT).key(format!("parcel-{number}"));
    let is_sent = match cx.race(sent, cx.receive(SOLD_OUT)).await {
        Either::Left(parcel) => parcel.map(|_| true)?,
        Either::Right(sold_out) => sold_out.map(|()| false)?,
    };
    cx.publish(DONE, (number, is_sent)).await?;
    Ok(is_sent)
}

// The stock of an article: a state machine with a key, which takes one command at a time.

pub(crate) const STOCK: Entity<Shelf> = Entity::named("stock");
const RESERVE: EntityCommand<Shelf, PlacedOrder, ()> = EntityCommand::named("reserve");
pub(crate) const LEFT: Query<Shelf, (), u64> = Query::named("left");
/// What there is of each article in the beginning.
pub(crate) const PIECES: u64 = 100;

#[derive(Serialize, Deserialize)]
pub(crate) struct Shelf(u64);

#[derive(Serialize, Deserialize)]
pub(crate) struct Reserved(u64);

impl EntityState for Shelf {
    type Event = Reserved;

    fn begin(_article: &str) -> Self {
        Self(PIECES)
    }

    fn apply(&mut self, Reserved(pieces): Reserved) {
        self.0 -= pieces;
    }
}

/// The answer goes to a topic, in the commit that takes the pieces from the shelf: there is never one without the other.
fn reserve(
    shelf: &Shelf,
    order: PlacedOrder,
    cx: &mut EntityContext<'_, Shelf>,
) -> Result<(), WorkflowError> {
    if order.pieces > shelf.0 {
        cx.publish(REFUSED, order);
    } else {
        cx.emit(Reserved(order.pieces));
        cx.publish(ACCEPTED, order);
    }
    Ok(())
}

// Payment and shipping: a step outside, then a record that says so.

pub(crate) const PAYMENT: Workflow<PlacedOrder, ()> = Workflow::named("payment");
pub(crate) const SHIPPING: Workflow<PlacedOrder, ()> = Workflow::named("shipping");
const CHARGE: Activity<PlacedOrder, ()> = Activity::named("charge");
const HAND_OVER: Activity<PlacedOrder, ()> = Activity::named("hand-over");

async fn payment(cx: WorkflowContext, order: PlacedOrder) -> Result<(), WorkflowError> {
    cx.call(CHARGE, order.clone()).await?;
    cx.publish(PAID, order).await?;
    Ok(())
}

async fn shipping(cx: WorkflowContext, order: PlacedOrder) -> Result<(), WorkflowError> {
    cx.call(HAND_OVER, order.clone()).await?;
    cx.publish(SENT, order).await?;
    Ok(())
}

/// The far side: a folder outside of millrun, with a file for each order that it has taken. An activity that was cut off
/// before its result was durable runs again, and asks for the same once more. So the far side must know what it has done, by
/// a key that stays the same: here it is the number of the order. That is all that it must do for everything to happen once.
async fn once(
    far_side: &'static str,
    folder: &Path,
    order: PlacedOrder,
    attempt: u32,
) -> Result<(), ActivityError> {
    let file = folder.join(far_side).join(order.number.to_string());
    let write = move || {
        // Written aside and then given its name, which fails if there is a file of that name: a kill leaves all or nothing.
        let aside = file.with_extension(format!("attempt-{attempt}"));
        let mut written = File::create(&aside)?;
        writeln!(written, "{} {} {}", order.number, order.pieces, order.article)?;
        written.sync_all()?;
        let linked = match fs::hard_link(&aside, &file) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                println!("{} is known to the {far_side}", order.number);
                Ok(())
            }
            linked => linked,
        };
        fs::remove_file(&aside)?;
        linked
    };
    Ok(tokio::task::spawn_blocking(write)
        .await
        .map_err(std::io::Error::other)??)
}

/// Opens the store in this folder, and goes on with all that was under way in it.
pub(crate) async fn open(folder: &Path) -> Result<(Runtime, Vec<DurableTrigger>), Box<dyn Error>> {
    for far_side in ["bank", "post"] {
        fs::create_dir_all(folder.join(far_side))?;
    }
    let outside = |far_side: &'static str| {
        let folder = folder.to_owned();
        move |cx: ActivityContext, order| {
            let folder = folder.clone();
            async move { once(far_side, &folder, order, cx.attempt()).await }
        }
    };
    let runtime = Runtime::open(folder.join("shop.redb"))
        .durable_topic(PLACED)
        .durable_topic(WANTED)
        .durable_topic(ACCEPTED)
        .durable_topic(REFUSED)
        .durable_topic(PAID)
        .durable_topic(SENT)
        .durable_topic(DONE)
        .durable_topic(STRANDED)
        .register(ORDER, order)
        .register(PAYMENT, payment)
        .register(SHIPPING, shipping)
        .register(CHARGE, outside("bank"))
        .register(HAND_OVER, outside("post"))
        .entity(STOCK.command(RESERVE, reserve).query(LEFT, |shelf, ()| shelf.0))
        .start()
        .await?;

    // What joins the parts. A trigger is a subscription whose progress is in the store: it handles each record once, and
    // one that comes again after a crash finds the run of its id, or the command that it has had performed.
    let placed = runtime.durable_topic(PLACED)?;
    let (wanted, accepted) = (runtime.durable_topic(WANTED)?, runtime.durable_topic(ACCEPTED)?);
    let (refused, paid) = (runtime.durable_topic(REFUSED)?, runtime.durable_topic(PAID)?);
    let named =
        |what: &'static str| move |order: &PlacedOrder| (format!("{what}-{}", order.number), order.clone());
    let (an_order, a_payment, a_parcel) = (named("order"), named("payment"), named("parcel"));
    let triggers = vec![
        placed
            .trigger("ordering")
            .undelivered_to(STRANDED, 10)
            .start(ORDER, move |record| an_order(record.payload()))
            .await?,
        wanted
            .trigger("reserving")
            .undelivered_to(STRANDED, 10)
            .command(STOCK, RESERVE, |record| {
                (record.payload().article.clone(), record.payload().clone())
            })
            .await?,
        refused
            .trigger("refusing")
            .undelivered_to(STRANDED, 10)
            .signal(ORDER, SOLD_OUT, |record| {
                (format!("order-{}", record.payload().number), ())
            })
            .await?,
        accepted
            .trigger("paying")
            .undelivered_to(STRANDED, 10)
            .start(PAYMENT, move |record| a_payment(record.payload()))
            .await?,
        paid.trigger("shipping")
            .undelivered_to(STRANDED, 10)
            .start(SHIPPING, move |record| a_parcel(record.payload()))
            .await?,
    ];
    Ok((runtime, triggers))
}

fn read(line: &str) -> Option<PlacedOrder> {
    let mut words = line.split_whitespace();
    Some(PlacedOrder {
        number: words.next()?.parse().ok()?,
        article: words.next()?.to_owned(),
        pieces: words.next()?.parse().ok()?,
    })
}

/// How many orders wait to be durable at most; further lines are not read until then.
const PLACING_MAX: usize = 256;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "pipeline".to_owned());
    let (runtime, triggers) = open(Path::new(&folder)).await?;
    println!("open");
    let placed = runtime.durable_topic(PLACED)?;
    let done = runtime.durable_topic(DONE)?;
    let customers = done.subscribe("customers").await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let (mut placing, mut waiting) = (JoinSet::new(), BTreeSet::new());
    let (mut is_read, mut told) = (false, None);
    while !(is_read && placing.is_empty() && waiting.is_empty()) {
        tokio::select! {
            line = lines.next_line(), if !is_read && placing.len() < PLACING_MAX => match line?.as_deref().map(read) {
                Some(Some(order)) => {
                    waiting.insert(order.number);
                    let placed = placed.clone();
                    placing.spawn(async move {
                        // The number is the id of the record: however often it is sent, the order is placed once.
                        let id = order.number.to_string();
                        let published = placed.publish(&order).key(&id).id(&id).await;
                        published.map(|published| (order.number, published.is_repeat()))
                    });
                }
                Some(None) => println!("an order is a number, an article, and how many"),
                None => is_read = true,
            },
            Some(published) = placing.join_next() => {
                let (number, is_repeat) = published??;
                println!("{number} is placed"); // It is durable now.
                if is_repeat {
                    waiting.remove(&number); // What became of it was told before, or will be.
                }
            }
            delivery = customers.next() => {
                let delivery = delivery?;
                let (number, is_sent) = *delivery.payload();
                println!("{number} {}", if is_sent { "is on its way" } else { "is sold out" });
                waiting.remove(&number);
                // Told again if the process is killed before this is kept: a customer can bear that.
                told = Some(delivery.ack()?);
            }
        }
    }
    if let Some(told) = told {
        told.await?;
    }
    drop(triggers);
    runtime.shutdown().await?;
    Ok(())
}
