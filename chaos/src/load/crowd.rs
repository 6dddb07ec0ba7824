//! Very many starts at once, with half of the callers dropped.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::check::{Rule, Violation};
use crate::dice::Dice;
use crate::programs::Kind;
use crate::supervisor::desk::Desk;
use crate::wire::{Answer, Ask, Refusal};

/// The longest time until a caller is dropped, in microseconds.
const DROP_US_MAX: u64 = 3_000_000;

/// Starts many instances at once, drops every second caller, and looks for each of them afterwards: what
/// was acknowledged is there and ends; what was dropped is there and ends, or there is nothing of it.
pub(crate) async fn crowd(desk: &Arc<Desk>, len: u32, mut dice: Dice) {
    let kind = Kind::Pebble;
    let ids: Vec<String> = (0..len).map(|number| format!("pebble-{number}")).collect();
    let starts: FuturesUnordered<_> = ids
        .iter()
        .map(|id| {
            desk.ledger.book().account(kind, id);
            let drop_after_us = dice.one_in(2).then(|| match dice.below(4) {
                0 => 0,
                1 => dice.below(2_000),
                _ => dice.below(DROP_US_MAX),
            });
            async move {
                let ask = Ask::Start {
                    kind,
                    id: id.clone(),
                    len: 1,
                };
                desk.ask(0, &ask, drop_after_us).await
            }
        })
        .collect();
    starts.for_each(|_| async {}).await;
    // A dropped start may still be on its way; a result that is not found now may be found later. The file
    // has the last word: whatever is begun ends, and nothing is alive at the end.
    let results: FuturesUnordered<_> = ids
        .iter()
        .map(|id| async move {
            let ask = Ask::Result { kind, id: id.clone() };
            (id, desk.ask(0, &ask, None).await)
        })
        .collect();
    let (mut ended, mut missing) = (0_u64, 0_u64);
    let mut results = results;
    while let Some((id, answer)) = results.next().await {
        match answer {
            Answer::Ended(_) => ended += 1,
            Answer::Refused {
                why: Refusal::NotFound,
                ..
            } => missing += 1,
            answer => desk.ledger.blame(Violation {
                rule: Rule::RunsEnd,
                instance: Some(id.clone()),
                story: format!("its result is {answer:?}"),
            }),
        }
        desk.ledger.book().account(kind, id).is_over = true;
    }
    println!("  the crowd: {len} starts, {ended} ended, {missing} were dropped before they began");
}
