//! Durable timers, earliest deadline first. The histories are the truth; this part holds the timers of live instances, and
//! tells a shard when a deadline has passed, never before.
//!
//! A shard that begins sets all timers of its runs. Timers of its predecessor are dropped, and [messages about
//! them](crate::mail::LocalMessage::life) are not for the successor: both would start the same attempt.

use std::collections::{BTreeMap, BTreeSet};

use millrun_broker::mailbox::{Mailbox, MailboxConfig};
use millrun_core::{Bell, Epoch, Next, Part, Partition, RunId, Timestamp};
use millrun_workflow::OperationId;

use crate::mail::{LocalMessage, ShardDoors};
use crate::ownership::partition_set::PartitionSet;

/// The purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// A timer, or the next attempt of a call.
    Operation(OperationId),
    /// Bringing a parked run's code back, or beginning a delayed run.
    Resume,
    /// Ending a run that is out of time.
    TimeOut,
}

/// A command to the timers.
#[derive(Clone, Debug)]
pub(crate) enum TimerCommand {
    /// A shard owns these partitions from now on, under these epochs: earlier timers there are void.
    Begin(Vec<(Partition, Epoch)>),
    /// These partitions have another owner.
    End(Vec<Partition>),
    Set(Timestamp, RunId, Alarm),
    Clear(Timestamp, RunId, Alarm),
}

/// The door of the timers. A cheap clone.
///
/// Its places are reserved: each command stems from a decision of a live run, and a run's operations are bounded.
#[derive(Clone, Debug)]
pub(crate) struct TimersDoor {
    commands: Mailbox<Vec<TimerCommand>>,
}

impl TimersDoor {
    pub(crate) fn new(bell: Bell) -> Self {
        let commands =
            Mailbox::new(MailboxConfig::default(), bell).expect("the default configuration is valid");
        Self { commands }
    }

    pub(crate) fn send(&self, commands: Vec<TimerCommand>) {
        // Refused only when the runtime has stopped; the histories know of the timers.
        drop(self.commands.push_reserved(commands));
    }
}

#[derive(Debug)]
pub(crate) struct Timers {
    door: TimersDoor,
    shards: ShardDoors,
    deadlines: BTreeSet<(Timestamp, RunId, Alarm)>,
    /// The present epoch of each partition that has been owned.
    lives: BTreeMap<Partition, Epoch>,
}

impl Timers {
    pub(crate) fn new(door: TimersDoor, shards: ShardDoors) -> Self {
        Self {
            door,
            shards,
            deadlines: BTreeSet::new(),
            lives: BTreeMap::new(),
        }
    }

    fn obey(&mut self, command: TimerCommand) {
        match command {
            TimerCommand::Begin(partitions) => {
                let lives = &mut self.lives;
                let begun: BTreeSet<_> = partitions
                    .into_iter()
                    .filter_map(|(partition, epoch)| lives.insert(partition, epoch).map(|_| partition))
                    .collect();
                if !begun.is_empty() {
                    self.deadlines
                        .retain(|(_, run, _)| !begun.contains(&run.partition()));
                }
            }
            TimerCommand::End(partitions) => {
                let ended: PartitionSet = partitions.into_iter().collect();
                self.lives.retain(|partition, _| !ended.contains(*partition));
                self.deadlines
                    .retain(|(_, run, _)| !ended.contains(run.partition()));
            }
            TimerCommand::Set(deadline, run, alarm) => {
                self.deadlines.insert((deadline, run, alarm));
            }
            TimerCommand::Clear(deadline, run, alarm) => {
                self.deadlines.remove(&(deadline, run, alarm));
            }
        }
    }

    fn tell(&self, run: RunId, alarm: Alarm) {
        // A shard that owns a partition has sent `Begin` before it sets a timer.
        let Some(&life) = self.lives.get(&run.partition()) else {
            return;
        };
        let message = match alarm {
            Alarm::Operation(operation) => LocalMessage::TimerFired { run, operation, life },
            Alarm::Resume => LocalMessage::ResumeDue { run, life },
            Alarm::TimeOut => LocalMessage::TimeOutDue { run, life },
        };
        self.shards.push(run, message);
    }
}

impl Part for Timers {
    fn turn(&mut self, now: Timestamp, budget: usize) -> Next {
        for command in self.door.commands.take().flatten() {
            self.obey(command);
        }
        for _ in 0..budget {
            match self.deadlines.first() {
                None => return Next::Idle,
                Some((deadline, ..)) if *deadline > now => return Next::At(*deadline),
                Some(_) => {}
            }
            if let Some((_, run, alarm)) = self.deadlines.pop_first() {
                self.tell(run, alarm);
            }
        }
        Next::Again
    }
}
