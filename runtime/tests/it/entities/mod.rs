//! Entities from outside: commands, reads, what they begin, their end, and crashes.

mod acts;
mod commands;
mod crashes;
mod deleting;
mod listing;
mod moving;
mod reading;
mod versions;

use std::fmt;

use millrun::builders::EntityCode;
use millrun::{
    DurableTopic, Entity, EntityCommand, EntityContext, EntityState, Query, Signal, Topic, TypedError,
    Workflow, WorkflowError,
};
use serde::{Deserialize, Serialize};

/// A till: what is put in and taken out, and how many times.
pub(super) const TILL: Entity<Till> = Entity::named("till");
pub(super) const PUT: EntityCommand<Till, u64, u64> = EntityCommand::named("put");
pub(super) const TAKE: EntityCommand<Till, u64, u64, Empty> = EntityCommand::named("take");
pub(super) const PUT_LATER: EntityCommand<Till, u64, ()> = EntityCommand::named("put-later");
pub(super) const PUT_ONE: EntityCommand<Till, (), u64> = EntityCommand::named("put-one");
/// Puts it into the till of this key, and starts and signals a workflow.
pub(super) const PASS_ON: EntityCommand<Till, (String, u64), ()> = EntityCommand::named("pass-on");
pub(super) const SUM: Query<Till, (), u64> = Query::named("sum");
pub(super) const LEN: Query<Till, (), u64> = Query::named("len");

pub(super) const PUTS: DurableTopic<u64> = Topic::named("puts").durable();
pub(super) const GO: Signal<u64> = Signal::named("go");
pub(super) const WATCH: Workflow<u64, u64> = Workflow::named("watch");

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Till {
    sum: u64,
    len: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum TillEvent {
    Put(u64),
    Taken(u64),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Empty;

impl fmt::Display for Empty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is not so much in the till")
    }
}

impl TypedError for Empty {}

impl EntityState for Till {
    type Event = TillEvent;

    fn begin(_key: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, event: TillEvent) {
        self.len += 1;
        match event {
            TillEvent::Put(cents) => self.sum += cents,
            TillEvent::Taken(cents) => self.sum -= cents,
        }
    }
}

type TillContext<'a> = EntityContext<'a, Till>;

pub(super) fn till() -> EntityCode<Till> {
    TILL.command(PUT, |till, cents, cx: &mut TillContext<'_>| {
        cx.emit(TillEvent::Put(cents));
        cx.publish(PUTS, cents);
        Ok(till.sum + cents)
    })
    .command(TAKE, |till, cents, cx| {
        let left = till.sum.checked_sub(cents).ok_or(Empty)?;
        cx.emit(TillEvent::Taken(cents));
        Ok(left)
    })
    .command(PUT_LATER, |_, millis, cx| {
        cx.set_timer_in(PUT_ONE, std::time::Duration::from_millis(millis));
        Ok(())
    })
    .command(PUT_ONE, |till, (), cx| {
        cx.emit(TillEvent::Put(1));
        Ok(till.sum + 1)
    })
    .command(PASS_ON, |till, (key, cents), cx| {
        if till.sum < cents {
            return Err(WorkflowError::failed("there is not so much in the till"));
        }
        cx.emit(TillEvent::Taken(cents));
        cx.tell(TILL, &key, PUT, cents);
        let id = format!("watch-{}", cx.key());
        cx.start(WATCH, id.clone(), cents);
        cx.signal(WATCH, id, GO, cents);
        Ok(())
    })
    .query(SUM, |till, ()| till.sum)
    .query(LEN, |till, ()| till.len)
}
