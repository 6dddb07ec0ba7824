//! Examples in a world: virtual time, mocks, crashes at every commit, and a planted race that it finds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use millrun::Workflow;
use millrun_testkit::World;

use crate::histories::trip;

#[path = "../../approval.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod approval;
#[path = "../../seats.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod seats;

/// A world with a hall of one seat.
fn hall() -> (World, seats::Hall) {
    let hall = seats::Hall::with_seats(1);
    let own = hall.clone();
    let world = World::new(move |builder| seats::registered(builder, &own));
    (world, hall)
}

/// Two want the last seat at the same time: how many have it then, and whether the hall says the same.
fn two_come(world: &World, hall: &seats::Hall, workflow: Workflow<(), bool>) {
    hall.empty();
    let tickets = world.live(async |runtime| {
        let ada = runtime.start(workflow, "ada", ()).await.unwrap();
        let alan = runtime.start(workflow, "alan", ()).await.unwrap();
        [ada.result().await.unwrap(), alan.result().await.unwrap()]
    });
    let sold = tickets.iter().filter(|has_ticket| **has_ticket).count();
    assert_eq!(
        (sold, hall.taken_len()),
        (1, 1),
        "the one seat is sold {sold} times"
    );
}

#[test]
fn seats_that_are_asked_for_and_then_taken_are_sold_twice_in_some_order() {
    let (world, hall) = hall();
    let found = catch_unwind(AssertUnwindSafe(|| {
        world.each_seed(100, |world| two_come(world, &hall, seats::HASTY));
    }));
    let message = found.expect_err("the race is found");
    let message = message.downcast::<String>().unwrap();
    assert!(message.contains("the one seat is sold 2 times"), "{message}");
    assert!(message.contains("to repeat it: MILLRUN_WORLD=seed="), "{message}");
}

#[test]
fn seats_that_are_taken_in_one_act_are_sold_once_in_every_order_and_over_every_crash() {
    let (world, hall) = hall();
    world.each_seed(100, |world| two_come(world, &hall, seats::CAREFUL));
    let tried = world.crash_everywhere(|world| {
        two_come(world, &hall, seats::CAREFUL);
        assert_eq!(world.calls(seats::TAKE_IF_LEFT).len(), 2);
    });
    assert!(tried.attempts == 2 && tried.commits > 2, "{tried:?}");
}

/// What was booked is given back, whenever the process dies; who is asked twice knows it by the number.
#[test]
fn trip_gives_back_what_it_has_booked_over_every_crash() {
    let world = World::new(trip::registered);
    world.mock(trip::BOOK).with(|what: String| match &*what {
        "car" => Err(trip::NoneLeft { what }),
        _ => Ok(what.len() as u64),
    });
    world.mock(trip::GIVE_BACK).returns(());
    world.crash_everywhere(|world| {
        world.live(async |runtime| {
            let wanted = ["flight", "hotel", "car"].map(String::from).to_vec();
            let run = runtime.start(trip::TRIP, "alan", wanted).await.unwrap();
            run.result().await.unwrap_err();
        });
        assert_eq!(world.calls(trip::BOOK), ["flight", "hotel", "car"]);
        assert_eq!(
            world.calls(trip::GIVE_BACK),
            [("hotel".to_owned(), 5), ("flight".to_owned(), 6)]
        );
    });
}

#[test]
fn approval_waits_for_a_day_over_every_crash() {
    let day = Duration::from_secs(86_400);
    let world = World::new(approval::registered);
    world.crash_everywhere(|world| {
        let began = world.now();
        let told = world.live(async |runtime| {
            let run = runtime.start(approval::HOLIDAY, "alan", day).await.unwrap();
            run.result().await.unwrap()
        });
        assert_eq!(told, "nobody answered");
        assert!(world.now().saturating_since(began) >= day);
    });
}
