//! What happens to an instance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};

use super::{Caller, Load, Mix};
use crate::dice::Dice;
use crate::programs::{CHILDREN, Kind, TILL, child_id, mailbox_of, till_of};
use crate::supervisor::desk::Desk;
use crate::wire::Ask;

/// Tells the story that the dice choose.
pub(super) async fn tell(desk: &Arc<Desk>, load: Load, name: &str, mut dice: Dice) {
    let choice = match load.mix {
        Mix::Everything => dice.below(100),
        Mix::Families => dice.below(45),
    };
    let caller = |kind, prefix: &str, dice| Caller::new(desk, load, kind, &format!("{prefix}-{name}"), dice);
    match choice {
        0..6 if load.mix == Mix::Everything => post(desk, load, name, &dice).await,
        0..30 => family(desk, load, &format!("family-{name}"), dice).await,
        30..42 => counter(caller(Kind::Counter, "counter", dice)).await,
        42..48 => counter(caller(Kind::Chain, "chain", dice)).await,
        48..55 => counter(caller(Kind::Keeper, "keeper", dice)).await,
        55..65 => alone(caller(Kind::Steps, "steps", dice)).await,
        65..71 => alone(caller(Kind::Courier, "courier", dice)).await,
        71..77 => alone(caller(Kind::Sleeper, "sleeper", dice)).await,
        77..83 => promise(caller(Kind::Asker, "asker", dice)).await,
        83..89 => gate(caller(Kind::Counter, "gate", dice)).await,
        89..91 => till(Caller::new(desk, load, Kind::Till, &TILL.id_of(name), dice)).await,
        91..93 => paused(caller(Kind::Counter, "paused", dice)).await,
        93..96 => strange(caller(Kind::Counter, "strange", dice)).await,
        _ => stopped(caller(Kind::Counter, "stopped", dice)).await,
    }
}

/// A run that needs nobody.
async fn alone(mut caller: Caller) {
    let len = caller.dice.between(1, 4);
    caller.start(u32::try_from(len).expect("four is small")).await;
    caller.describe().await;
    caller.result().await;
    // Starting it again gives the run that has finished, and its result once more.
    if caller.dice.one_in(4) {
        caller.start(1).await;
        caller.result().await;
    }
    caller.over();
}

/// Several callers of one register.
async fn counter(mut caller: Caller) {
    let steps = u32::try_from(caller.dice.below(3)).expect("three is small");
    let mut twin = caller.another(9);
    join(caller.start(steps), twin.start(steps)).await;
    let callers = caller.dice.between(2, 4);
    let busy = (1..=callers).map(|number| {
        let caller = caller.another(u32::try_from(number).expect("four is small"));
        work(caller, 3, 8)
    });
    join_all(busy).await;
    caller.close().await;
    caller.result().await;
    if caller.dice.one_in(3) {
        caller.show().await;
        caller.describe().await;
    }
    caller.over();
}

/// Notes, changes and questions, in an order of the dice.
async fn work(mut caller: Caller, least: u64, most: u64) {
    for _ in 0..caller.dice.between(least, most) {
        match caller.dice.below(10) {
            0..4 => drop(caller.note().await),
            4..7 => caller.change().await,
            7..9 => drop(caller.show().await),
            _ => drop(caller.describe().await),
        }
    }
}

/// A parent, three children, and callers of all four.
async fn family(desk: &Arc<Desk>, load: Load, id: &str, dice: Dice) {
    let mut parent = Caller::new(desk, load, Kind::Parent, id, dice.split(1));
    let steps = u32::try_from(parent.dice.between(1, 2)).expect("two is small");
    let children: Vec<_> = (0..CHILDREN)
        .map(|number| {
            let label = u64::try_from(number).expect("three is small") + 2;
            Caller::new(
                desk,
                load,
                Kind::Counter,
                &child_id(id, number),
                dice.split(label),
            )
        })
        .collect();
    parent.start(steps).await;
    let busy = children.into_iter().map(|mut child| async move {
        child.note_when_there().await;
        let other = child.another(1);
        join(work(child.another(2), 1, 3), work(other, 1, 3)).await;
        child.close().await;
        child
    });
    let own = parent.another(1);
    let (children, ()) = join(join_all(busy), work(own, 1, 4)).await;
    parent.close().await;
    parent.result().await;
    for mut child in children {
        if child.dice.one_in(3) {
            child.result().await;
        }
        child.over();
    }
    parent.over();
}

/// Two who settle one promise.
async fn promise(mut caller: Caller) {
    caller.start(0).await;
    if let Some(token) = caller.token().await {
        let settle = |mut caller: Caller| {
            let (token, value) = (token.clone(), caller.dice.roll());
            async move {
                caller
                    .insist_on(|_, id| Ask::Settle {
                        id,
                        token: token.clone(),
                        value,
                    })
                    .await;
            }
        };
        join(settle(caller.another(1)), settle(caller.another(2))).await;
        caller.result().await;
    }
    caller.over();
}

/// Letters to a postman, of two senders, until he has taken as many as he is to take. All of them come to his mailbox.
async fn post(desk: &Arc<Desk>, load: Load, name: &str, dice: &Dice) {
    /// The pauses of a sender: at first, and when the postman has enough of what he can see. What is dated before his run
    /// he does not take, so that he may need more where clocks are moved.
    const PAUSES_MS: (u64, u64) = (8, 200);
    let id = format!("postman-{name}");
    let mut postman = Caller::new(desk, load, Kind::Postman, &id, dice.split(1));
    let mut mailbox = Caller::new(desk, load, Kind::Mailbox, &mailbox_of(&id), dice.split(2));
    // What he replies is entered there, perhaps long after all this.
    let replied = Caller::new(desk, load, Kind::Till, &till_of(&id), dice.split(3));
    let len = postman.dice.between(2, 5);
    postman.start(u32::try_from(len).expect("five is small")).await;
    let (has_ended, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let senders = [1, 2].map(|number| {
        let (mut sender, has_ended, sent) = (postman.another(number), &has_ended, &sent);
        async move {
            for letter in 0.. {
                if letter >= len && has_ended.load(Ordering::Relaxed) {
                    return;
                }
                let value = sender.next_note();
                sender.insist_on(|_, id| Ask::Publish { id, value }).await;
                sent.fetch_add(1, Ordering::Relaxed);
                let most = if letter < len { PAUSES_MS.0 } else { PAUSES_MS.1 };
                let pause = sender.dice.below(most);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        }
    });
    join(
        async {
            postman.result().await;
            has_ended.store(true, Ordering::Relaxed);
        },
        join_all(senders),
    )
    .await;
    postman.over();
    replied.over();
    mailbox.shows_notes(sent.into_inner()).await;
    mailbox.close().await;
    mailbox.result().await;
    mailbox.over();
}

/// Several who command an entity and read it, which begins with the first command.
async fn till(caller: Caller) {
    let callers = caller.dice.clone().between(2, 4);
    let busy = (1..=callers).map(|number| {
        let mut caller = caller.another(u32::try_from(number).expect("four is small"));
        async move {
            for _ in 0..caller.dice.between(3, 8) {
                if caller.dice.one_in(3) {
                    caller.show().await;
                } else {
                    caller.change().await;
                }
            }
        }
    });
    join_all(busy).await;
    caller.over();
}

/// Several who signal an instance, and start it if they are the first.
async fn gate(mut caller: Caller) {
    let callers = caller.dice.between(2, 3);
    let busy = (1..=callers).map(|number| {
        let mut caller = caller.another(u32::try_from(number).expect("three is small"));
        async move {
            for _ in 0..caller.dice.between(1, 3) {
                let note = caller.next_note();
                let (kind, id) = (Kind::Counter, caller.id().to_owned());
                caller.ask(&Ask::SignalWithStart { kind, id, note }).await;
            }
        }
    });
    join_all(busy).await;
    // All of them may have been given up.
    caller.start(0).await;
    caller.show().await;
    caller.close().await;
    caller.result().await;
    caller.over();
}

/// Notes that are sent while the run is paused, and looked for when it goes on.
async fn paused(mut caller: Caller) {
    caller.start(1).await;
    caller.note().await;
    caller.insist_on(|kind, id| Ask::Pause { kind, id }).await;
    caller.describe().await;
    for _ in 0..caller.dice.between(1, 4) {
        caller.note().await;
    }
    caller.show().await;
    caller.insist_on(|kind, id| Ask::Resume { kind, id }).await;
    caller.show().await;
    caller.note().await;
    caller.close().await;
    caller.result().await;
    caller.over();
}

/// A run that is cancelled or terminated while others work with it.
async fn stopped(mut caller: Caller) {
    caller.start(2).await;
    let is_cancelled = caller.dice.one_in(2);
    let mut stopper = caller.another(2);
    let stop = async move {
        stopper.show().await;
        stopper
            .insist_on(|kind, id| {
                if is_cancelled {
                    Ask::Cancel { kind, id }
                } else {
                    Ask::Terminate { kind, id }
                }
            })
            .await;
    };
    join(stop, work(caller.another(1), 2, 5)).await;
    caller.result().await;
    caller.over();
}

/// A caller with a handle of another workflow: every call is refused.
async fn strange(mut caller: Caller) {
    caller.start(1).await;
    let mut stranger = caller.stranger(7, Kind::Steps);
    let strange = async move {
        for _ in 0..stranger.dice.between(2, 5) {
            match stranger.dice.below(6) {
                0 => drop(stranger.note().await),
                1 => stranger.change().await,
                2 => drop(stranger.show().await),
                3 => drop(stranger.insist_on(|kind, id| Ask::Cancel { kind, id }).await),
                4 => drop(stranger.insist_on(|kind, id| Ask::Terminate { kind, id }).await),
                _ => drop(stranger.result().await),
            }
        }
    };
    join(strange, work(caller.another(1), 2, 4)).await;
    caller.close().await;
    caller.result().await;
    caller.over();
}
