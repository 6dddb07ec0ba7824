//! Runs that wait for records of durable topics.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use millrun::history::{KeyFilter, RecordFilter};
use millrun::operating::{PendingDescription, WaitsFor};
use millrun::store::{Journal, MemoryJournal, Partition};
use millrun::topics::DurablePublishError;
use millrun::workflow::Either;
use millrun::{ResultError, RunError, Runtime, RuntimeBuilder, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{SimConfig, SimHost};

use super::{NUMBERS, append_raw, memory};
use crate::support::{Store, cut_off, described};

/// Takes as many records with the key that its instance's id is, one behind the other.
const TAKE: Workflow<(String, usize), Vec<u64>> = Workflow::named("take");

async fn take(cx: WorkflowContext, (key, len): (String, usize)) -> Result<Vec<u64>, WorkflowError> {
    let mut taken = Vec::new();
    while taken.len() < len {
        let record = cx.receive_from(NUMBERS).key(key.as_str()).await?;
        assert_eq!(record.key(), Some(key.as_str()));
        taken.push(record.into_payload());
    }
    Ok(taken)
}

fn taking(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.durable_topic(NUMBERS).register(TAKE, take)
}

async fn over(journal: &Arc<MemoryJournal>) -> Runtime {
    let builder = Runtime::volatile().journal(Arc::clone(journal) as Arc<dyn Journal>);
    taking(builder).start().await.unwrap()
}

async fn publish(runtime: &Runtime, key: &str, number: u64) {
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    topic.publish(&number).key(key).await.unwrap();
}

/// Until a run is on disk or in memory and waits for a record.
async fn waits<I, O>(run: &millrun::RunHandle<I, O>) {
    let waits = |run: &millrun::operating::InstanceDescription| {
        let receives = |pending: &PendingDescription| matches!(pending, PendingDescription::Receive { .. });
        run.pending.iter().any(receives)
    };
    described(run, waits).await;
}

/// Whom a record of a later release is for stands in the part that this one cannot read.
#[tokio::test]
async fn a_record_whose_header_cannot_be_read_is_passed_over_and_counted_and_the_wait_goes_on() {
    let journal = memory();
    let runtime = over(&journal).await;
    let run = runtime.start(TAKE, "a", ("a".to_owned(), 1)).await.unwrap();
    waits(&run).await;
    runtime.shutdown().await.unwrap();
    let journal = Arc::new(journal.reopened());
    append_raw(&journal, "numbers", b"\x02 a later release");
    let runtime = over(&journal).await;
    publish(&runtime, "a", 7).await;
    let run = runtime.attach(TAKE, "a").unwrap();
    assert_eq!(run.result().await.unwrap(), [7]);
    assert!(runtime.stats().records_unreadable > 0);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_takes_each_record_with_its_key_once_in_order_whether_it_is_in_memory_or_not() {
    for hot_len_max in [0, 100] {
        let runtime = taking(Runtime::volatile())
            .configure(|config| {
                config.hot_len_max = hot_len_max;
                config.replay_check_every = 1;
            })
            .start()
            .await
            .unwrap();
        publish(&runtime, "a", 1).await;
        let run = runtime.start(TAKE, "a", ("a".to_owned(), 4)).await.unwrap();
        waits(&run).await;
        for number in 2..6 {
            publish(&runtime, "b", 100 + number).await;
            publish(&runtime, "a", number).await;
        }
        assert_eq!(
            run.result().await.unwrap(),
            [2, 3, 4, 5],
            "the first came before the run"
        );
        let stats = runtime.stats();
        assert_eq!((stats.replay_differences, stats.parked), (0, 0));
    }
}

#[tokio::test]
async fn a_record_that_came_before_the_code_got_there_is_received() {
    const LATE: Workflow<(), u64> = Workflow::named("late");
    async fn late(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
        cx.sleep(Duration::from_millis(20)).await?;
        Ok(cx.receive_from(NUMBERS).key("a").await?.into_payload())
    }
    let builder = Runtime::volatile().durable_topic(NUMBERS).register(LATE, late);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(LATE, "late", ()).await.unwrap();
    publish(&runtime, "a", 7).await;
    assert_eq!(run.result().await.unwrap(), 7);
}

/// Takes what its region and its basket get, and what anybody published before it began.
const SHIP: Workflow<(String, String), Vec<u64>> = Workflow::named("ship");

async fn ship(cx: WorkflowContext, (region, basket): (String, String)) -> Result<Vec<u64>, WorkflowError> {
    let of_region = cx.subscribe(NUMBERS).key_prefix(region.as_str());
    let of_basket = cx.subscribe(NUMBERS).key_prefix(region).correlation(basket);
    let mut taken = Vec::new();
    for subscription in [&of_region, &of_region, &of_basket, &of_basket] {
        taken.push(subscription.next().await?.into_payload());
    }
    let first = cx.subscribe(NUMBERS).from_beginning().next().await?;
    taken.push(first.into_payload());
    Ok(taken)
}

#[tokio::test]
async fn a_run_takes_by_the_beginning_of_a_key_and_by_a_correlation_each_from_its_own_place() {
    let builder = |journal: &Arc<MemoryJournal>| {
        let builder = Runtime::volatile().journal(Arc::clone(journal) as Arc<dyn Journal>);
        builder.durable_topic(NUMBERS).register(SHIP, ship)
    };
    let mut journal = memory();
    let runtime = builder(&journal).start().await.unwrap();
    publish(&runtime, "eu.0", 1).await;
    for basket in ["b-1", "b-2"] {
        let what = ("eu.".to_owned(), basket.to_owned());
        let run = runtime.start(SHIP, basket, what).await.unwrap();
        waits(&run).await;
    }
    runtime.shutdown().await.unwrap();
    // The store is opened again between any two records.
    for (key, correlation, number) in [
        ("us.1", None, 10),
        ("eu.1", None, 20),
        ("eu", Some("b-1"), 30),
        ("eu.2", Some("b-1"), 40),
        ("us.2", Some("b-2"), 50),
        ("eu.3", Some("b-2"), 60),
        ("eu.3", Some("b-1"), 70),
        ("eu.4", Some("b-2"), 80),
    ] {
        journal = Arc::new(journal.reopened());
        let runtime = builder(&journal).start().await.unwrap();
        let topic = runtime.durable_topic(NUMBERS).unwrap();
        let publish = topic.publish(&number).key(key);
        match correlation {
            Some(correlation) => publish.correlation(correlation).await.unwrap(),
            None => publish.await.unwrap(),
        };
        runtime.shutdown().await.unwrap();
    }
    let runtime = builder(&Arc::new(journal.reopened())).start().await.unwrap();
    for (basket, expected) in [("b-1", [20, 40, 40, 70, 1]), ("b-2", [20, 40, 60, 80, 1])] {
        let run = runtime.attach(SHIP, basket).unwrap();
        assert_eq!(run.result().await.unwrap(), expected, "{basket}");
    }
}

#[tokio::test]
async fn a_record_by_whose_filter_no_run_waits_wakes_none() {
    let builder = taking(Runtime::volatile()).register(SHIP, ship);
    let builder = builder.configure(|config| config.hot_len_max = 0);
    let runtime = builder.start().await.unwrap();
    let run = runtime
        .start(SHIP, "b-1", ("eu.".to_owned(), "b-1".to_owned()))
        .await
        .unwrap();
    publish(&runtime, "eu.1", 1).await;
    publish(&runtime, "eu.1", 2).await;
    // It has taken both of its region; a wait that goes on behind them is not for its basket.
    let waits_again = |run: &millrun::operating::InstanceDescription| {
        run.pending.iter().any(|pending| match pending {
            PendingDescription::Receive { filter, behind, .. } => {
                filter.correlation.is_some() || behind.is_some_and(|behind| behind.get() == 2)
            }
            _ => false,
        })
    };
    described(&run, waits_again).await;
    let why = run.why().await.unwrap().to_string();
    assert!(
        why.contains("with a key that begins with eu. and the correlation b-1"),
        "{why}"
    );
    let last = ("last".to_owned(), 1);
    let last = runtime.start(TAKE, "last", last).await.unwrap();
    waits(&last).await;
    let loads = runtime.stats().loads;
    for number in 0..100 {
        publish(&runtime, "eu.1", number).await;
    }
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    topic.publish(&9).key("us.1").correlation("b-1").await.unwrap();
    // The live reader passes the records in their order: when this one has come to its run, those before have woken nobody.
    publish(&runtime, "last", 0).await;
    assert_eq!(last.result().await.unwrap(), [0]);
    assert_eq!(runtime.stats().loads, loads + 1);
    for number in [100, 200] {
        topic
            .publish(&number)
            .key("eu.2")
            .correlation("b-1")
            .await
            .unwrap();
    }
    assert_eq!(run.result().await.unwrap(), [1, 2, 100, 200, 1]);
}

#[tokio::test]
async fn a_wait_goes_on_when_the_store_is_opened_again_also_far_behind_what_is_in_memory() {
    let journal = memory();
    let runtime = over(&journal).await;
    let run = runtime.start(TAKE, "a", ("a".to_owned(), 3)).await.unwrap();
    let other = runtime.start(TAKE, "z", ("z".to_owned(), 1)).await.unwrap();
    publish(&runtime, "a", 1).await;
    let has_taken = |run: &millrun::operating::InstanceDescription| {
        run.pending.iter().any(|pending| {
            matches!(pending, PendingDescription::Receive { behind: Some(behind), .. } if behind.get() == 1)
        })
    };
    described(&run, has_taken).await;
    waits(&other).await;
    runtime.shutdown().await.unwrap();
    // Published by a program that has no code for it.
    let journal = Arc::new(journal.reopened());
    let builder = Runtime::volatile().journal(Arc::clone(&journal) as Arc<dyn Journal>);
    let runtime = builder.durable_topic(NUMBERS).start().await.unwrap();
    for number in 2..2_000 {
        publish(&runtime, if number % 1_000 == 2 { "a" } else { "b" }, number).await;
    }
    runtime.shutdown().await.unwrap();

    let journal = Arc::new(journal.reopened());
    let runtime = over(&journal).await;
    let run = runtime.attach(TAKE, "a").unwrap();
    assert_eq!(run.result().await.unwrap(), [1, 2, 1_002]);
    let other = runtime.attach(TAKE, "z").unwrap();
    waits(&other).await;
    publish(&runtime, "z", 9).await;
    assert_eq!(other.result().await.unwrap(), [9]);
}

#[tokio::test]
async fn a_wait_that_loses_a_race_takes_nothing_and_one_that_is_asked_to_cancel_ends() {
    const RACE: Workflow<(), (bool, u64)> = Workflow::named("race");
    async fn race(cx: WorkflowContext, (): ()) -> Result<(bool, u64), WorkflowError> {
        let wait = cx.receive_from(NUMBERS).key("a");
        let is_first = match cx.race(wait, cx.sleep(Duration::from_millis(5))).await {
            Either::Left(record) => return Ok((true, record?.into_payload())),
            Either::Right(_) => false,
        };
        Ok((is_first, cx.receive_from(NUMBERS).key("a").await?.into_payload()))
    }
    let builder = Runtime::volatile().durable_topic(NUMBERS).register(RACE, race);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(RACE, "r", ()).await.unwrap();
    let second = |run: &millrun::operating::InstanceDescription| {
        run.pending.iter().any(|pending| {
            matches!(pending, PendingDescription::Receive { operation, .. } if operation.get() == 3)
        })
    };
    described(&run, second).await;
    publish(&runtime, "a", 4).await;
    assert_eq!(run.result().await.unwrap(), (false, 4));

    let cancelled = runtime.start(RACE, "c", ()).await.unwrap();
    described(&cancelled, second).await;
    cancelled.cancel("enough").await.unwrap();
    let ended = cancelled.result().await.unwrap_err();
    assert!(matches!(ended, ResultError::Cancelled(_)), "{ended:?}");
}

/// Each round waits again from where the round before has ended.
#[tokio::test]
async fn a_run_that_waits_again_and_again_beside_a_timer_takes_each_record_once_in_order() {
    const POLL: Workflow<usize, Vec<u64>> = Workflow::named("poll");
    async fn poll(cx: WorkflowContext, len: usize) -> Result<Vec<u64>, WorkflowError> {
        let mut taken = Vec::new();
        while taken.len() < len {
            let wait = cx.receive_from(NUMBERS).key_prefix("eu.");
            if let Either::Left(record) = cx.race(wait, cx.sleep(Duration::from_micros(300))).await {
                taken.push(record?.into_payload());
            }
        }
        Ok(taken)
    }
    let builder = Runtime::volatile().durable_topic(NUMBERS).register(POLL, poll);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(POLL, "p", 30).await.unwrap();
    for number in 0..90 {
        let region = if number % 3 == 0 { "eu" } else { "us" };
        publish(&runtime, &format!("{region}.{number}"), number).await;
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    let expected: Vec<_> = (0..90).step_by(3).collect();
    assert_eq!(run.result().await.unwrap(), expected);
}

#[tokio::test]
async fn a_run_goes_on_by_each_key_where_it_has_come_to_by_that_key() {
    const TURNS: Workflow<(), Vec<u64>> = Workflow::named("turns");
    async fn turns(cx: WorkflowContext, (): ()) -> Result<Vec<u64>, WorkflowError> {
        let mut taken = Vec::new();
        for key in ["a", "b", "a", "b"] {
            let wait = cx.receive_from(NUMBERS).key(key).from_beginning();
            taken.push(wait.await?.into_payload());
        }
        Ok(taken)
    }
    let builder = Runtime::volatile().durable_topic(NUMBERS).register(TURNS, turns);
    let runtime = builder.start().await.unwrap();
    for (key, number) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5), ("b", 6)] {
        publish(&runtime, key, number).await;
    }
    let run = runtime.start(TURNS, "t", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), [1, 3, 2, 5]);
    runtime.shutdown().await.unwrap();
}

/// A wait that loses takes nothing, whether the run is in memory or not, and a replay sees the same one win.
#[tokio::test]
async fn of_waits_that_race_each_other_the_loser_takes_its_record_in_a_later_round() {
    const PICK: Workflow<usize, Vec<(String, u64)>> = Workflow::named("pick");
    async fn pick(cx: WorkflowContext, len: usize) -> Result<Vec<(String, u64)>, WorkflowError> {
        let mut taken = Vec::new();
        while taken.len() < len {
            let waits = ["a", "b", "c"].map(|key| cx.receive_from(NUMBERS).key(key));
            let (record, _, _) = futures_util::future::select_all(waits).await;
            let record = record?;
            let key = record.key().unwrap_or_default().to_owned();
            taken.push((key, record.into_payload()));
        }
        Ok(taken)
    }
    for hot_len_max in [0, 100] {
        let builder = Runtime::volatile().durable_topic(NUMBERS).register(PICK, pick);
        let builder = builder.configure(|config| {
            config.hot_len_max = hot_len_max;
            config.replay_check_every = 1;
        });
        let runtime = builder.start().await.unwrap();
        let run = runtime.start(PICK, "p", 90).await.unwrap();
        waits(&run).await;
        for number in 0..30 {
            // While it is paused all three get theirs: one of them wins, and the others come again in later rounds.
            let is_paused = number % 3 == 2;
            if is_paused {
                run.pause("until all have come").await.unwrap();
            }
            for key in ["b", "c", "a"] {
                publish(&runtime, key, number).await;
            }
            if is_paused {
                described(&run, |run| run.pending.is_empty()).await;
                run.resume().await.unwrap();
            }
            // With the last it has all.
            if number < 29 {
                waits(&run).await;
            }
        }
        let taken = run.result().await.unwrap();
        for key in ["a", "b", "c"] {
            let of_key = taken.iter().filter(|(of, _)| of == key);
            let numbers: Vec<u64> = of_key.map(|(_, number)| *number).collect();
            assert_eq!(numbers, (0..30).collect::<Vec<_>>(), "{key}: once each, in order");
        }
        let stats = runtime.stats();
        assert_eq!((stats.replay_differences, stats.parked), (0, 0));
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_topic_that_is_not_registered_is_waited_for_and_said_to_be_missing() {
    let journal = memory();
    let builder = Runtime::volatile().journal(Arc::clone(&journal) as Arc<dyn Journal>);
    let runtime = builder.register(TAKE, take).start().await.unwrap();
    let run = runtime.start(TAKE, "a", ("a".to_owned(), 1)).await.unwrap();
    waits(&run).await;
    let why = run.why().await.unwrap();
    let expected = WaitsFor::Record {
        topic: "numbers".to_owned(),
        filter: RecordFilter {
            key: Some(KeyFilter::Is("a".into())),
            correlation: None,
        },
        is_registered: false,
    };
    assert_eq!(why.waits[0].what, expected);
    assert!(
        why.to_string().contains("not registered in this program"),
        "{why}"
    );
    runtime.shutdown().await.unwrap();
    let journal = Arc::new(journal.reopened());
    let runtime = over(&journal).await;
    let run = runtime.attach(TAKE, "a").unwrap();
    let why = run.why().await.unwrap();
    assert!(
        why.to_string()
            .contains("waits for a record of the durable topic numbers with the key a"),
        "{why}"
    );
    publish(&runtime, "a", 3).await;
    assert_eq!(run.result().await.unwrap(), [3]);
}

/// Of many runs that wait, a record brings back the one that it is for.
#[tokio::test]
async fn a_record_wakes_the_run_that_it_is_for_and_no_other() {
    const RUNS: u64 = 2_000;
    let builder = taking(Runtime::volatile()).configure(|config| config.hot_len_max = 0);
    let runtime = builder.start().await.unwrap();
    let starts = (0..RUNS).map(|number| {
        let key = format!("k-{number}");
        let runtime = &runtime;
        async move { runtime.start(TAKE, &key, (key.clone(), 1)).await.unwrap() }
    });
    let runs = join_all(starts).await;
    for run in &runs {
        waits(run).await;
    }
    let loads = runtime.stats().loads;
    for number in (0..RUNS).step_by(100) {
        publish(&runtime, &format!("k-{number}"), number).await;
        publish(&runtime, "nobody", number).await;
        let run = &runs[usize::try_from(number).unwrap()];
        assert_eq!(run.result().await.unwrap(), [number]);
    }
    assert_eq!(runtime.stats().loads - loads, RUNS / 100);
}

/// All of one topic, each once, by runs that wait for any record.
#[tokio::test]
async fn runs_that_wait_for_any_record_get_all_of_them() {
    const ALL: Workflow<u64, Vec<u64>> = Workflow::named("all");
    async fn all(cx: WorkflowContext, len: u64) -> Result<Vec<u64>, WorkflowError> {
        let mut taken = Vec::new();
        for round in cx.checkpointed::<u64>().transpose()?.unwrap_or(0)..len {
            taken.push(cx.receive_from(NUMBERS).await?.into_payload());
            if round == 4 {
                assert_eq!(taken.len(), 5);
                return Ok(cx.checkpoint(&5_u64).await?);
            }
        }
        Ok(taken)
    }
    let builder = Runtime::volatile().durable_topic(NUMBERS).register(ALL, all);
    let runtime = builder.start().await.unwrap();
    let starts = (0..5).map(|number| {
        let runtime = &runtime;
        async move { runtime.start(ALL, &format!("all-{number}"), 10).await.unwrap() }
    });
    let runs = join_all(starts).await;
    for number in 0..10 {
        publish(&runtime, if number % 2 == 0 { "even" } else { "odd" }, number).await;
    }
    for run in runs {
        assert_eq!(run.result().await.unwrap(), [5, 6, 7, 8, 9]);
    }
}

#[tokio::test]
async fn runs_whose_partitions_move_take_each_record_once() {
    let journal = memory();
    let open = |claimed: Option<Vec<Partition>>| {
        let builder = Runtime::volatile().journal(Arc::clone(&journal) as Arc<dyn Journal>);
        taking(builder)
            .configure(|config| config.claimed_at_open = claimed)
            .start()
    };
    let runtimes = [open(None).await.unwrap(), open(Some(Vec::new())).await.unwrap()];
    let all_partitions: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let owner_of = |error: &RunError, owner: usize| match error {
        RunError::Moved { .. } | RunError::NotFound => 1 - owner,
        other => panic!("{other:?}"),
    };
    let runs = (0..8_u64).map(|number| {
        let runtimes = runtimes.clone();
        async move {
            let key = format!("m-{number}");
            let mut owner = 0;
            loop {
                let started = runtimes[owner].start(TAKE, &key, (key.clone(), 12)).await;
                match started {
                    Ok(_) => break,
                    Err(error) if error.is_retryable() => owner = 1 - owner,
                    // It was started by an attempt whose answer was lost.
                    Err(_) => break,
                }
            }
            let topics = runtimes
                .each_ref()
                .map(|runtime| runtime.durable_topic(NUMBERS).unwrap());
            for value in 0..12 {
                let id = format!("{key}/{value}");
                loop {
                    match topics[owner].publish(&value).key(&key).id(&id).await {
                        Ok(_) => break,
                        Err(DurablePublishError::Moved { .. }) => owner = 1 - owner,
                        Err(error) => panic!("{error:?}"),
                    }
                }
                tokio::task::yield_now().await;
            }
            loop {
                match runtimes[owner].attach(TAKE, &key).unwrap().result().await {
                    Ok(taken) => return assert_eq!(taken, (0..12).collect::<Vec<_>>(), "{key}"),
                    Err(ResultError::Run(error)) => owner = owner_of(&error, owner),
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
    });
    let mut taker = 1;
    let moves = async {
        loop {
            runtimes[taker].partitions().take(&all_partitions).await.unwrap();
            taker = 1 - taker;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::select! {
        _ = join_all(runs) => {}
        () = moves => unreachable!(),
    }
}

/// One life of `steps` steps that ends with a crash, and another one that ends well. True if the first one had nothing left
/// to do.
fn play(seed: u64, steps: u64) -> bool {
    const RUNS: u64 = 3;
    const LEN: u64 = 4;
    let store = Store::new();
    let open = |sim: &SimHost| {
        taking(Runtime::open(store.path()).host(sim.host())).configure(|config| {
            config.hot_len_max = 1;
        })
    };
    async fn all(runtime: &Runtime) {
        let topic = runtime.durable_topic(NUMBERS).unwrap();
        let len = usize::try_from(LEN).unwrap();
        for run in 0..RUNS {
            let key = format!("run-{run}");
            drop(runtime.start(TAKE, &key, (key.clone(), len)).await.unwrap());
        }
        for number in 0..LEN {
            for run in 0..RUNS {
                let (key, id) = (format!("run-{run}"), format!("{run}/{number}"));
                topic.publish(&number).key(&key).id(&id).await.unwrap();
            }
        }
        for run in 0..RUNS {
            let handle = runtime.attach(TAKE, &format!("run-{run}")).unwrap();
            assert_eq!(
                handle.result().await.unwrap(),
                (0..LEN).collect::<Vec<_>>(),
                "run {run}"
            );
        }
    }
    let sim = SimHost::new(SimConfig::seeded(seed));
    let builder = open(&sim);
    let is_done = cut_off(&sim, steps, async move {
        let runtime = builder.start().await.unwrap();
        all(&runtime).await;
    });
    let sim = SimHost::new(SimConfig::seeded(seed + 1));
    let again = async {
        let runtime = open(&sim).start().await.unwrap();
        all(&runtime).await;
        runtime.shutdown().await.unwrap();
    };
    sim.block_on(again).unwrap();
    is_done
}

#[test]
fn a_crash_at_any_step_leaves_each_run_with_each_of_its_records_once() {
    for seed in 1..=2 {
        let mut steps = seed;
        while !play(seed * 1_000, steps) {
            steps += 7;
        }
        assert!(steps > 50, "a play has {steps} steps");
    }
}
