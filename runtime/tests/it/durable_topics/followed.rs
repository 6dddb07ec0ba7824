//! A reader that is killed at every step of a seeded world, while a publisher never pauses, goes on behind the last record
//! that it saw: where the file ends and what is in memory begins, nothing is left out and nothing comes twice.

use std::sync::{Arc, Mutex};

use futures_util::future::join;
use millrun::topics::{DurableTopicHandle, ReadFrom, RecordToken};
use millrun::{Runtime, RuntimeBuilder};
use millrun_testkit::{SimConfig, SimHost};

use super::NUMBERS;
use crate::support::Store;

const RECORDS: u64 = 40;

/// What the reader keeps outside of the world: the last number that it saw, and its place.
type Place = Arc<Mutex<(u64, Option<RecordToken>)>>;

fn builder(sim: &SimHost, store: &Store) -> RuntimeBuilder {
    let builder = Runtime::open(store.path()).host(sim.host());
    builder.durable_topic(NUMBERS).configure(|config| {
        config.topic_page_bytes_max = 100;
        // A few records are in memory; the rest is read from the file.
        config.journal.topic_latest_bytes_max = 600;
    })
}

async fn publish_all(topic: &DurableTopicHandle<u64>) {
    for number in 1..=RECORDS {
        let id = number.to_string();
        topic.publish(&number).id(&id).await.unwrap();
    }
}

async fn read_all(topic: &DurableTopicHandle<u64>, place: &Place) {
    let (mut before, token) = *place.lock().unwrap();
    let from = token.map_or(ReadFrom::Beginning, ReadFrom::After);
    let mut reader = topic.read(from).await.unwrap();
    while before < RECORDS {
        let record = reader.next().await.unwrap();
        assert_eq!(*record.payload(), before + 1);
        assert_eq!(record.token().sequence().get(), before + 1);
        before += 1;
        *place.lock().unwrap() = (before, Some(record.token()));
    }
}

async fn script(builder: RuntimeBuilder, place: Place) {
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    join(publish_all(&topic), read_all(&topic, &place)).await;
    runtime.shutdown().await.unwrap();
}

/// Runs the script three times over one store: twice it is cut off after `steps` steps of the world, the last time it ends. Whether
/// the reader was cut off within the records.
fn play(seed: u64, steps: u64) -> bool {
    let (store, place) = (Store::new(), Place::default());
    for life in 0..2 {
        let sim = SimHost::new(SimConfig::seeded(seed + life));
        let script = script(builder(&sim, &store), Arc::clone(&place));
        let script = sim.host().spawn("script", Box::pin(script));
        let mut left = steps;
        let _stop = sim.run_until(|| {
            left = left.saturating_sub(1);
            left == 0 || place.lock().unwrap().0 == RECORDS
        });
        sim.crash();
        drop(script);
    }
    let seen = place.lock().unwrap().0;
    let sim = SimHost::new(SimConfig::seeded(seed + 2));
    sim.block_on(script(builder(&sim, &store), Arc::clone(&place)))
        .unwrap();
    assert_eq!(place.lock().unwrap().0, RECORDS, "seed {seed}, {steps} steps");
    seen > 0 && seen < RECORDS
}

#[test]
fn a_reader_that_is_killed_at_any_step_beside_a_publisher_that_never_pauses_sees_each_record_once() {
    let cut_short = (1..)
        .zip((0..400).step_by(4))
        .filter(|(seed, steps)| play(*seed, *steps))
        .count();
    assert!(
        cut_short > 20,
        "readers are cut off within the records: {cut_short}"
    );
}
