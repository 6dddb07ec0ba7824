//! The stories that callers live through: each is one instance, from its start to its result.
//!
//! A caller asks, and asks again while an answer leaves open what was done. Signals alone are not repeated:
//! each has a number of its own, so that one in doubt counts once or never.

mod caller;
mod crowd;
mod stories;

use std::sync::Arc;

use futures_util::future::join_all;

pub(crate) use caller::Caller;
pub(crate) use crowd::crowd;

use crate::dice::Dice;
use crate::supervisor::desk::Desk;

/// What the callers of a round do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// How many stories are told at once; each has up to nine callers.
    pub(crate) stories: u32,
    /// Of how many requests one is given up by its caller; none if zero.
    pub(crate) drop_one_in: u64,
    /// What is told.
    pub(crate) mix: Mix,
}

/// Which stories are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// All kinds.
    Everything,
    /// Parents with signalled children, and counters.
    Families,
}

/// Tells stories until the desk closes, and those that have begun to their end.
pub(crate) async fn run(desk: &Arc<Desk>, load: Load, dice: &Dice) {
    let tellers = (0..load.stories).map(|teller| {
        let (desk, mut dice) = (Arc::clone(desk), dice.split(u64::from(teller)));
        async move {
            let mut number = 0;
            while !desk.is_closing() {
                let name = format!("{teller}-{number}");
                stories::tell(&desk, load, &name, dice.split(number)).await;
                number += 1;
                // So that a seed's stories do not depend on how many a teller came to.
                dice.roll();
            }
        }
    });
    join_all(tellers).await;
}
