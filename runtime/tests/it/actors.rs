//! The user's own actors in the supervision tree.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::broker::actor::{Attached, attach};
use millrun::broker::{Envelope, Inbox, SubscriptionConfig};
use millrun::operating::{PartChange, PartEvent};
use millrun::{Runtime, StopCause, SuperviseError, Topic, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{SimConfig, SimHost};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{Semaphore, mpsc};

/// Tells what it takes from its inbox. It waits for a permit before it begins, fails at 3, and never comes to
/// an end with 7.
struct Reader {
    permits: Arc<Semaphore>,
    tell: mpsc::UnboundedSender<u64>,
    living: Arc<AtomicUsize>,
}

/// Counts those that live.
struct Living(Arc<AtomicUsize>);

impl Living {
    fn new(living: &Arc<AtomicUsize>) -> Self {
        let before = living.fetch_add(1, Ordering::SeqCst);
        assert_eq!(before, 0, "the actor before has not ended");
        Self(Arc::clone(living))
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Actor for Reader {
    type Msg = ();
    type State = (Attached<Envelope<u64>>, Living);
    type Arguments = Inbox<Envelope<u64>>;

    async fn pre_start(
        &self,
        myself: ActorRef<()>,
        inbox: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        self.permits.acquire().await?.forget();
        Ok((attach(inbox, &myself, || ()), Living::new(&self.living)))
    }

    async fn handle(
        &self,
        _: ActorRef<()>,
        (): (),
        (attached, _): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        for envelope in attached.turn() {
            match *envelope.payload() {
                3 => panic!("three"),
                7 => {
                    self.tell.send(7)?;
                    std::future::pending::<()>().await;
                }
                value => self.tell.send(value)?,
            }
        }
        Ok(())
    }
}

struct Reading {
    runtime: Runtime,
    permits: Arc<Semaphore>,
    told: mpsc::UnboundedReceiver<u64>,
}

impl Reading {
    async fn start(configure: impl FnOnce(&mut millrun::RuntimeConfig)) -> Self {
        let runtime = Runtime::volatile().configure(configure).start().await.unwrap();
        let permits = Arc::new(Semaphore::new(1));
        let inbox = runtime
            .broker()
            .subscribe::<u64>("numbers", SubscriptionConfig::default());
        let (inbox, living) = (inbox.unwrap(), Arc::default());
        let (tell, told) = mpsc::unbounded_channel();
        let given = Arc::clone(&permits);
        let make = move || {
            let reader = Reader {
                permits: Arc::clone(&given),
                tell: tell.clone(),
                living: Arc::clone(&living),
            };
            (reader, inbox.clone())
        };
        let actor = runtime.supervise("reader", make).unwrap();
        assert_eq!(actor.name(), "reader");
        Self {
            runtime,
            permits,
            told,
        }
    }

    async fn publish(&self, values: impl IntoIterator<Item = u64>) {
        let topic = self.runtime.broker().topic::<u64>("numbers").unwrap();
        for value in values {
            topic.publish(value).await.unwrap();
        }
    }

    async fn told(&mut self, len: usize) -> Vec<u64> {
        let mut all = Vec::new();
        while all.len() < len {
            all.push(self.told.recv().await.unwrap());
        }
        all
    }

    fn restarts(&self) -> u32 {
        let parts = self.runtime.parts();
        let part = parts.iter().find(|part| part.name == "actor reader").unwrap();
        part.restarts
    }
}

#[tokio::test]
async fn an_actor_that_panics_is_restarted_and_goes_on_with_its_subscription() {
    let mut reading = Reading::start(|_| {}).await;
    let events = reading
        .runtime
        .broker()
        .subscribe::<PartEvent>("millrun.parts", SubscriptionConfig::default());
    let mut events = events.unwrap().into_receiver();
    reading.publish(1..=4).await;
    assert_eq!(reading.told(2).await, [1, 2]);
    let failed = events.recv().await.unwrap();
    assert_eq!(failed.payload().part, "actor reader");
    let PartChange::Failed { message } = &failed.payload().change else {
        panic!("{failed:?}");
    };
    assert!(message.contains("three"), "{message}");
    let restarted = events.recv().await.unwrap();
    assert_eq!(restarted.payload().change, PartChange::Restarted { restarts: 1 });
    // Its successor has not begun: it waits for a permit.
    reading.publish(5..=6).await;
    assert!(reading.told.try_recv().is_err());
    reading.permits.add_permits(1);
    // What it had in hand when it failed is not given again; all behind it is, in its order.
    assert_eq!(reading.told(3).await, [4, 5, 6]);
    assert_eq!(reading.restarts(), 1);
    reading.runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_actor_that_is_killed_is_cut_at_its_await_and_its_successor_begins_behind_its_end() {
    let mut reading = Reading::start(|_| {}).await;
    reading.permits.add_permits(1);
    reading.publish([1, 7, 8]).await;
    assert_eq!(reading.told(2).await, [1, 7]);
    reading.runtime.kill("actor reader").unwrap();
    assert_eq!(reading.told(1).await, [8]);
    assert_eq!(reading.restarts(), 1);
    reading.runtime.shutdown().await.unwrap();
}

/// Never starts.
struct Broken;

impl Actor for Broken {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Err("no desk".into())
    }
}

#[tokio::test]
async fn an_actor_that_fails_too_often_stops_the_runtime_and_is_named() {
    let builder = Runtime::volatile().configure(|config| config.restarts_max = 2);
    let runtime = builder.start().await.unwrap();
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let make = move || {
        count.fetch_add(1, Ordering::SeqCst);
        (Broken, ())
    };
    runtime.supervise("broken", make).unwrap();
    let cause = runtime.stopped().await;
    let StopCause::Part { part, message } = cause else {
        panic!("{cause}");
    };
    assert_eq!(&*part, "actor broken");
    assert!(message.contains("no desk"), "{message}");
    assert_eq!(made.load(Ordering::SeqCst), 3, "the first, and two restarts");
    let late = runtime.supervise("late", || (Broken, ())).unwrap_err();
    assert!(
        matches!(late, SuperviseError::Stopped(StopCause::Part { .. })),
        "{late}"
    );
}

#[tokio::test]
async fn a_maker_that_panics_counts_as_a_failure_of_its_actor() {
    let builder = Runtime::volatile().configure(|config| config.restarts_max = 0);
    let runtime = builder.start().await.unwrap();
    let make = || -> (Broken, ()) { panic!("nobody to make") };
    runtime.supervise("unmade", make).unwrap();
    let cause = runtime.stopped().await.to_string();
    assert!(
        cause.contains("actor unmade") && cause.contains("nobody to make"),
        "{cause}"
    );
}

const SAID: Topic<u64> = Topic::named("numbers");
const SAY: Workflow<u64, u64> = Workflow::named("say");

async fn say(cx: WorkflowContext, len: u64) -> Result<u64, WorkflowError> {
    for value in 0..len {
        cx.publish(SAID, value + 10).await?;
    }
    Ok(len)
}

/// Notes its end.
struct Noting(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Actor for Noting {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<()>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        self.1.lock().unwrap().push(self.0);
        Ok(())
    }
}

#[tokio::test]
async fn a_shutdown_drains_actors_behind_the_workflows_and_the_latest_first() {
    let builder = Runtime::volatile().topic(SAID).register(SAY, say);
    let runtime = builder.start().await.unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let inbox = runtime
        .broker()
        .subscribe::<u64>("numbers", SubscriptionConfig::default())
        .unwrap();
    let make = move || {
        let reader = Reader {
            permits: Arc::new(Semaphore::new(1)),
            tell: tell.clone(),
            living: Arc::default(),
        };
        (reader, inbox.clone())
    };
    runtime.supervise("reader", make).unwrap();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let mut actors = Vec::new();
    for name in ["first", "second", "third"] {
        let ends = Arc::clone(&ends);
        let actor = runtime.supervise(name, move || (Noting(name, Arc::clone(&ends)), ()));
        actors.push(actor.unwrap());
    }
    let run = runtime.start(SAY, "s", 20).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 20);
    let report = runtime.shutdown().await.unwrap();
    assert_eq!(report.left_behind, []);
    let mut heard = Vec::new();
    while let Ok(value) = told.try_recv() {
        heard.push(value);
    }
    assert_eq!(heard, (10..30).collect::<Vec<_>>());
    assert_eq!(*ends.lock().unwrap(), ["third", "second", "first"]);
    assert!(actors.iter().all(|actor| actor.actor().is_none()));
    let late = runtime.supervise("late", || (Broken, ())).unwrap_err();
    assert!(
        matches!(late, SuperviseError::Stopped(StopCause::Shutdown)),
        "{late}"
    );
}

#[tokio::test]
async fn an_actor_that_does_not_end_in_its_time_is_killed_and_named() {
    let mut reading = Reading::start(|config| {
        config.shutdown_grace = Duration::from_millis(1);
        config.shutdown_wait_max = Duration::from_millis(100);
    })
    .await;
    reading.publish([7]).await;
    assert_eq!(reading.told(1).await, [7]);
    let report = reading.runtime.shutdown().await.unwrap();
    let left: Vec<_> = report.left_behind.iter().map(|left| left.part.as_str()).collect();
    assert_eq!(left, ["actor reader"]);
    assert_eq!(reading.told.recv().await, None, "nobody lives who could tell");
}

#[tokio::test]
async fn the_drop_of_a_runtime_kills_its_actors() {
    let Reading {
        runtime, mut told, ..
    } = Reading::start(|_| {}).await;
    drop(runtime);
    assert_eq!(told.recv().await, None);
}

#[tokio::test]
async fn names_and_the_number_of_actors_are_bounded() {
    let builder = Runtime::volatile().configure(|config| config.actors_len_max = 2);
    let runtime = builder.start().await.unwrap();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let noting = || {
        let ends = Arc::clone(&ends);
        move || (Noting("x", Arc::clone(&ends)), ())
    };
    for name in [String::new(), "n".repeat(256)] {
        let refused = runtime.supervise(&name, noting()).unwrap_err();
        assert!(matches!(refused, SuperviseError::Name), "{refused}");
    }
    let first = runtime.supervise("first", noting()).unwrap();
    let taken = runtime.supervise("first", noting()).unwrap_err();
    assert!(
        matches!(&taken, SuperviseError::Taken { name } if name == "first"),
        "{taken}"
    );
    runtime.supervise("second", noting()).unwrap();
    let many = runtime.supervise("third", noting()).unwrap_err();
    assert!(matches!(many, SuperviseError::TooMany { len_max: 2 }), "{many}");
    // One that stops by itself leaves the tree, and is not restarted.
    let events = runtime
        .broker()
        .subscribe::<PartEvent>("millrun.parts", SubscriptionConfig::default());
    let mut events = events.unwrap().into_receiver();
    loop {
        if let Some(actor) = first.actor() {
            actor.stop(None);
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(events.recv().await.unwrap().payload().change, PartChange::Stopped);
    assert!(runtime.parts().iter().all(|part| part.name != "actor first"));
    runtime.supervise("third", noting()).unwrap();
    runtime.shutdown().await.unwrap();
}

#[test]
fn a_host_without_tokio_takes_no_actors() {
    let world = SimHost::new(SimConfig::seeded(1));
    let builder = Runtime::volatile().host(world.host());
    let refused = world.block_on(async move {
        let runtime = builder.start().await.unwrap();
        runtime.supervise("a", || (Broken, ())).unwrap_err()
    });
    assert!(matches!(refused.unwrap(), SuperviseError::NoTokio));
}
