//! A reader and a publisher that never pauses, killed at every step of a seeded world: both with their process, the reader alone,
//! or the publisher alone. A reader that is killed goes on behind the last record that it saw: where the file ends and what is in
//! memory begins, nothing is left out and nothing comes twice.

use std::sync::{Arc, Mutex};

use futures_util::future::join;
use millrun::host::TaskHandle;
use millrun::topics::{DurableTopicHandle, ReadFrom, RecordToken};
use millrun::{Runtime, RuntimeBuilder};
use millrun_testkit::{SimConfig, SimHost};

use super::NUMBERS;
use crate::support::Store;

const RECORDS: u64 = 40;
/// How many kills a play has. Before each of them the world makes the number of steps that the play was given.
const KILLS: u64 = 2;

/// What the reader keeps outside of the world: the last number that it saw, and its place.
type Place = Arc<Mutex<(u64, Option<RecordToken>)>>;

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Killed {
    /// With the process, and the store as a kill leaves it.
    Both,
    Reader,
    Publisher,
}

fn builder(sim: &SimHost, store: &Store) -> RuntimeBuilder {
    let builder = Runtime::open(store.path()).host(sim.host());
    builder.durable_topic(NUMBERS).configure(|config| {
        config.topic_page_bytes_max = 100;
        // A few records are in memory; the rest is read from the file.
        config.journal.topic_latest_bytes_max = 600;
    })
}

/// Publishes all, also those that a publisher before it has published.
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
    assert_eq!(
        runtime.durable_topics()[0].last,
        RECORDS,
        "each was appended once"
    );
    runtime.shutdown().await.unwrap();
}

/// Lets the world make as many steps, or fewer if the reader has seen all. How many records it has seen.
fn steps(sim: &SimHost, steps: u64, place: &Place) -> u64 {
    let mut left = steps;
    let _stop = sim.run_until(|| {
        let is_over = left == 0 || place.lock().unwrap().0 == RECORDS;
        left = left.saturating_sub(1);
        is_over
    });
    place.lock().unwrap().0
}

/// Processes that are killed after as many steps each. What the reader had seen by then.
fn kill_processes(seed: u64, len: u64, (store, place): (&Store, &Place)) -> u64 {
    let mut seen = 0;
    for life in 0..KILLS {
        let sim = SimHost::new(SimConfig::seeded(seed + life));
        let script = script(builder(&sim, store), Arc::clone(place));
        let script = sim.host().spawn("script", Box::pin(script));
        seen = steps(&sim, len, place);
        sim.crash();
        drop(script);
    }
    seen
}

/// Readers, or publishers, that are killed after as many steps each; the process and the others go on. What the reader had seen
/// by then.
fn kill_tasks(seed: u64, len: u64, killed: Killed, (store, place): (&Store, &Place)) -> u64 {
    let sim = SimHost::new(SimConfig::seeded(seed));
    let runtime = sim.block_on(builder(&sim, store).start()).unwrap().unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let publish = || -> TaskHandle {
        let topic = topic.clone();
        let publisher = async move { publish_all(&topic).await };
        sim.host().spawn("publisher", Box::pin(publisher))
    };
    let read = || -> TaskHandle {
        let (topic, place) = (topic.clone(), Arc::clone(place));
        let reader = async move { read_all(&topic, &place).await };
        sim.host().spawn("reader", Box::pin(reader))
    };
    let (mut publisher, mut reader) = (publish(), read());
    let mut seen = 0;
    for _ in 0..KILLS {
        seen = steps(&sim, len, place);
        if killed == Killed::Reader {
            reader.abort();
            reader = read();
        } else {
            publisher.abort();
            publisher = publish();
        }
    }
    assert_eq!(
        steps(&sim, u64::MAX, place),
        RECORDS,
        "seed {seed}, {len} steps, {killed:?}"
    );
    drop((publisher, reader));
    sim.block_on(runtime.shutdown()).unwrap().unwrap();
    seen
}

/// Kills after as many steps, and lets the next ones end. How many records the reader had seen at the last kill.
fn play(seed: u64, len: u64, killed: Killed) -> u64 {
    let (store, place) = (Store::new(), Place::default());
    let seen = match killed {
        Killed::Both => kill_processes(seed, len, (&store, &place)),
        Killed::Reader | Killed::Publisher => kill_tasks(seed, len, killed, (&store, &place)),
    };
    let sim = SimHost::new(SimConfig::seeded(seed + KILLS));
    sim.block_on(script(builder(&sim, &store), Arc::clone(&place)))
        .unwrap();
    assert_eq!(
        place.lock().unwrap().0,
        RECORDS,
        "seed {seed}, {len} steps, {killed:?}"
    );
    seen
}

/// Kills at every step, until all is seen before the last kill.
fn check(killed: Killed) {
    let (mut len, mut within) = (0, 0);
    loop {
        let seen = play(1_000 + len, len, killed);
        if seen == RECORDS {
            break;
        }
        within += u64::from(seen > 0);
        len += 1;
    }
    assert!(within > 50, "{within} of {len} kills were within the records");
}

#[test]
fn a_process_that_is_killed_at_any_step_beside_a_publisher_that_never_pauses_sees_each_record_once() {
    check(Killed::Both);
}

#[test]
fn a_reader_that_is_killed_at_any_step_beside_a_publisher_that_never_pauses_sees_each_record_once() {
    check(Killed::Reader);
}

#[test]
fn a_reader_sees_each_record_once_also_if_the_publisher_is_killed_at_any_step_and_publishes_again() {
    check(Killed::Publisher);
}
