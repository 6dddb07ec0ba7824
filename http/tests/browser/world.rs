//! A program with the console under several prefixes, and some runs to look at.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use futures_util::StreamExt as _;
use millrun::operating::{BulkAction, RunSearch};
use millrun::topics::{DurableSubscription, UndeliveredRecord};
use millrun::{
    Activity, ActivityContext, ActivityError, DurableTopic, Entity, EntityCommand, EntityState, OnConflict,
    OutputStream, Query, Retry, Runtime, RuntimeBuilder, Signal, Topic, Update, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_http::{Access, Console, Token, router};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// Where the console is in the program, each with its role.
pub(crate) const PREFIXES: [&str; 3] = ["", "/millrun", "/deep/er/admin"];
/// Where callers may only read.
pub(crate) const READING: &str = "/reading";
/// Where a token is asked for.
pub(crate) const GUARDED: &str = "/guarded";
pub(crate) const TOKEN: &str = "operating-0123456789";

const CHARGE: Activity<u64, u64> = Activity::named("charge");
const FAIL: Activity<(), ()> = Activity::named("ask-the-bank");
const PAID: Signal<u64> = Signal::named("paid");
const TOTAL: Query<u64, (), u64> = Query::named("total");
const ADD: Update<u64, u64, u64> = Update::named("add");
const SHIPPED: Topic<String> = Topic::named("orders.shipped");
const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
const AUDIT: DurableTopic<String> = Topic::named("audit").durable().len_max(10);
/// Records of the orders that shipping has given up.
const REFUSED: DurableTopic<UndeliveredRecord> = Topic::named("refused").durable();
const SHELF: Entity<Shelf> = Entity::named("shelf");
const PUT: EntityCommand<Shelf, u64, u64> = EntityCommand::named("put");
const PLACING: Workflow<u64, ()> = Workflow::named("placing");
const ORDER: Workflow<u64, u64> = Workflow::named("order");
const PARCEL: Workflow<String, u64> = Workflow::named("parcel");
const RETRYING: Workflow<(), ()> = Workflow::named("retrying");
const BROKEN: Workflow<(), ()> = Workflow::named("broken");
const LONG: Workflow<u64, u64> = Workflow::named("long");
const WAITING: Workflow<(), u64> = Workflow::named("waiting");
const TOKENS: OutputStream<String> = OutputStream::named("tokens");
const WRITE: Activity<String, ()> = Activity::named("write");
const ANSWER: Workflow<String, ()> = Workflow::named("answer");
const ECHO: Workflow<Vec<u64>, Vec<u64>> = Workflow::named("echo");

/// How much stands on it.
#[derive(Debug, Serialize, Deserialize)]
struct Shelf(u64);

impl EntityState for Shelf {
    type Event = u64;

    fn begin(_key: &str) -> Self {
        Self(0)
    }

    fn apply(&mut self, put: u64) {
        self.0 += put;
    }
}

async fn charge(_cx: ActivityContext, cents: u64) -> Result<u64, ActivityError> {
    Ok(cents)
}

async fn fail(_cx: ActivityContext, (): ()) -> Result<(), ActivityError> {
    Err(ActivityError::retryable("the bank does not answer"))
}

/// Charges, and waits for the payment.
async fn order(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    let _total = cx.state(cents);
    cx.call(CHARGE, cents).await?;
    let paid = cx.receive(PAID).await?;
    cx.publish(SHIPPED, cx.instance_id().to_string()).await?;
    Ok(paid)
}

async fn placing(cx: WorkflowContext, cents: u64) -> Result<(), WorkflowError> {
    cx.publish(PLACED, cents).await?;
    Ok(())
}

async fn parcel(cx: WorkflowContext, id: String) -> Result<u64, WorkflowError> {
    Ok(cx.child(ORDER, id, 500).await?)
}

async fn retrying(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    cx.call(FAIL, ()).retry(Retry::exponential()).await?;
    Ok(())
}

async fn broken(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    cx.sleep(Duration::from_millis(10)).await?;
    panic!("this code has a mistake")
}

/// Records `len` numbers, a part of them in each turn, and waits.
async fn long(cx: WorkflowContext, len: u64) -> Result<u64, WorkflowError> {
    for number in 0..len {
        cx.record(move || number).await?;
        if number % 5_000 == 4_999 {
            cx.sleep(Duration::from_millis(1)).await?;
        }
    }
    Ok(cx.receive(PAID).await?)
}

async fn waiting(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    Ok(cx.receive(PAID).await?)
}

async fn answer(cx: WorkflowContext, prompt: String) -> Result<(), WorkflowError> {
    let retry = Retry::exponential().first_pause(Duration::from_millis(1));
    Ok(cx.call(WRITE, prompt).retry(retry).await?)
}

/// Sends the words of a prompt one by one. Its first attempt fails; later ones send the first word, and the rest when the
/// test lets them.
async fn write(cx: ActivityContext, prompt: String, may_go_on: Arc<Semaphore>) -> Result<(), ActivityError> {
    let tokens = cx.stream(TOKENS)?;
    let mut words = prompt.split(' ');
    if let Some(word) = words.next() {
        tokens.send(word)?;
    }
    if cx.attempt() == 1 {
        return Err(ActivityError::retryable("the model is overloaded"));
    }
    may_go_on.acquire().await.unwrap().forget();
    for word in words {
        tokens.send(word)?;
    }
    Ok(())
}

/// Counts a stream until it is dropped.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn count(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counter))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many runs of a crowd are started at a time.
const CROWD_AT_ONCE: usize = 256;

pub(crate) struct World {
    pub(crate) runtime: Runtime,
    pub(crate) address: String,
    asked: Arc<AtomicUsize>,
    streamed: Arc<AtomicUsize>,
    open_outputs: Arc<AtomicUsize>,
    may_go_on: Arc<Semaphore>,
    server: JoinHandle<()>,
    /// Of the store, if there is one.
    _folder: Option<TempDir>,
    /// A consumer of the durable topic.
    pub(crate) billing: DurableSubscription<u64>,
}

impl World {
    /// Serves a runtime in memory at a port of the system's choice.
    pub(crate) async fn new() -> Self {
        Self::over(Runtime::volatile(), None).await
    }

    /// The same over a store, so that what is answered is on the disk.
    pub(crate) async fn durable() -> Self {
        let folder = TempDir::new().unwrap();
        let store = Runtime::open(folder.path().join("store.redb"));
        Self::over(store, Some(folder)).await
    }

    async fn over(runtime: RuntimeBuilder, folder: Option<TempDir>) -> Self {
        let may_go_on = Arc::new(Semaphore::new(0));
        let of_activity = Arc::clone(&may_go_on);
        let runtime = runtime
            .register(WRITE, move |cx, prompt| {
                write(cx, prompt, Arc::clone(&of_activity))
            })
            .register(ANSWER, answer)
            .register(CHARGE, charge)
            .register(FAIL, fail)
            .topic(SHIPPED)
            .durable_topic(PLACED)
            .durable_topic(AUDIT)
            .durable_topic(REFUSED)
            .entity(SHELF.command(PUT, |shelf, count, cx| {
                cx.emit(count);
                Ok(shelf.0 + count)
            }))
            .register(PLACING, placing)
            .register(
                ORDER
                    .query(TOTAL, |total, ()| *total)
                    .update(ADD)
                    .change(|total, cents| {
                        *total += cents;
                        *total
                    }),
                order,
            )
            .register(PARCEL, parcel)
            .register(RETRYING, retrying)
            .register(BROKEN, broken)
            .register(LONG, long)
            .register(WAITING, waiting)
            .register(ECHO, async |_cx, numbers| Ok(numbers))
            .start()
            .await
            .unwrap();
        let placed = runtime.durable_topic(PLACED).unwrap();
        let billing = placed.subscribe("billing").await.unwrap();
        let console = || {
            let console = Console::new(&runtime, Access::operator());
            let console = console.expose(SHIPPED).unwrap().expose_durable(PLACED).unwrap();
            let console = console.expose_durable(REFUSED).unwrap();
            console.keep_past().router()
        };
        // Under a proxy that strips its prefix, the program sees none.
        let mut app = console();
        for prefix in PREFIXES.into_iter().filter(|prefix| !prefix.is_empty()) {
            app = app.nest(prefix, console());
        }
        let guarded = Access::token(None, Token::new(TOKEN).unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let streamed = Arc::new(AtomicUsize::new(0));
        let open_outputs = Arc::new(AtomicUsize::new(0));
        let outputs = Arc::clone(&open_outputs);
        let (counter, streams) = (Arc::clone(&asked), Arc::clone(&streamed));
        let app = app
            .nest(READING, router(&runtime, Access::read_only()))
            .nest(GUARDED, router(&runtime, guarded))
            .layer(from_fn(move |request: Request, next: Next| {
                if request.uri().path().ends_with("/v1/stats") {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                if request.uri().path().ends_with("/v1/changes") {
                    streams.fetch_add(1, Ordering::Relaxed);
                }
                let open = request
                    .uri()
                    .path()
                    .contains("/streams/")
                    .then(|| Open::count(&outputs));
                let answer = next.run(request);
                async move {
                    let answer = answer.await;
                    let Some(open) = open else { return answer };
                    answer.map(|body| {
                        Body::from_stream(body.into_data_stream().map(move |part| {
                            let _held = &open;
                            part
                        }))
                    })
                }
            }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            runtime,
            address,
            asked,
            streamed,
            open_outputs,
            may_go_on,
            server,
            _folder: folder,
            billing,
        }
    }

    /// How often the counts were asked for.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// How often a stream of changes was asked for.
    pub(crate) fn streamed(&self) -> usize {
        self.streamed.load(Ordering::Relaxed)
    }

    /// How many streams of output are open.
    pub(crate) fn open_outputs(&self) -> usize {
        self.open_outputs.load(Ordering::Relaxed)
    }

    /// Starts a run whose activity sends the words of `prompt`: the first one, and after
    /// [`go_on`](Self::go_on) the rest.
    pub(crate) async fn answer(&self, id: &str, prompt: &str) {
        self.runtime.start(ANSWER, id, prompt.to_owned()).await.unwrap();
    }

    pub(crate) fn go_on(&self) {
        self.may_go_on.add_permits(1);
    }

    /// The page under a prefix.
    pub(crate) fn page(&self, prefix: &str, part: &str) -> String {
        format!("{}{prefix}/console#/{part}", self.address)
    }

    /// Starts one run of each kind.
    pub(crate) async fn fill(&self) {
        let runtime = &self.runtime;
        runtime.start(ORDER, "order-1", 1_999).await.unwrap();
        runtime
            .start(PARCEL, "parcel-7", "order-of-parcel-7".to_owned())
            .await
            .unwrap();
        runtime.start(RETRYING, "retrying", ()).await.unwrap();
        runtime.start(LONG, "long", 300).await.unwrap();
        let broken = runtime.start(BROKEN, "broken", ()).await.unwrap();
        broken.until_described(|run| run.parked.is_some()).await.unwrap();
        let numbers = [u64::MAX, 9_007_199_254_740_993, 1].repeat(20);
        let echo = runtime.start(ECHO, "a b/c?d#e%", numbers).await.unwrap();
        echo.result().await.unwrap();
        let bulk = runtime.bulk(BulkAction::Resume).ids(["nobody"]);
        let bulk = bulk.start("for-nobody").await.unwrap();
        bulk.result().await.unwrap();
        self.place(1..=2).await;
    }

    /// Starts `len` orders, `many-0` and so on, one after the other.
    pub(crate) async fn many(&self, len: u64) {
        for number in 0..len {
            self.order(&format!("many-{number}")).await;
        }
    }

    /// Starts `len` runs that wait, `w-0` and so on, many at a time.
    pub(crate) async fn crowd(&self, len: u64) {
        let mut starting = JoinSet::new();
        for first in 0..CROWD_AT_ONCE as u64 {
            let runtime = self.runtime.clone();
            starting.spawn(async move {
                for number in (first..len).step_by(CROWD_AT_ONCE) {
                    runtime.start(WAITING, &format!("w-{number}"), ()).await.unwrap();
                }
            });
        }
        while let Some(started) = starting.join_next().await {
            started.unwrap();
        }
    }

    /// Starts one more of them.
    pub(crate) async fn wait_as(&self, id: &str) {
        self.runtime.start(WAITING, id, ()).await.unwrap();
    }

    /// Publishes records to the durable topic.
    pub(crate) async fn place(&self, numbers: RangeInclusive<u64>) {
        let placed = self.runtime.durable_topic(PLACED).unwrap();
        for number in numbers {
            placed.publish(&number).key("tea").await.unwrap();
        }
    }

    /// Puts one thing on a shelf.
    pub(crate) async fn put(&self, shelf: &str) {
        self.runtime.entity(SHELF, shelf).call(PUT, 1).await.unwrap();
    }

    /// Shipping gives up the first records of the durable topic, as many as this, and holds their keys.
    pub(crate) async fn refuse(&self, len: usize) -> DurableSubscription<u64> {
        let placed = self.runtime.durable_topic(PLACED).unwrap();
        let shipping = placed.subscribe("shipping").undelivered_to(REFUSED, 1);
        let shipping = shipping.hold_key_when_undelivered().await.unwrap();
        for _ in 0..len {
            let given = shipping.next().await.unwrap();
            let answered = given.send_back(Duration::ZERO, "no stamps").unwrap();
            answered.await.unwrap();
        }
        while shipping.status().undelivered < len as u64 {
            tokio::task::yield_now().await;
        }
        shipping
    }

    /// Has a run publish to the durable topic, and gives its id.
    pub(crate) async fn placed_by_run(&self, number: u64) -> String {
        let run = self.runtime.start(PLACING, "placing-1", number).await.unwrap();
        run.result().await.unwrap();
        run.run_id().unwrap().to_string()
    }

    /// How many runs a filter finds.
    pub(crate) async fn found(&self, filter: RunSearch) -> usize {
        self.runtime.find(&filter, None, 1_000).await.unwrap().runs.len()
    }

    /// Starts a parcel whose order has this id, and waits until it has begun.
    pub(crate) async fn parcel(&self, id: &str, order: &str) {
        self.runtime.start(PARCEL, id, order.to_owned()).await.unwrap();
        let order = self.runtime.attach(ORDER, order).unwrap();
        while order.describe().await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn order(&self, id: &str) {
        self.runtime.start(ORDER, id, 100).await.unwrap();
    }

    /// Starts an order once more, when the one before has ended.
    pub(crate) async fn order_anew(&self, id: &str) {
        self.result(id).await;
        let start = self.runtime.start(ORDER, id, 100);
        start.on_conflict(OnConflict::RestartFinished).await.unwrap();
    }

    pub(crate) async fn result(&self, id: &str) -> u64 {
        self.runtime.attach(ORDER, id).unwrap().result().await.unwrap()
    }

    pub(crate) async fn signal(&self, id: &str, cents: u64) {
        self.runtime
            .attach(ORDER, id)
            .unwrap()
            .signal(PAID, cents)
            .await
            .unwrap();
    }

    /// Starts a run that records `len` numbers, and gives the number of its last event.
    pub(crate) async fn long(&self, id: &str, len: u64) -> u64 {
        let run = self.runtime.start(LONG, id, len).await.unwrap();
        let described = run.until_described(|run| run.awaits(PAID.name())).await.unwrap();
        described.sequence.get()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.abort();
    }
}
