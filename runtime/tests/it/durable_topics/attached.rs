//! Durable subscriptions of actors.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::topics::{
    AttachedSubscription, DurableSubscription, DurableTopicHandle, ReadFrom, SubscriptionLost,
    SubscriptionReadError, UndeliveredRecord,
};
use millrun::{DurableTopic, Runtime, Topic};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{Semaphore, mpsc};

use super::NUMBERS;

/// What becomes of records at an actor.
#[derive(Default)]
struct Seen {
    /// How often each was handed out.
    handed_out: BTreeMap<u64, u32>,
    acknowledged: Vec<u64>,
    lost: Vec<SubscriptionLost>,
}

struct Reader {
    seen: Arc<Mutex<Seen>>,
    tell: mpsc::UnboundedSender<u64>,
    /// Each turn takes one.
    turns: Arc<Semaphore>,
}

impl Actor for Reader {
    type Msg = ();
    type State = AttachedSubscription<u64>;
    type Arguments = DurableSubscription<u64>;

    async fn pre_start(
        &self,
        myself: ActorRef<()>,
        numbers: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(numbers.attach(&myself, || ()))
    }

    async fn handle(
        &self,
        _: ActorRef<()>,
        (): (),
        numbers: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        self.turns.acquire().await?.forget();
        for number in numbers.turn() {
            let number = match number {
                Ok(number) => number,
                Err(SubscriptionReadError::Lost(lost)) => {
                    self.seen.lock().unwrap().lost.push(lost);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let value = *number.payload();
            let times = {
                let mut seen = self.seen.lock().unwrap();
                let times = seen.handed_out.entry(value).or_default();
                *times += 1;
                *times
            };
            // What an actor before was not handed out was no delivery.
            assert_eq!(number.deliveries(), times);
            // Each seventh fells the actor when it comes first.
            if value % 7 == 3 && times == 1 {
                number.send_back(std::time::Duration::ZERO, "felled")?;
                return Err("felled".into());
            }
            number.ack()?;
            self.seen.lock().unwrap().acknowledged.push(value);
            self.tell.send(value)?;
        }
        Ok(())
    }
}

struct Reading {
    runtime: Runtime,
    topic: DurableTopicHandle<u64>,
    subscription: DurableSubscription<u64>,
    seen: Arc<Mutex<Seen>>,
    told: mpsc::UnboundedReceiver<u64>,
}

impl Reading {
    async fn start(turns: &Arc<Semaphore>) -> Self {
        let builder = Runtime::volatile().durable_topic(NUMBERS);
        let builder = builder.configure(|config| config.restarts_max = 1_000);
        let runtime = builder.start().await.unwrap();
        let topic = runtime.durable_topic(NUMBERS).unwrap();
        let subscription = topic.subscribe("reader").from(ReadFrom::Beginning);
        let subscription = subscription.await.unwrap();
        let (tell, told) = mpsc::unbounded_channel();
        let (seen, turns) = (Arc::<Mutex<Seen>>::default(), Arc::clone(turns));
        let (given, kept) = (Arc::clone(&seen), subscription.clone());
        let make = move || {
            let reader = Reader {
                seen: Arc::clone(&given),
                tell: tell.clone(),
                turns: Arc::clone(&turns),
            };
            (reader, kept.clone())
        };
        runtime.supervise("reader", make).unwrap();
        Self {
            runtime,
            topic,
            subscription,
            seen,
            told,
        }
    }

    async fn publish(&self, len: u64, keys: u64) {
        for number in 0..len {
            let key = (number % keys).to_string();
            self.topic.publish(&number).key(&key).await.unwrap();
        }
    }

    /// Until the actor is done with as many.
    async fn until_told(&mut self, len: usize) {
        for _ in 0..len {
            self.told.recv().await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_actor_that_fails_again_and_again_is_done_with_each_record_once_in_the_order_of_its_key() {
    let mut reading = Reading::start(&Arc::new(Semaphore::new(1_000))).await;
    reading.publish(40, 4).await;
    reading.until_told(40).await;
    let parts = reading.runtime.parts();
    let part = parts.iter().find(|part| part.name == "actor reader").unwrap();
    assert_eq!(part.restarts, 6);
    let seen = reading.seen.lock().unwrap();
    for (number, times) in &seen.handed_out {
        assert_eq!(*times, if number % 7 == 3 { 2 } else { 1 }, "{number}");
    }
    for key in 0..4 {
        let of_key = seen.acknowledged.iter().filter(|number| **number % 4 == key);
        let expected = (0..40).filter(|number| number % 4 == key);
        assert_eq!(of_key.copied().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn no_lease_begins_before_the_actor_takes_a_record() {
    let turns = Arc::new(Semaphore::new(0));
    let mut reading = Reading::start(&turns).await;
    reading.publish(200, 200).await;
    while reading.subscription.status().in_hand == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(reading.subscription.status().leased, 0);
    // Another consumer gets the first record.
    let first = reading.subscription.next().await.unwrap();
    assert_eq!(*first.payload(), 0);
    first.ack().unwrap().await.unwrap();
    turns.add_permits(1_000);
    reading.until_told(199).await;
}

#[tokio::test]
async fn an_actor_is_told_once_that_its_subscription_is_lost() {
    let turns = Arc::new(Semaphore::new(0));
    let reading = Reading::start(&turns).await;
    // The bell is rung for the record, and the topic is gone before the actor answers.
    reading.publish(1, 1).await;
    while reading.subscription.status().in_hand == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    reading.runtime.delete_durable_topic("numbers").await.unwrap();
    turns.add_permits(1_000);
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let lost = reading.seen.lock().unwrap().lost.clone();
    assert!(matches!(lost[..], [SubscriptionLost::Deleted]), "{lost:?}");
}

/// No turn comes to say that the lease of its only record has ended: the task beside the actor does.
#[tokio::test]
async fn a_record_that_an_actor_does_not_answer_is_buried_when_its_deliveries_are_used_up() {
    const DEAD: DurableTopic<UndeliveredRecord> = Topic::named("dead").durable();
    struct Mute;
    impl Actor for Mute {
        type Msg = ();
        type State = AttachedSubscription<u64>;
        type Arguments = DurableSubscription<u64>;

        async fn pre_start(
            &self,
            myself: ActorRef<()>,
            numbers: Self::Arguments,
        ) -> Result<Self::State, ActorProcessingErr> {
            Ok(numbers.attach(&myself, || ()))
        }

        async fn handle(
            &self,
            _: ActorRef<()>,
            (): (),
            numbers: &mut Self::State,
        ) -> Result<(), ActorProcessingErr> {
            numbers.turn().for_each(drop);
            Ok(())
        }
    }
    let builder = Runtime::volatile().durable_topic(NUMBERS).durable_topic(DEAD);
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let subscribe = topic.subscribe("mute").lease(Duration::from_millis(1));
    let subscription = subscribe.undelivered_to(DEAD, 1).await.unwrap();
    runtime
        .supervise("mute", move || (Mute, subscription.clone()))
        .unwrap();
    topic.publish(&7).key("a").await.unwrap();
    let dead = runtime.durable_topic(DEAD).unwrap();
    let mut dead = dead.read(ReadFrom::Beginning).await.unwrap();
    let buried = dead.next().await.unwrap();
    assert_eq!(buried.payload().key.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_shutdown_ends_an_attached_actor_and_all_that_it_holds() {
    let reading = Reading::start(&Arc::new(Semaphore::new(1_000))).await;
    let weak = Arc::downgrade(&reading.seen);
    reading.runtime.shutdown().await.unwrap();
    drop(reading);
    while weak.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
}
