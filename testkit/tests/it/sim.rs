//! A seeded world: what it runs, in which order, and how it ends.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun_core::{Bell, Host, Next, OnExit, Part, PartExit, PartHandle, Placement, Timestamp};
use millrun_testkit::{Action, SimConfig, SimHost, SimStop, Trace};

/// A part made of a closure.
struct Closure<F>(F);

impl<F: FnMut(Timestamp, usize) -> Next + Send + 'static> Part for Closure<F> {
    fn turn(&mut self, now: Timestamp, budget: usize) -> Next {
        (self.0)(now, budget)
    }
}

fn start(
    host: &Arc<dyn Host>,
    name: &str,
    bell: &Bell,
    on_exit: OnExit,
    turn: impl FnMut(Timestamp, usize) -> Next + Send + 'static,
) -> PartHandle {
    host.spawn_part(
        name,
        Placement::Actor,
        bell.clone(),
        Box::new(Closure(turn)),
        on_exit,
    )
    .expect("its life is not over")
}

fn ignore_exit() -> OnExit {
    Box::new(drop)
}

fn world(seed: u64) -> SimHost {
    SimHost::new(SimConfig::seeded(seed))
}

/// Eight parts that pass a token around by each other's bells, one that asks for times, and tasks
/// that sleep for random times: enough for the order to matter.
fn play(config: SimConfig) -> Trace {
    let world = SimHost::new(config);
    let host = world.host();
    let bells: Vec<Bell> = (0..8).map(|_| Bell::new()).collect();
    for (index, bell) in bells.iter().enumerate() {
        let neighbours = [bells[(index + 1) % 8].clone(), bells[(index + 3) % 8].clone()];
        let mut turns = 0;
        start(&host, "part", bell, ignore_exit(), move |_, _| {
            turns += 1;
            neighbours[turns % 2].ring();
            if turns < 50 { Next::Idle } else { Next::Stop }
        });
    }
    let mut turns = 0;
    start(&host, "clock", &Bell::new(), ignore_exit(), move |now, _| {
        turns += 1;
        if turns < 10 {
            Next::At(now + Duration::from_millis(7))
        } else {
            Next::Stop
        }
    });
    for _ in 0..8 {
        let task_host = Arc::clone(&host);
        host.spawn(
            "sleeper",
            Box::pin(async move {
                for _ in 0..5 {
                    let micros = task_host.random() % 20_000;
                    task_host
                        .sleep_until(task_host.now() + Duration::from_micros(micros))
                        .await;
                }
            }),
        );
    }
    assert_eq!(world.run_until_idle(), SimStop::Idle, "seed {}", world.seed());
    world.trace()
}

#[test]
fn the_same_seed_gives_the_same_steps() {
    for seed in 0..20 {
        let mut config = SimConfig::seeded(seed);
        config.step_time_max = Duration::from_micros(seed * 10);
        let (first, second) = (play(config.clone()), play(config));
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(first.to_string(), second.to_string(), "seed {seed}");
    }
}

#[test]
fn another_seed_gives_another_order() {
    let digests: std::collections::HashSet<u64> = (0..20)
        .map(|seed| play(SimConfig::seeded(seed)).digest())
        .collect();
    assert_eq!(digests.len(), 20);
}

#[test]
fn traces_differ_also_in_steps_that_are_no_longer_kept() {
    let forgetful = |seed| {
        let mut config = SimConfig::seeded(seed);
        config.trace_len_max = 0;
        play(config)
    };
    assert_eq!(forgetful(1).latest().len(), 0);
    assert_eq!(forgetful(1), forgetful(1));
    assert_ne!(forgetful(1), forgetful(2));
}

#[test]
fn a_part_has_a_turn_at_once_and_one_more_for_each_ring() {
    let world = world(1);
    let turns = Arc::new(AtomicUsize::new(0));
    let bell = Bell::new();
    let counted = Arc::clone(&turns);
    start(&world.host(), "part", &bell, ignore_exit(), move |_, budget| {
        assert!((1..=64).contains(&budget));
        counted.fetch_add(1, Ordering::Relaxed);
        Next::Idle
    });
    for expected in 1..4 {
        assert_eq!(world.run_ready(), SimStop::Idle);
        assert_eq!(turns.load(Ordering::Relaxed), expected);
        bell.ring();
        bell.ring();
    }
}

#[test]
fn the_clock_stands_still_until_nothing_is_ready_then_jumps() {
    let world = world(2);
    let host = world.host();
    let begin = host.now();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&seen);
    let mut left = 3;
    start(&host, "daily", &Bell::new(), ignore_exit(), move |now, _| {
        times.lock().unwrap().push(now);
        left -= 1;
        if left == 0 {
            Next::Stop
        } else {
            Next::At(now + Duration::from_secs(86_400))
        }
    });
    assert_eq!(world.run_ready(), SimStop::Idle);
    assert_eq!(world.now(), begin);
    assert_eq!(world.advance(Duration::from_secs(86_399)), SimStop::Reached);
    assert_eq!(seen.lock().unwrap().len(), 1);
    assert_eq!(world.run_until_idle(), SimStop::Idle);
    let day = |days: u64| begin + Duration::from_secs(86_400 * days);
    assert_eq!(*seen.lock().unwrap(), [begin, day(1), day(2)]);
    assert_eq!(host.elapsed(), Duration::from_secs(2 * 86_400));
}

#[test]
fn a_panic_in_a_turn_is_reported_once_and_ends_only_that_part() {
    let world = world(3);
    let exits = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&exits);
    let on_exit: OnExit = Box::new(move |exit| reported.lock().unwrap().push(exit));
    start(&world.host(), "other", &Bell::new(), ignore_exit(), |_, _| {
        Next::Idle
    });
    start(&world.host(), "breaks", &Bell::new(), on_exit, |_, _| {
        panic!("order {} is broken", 42)
    });
    assert_eq!(world.run_until_idle(), SimStop::Idle);
    assert_eq!(
        *exits.lock().unwrap(),
        [PartExit::Panicked("order 42 is broken".to_owned())]
    );
    assert_eq!(world.running().len(), 1);
}

#[test]
fn a_stopped_part_and_an_aborted_task_get_no_further_step() {
    let world = world(4);
    let host = world.host();
    let exits = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&exits);
    let on_exit: OnExit = Box::new(move |exit| reported.lock().unwrap().push(exit));
    let part = start(&host, "part", &Bell::new(), on_exit, |_, _| {
        panic!("was stopped before its first turn")
    });
    let task = host.spawn(
        "task",
        Box::pin(async { panic!("was aborted before its first poll") }),
    );
    part.stop();
    task.abort();
    assert_eq!(world.run_until_idle(), SimStop::Idle);
    assert_eq!(*exits.lock().unwrap(), [PartExit::Stopped]);
    assert!(world.running().is_empty());
    assert_eq!(world.trace().count(), 2);
}

#[test]
fn a_crash_ends_everything_at_once_and_a_new_life_begins() {
    let world = world(5);
    let former = world.host();
    let steps = Arc::new(AtomicUsize::new(0));
    let bell = Bell::new();
    let counted = Arc::clone(&steps);
    let on_exit: OnExit = Box::new(|_| panic!("a crash reports nothing"));
    let part = start(&former, "part", &bell, on_exit, move |now, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Next::At(now + Duration::from_secs(1))
    });
    let counted = Arc::clone(&steps);
    let held = Arc::clone(&former);
    former.spawn(
        "task",
        Box::pin(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                held.sleep_until(held.now() + Duration::from_secs(1)).await;
            }
        }),
    );
    assert_eq!(world.advance(Duration::from_secs(10)), SimStop::Reached);
    let before = steps.load(Ordering::Relaxed);
    assert_eq!(before, 22);

    world.crash();
    part.stop();
    bell.ring();
    former.spawn("late", Box::pin(async { panic!("started by a dead host") }));
    let refused = former.spawn_part(
        "late",
        Placement::Thread,
        Bell::new(),
        Box::new(Closure(|_, _| Next::Stop)),
        ignore_exit(),
    );
    assert_eq!(refused.unwrap_err().cause, "the world has crashed");
    assert_eq!(world.run_until_idle(), SimStop::Idle);
    assert_eq!(steps.load(Ordering::Relaxed), before);
    assert_eq!(
        Arc::strong_count(&steps),
        1,
        "everything of the former life was dropped"
    );

    let turns = Arc::clone(&steps);
    start(&world.host(), "part", &bell, ignore_exit(), move |_, _| {
        turns.fetch_add(1, Ordering::Relaxed);
        Next::Idle
    });
    assert_eq!(world.run_until_idle(), SimStop::Idle);
    assert_eq!(steps.load(Ordering::Relaxed), before + 1);
}

#[test]
fn a_crash_from_within_a_turn_ends_that_part_with_its_turn() {
    let world = world(6);
    let host = world.host();
    let turns = Arc::new(AtomicUsize::new(0));
    let on_exit: OnExit = Box::new(|_| panic!("a crash reports nothing"));
    let (crash, counted) = (world.crasher(), Arc::clone(&turns));
    start(&host, "part", &Bell::new(), on_exit, move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        crash();
        Next::Again
    });
    assert_eq!(world.run_until_idle(), SimStop::Idle);
    assert_eq!(turns.load(Ordering::Relaxed), 1);
    assert_eq!(Arc::strong_count(&turns), 1, "the part was dropped");
}

#[test]
fn a_test_survives_the_crash_of_its_world() {
    let world = world(11);
    start(&world.host(), "part", &Bell::new(), ignore_exit(), |now, _| {
        Next::At(now + Duration::from_secs(1))
    });
    let names = world.block_on(async {
        world.crash();
        let begin = world.now();
        world.host().sleep_until(begin + Duration::from_secs(1)).await;
        world.running()
    });
    assert_eq!(names.unwrap(), [Arc::from("block_on")]);
    assert_eq!(world.trace().latest().last().unwrap().action, Action::Finished);
}

#[test]
fn a_future_that_never_completes_names_the_seed() {
    let world = world(7);
    let stuck = world.block_on(pending::<()>()).unwrap_err();
    assert_eq!(stuck.outcome, SimStop::Idle);
    assert_eq!(
        stuck.to_string(),
        "with seed 7 the future does not complete: nothing is left to run; it ended with\n       \
         0.000000 block_on#1 poll → pending\n"
    );
}

#[test]
fn a_world_that_is_never_idle_ends_at_its_limit() {
    let mut config = SimConfig::seeded(8);
    config.steps_max = 100;
    let world = SimHost::new(config);
    start(&world.host(), "restless", &Bell::new(), ignore_exit(), |_, _| {
        Next::Again
    });
    assert_eq!(world.run_until_idle(), SimStop::StepsSpent);
    assert_eq!(world.trace().count(), 100);
    assert_eq!(
        world.block_on(pending::<()>()).unwrap_err().outcome,
        SimStop::StepsSpent
    );
}

#[test]
fn time_passes_during_steps_if_it_is_told_to() {
    let mut config = SimConfig::seeded(9);
    config.step_time_max = Duration::from_micros(50);
    let world = SimHost::new(config);
    let host = world.host();
    let begin = host.now();
    let mut turns = 0;
    start(&host, "part", &Bell::new(), ignore_exit(), move |_, _| {
        turns += 1;
        if turns < 1_000 { Next::Again } else { Next::Stop }
    });
    assert_eq!(world.run_until_idle(), SimStop::Idle);
    let passed = world.now().saturating_since(begin);
    assert!(
        passed > Duration::from_millis(10) && passed <= Duration::from_millis(50),
        "{passed:?}"
    );
}

#[test]
fn an_earlier_ring_replaces_a_deadline() {
    let world = world(10);
    let bell = Bell::new();
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    start(
        &world.host(),
        "part",
        &bell,
        ignore_exit(),
        move |now, _| match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Next::At(now + Duration::from_secs(1)),
            _ => Next::Idle,
        },
    );
    assert_eq!(world.run_ready(), SimStop::Idle);
    bell.ring();
    assert_eq!(world.run_until_idle(), SimStop::Idle);
    assert_eq!(
        turns.load(Ordering::Relaxed),
        2,
        "the deadline was forgotten with the turn before it"
    );
}
