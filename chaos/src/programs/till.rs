//! The entity: a register that callers change by commands, and a list in which a trigger enters records.

use millrun::builders::EntityCode;
use millrun::{Entity, EntityCommand, EntityState, Query};
use serde::{Deserialize, Serialize};

use super::Shown;
use crate::wire::Change;

pub(crate) const TILL: Entity<Till> = Entity::named("till");
/// Changes the register.
pub(crate) const TURN: EntityCommand<Till, Change, u64> = EntityCommand::named("turn");
/// Enters the number of a record; gives how many were entered.
pub(crate) const ENTER: EntityCommand<Till, u64, u64> = EntityCommand::named("enter");
pub(crate) const SHOW_TILL: Query<Till, (), Shown> = Query::named("show");
/// The numbers that were entered, in their order.
pub(crate) const ENTERED: Query<Till, (), Vec<u64>> = Query::named("entered");

/// After how many commands a till is kept as it is.
const SNAPSHOT_EVERY: u32 = 5;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Till {
    value: u64,
    entered: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum TillEvent {
    Turned(u64),
    Entered(u64),
}

impl EntityState for Till {
    type Event = TillEvent;

    fn begin(_key: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, event: TillEvent) {
        match event {
            TillEvent::Turned(value) => self.value = value,
            TillEvent::Entered(sequence) => self.entered.push(sequence),
        }
    }
}

/// The id of the till in which the trigger enters what a postman replies.
pub(crate) fn till_of(postman: &str) -> String {
    TILL.id_of(postman)
}

/// What performs the commands.
pub(crate) fn till() -> EntityCode<Till> {
    TILL.command(TURN, |till: &Till, change, cx| {
        let (value, answer) = match change {
            Change::Add(by) => {
                let value = till.value.wrapping_add(by);
                (value, value)
            }
            Change::Swap(value) => (value, till.value),
        };
        cx.emit(TillEvent::Turned(value));
        Ok(answer)
    })
    .command(ENTER, |till, sequence, cx| {
        cx.emit(TillEvent::Entered(sequence));
        Ok(till.entered.len() as u64 + 1)
    })
    .query(SHOW_TILL, |till, ()| Shown {
        value: till.value,
        notes_len: till.entered.len() as u64,
    })
    .query(ENTERED, |till, ()| till.entered.clone())
    .snapshot_every(SNAPSHOT_EVERY)
}
