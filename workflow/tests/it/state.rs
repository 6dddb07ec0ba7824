//! The state that others look at: conditions, queries, updates.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrun_workflow::{
    ANSWERS_CARRIED_BYTES_MAX, ANSWERS_LEN_MAX, CancelScope, Command, Event, Implementation, Input,
    InputRefused, Limits, ParkReason, Payload, Query, Signal, State, Unanswered, Update, Workflow,
    WorkflowContext, WorkflowError,
};
use serde::Serialize;

use crate::world::World;

const SHOP: Workflow<usize, Vec<String>> = Workflow::named("shop");
const LEN: Query<Vec<String>, (), usize> = Query::named("len");
const ITEM: Query<Vec<String>, usize, Option<String>> = Query::named("item");
const ADD: Update<Vec<String>, String, usize> = Update::named("add");
const OTHER: Update<u64, u64, u64> = Update::named("of another state");
const GO: Signal<String> = Signal::named("go");

async fn shop(cx: WorkflowContext, full: usize) -> Result<Vec<String>, WorkflowError> {
    let items: State<Vec<String>> = cx.state(Vec::new());
    items.until(move |items| items.len() >= full).await?;
    Ok(items.read(Vec::clone))
}

fn shop_with<F>(change: F) -> Implementation
where
    F: Fn(&mut Vec<String>, String) -> usize + Send + Sync + 'static,
{
    SHOP.query(LEN, |items, ()| items.len())
        .query(ITEM, |items, index| items.get(index).cloned())
        .update(ADD)
        .validate(|items, item| {
            assert_ne!(item, "panic");
            if items.contains(item) {
                return Err(WorkflowError::failed("there already"));
            }
            Ok(())
        })
        .change(change)
        .update(OTHER)
        .change(|_, value| value)
        .bind(shop)
}

fn code() -> Implementation {
    shop_with(|items, item| {
        items.push(item);
        items.len()
    })
}

fn update(request: &str, name: &'static str, input: &impl Serialize) -> Input {
    Input::Update {
        request: request.into(),
        name: name.into(),
        input: Payload::encode(input).unwrap(),
    }
}

fn add(world: &mut World, request: &str, item: &str) -> Result<(), InputRefused> {
    world.apply(update(request, ADD.name(), &item))
}

fn ask<A: serde::de::DeserializeOwned>(world: &World, name: &str, question: &impl Serialize) -> A {
    let question = Payload::encode(question).unwrap();
    world.instance.query(name, &question).unwrap().decode().unwrap()
}

/// An update is code of the run: what it cancels is cancelled in every replay.
#[test]
fn an_update_may_cancel_a_scope_that_the_state_holds() {
    const STOP: Update<CancelScope, (), ()> = Update::named("stop");
    const TICK: Signal<u64> = Signal::named("tick");
    let stoppable = async |cx: WorkflowContext, pauses: usize| {
        let scope = cx.scope();
        let _state = cx.state(scope.clone());
        let mut told = Vec::new();
        for _ in 0..pauses {
            let tick = cx.receive(TICK).await?;
            let slept = scope.context().sleep(Duration::from_secs(1)).await;
            told.push(format!("{tick} {}", slept.is_err()));
        }
        Ok::<_, WorkflowError>(told)
    };
    let code = SHOP
        .update(STOP)
        .change(|scope, ()| scope.cancel())
        .bind(stoppable);
    let mut world = World::start(code, &3);
    world.signal(TICK, &1);
    assert!(world.fire_next());
    world.apply(update("1", STOP.name(), &())).unwrap();
    world.signal(TICK, &2);
    world.signal(TICK, &3);
    assert_eq!(world.parked(), None);
    assert_eq!(world.result::<Vec<String>>(), ["1 false", "2 true", "3 true"]);
}

#[test]
fn updates_change_the_state_and_queries_show_it() {
    let mut world = World::start(code(), &3);
    for (request, item) in [("1", "bread"), ("2", "milk")] {
        add(&mut world, request, item).unwrap();
    }
    assert_eq!(ask::<usize>(&world, "len", &()), 2);
    world.reload();
    assert_eq!(ask::<Option<String>>(&world, "item", &1), Some("milk".into()));
    assert_eq!(ask::<Option<String>>(&world, "item", &2), None);
    add(&mut world, "3", "eggs").unwrap();
    assert_eq!(
        world.labels()[4..],
        ["UpdateAccepted", "UpdateAnswered", "Completed"]
    );
    assert_eq!(world.result::<Vec<String>>(), ["bread", "milk", "eggs"]);
}

#[test]
fn a_run_that_has_ended_still_answers() {
    let mut world = World::start(code(), &1);
    add(&mut world, "1", "bread").unwrap();
    for _ in 0..2 {
        assert_eq!(ask::<usize>(&world, "len", &()), 1);
        let again = add(&mut world, "1", "bread").unwrap_err();
        assert!(
            matches!(again, InputRefused::Answered { answer: Ok(_) }),
            "{again}"
        );
        assert_eq!(add(&mut world, "2", "milk"), Err(InputRefused::Closed));
        world.reload();
    }
}

#[test]
fn a_change_from_another_thread_parks_the_run() {
    let stolen = Arc::new(std::sync::Mutex::new(None));
    let handed = Arc::clone(&stolen);
    let code = Implementation::new(SHOP, move |cx: WorkflowContext, full: usize| {
        let handed = Arc::clone(&handed);
        async move {
            let items: State<Vec<String>> = cx.state(Vec::new());
            *handed.lock().unwrap() = Some(items.clone());
            items.until(move |items| items.len() >= full).await?;
            Ok::<_, WorkflowError>(items.read(Vec::clone))
        }
    });
    let mut world = World::start(code, &1).fickle();
    let items = stolen.lock().unwrap().take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| items.change(|items| items.push("smuggled".into())));
    });
    world.signal(GO, &"anything".into());
    assert!(
        matches!(world.parked(), Some(ParkReason::Stuck { message }) if message.contains("from outside"))
    );
    world.reload();
    assert_eq!(world.labels(), ["Parked", "SignalReceived"]);
}

#[test]
fn an_update_asked_for_twice_is_performed_once_and_answered_alike() {
    let mut world = World::start(code(), &9);
    add(&mut world, "same", "bread").unwrap();
    let answer = Ok(Payload::encode(&1).unwrap());
    let again = |world: &mut World| add(world, "same", "bread");
    assert_eq!(
        again(&mut world),
        Err(InputRefused::Answered {
            answer: answer.clone()
        })
    );
    world.reopen();
    assert_eq!(
        again(&mut world),
        Err(InputRefused::Answered {
            answer: answer.clone()
        })
    );
    assert_eq!(ask::<usize>(&world, "len", &()), 1);
    assert!(
        matches!(&world.history()[2].0, Event::UpdateAnswered { answer: recorded, .. } if *recorded == answer)
    );
}

/// Takes items of this size as they come, and goes on in another run at each signal.
async fn endless(cx: WorkflowContext, first: usize) -> Result<Vec<String>, WorkflowError> {
    let items: State<Vec<String>> = cx.state(vec![String::new(); first]);
    cx.receive(GO).await?;
    let len = items.read(Vec::len);
    Ok(cx.continue_as_new(SHOP, len).await?)
}

/// The run in which this one goes on.
fn continued(world: &World, code: Implementation) -> World {
    let Some(Command::ContinueAsNew { started, .. }) = world.commands.last() else {
        panic!("{:?}", world.commands);
    };
    World::start_as(Some(code), (**started).clone(), world.limits, world.moment)
}

#[test]
fn an_update_asked_for_again_of_the_run_that_goes_on_has_its_answer() {
    let code = || {
        let add = |items: &mut Vec<String>, item| {
            items.push(item);
            items.len()
        };
        SHOP.query(LEN, |items, ()| items.len())
            .update(ADD)
            .change(add)
            .bind(endless)
    };
    let mut world = World::start(code(), &0);
    add(&mut world, "1", "bread").unwrap();
    for run in 2..5 {
        world.signal(GO, &"on".into());
        world = continued(&world, code());
        for request in 1..run {
            let again = add(&mut world, &request.to_string(), "bread").unwrap_err();
            let answer = Ok(Payload::encode(&request).unwrap());
            assert_eq!(again, InputRefused::Answered { answer });
        }
        add(&mut world, &run.to_string(), "more").unwrap();
        assert_eq!(ask::<usize>(&world, "len", &()), run);
        world.reopen();
    }
}

#[test]
fn of_the_answers_the_latest_that_fit_go_with_the_run_that_goes_on() {
    const ECHO: Update<Vec<String>, String, String> = Update::named("echo");
    let code = || SHOP.update(ECHO).change(|_, item| item).bind(endless);
    let echo = |request: usize| update(&request.to_string(), ECHO.name(), &"x".repeat(1_000));
    // Half a payload is less than what may be carried otherwise.
    for (payload_bytes_max, bytes_max) in [(1 << 20, ANSWERS_CARRIED_BYTES_MAX), (20_000, 10_000)] {
        let mut limits = Limits::default();
        limits.payload_bytes_max = payload_bytes_max;
        let mut world = World::start_with(Some(code()), &0, limits);
        for request in 0..100 {
            world.apply(echo(request)).unwrap();
        }
        world.signal(GO, &"on".into());
        let world = continued(&world, code());
        let known = (0..100).map(|request| world.instance.ledger().update(&request.to_string()).is_some());
        let known: Vec<_> = known.collect();
        let forgotten = known.iter().position(|is_known| *is_known).unwrap();
        assert!(known[forgotten..].iter().all(|is_known| *is_known));
        let carried = (100 - forgotten) * 1_000;
        assert!(
            (bytes_max * 9 / 10..bytes_max).contains(&carried),
            "{carried} bytes of answers of {bytes_max}"
        );
    }
}

#[test]
fn the_memory_of_answers_counts_as_the_run_s_and_no_more_than_are_remembered() {
    const ECHO: Update<Vec<String>, String, String> = Update::named("echo");
    let code = SHOP.update(ECHO).change(|_, item| item).bind(endless);
    let mut world = World::start(code, &0);
    let echo = |request: usize| update(&request.to_string(), ECHO.name(), &"x".repeat(1_000));
    let mut bytes = vec![world.instance.memory_bytes()];
    for requests in [0..1_000, 1_000..2_000] {
        for request in requests {
            world.apply(echo(request)).unwrap();
        }
        bytes.push(world.instance.memory_bytes());
    }
    assert!(bytes[1] > bytes[0] + ANSWERS_LEN_MAX * 1_000, "{bytes:?}");
    assert!(bytes[2].abs_diff(bytes[1]) < ANSWERS_LEN_MAX * 10, "{bytes:?}");
}

#[test]
fn what_the_validator_rejects_leaves_no_trace() {
    let mut world = World::start(code(), &9);
    add(&mut world, "1", "bread").unwrap();
    let refusals = [
        (
            update("2", "add", &"bread"),
            "the update was rejected: there already",
        ),
        (
            update("3", "add", &7),
            "the update \"add\" takes a value of the type alloc::string::String: the bytes do not decode to the expected type: invalid type: integer `7`, expected a string",
        ),
        (
            update("4", "remove", &"bread"),
            "the workflow has no update named \"remove\"",
        ),
        (
            update("5", OTHER.name(), &1),
            "the run has no state of the update's type",
        ),
        (
            update("", "add", &"x"),
            "a name has 1 to 255 bytes, this one has 0",
        ),
    ];
    for (input, message) in refusals {
        assert_eq!(world.apply(input).unwrap_err().to_string(), message);
    }
    let panicked = add(&mut world, "6", "panic").unwrap_err();
    assert!(
        matches!(panicked, InputRefused::ValidatorPanicked(_)),
        "{panicked}"
    );
    assert_eq!(world.history().len(), 3);
    world.check_replays();
}

#[test]
fn queries_that_cannot_be_answered_say_why() {
    let world = World::start(code(), &9);
    let unit = Payload::encode(&()).unwrap();
    let unknown = Unanswered::Unknown { name: "size".into() };
    assert_eq!(world.instance.query("size", &unit), Err(unknown));
    assert!(matches!(
        world.instance.query("item", &unit),
        Err(Unanswered::WrongType(_))
    ));
    let stateless = SHOP;
    let stateless = stateless.query(LEN, |items, ()| items.len());
    let world = World::start(
        stateless
            .bind(async |cx: WorkflowContext, _: usize| Ok::<_, WorkflowError>(vec![cx.receive(GO).await?])),
        &9,
    );
    assert_eq!(world.instance.query("len", &unit), Err(Unanswered::NoState));
}

#[test]
fn a_change_by_the_code_itself_wakes_whoever_waits_for_it() {
    let code = Implementation::new(SHOP, async |cx: WorkflowContext, len: usize| {
        let items: State<Vec<String>> = cx.state(Vec::new());
        let fill = async {
            for _ in 0..len {
                let item = cx.receive(GO).await?;
                items.change(|items| items.push(item));
            }
            Ok::<_, WorkflowError>(())
        };
        let half = items.until(move |items| items.len() >= len / 2);
        let full = items.until(move |items| items.len() >= len);
        let (filled, (half, full)) = cx.join(fill, cx.join(half, full)).await;
        filled?;
        half?;
        full?;
        Ok::<_, WorkflowError>(items.read(Vec::clone))
    });
    let mut world = World::start(code, &4);
    (0..4).for_each(|index| world.signal(GO, &format!("{index}")));
    assert_eq!(world.result::<Vec<String>>(), ["0", "1", "2", "3"]);
}

#[test]
fn a_wait_for_a_condition_ends_when_the_run_is_asked_to_cancel() {
    let mut world = World::start(code(), &9);
    world.cancel();
    assert_eq!(world.labels(), ["CancelRequested", "Cancelled"]);
    world.check_replays();
}

#[test]
fn an_update_whose_change_panics_is_performed_when_the_code_is_mended() {
    let panics = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&panics);
    let code = shop_with(move |items, item| {
        assert!(!switch.load(Ordering::Relaxed), "cannot");
        items.push(item);
        items.len()
    });
    let mut world = World::start(code, &2).fickle();
    add(&mut world, "1", "bread").unwrap();
    assert_eq!(world.labels(), ["Parked", "UpdateAccepted"]);
    assert!(matches!(world.parked(), Some(ParkReason::Panicked { .. })));
    // Asked again it waits with the first; others must wait until the code runs.
    assert_eq!(add(&mut world, "1", "bread"), Ok(()));
    assert!(matches!(
        add(&mut world, "2", "milk"),
        Err(InputRefused::StillParked(_))
    ));
    assert!(matches!(
        world.instance.query("len", &Payload::encode(&()).unwrap()),
        Err(Unanswered::Parked(_))
    ));

    panics.store(false, Ordering::Relaxed);
    world.reload();
    world.apply(Input::Resume).unwrap();
    assert_eq!(
        world.labels(),
        ["Parked", "UpdateAccepted", "Resumed", "UpdateAnswered"]
    );
    add(&mut world, "2", "milk").unwrap();
    assert_eq!(world.labels().last(), Some(&"Completed"));
}

#[test]
fn only_the_latest_answers_are_remembered() {
    let code = shop_with(|items, item| {
        *items = vec![item];
        1
    });
    let mut world = World::start(code, &9);
    for number in 0..=ANSWERS_LEN_MAX {
        add(&mut world, &number.to_string(), &number.to_string()).unwrap();
    }
    let ledger = world.instance.ledger();
    assert!(ledger.update("0").is_none());
    assert!(ledger.update("1").is_some() && ledger.update(&ANSWERS_LEN_MAX.to_string()).is_some());
}

#[test]
fn a_second_state_is_refused_loudly() {
    let code = Implementation::new(SHOP, async |cx: WorkflowContext, _: usize| {
        let one: State<Vec<String>> = cx.state(Vec::new());
        let _other = cx.state(0_u64);
        Ok::<_, WorkflowError>(one.read(Vec::clone))
    });
    let world = World::start(code, &0);
    assert!(
        matches!(world.parked(), Some(ParkReason::Panicked { message, .. }) if message.contains("one state"))
    );
}

#[test]
fn a_state_used_from_inside_itself_panics_and_does_not_hang() {
    let code = Implementation::new(SHOP, async |cx: WorkflowContext, _: usize| {
        let items: State<Vec<String>> = cx.state(Vec::new());
        let inner = items.clone();
        items.change(|_| inner.read(Vec::len));
        Ok::<_, WorkflowError>(Vec::new())
    });
    let world = World::start(code, &0);
    assert!(
        matches!(world.parked(), Some(ParkReason::Panicked { message, .. }) if message.contains("inside its own"))
    );
}
