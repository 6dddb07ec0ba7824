//! A crash at every step of a seeded world: what was acknowledged stands, each request is performed once, and what the
//! commands have begun is done once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::host::Host;
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::topics::{DurableRecord, ReadFrom};
use millrun::{DurableTopic, Query, Runtime, RuntimeBuilder, Topic};
use millrun_testkit::{SimConfig, SimHost};

use super::acts::watch;
use super::{GO, LEN, PASS_ON, PUT, PUT_LATER, PUTS, SUM, TILL, Till, WATCH, till};
use crate::durable_topics::take_all;
use crate::support::{Store, committer, cut_off};

/// The answers that were given, by request.
type Acknowledged = Arc<Mutex<BTreeMap<String, u64>>>;

fn coded(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .entity(till().snapshot_every(3))
        .durable_topic(PUTS)
        .durable_topic(COINS)
        .register(WATCH, watch)
        .configure(|config| {
            config.hot_len_max = 1;
        })
}

/// Commands, each under a request, so that they may be repeated by another life.
async fn command_all(runtime: &Runtime, acknowledged: &Acknowledged) {
    let (ada, bob) = (runtime.entity(TILL, "ada"), runtime.entity(TILL, "bob"));
    for number in 0..4 {
        let request = format!("put-{number}");
        let sum = ada.call(PUT, 10).request(request.clone()).await.unwrap();
        let before = acknowledged.lock().unwrap().insert(request, sum);
        assert!(
            before.is_none_or(|before| before == sum),
            "{before:?}, then {sum}"
        );
    }
    ada.call(PASS_ON, ("bob".into(), 15))
        .request("pass")
        .await
        .unwrap();
    ada.call(PUT_LATER, 5).request("later").await.unwrap();
    bob.call(PUT, 1).request("bob").await.unwrap();
}

/// What a trigger has the tills perform, by their keys.
const COINS: DurableTopic<u64> = Topic::named("puts.wanted").durable();

/// One life of a program whose commands come by a topic alone.
async fn command_by_records(runtime: &Runtime, host: &Arc<dyn Host>) {
    let coins = runtime.durable_topic(COINS).unwrap();
    for number in 1..=6 {
        let (key, id) = (if number % 2 == 0 { "bob" } else { "ada" }, number.to_string());
        coins.publish(&number).key(key).id(&id).await.unwrap();
    }
    let make = |record: &DurableRecord<u64>| (record.key().unwrap().to_owned(), *record.payload());
    let trigger = coins.trigger("tills").command(TILL, PUT, make).await.unwrap();
    while trigger.status().lag > 0 {
        pause(host).await;
    }
    let read =
        async |key, query: Query<Till, (), u64>| runtime.entity(TILL, key).read(query, ()).await.unwrap();
    for (key, sum) in [("ada", 9), ("bob", 12)] {
        assert_eq!((read(key, SUM).await, read(key, LEN).await), (sum, 3), "{key}");
    }
    let topic = runtime.durable_topic(PUTS).unwrap();
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let mut put = Vec::new();
    while let Some(record) = reader.next_encoded_now().await.unwrap() {
        put.push(record.payload().decode::<u64>().unwrap());
    }
    put.sort_unstable();
    assert_eq!(put, [1, 2, 3, 4, 5, 6], "each command has published once");
}

async fn pause(host: &Arc<dyn Host>) {
    host.sleep_until(host.now() + Duration::from_millis(1)).await;
}

/// Waits until all has come of it that is to come, and looks at that.
async fn check_whole(runtime: &Runtime, host: &Arc<dyn Host>) {
    for (key, sum) in [("ada", 26), ("bob", 16)] {
        while runtime.entity(TILL, key).read(SUM, ()).await.unwrap() != sum {
            pause(host).await;
        }
    }
    let watch = runtime.attach(WATCH, "watch-ada").unwrap();
    while watch.describe().await.is_err() {
        pause(host).await;
    }
    // The signal may have overtaken the start, and had no instance then.
    let _outcome = watch.signal(GO, 15).await;
    assert_eq!(watch.result().await.unwrap(), 30);
    let topic = runtime.durable_topic(PUTS).unwrap();
    let mut records = take_all(&topic, runtime, ReadFrom::Beginning).await;
    records.sort_unstable();
    assert_eq!(records, [1, 10, 10, 10, 10, 15]);
}

/// One life of `steps` steps that ends with a crash. Whether it had nothing left to do.
fn live(sim: &SimHost, builder: RuntimeBuilder, acknowledged: &Acknowledged, steps: u64) -> bool {
    let (acknowledged, host) = (Arc::clone(acknowledged), sim.host());
    cut_off(sim, steps, async move {
        let runtime = builder.start().await.unwrap();
        command_all(&runtime, &acknowledged).await;
        check_whole(&runtime, &host).await;
    })
}

fn play(seed: u64, steps: u64) -> bool {
    let acknowledged = Acknowledged::default();
    let open = |sim: &SimHost, journal: &Arc<MemoryJournal>| {
        let builder = Runtime::volatile().host(sim.host());
        coded(builder.journal(Arc::clone(journal) as Arc<dyn Journal>))
    };
    let first = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
    let sim = SimHost::new(SimConfig::seeded(seed));
    let commits = sim
        .host()
        .spawn("committer", Box::pin(committer(sim.host(), Arc::clone(&first))));
    let is_done = live(&sim, open(&sim, &first), &acknowledged, steps);
    drop(commits);
    let found = Arc::new(first.reopened());
    let sim = SimHost::new(SimConfig::seeded(seed + 1));
    let commits = sim
        .host()
        .spawn("committer", Box::pin(committer(sim.host(), Arc::clone(&found))));
    let script = async {
        let runtime = open(&sim, &found).start().await.unwrap();
        command_all(&runtime, &acknowledged).await;
        check_whole(&runtime, &sim.host()).await;
    };
    sim.block_on(script).unwrap();
    sim.crash();
    drop(commits);
    is_done
}

fn play_in_file(seed: u64, steps: u64) -> bool {
    let (store, acknowledged) = (Store::new(), Acknowledged::default());
    let open = |sim: &SimHost| coded(Runtime::open(store.path()).host(sim.host()));
    let sim = SimHost::new(SimConfig::seeded(seed));
    let is_done = live(&sim, open(&sim), &acknowledged, steps);
    let sim = SimHost::new(SimConfig::seeded(seed + 1));
    let script = async {
        let runtime = open(&sim).start().await.unwrap();
        command_all(&runtime, &acknowledged).await;
        check_whole(&runtime, &sim.host()).await;
        runtime.shutdown().await.unwrap();
    };
    sim.block_on(script).unwrap();
    is_done
}

/// A life that is killed while a trigger has the tills perform commands, and one that ends. Whether the first one had ended.
fn play_triggered(seed: u64, steps: u64) -> bool {
    let store = Store::new();
    let open = |sim: &SimHost| coded(Runtime::open(store.path()).host(sim.host()));
    let sim = SimHost::new(SimConfig::seeded(seed));
    let (builder, host) = (open(&sim), sim.host());
    let is_done = cut_off(&sim, steps, async move {
        let runtime = builder.start().await.unwrap();
        command_by_records(&runtime, &host).await;
    });
    let sim = SimHost::new(SimConfig::seeded(seed + 1));
    let script = async {
        let runtime = open(&sim).start().await.unwrap();
        command_by_records(&runtime, &sim.host()).await;
        runtime.shutdown().await.unwrap();
    };
    sim.block_on(script).unwrap();
    is_done
}

#[test]
fn a_crash_at_any_step_leaves_each_command_of_a_trigger_performed_once() {
    let mut steps = 0;
    while !play_triggered(1_000 + steps, steps) {
        steps += 1;
    }
    assert!(steps > 100, "a play has {steps} steps");
}

#[test]
fn a_crash_at_any_step_leaves_each_command_performed_once_in_the_end() {
    for seed in 1..=3 {
        // Seeds begin at different steps, and take every third.
        let mut steps = seed;
        while !play(seed * 1_000, steps) {
            steps += 3;
        }
        assert!(steps > 30, "a play has {steps} steps");
    }
}

#[test]
fn a_crash_at_any_step_of_a_runtime_with_a_file_does_so_too() {
    let (seed, mut steps) = (1, 1);
    while !play_in_file(seed * 1_000, steps) {
        steps += 5;
    }
    assert!(steps > 30, "a play has {steps} steps");
}
