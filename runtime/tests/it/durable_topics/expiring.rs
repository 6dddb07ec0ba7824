//! Durable subscriptions that nobody uses, and that expire.

use std::sync::Arc;
use std::time::Duration;

use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::topics::{DurableTopicHandle, ReadFrom};
use millrun::{DurableTopic, Runtime, Topic, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{SimConfig, SimHost};

const IDLE_MAX: Duration = Duration::from_secs(8 * 3_600);
const HOUR: Duration = Duration::from_secs(3_600);
/// Keeps one record, all that are not read, and subscriptions for eight hours.
const USED: DurableTopic<u64> = Topic::named("used")
    .durable()
    .len_max(1)
    .unread_bytes_max(1 << 20)
    .subscription_idle_max(IDLE_MAX);
const TELL: Workflow<u64, u64> = Workflow::named("tell");

async fn tell(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number)
}

/// A seeded world with a journal that stays when a runtime of it ends.
struct World {
    sim: SimHost,
    journal: Arc<MemoryJournal>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            sim: SimHost::new(SimConfig::seeded(seed)),
            journal: Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap()),
        }
    }

    async fn start(&self) -> (Runtime, DurableTopicHandle<u64>) {
        let builder = Runtime::volatile()
            .host(self.sim.host())
            .journal(Arc::clone(&self.journal) as Arc<dyn Journal>);
        let builder = builder.durable_topic(USED).register(TELL, tell);
        let runtime = builder.start().await.unwrap();
        let topic = runtime.durable_topic(USED).unwrap();
        (runtime, topic)
    }

    async fn pass(&self, time: Duration) {
        let host = self.sim.host();
        host.sleep_until(host.now() + time).await;
    }
}

async fn publish(topic: &DurableTopicHandle<u64>, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        topic.publish(&number).await.unwrap();
    }
}

/// Takes and acknowledges as many records.
async fn take(topic: &DurableTopicHandle<u64>, name: &str, len: usize) -> Vec<u64> {
    let subscription = topic.subscribe(name).await.unwrap();
    let mut taken = Vec::new();
    while taken.len() < len {
        let delivery = subscription.next().await.unwrap();
        taken.push(*delivery.payload());
        delivery.ack().unwrap().await.unwrap();
    }
    taken
}

/// The names of the subscriptions that there are.
async fn names(runtime: &Runtime) -> Vec<String> {
    let told = runtime.durable_subscriptions("used", None, 100).await.unwrap();
    told.into_iter().map(|told| told.name).collect()
}

#[test]
fn a_subscription_that_nobody_uses_expires_behind_its_time_and_lets_go_what_it_held_back() {
    let world = World::new(1);
    let script = async {
        let (runtime, topic) = world.start().await;
        drop(topic.subscribe("billing").await.unwrap());
        drop(topic.subscribe("shipping").await.unwrap());
        publish(&topic, 1..=5).await;
        assert_eq!(take(&topic, "billing", 2).await, [1, 2]);
        world.pass(4 * HOUR).await;
        assert_eq!(take(&topic, "shipping", 4).await, [1, 2, 3, 4]);
        world.pass(4 * HOUR).await;
        assert_eq!(names(&runtime).await, ["billing", "shipping"], "not yet");
        world.pass(2 * HOUR).await;
        assert_eq!(names(&runtime).await, ["shipping"]);
        assert_eq!(runtime.stats().subscriptions_expired, 1);
        // What it had not read is held back for it no more.
        publish(&topic, 6..=6).await;
        assert_eq!(runtime.durable_topics()[0].first, 5);
        world.pass(4 * HOUR).await;
        assert_eq!(names(&runtime).await, [""; 0]);
        assert_eq!(runtime.stats().subscriptions_expired, 2);

        // One of its name is new, and says so.
        publish(&topic, 7..=8).await;
        let again = topic.subscribe("billing").from(ReadFrom::Now).await.unwrap();
        assert!(again.has_begun_anew());
        let first = topic.subscribe("first").await.unwrap();
        assert!(!first.has_begun_anew());
        publish(&topic, 9..=9).await;
        assert_eq!(*again.next().await.unwrap().payload(), 9);
        drop(again);
        world.pass(HOUR).await;
        let again = topic.subscribe("billing").await.unwrap();
        assert!(!again.has_begun_anew(), "it goes on where it was");
        runtime.shutdown().await.unwrap();
    };
    world.sim.block_on(script).unwrap();
}

#[test]
fn a_subscription_that_is_open_never_expires_and_a_crash_finds_it_used() {
    let world = World::new(2);
    let script = async {
        let (runtime, topic) = world.start().await;
        let consumer = topic.subscribe("consumer").await.unwrap();
        publish(&topic, 1..=1).await;
        let billing = topic.subscribe("delivery").await.unwrap();
        let delivery = billing.next().await.unwrap();
        drop(billing);
        let trigger = topic
            .trigger("trigger")
            .start(TELL, |record| (record.payload().to_string(), *record.payload()));
        let trigger = trigger.await.unwrap();
        world.pass(100 * HOUR).await;
        assert_eq!(names(&runtime).await, ["consumer", "delivery", "trigger"]);
        drop((consumer, delivery, trigger));
        // From now on it is not used, but was until just now.
        world.pass(8 * HOUR).await;
        assert_eq!(names(&runtime).await, ["consumer", "delivery", "trigger"]);
        world.pass(2 * HOUR + HOUR / 2).await;
        assert_eq!(names(&runtime).await, [""; 0]);

        let consumer = topic.subscribe("consumer").await.unwrap();
        world.pass(100 * HOUR).await;
        std::mem::forget((consumer, runtime));
    };
    world.sim.block_on(script).unwrap();
    world.sim.crash();

    // The store knows how long it was open.
    let World { sim, journal } = world;
    let mut config = SimConfig::seeded(3);
    config.starts_at = sim.host().now();
    let world = World {
        sim: SimHost::new(config),
        journal: Arc::new(journal.reopened()),
    };
    let script = async {
        let (runtime, _topic) = world.start().await;
        world.pass(7 * HOUR).await;
        assert_eq!(names(&runtime).await, ["consumer"]);
        world.pass(3 * HOUR).await;
        assert_eq!(names(&runtime).await, [""; 0]);
        runtime.shutdown().await.unwrap();
    };
    world.sim.block_on(script).unwrap();
}

#[test]
fn a_program_that_was_away_finds_its_place_when_it_opens_it_soon_and_not_later() {
    let world = World::new(4);
    let script = async {
        let (runtime, topic) = world.start().await;
        for name in ["late", "soon"] {
            drop(topic.subscribe(name).await.unwrap());
        }
        publish(&topic, 1..=4).await;
        for name in ["late", "soon"] {
            assert_eq!(take(&topic, name, 2).await, [1, 2]);
        }
        runtime.shutdown().await.unwrap();
    };
    world.sim.block_on(script).unwrap();
    let world = World {
        journal: Arc::new(world.journal.reopened()),
        sim: world.sim,
    };
    let script = async {
        // Nobody looks meanwhile.
        world.pass(1_000 * HOUR).await;
        let (runtime, topic) = world.start().await;
        world.pass(HOUR / 2).await;
        assert_eq!(take(&topic, "soon", 1).await, [3]);
        world.pass(HOUR).await;
        assert_eq!(names(&runtime).await, ["soon"]);
        let late = topic.subscribe("late").await.unwrap();
        assert!(late.has_begun_anew());
        assert_eq!(take(&topic, "soon", 1).await, [4]);
        runtime.shutdown().await.unwrap();
    };
    world.sim.block_on(script).unwrap();
}

#[test]
fn without_a_time_for_it_a_subscription_never_expires() {
    const KEPT: DurableTopic<u64> = Topic::named("used").durable();
    let world = World::new(5);
    let script = async {
        let builder = Runtime::volatile()
            .host(world.sim.host())
            .journal(Arc::clone(&world.journal) as Arc<dyn Journal>);
        let runtime = builder.durable_topic(KEPT).start().await.unwrap();
        let topic = runtime.durable_topic(KEPT).unwrap();
        drop(topic.subscribe("billing").await.unwrap());
        world.pass(100_000 * HOUR).await;
        assert_eq!(names(&runtime).await, ["billing"]);
        runtime.shutdown().await.unwrap();
    };
    world.sim.block_on(script).unwrap();
}
