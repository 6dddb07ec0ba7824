//! All that is done with durable topics in one program, and a crash behind each of its commits: before anybody has learned of
//! the commit, and when all that follows from it was done but not committed.
//!
//! ```text
//!   publish ─► placed ─► trigger ─► order ─► receives ◄─ paid ◄─ publish
//!                │                    └─► command of an entity ─► counted ─► billing, a subscription
//!                └──────── audit, a subscription of placed and paid ────────────┘
//! ```

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::topics::ReadFrom;
use millrun::{
    DurableTopic, Entity, EntityCommand, EntityState, Runtime, RuntimeBuilder, Topic, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost, SimStop};

const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
const PAID: DurableTopic<u64> = Topic::named("orders.paid").durable();
const COUNTED: DurableTopic<u64> = Topic::named("counted").durable();
const ORDER: Workflow<u64, u64> = Workflow::named("order");
const COUNTER: Entity<Sum> = Entity::named("counter");
const ADD: EntityCommand<Sum, u64, u64> = EntityCommand::named("add");
const ORDERS: u64 = 3;

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Sum(u64);

impl EntityState for Sum {
    type Event = u64;

    fn begin(_key: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, more: u64) {
        self.0 += more;
    }
}

async fn order(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let paid = cx.receive_from(PAID).key(number.to_string()).from_beginning();
    let paid = paid.await?.into_payload();
    cx.command(COUNTER, "all", ADD, paid).await?;
    Ok(paid)
}

fn coded(sim: &SimHost, journal: &Arc<MemoryJournal>) -> RuntimeBuilder {
    let counter = COUNTER.command(ADD, |sum: &Sum, more: u64, cx| {
        cx.emit(more);
        cx.publish(COUNTED, more);
        Ok(sum.0 + more)
    });
    Runtime::volatile()
        .host(sim.host())
        .journal(Arc::clone(journal) as Arc<dyn Journal>)
        .durable_topic(PLACED)
        .durable_topic(PAID)
        .durable_topic(COUNTED)
        .entity(counter)
        .register(ORDER, order)
}

/// What callers and consumers of all lives know.
#[derive(Default)]
struct Ledger {
    /// Topic and value of each record that a consumer was given, and of each of which it knows that this is kept.
    given: Mutex<BTreeSet<(String, u64)>>,
    kept: Mutex<BTreeSet<(String, u64)>>,
}

impl Ledger {
    /// A record is given: never one that is kept.
    fn give(&self, topic: &str, value: u64) {
        let record = (topic.to_owned(), value);
        assert!(
            !self.kept.lock().unwrap().contains(&record),
            "{record:?} comes again"
        );
        self.given.lock().unwrap().insert(record);
    }

    fn keep(&self, topic: &str, value: u64) {
        self.kept.lock().unwrap().insert((topic.to_owned(), value));
    }
}

/// One life: what an earlier one has done is done again, under the same ids.
async fn live(builder: RuntimeBuilder, ledger: Arc<Ledger>) {
    let runtime = builder.start().await.unwrap();
    let (placed, paid) = (runtime.durable_topic(PLACED), runtime.durable_topic(PAID));
    let (placed, paid) = (placed.unwrap(), paid.unwrap());
    let trigger = placed.trigger("orders");
    let trigger = trigger.start(ORDER, |record| {
        (format!("order-{}", record.payload()), *record.payload())
    });
    let _trigger = trigger.await.unwrap();
    let audit = runtime.durable_topics_of::<u64>("orders.>").unwrap();
    let audit = audit.subscribe("audit").await.unwrap();
    let counted = runtime.durable_topic(COUNTED).unwrap();
    let billing = counted.subscribe("billing").await.unwrap();
    for number in 1..=ORDERS {
        let id = number.to_string();
        placed.publish(&number).key(&id).id(&id).await.unwrap();
        paid.publish(&number).key(&id).id(&id).await.unwrap();
    }
    while audit.statuses().iter().any(|(_, status)| status.lag > 0) {
        let delivery = audit.next().await.unwrap();
        let (topic, value) = (delivery.topic().to_owned(), *delivery.payload());
        ledger.give(&topic, value);
        delivery.ack().unwrap().await.unwrap();
        ledger.keep(&topic, value);
    }
    while billing.status().acknowledged_through.get() < ORDERS {
        let delivery = billing.next().await.unwrap();
        let value = *delivery.payload();
        ledger.give("counted", value);
        delivery.ack().unwrap().await.unwrap();
        ledger.keep("counted", value);
    }
    for number in 1..=ORDERS {
        let order = runtime.attach(ORDER, &format!("order-{number}")).unwrap();
        assert_eq!(order.result().await.unwrap(), number);
    }
    for topic in [&placed, &paid, &counted] {
        let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
        let mut values = BTreeSet::new();
        for _ in 0..ORDERS {
            values.insert(reader.next().await.unwrap().into_payload());
        }
        assert_eq!(values, (1..=ORDERS).collect(), "each value is there");
        assert!(reader.next_encoded_now().await.unwrap().is_none(), "and once");
    }
}

/// Where a life is cut off.
#[derive(Clone, Copy, Debug)]
struct Cut {
    seed: u64,
    /// What is queued is committed each time when as many steps were made: the fewer, the more commits.
    steps: usize,
    commits: u64,
    /// All that follows from the last commit is done before the crash.
    is_told: bool,
}

/// Runs a life until it ends, or is cut off. Whether it ended.
fn run(sim: &SimHost, journal: &Arc<MemoryJournal>, ledger: &Arc<Ledger>, cut: Cut) -> bool {
    let has_ended = Arc::new(AtomicBool::new(false));
    let (life, ended) = (
        live(coded(sim, journal), Arc::clone(ledger)),
        Arc::clone(&has_ended),
    );
    let life = async move {
        life.await;
        ended.store(true, Ordering::Relaxed);
    };
    let script = sim.host().spawn("script", Box::pin(life));
    let seen = || (journal.high_watermark(), journal.topics().unwrap().list());
    let mut left = cut.commits;
    for _ in 0..3_000 {
        if left == 0 || has_ended.load(Ordering::Relaxed) {
            break;
        }
        if (0..cut.steps).filter(|_| sim.step()).count() == 0 {
            assert_eq!(sim.advance(Duration::from_millis(1)), SimStop::Reached);
        }
        let before = seen();
        journal.commit();
        left -= u64::from(seen() != before);
    }
    if cut.is_told {
        assert_eq!(sim.advance(Duration::from_millis(1)), SimStop::Reached);
    }
    let has_ended = has_ended.load(Ordering::Relaxed);
    assert!(has_ended || left == 0, "a life does not end");
    sim.crash();
    drop(script);
    has_ended
}

/// A life that is cut off, and one that ends. Whether the first one ended as well.
fn play(cut: Cut) -> bool {
    let ledger = Arc::new(Ledger::default());
    let sim = SimHost::new(SimConfig::seeded(cut.seed));
    let journal = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
    let has_ended = run(&sim, &journal, &ledger, cut);
    let journal = Arc::new(journal.reopened());
    let commits = u64::MAX;
    assert!(run(&sim, &journal, &ledger, Cut { commits, ..cut }), "{cut:?}");
    let topics = ["orders.placed", "orders.paid", "counted"];
    let all = topics
        .iter()
        .flat_map(|topic| (1..=ORDERS).map(|value| ((*topic).to_owned(), value)));
    assert_eq!(*ledger.given.lock().unwrap(), all.collect(), "{cut:?}");
    has_ended
}

#[test]
fn a_crash_behind_each_commit_loses_nothing_and_does_nothing_twice() {
    for (seed, steps, is_told) in [
        (1, 1, false),
        (2, 1, true),
        (3, 3, false),
        (4, 3, true),
        (5, 1_000, false),
        (6, 1_000, true),
    ] {
        let mut commits = 0;
        let cut = |commits| Cut {
            seed,
            steps,
            commits,
            is_told,
        };
        while !play(cut(commits)) {
            commits += 1;
        }
        assert!(commits > 15, "a life has {commits} commits");
    }
}
