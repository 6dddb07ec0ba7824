//! Runs that are reset: another begins with a part of their history, and goes on from there.

use std::time::Duration;

use millrun_core::Sequence;
use millrun_workflow::{
    Activity, Command, Event, Implementation, Input, InputRefused, Outcome, ParkReason, Payload, ResetPoint,
    ResetRefused, Signal, Update, Workflow, WorkflowContext, WorkflowError,
};

use crate::world::World;

const STEP: Activity<u64, u64> = Activity::named("step");
const OTHER: Activity<u64, u64> = Activity::named("other");
const GO: Signal<u64> = Signal::named("go");
const ADD: Update<u64, u64, u64, WorkflowError> = Update::named("add");
const FLOW: Workflow<u64, String> = Workflow::named("flow");

/// One step, two at once, a pause, a signal. The events are numbered in the test below.
async fn flow(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let (name, run) = (cx.uuid(), cx.run_id());
    let first = cx.call(STEP, number).await?;
    let (left, right) = cx.join(cx.call(STEP, first), cx.call(STEP, first + 1)).await;
    cx.sleep(Duration::from_secs(10)).await?;
    let told = cx.receive(GO).await?;
    let last = cx.uuid();
    Ok(format!("{name} {run} {first} {} {} {told} {last}", left?, right?))
}

pub(crate) fn code() -> Implementation {
    Implementation::new(FLOW, flow)
}

/// A run that has a part of another's history, and is reset itself.
pub(crate) fn recorded() -> World {
    let mut world = ended().reset(&code(), &ResetPoint::to_event(3)).unwrap();
    world.complete(2, &7_u64);
    let (run, to) = (world.instance.run(), Sequence::new(4));
    let reason = "it was wrong again".into();
    world.apply(Input::Reset { run, to, reason }).unwrap();
    world
}

/// Does what the run waits for: each step gives its input and what is added.
fn go_on(world: &mut World, added: u64) {
    loop {
        let next = world.activities.iter().next();
        if let Some((operation, (scheduled, _))) = next {
            let (operation, input) = (operation.get(), scheduled.input.decode::<u64>().unwrap());
            world.complete(operation, &(input + added));
        } else if !world.fire_next() {
            break;
        }
    }
    if world.instance.ledger().outcome().is_none() {
        world.signal(GO, &7);
    }
}

fn ended() -> World {
    let mut world = World::start(code(), &1_u64);
    go_on(&mut world, 100);
    let labels = [
        "ActivityScheduled",
        "ActivityCompleted",
        "ActivityScheduled",
        "ActivityScheduled",
        "ActivityCompleted",
        "ActivityCompleted",
        "TimerStarted",
        "TimerFired",
        "SignalReceived",
        "Completed",
    ];
    assert_eq!(world.labels(), labels, "events 2 to 11");
    world
}

fn words(world: &World) -> Vec<String> {
    let result: String = world.result();
    result.split(' ').map(str::to_owned).collect()
}

/// What stands before the point is what it was; what comes behind it is done again.
#[test]
fn a_run_goes_on_from_each_event_of_another_or_is_told_why_not() {
    let former = ended();
    let before = words(&former);
    for to in 0..=12 {
        let reset = former.reset(&code(), &ResetPoint::to_event(to));
        let to = Sequence::new(to);
        let mut world = match (to.get(), reset) {
            (0 | 12, Err(refused)) => {
                let head = Sequence::new(11);
                assert_eq!(refused, ResetRefused::NoEvent { to, head });
                continue;
            }
            (4, Err(refused)) => {
                let (input, last) = (Sequence::new(3), Some(Sequence::new(5)));
                assert_eq!(refused, ResetRefused::AmongDecisions { to, input, last });
                continue;
            }
            (11, Err(refused)) => {
                assert_eq!(refused, ResetRefused::End { to });
                continue;
            }
            (_, reset) => reset.unwrap(),
        };
        world.check_replays();
        go_on(&mut world, 200);
        let after = words(&world);
        let origin = world.instance.ledger().started().unwrap().origin.clone().unwrap();
        assert_eq!(
            origin.continued.map(|run| run.to_string()),
            Some(before[1].clone())
        );
        // The name and the run are drawn in the first turn, the first step is done with event 3, the others with 6 and 7,
        // and the signal has come with event 10.
        let is_kept = |event: u64| to.get() >= event;
        assert_eq!(after[0] == before[0], is_kept(2), "to {to}");
        assert_eq!(after[1] == before[1], is_kept(2), "to {to}");
        let first = if is_kept(3) { 101 } else { 201 };
        let left = first + if is_kept(6) { 100 } else { 200 };
        let right = first + 1 + if is_kept(7) { 100 } else { 200 };
        assert_eq!(
            after[2..6].join(" "),
            format!("{first} {left} {right} 7"),
            "to {to}"
        );
        assert_ne!(
            after[6], before[6],
            "to {to}: what is drawn behind the event is another's"
        );
    }
}

#[test]
fn an_event_that_is_shown_again_is_decided_by_the_code_of_today_and_counts_from_now() {
    async fn mended(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
        let _name = cx.uuid();
        let first = cx.call(STEP, number).await?;
        cx.sleep(Duration::from_secs(5)).await?;
        Ok(cx.call(OTHER, first).await?.to_string())
    }
    let (former, mended) = (ended(), Implementation::new(FLOW, mended));
    let refused = former.reset(&mended, &ResetPoint::to_event(5)).unwrap_err();
    let ResetRefused::DoesNotFit(difference) = &refused else {
        panic!("{refused}");
    };
    assert_eq!(difference.sequence, 4);
    let mut world = former.reset(&mended, &ResetPoint::to_event(3)).unwrap();
    let due = world.moment.now + Duration::from_secs(5);
    assert_eq!(world.timers.values().collect::<Vec<_>>(), [&due]);
    go_on(&mut world, 200);
    assert_eq!(world.result::<String>(), "301");
    assert_eq!(world.labels()[..2], former.labels()[..2]);
}

#[test]
fn what_is_outstanding_at_the_event_begins_again_and_what_ended_later_does_not_count() {
    let former = ended();
    let world = former.reset(&code(), &ResetPoint::to_event(6)).unwrap();
    let [
        Command::RunActivity {
            scheduled,
            attempt: 1,
            ..
        },
    ] = world.commands.as_slice()
    else {
        panic!("{:?}", world.commands);
    };
    assert_eq!(scheduled.operation.get(), 3);
    let world = former.reset(&code(), &ResetPoint::to_event(8)).unwrap();
    let Event::TimerStarted { deadline, .. } = &former.history()[7].0 else {
        panic!("{:?}", former.labels());
    };
    assert!(
        matches!(world.commands.as_slice(), [Command::StartTimer { deadline: at, .. }] if at == deadline)
    );
}

#[test]
fn a_run_is_reset_again_and_shown_each_run_whose_events_it_has() {
    let first = ended();
    let mut second = first.reset(&code(), &ResetPoint::to_event(3)).unwrap();
    go_on(&mut second, 200);
    let (before, between) = (words(&first), words(&second));
    for (to, formers_len) in [(2, 1), (3, 1), (7, 2), (10, 2)] {
        let mut third = second.reset(&code(), &ResetPoint::to_event(to)).unwrap();
        third.check_replays();
        let started = third.instance.ledger().started().unwrap();
        assert_eq!(started.reset_to(), Some(Sequence::new(to)));
        assert_eq!(
            started.origin.as_ref().unwrap().formers.len(),
            formers_len,
            "to {to}"
        );
        go_on(&mut third, 300);
        let after = words(&third);
        assert_eq!((&after[0], &after[1]), (&before[0], &before[1]), "to {to}");
        assert_ne!(after[6], between[6], "to {to}");
    }
}

#[test]
fn signals_and_updates_behind_the_event_are_told_again_if_they_are_kept() {
    async fn counting(cx: WorkflowContext, till: u64) -> Result<u64, WorkflowError> {
        let sum = cx.state(0_u64);
        cx.call(STEP, 1).await?;
        let added = cx.receive(GO).await?;
        sum.change(|sum| *sum += added);
        sum.until(move |sum| *sum >= till).await?;
        Ok(sum.read(|sum| *sum))
    }
    const COUNTING: Workflow<u64, u64> = Workflow::named("counting");
    let answering = COUNTING
        .update(ADD)
        .validate(|sum, added| match sum + added > 90 {
            true => Err(WorkflowError::failed("too much")),
            false => Ok(()),
        });
    let code = answering
        .change(|sum: &mut u64, added: u64| {
            *sum += added;
            *sum
        })
        .bind(counting);
    let add = |request: &str, added: u64| Input::Update {
        request: request.into(),
        name: ADD.name().into(),
        input: Payload::encode(&added).unwrap(),
    };
    let mut former = World::start(code.clone(), &100_u64);
    former.apply(add("a", 1)).unwrap();
    former.complete(1, &1_u64);
    former.apply(add("b", 2)).unwrap();
    former.signal_as("s", GO, &3).unwrap();
    former.apply(add("c", 80)).unwrap();
    let labels = [
        "ActivityScheduled",
        "UpdateAccepted",
        "UpdateAnswered",
        "ActivityCompleted",
        "UpdateAccepted",
    ];
    assert_eq!(former.labels()[..5], labels, "events 2 to 6");
    let answered = |world: &World| -> Vec<(String, u64)> {
        let answers = world.instance.ledger().answered_updates();
        let answers =
            answers.map(|(request, answer)| (request.to_owned(), answer.clone().unwrap().decode().unwrap()));
        answers.collect()
    };
    let told = |answers: &[(&str, u64)]| -> Vec<(String, u64)> {
        answers
            .iter()
            .map(|(request, sum)| ((*request).to_owned(), *sum))
            .collect()
    };
    let dropped = ResetPoint::to_event(2);
    let mut world = former.reset(&code, &dropped).unwrap();
    assert_eq!(answered(&world), []);
    // Nobody knows of the request: it is performed.
    world.apply(add("b", 5)).unwrap();
    world.signal_as("s", GO, &4).unwrap();
    assert_eq!(answered(&world), told(&[("b", 5)]));
    let mut world = former.reset(&code, &dropped.keep_signals()).unwrap();
    assert_eq!(answered(&world), told(&[("a", 1), ("b", 3), ("c", 83)]));
    world.check_replays();
    assert!(matches!(
        world.apply(add("b", 5)),
        Err(InputRefused::Answered { .. })
    ));
    let len = world.history().len();
    world.signal_as("s", GO, &4).unwrap();
    assert_eq!(world.history().len(), len, "it is known");
    world.complete(1, &1_u64);
    assert!(world.instance.ledger().outcome().is_none(), "the sum is 86");
    // What was answered before the event stays answered, whatever becomes of the rest.
    let world = former.reset(&code, &ResetPoint::to_event(5)).unwrap();
    assert_eq!(answered(&world), told(&[("a", 1)]));
    // With another rule the update is rejected, and left out.
    let strict = COUNTING.update(ADD).validate(|_, added| match *added > 50 {
        true => Err(WorkflowError::failed("too much at once")),
        false => Ok(()),
    });
    let strict = strict.change(|sum: &mut u64, added| {
        *sum += added;
        *sum
    });
    let strict = strict.bind(counting);
    let world = former
        .reset(&strict, &ResetPoint::to_event(2).keep_signals())
        .unwrap();
    assert_eq!(answered(&world), told(&[("a", 1), ("b", 3)]));
    // Without the code for it, it would be gone without a word.
    let bare = Implementation::new(COUNTING, counting);
    let point = ResetPoint::to_event(2).keep_signals();
    let refused = former.reset(&bare, &point).err();
    assert!(
        matches!(&refused, Some(ResetRefused::Update { name, .. }) if name == ADD.name()),
        "{refused:?}"
    );
}

#[test]
fn a_run_is_not_reset_to_where_it_rests_or_where_its_child_or_promise_is_the_formers() {
    async fn asking(cx: WorkflowContext, _: u64) -> Result<String, WorkflowError> {
        cx.child(FLOW, "child", 1).await?;
        let promise = cx.promise::<u64>();
        Ok(promise.await?.to_string())
    }
    const ASKING: Workflow<u64, String> = Workflow::named("asking");
    let code = Implementation::new(ASKING, asking);
    let mut former = World::start(code.clone(), &1_u64);
    let end = Ok(Payload::encode(&"done").unwrap());
    former
        .apply(Input::Pause {
            reason: "wait".into(),
        })
        .unwrap();
    former
        .apply(Input::ChildEnded {
            operation: World::operation(1),
            end,
        })
        .unwrap();
    former.apply(Input::Resume).unwrap();
    assert_eq!(
        former.labels(),
        ["ChildScheduled", "Parked", "ChildEnded", "Resumed", "PromiseMade"]
    );
    let reset = |number| former.reset(&code, &ResetPoint::to_event(number));
    let (child, call) = ("child".parse().unwrap(), Sequence::new(2));
    assert_eq!(
        reset(2).unwrap_err(),
        ResetRefused::ChildRuns {
            to: Sequence::new(2),
            child,
            call
        }
    );
    for number in [3, 4] {
        let (to, parked) = (Sequence::new(number), Sequence::new(3));
        assert_eq!(reset(number).unwrap_err(), ResetRefused::Parked { to, parked });
    }
    let world = reset(5).unwrap();
    assert_eq!(world.labels(), former.labels());
    let (to, made) = (Sequence::new(6), Sequence::new(6));
    assert_eq!(reset(6).unwrap_err(), ResetRefused::PromiseWaits { to, made });
    let mut world = reset(1).unwrap();
    world.check_replays();
    let end = Ok(Payload::encode(&"done").unwrap());
    world
        .apply(Input::ChildEnded {
            operation: World::operation(1),
            end,
        })
        .unwrap();
    assert_eq!(world.labels(), ["ChildScheduled", "ChildEnded", "PromiseMade"]);
}

#[test]
fn code_that_fails_behind_the_event_is_no_reason_to_begin() {
    async fn panicking(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
        let _name = cx.uuid();
        let first = cx.call(STEP, number).await?;
        panic!("{first} is too much");
    }
    let panicking = Implementation::new(FLOW, panicking);
    let former = ended();
    let refused = former.reset(&panicking, &ResetPoint::to_event(3)).unwrap_err();
    assert!(
        matches!(&refused, ResetRefused::Fails { reason } if reason.contains("101 is too much")),
        "{refused}"
    );
    former.reset(&panicking, &ResetPoint::to_event(2)).unwrap();
}

/// A run that its code has parked is reset to an event before, with other code.
#[test]
fn a_parked_run_ends_as_reset_and_nothing_of_it_is_wanted_any_more() {
    let mut world = World::start(code(), &1_u64);
    world.complete(1, &101_u64);
    world
        .apply(Input::Pause {
            reason: "wait".into(),
        })
        .unwrap();
    world.moment.now = world.moment.now + Duration::from_secs(1);
    let next = world.reset(&code(), &ResetPoint::to_event(3)).unwrap();
    let run = next.instance.run();
    let reason = "it was wrong".to_owned();
    let to = Sequence::new(3);
    world
        .apply(Input::Reset {
            run,
            to,
            reason: reason.clone(),
        })
        .unwrap();
    world.check_replays();
    assert_eq!(world.instance.ledger().outcome(), Some(&Outcome::Continued(run)));
    assert_eq!(world.instance.ledger().pending_len(), 0);
    let cancelled = world.commands.iter();
    let cancelled = cancelled.filter(|command| matches!(command, Command::CancelActivity { .. }));
    assert_eq!(cancelled.count(), 2);
    assert_eq!(
        world.history().last().unwrap().0,
        Event::Reset { run, to, reason }
    );
    assert_eq!(world.apply(Input::Resume), Err(InputRefused::Closed));
    assert_eq!(world.parked(), None::<&ParkReason>);
}

/// What stands in the history has the times that it had: the call would fail as soon as it is begun again.
#[test]
fn a_call_whose_time_is_over_is_not_begun_again() {
    async fn timed(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
        let call = cx.call(STEP, number).schedule_to_close(Duration::from_secs(60));
        Ok(format!("{:?}", call.await.is_ok()))
    }
    let code = Implementation::new(FLOW, timed);
    let mut world = World::start(code.clone(), &1_u64);
    assert!(world.fire_next());
    assert_eq!(
        world.labels(),
        ["ActivityScheduled", "ActivityFailed", "Completed"]
    );
    let refused = world.reset(&code, &ResetPoint::to_event(2)).err();
    let [to, call] = [Sequence::new(2); 2];
    assert_eq!(refused, Some(ResetRefused::CallTimedOut { to, call }));
    let mut again = world.reset(&code, &ResetPoint::to_event(1)).unwrap();
    again.complete(1, &7_u64);
    assert_eq!(again.result::<String>(), "true");
}
