//! A subscriber that is killed at every step of a seeded world gets again what it had not acknowledged, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::topics::{DurableSubscription, DurableTopicHandle, UndeliveredRecord};
use millrun::{DurableTopic, Runtime, RuntimeBuilder, Topic};
use millrun_testkit::{SimConfig, SimHost};

use super::NUMBERS;
use crate::support::Store;

const UNDELIVERED: DurableTopic<UndeliveredRecord> = Topic::named("undelivered").durable();
/// How many records there are, of three keys.
const RECORDS: u64 = 18;

/// What a consumer has been told, kept outside of the world.
#[derive(Debug, Default)]
struct Told {
    /// Acknowledged, and told that this is kept.
    kept: BTreeSet<u64>,
    /// Acknowledged in a life, by how many lives there had been.
    asked: BTreeSet<u64>,
    given_len: u64,
}

type Ledger = Arc<Mutex<Told>>;

fn builder(sim: &SimHost, store: &Store) -> RuntimeBuilder {
    let builder = Runtime::open(store.path()).host(sim.host());
    builder.durable_topic(NUMBERS).durable_topic(UNDELIVERED)
}

async fn publish_all(topic: &DurableTopicHandle<u64>) {
    for number in 0..RECORDS {
        let (key, id) = (format!("key-{}", number % 3), number.to_string());
        topic.publish(&number).key(&key).id(&id).await.unwrap();
    }
}

/// Takes records until none has come for a second of the world's time: answers each in one of several ways.
async fn consume(subscription: DurableSubscription<u64>, ledger: Ledger, salt: u64, is_last: bool) {
    let mut latest = BTreeMap::new();
    loop {
        if is_last && subscription.status().lag == 0 {
            return;
        }
        let delivery = subscription.next().await.unwrap();
        let number = *delivery.payload();
        let given_len = {
            let mut told = ledger.lock().unwrap();
            assert!(
                !told.kept.contains(&number),
                "{number} was acknowledged, and that was kept"
            );
            told.given_len += 1;
            told.given_len
        };
        // One consumer is given the records of a key in their order, but for those that come again.
        let before = latest.insert(number % 3, number);
        assert!(before.is_none_or(|before| before <= number || delivery.deliveries() > 1));
        match (number + given_len + salt) % 5 {
            0 if !is_last => drop(delivery),
            1 => {
                let pause = Duration::from_millis(number % 3);
                drop(delivery.send_back(pause, "not now"));
            }
            2 => {
                // Asked, and nobody waits for it.
                if let Ok(saved) = delivery.ack() {
                    ledger.lock().unwrap().asked.insert(number);
                    drop(saved);
                }
            }
            _ => {
                if let Ok(saved) = delivery.ack() {
                    ledger.lock().unwrap().asked.insert(number);
                    saved.await.unwrap();
                    ledger.lock().unwrap().kept.insert(number);
                }
            }
        }
    }
}

async fn script(builder: RuntimeBuilder, ledger: Ledger, salt: u64, is_last: bool) {
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    publish_all(&topic).await;
    let subscription = topic
        .subscribe("s")
        .in_flight_max(5)
        .lease(Duration::from_millis(40));
    let subscription = subscription.undelivered_to(UNDELIVERED, 1_000).await.unwrap();
    // What was acknowledged without a word is not counted as missing, if it was kept.
    let through = subscription.status().acknowledged_through.get();
    {
        let mut told = ledger.lock().unwrap();
        for number in 0..through {
            assert!(told.asked.contains(&number), "{number} was never acknowledged");
            told.kept.insert(number);
        }
    }
    consume(subscription, ledger, salt, is_last).await;
    drop(runtime.shutdown().await);
}

/// Lives that end after so many steps each, and a last one in which all is acknowledged. Whether there was anything left
/// for the last one.
fn play(seed: u64, steps: u64) -> bool {
    let (store, ledger) = (Store::new(), Ledger::default());
    for life in 0..2 {
        let sim = SimHost::new(SimConfig::seeded(seed + life));
        let script = script(builder(&sim, &store), Arc::clone(&ledger), seed + life, false);
        let script = sim.host().spawn("script", Box::pin(script));
        let mut left = steps;
        let _stop = sim.run_until(|| {
            left = left.saturating_sub(1);
            left == 0 || ledger.lock().unwrap().kept.len() as u64 == RECORDS
        });
        sim.crash();
        drop(script);
    }
    let was_left = (ledger.lock().unwrap().kept.len() as u64) < RECORDS;
    let sim = SimHost::new(SimConfig::seeded(seed + 2));
    let last = script(builder(&sim, &store), Arc::clone(&ledger), seed, true);
    sim.block_on(last).unwrap();
    let told = ledger.lock().unwrap();
    let all: BTreeSet<_> = (0..RECORDS).collect();
    assert_eq!(
        told.asked, all,
        "seed {seed}, {steps} steps: nothing is done with unasked"
    );
    was_left
}

#[test]
fn a_killed_subscriber_gets_again_what_it_had_not_acknowledged_and_nothing_else() {
    let mut cut_short = 0;
    for (seed, steps) in (1..).zip((0..560).step_by(14)) {
        cut_short += u64::from(play(seed, steps));
    }
    assert!(
        cut_short > 20,
        "the lives are cut off within their work: {cut_short}"
    );
}
