//! What a shard drops with a partition that it loses, and takes in with one that it is granted.
//!
//! ```text
//!   news of a loss, or a fenced turn ──► runs, timers, tasks, loads, places in line: dropped
//!                                    └─► callers that wait, answers of sweeps in flight: Moved
//!   granted ──► Begin (timers), Orphans and Begun (other shards) ──► its runs, as after a restart
//! ```
//!
//! Invariants: everything that was durable when the shard heard of the loss has been performed before; nothing of a lost
//! partition is performed after. A lost partition is claimed again only when the program asks for it.
//!
//! What was queued for a lost partition may be durable, and then its new owner has it. So a caller is not told that its
//! request failed, but that the outcome is unknown here.

use std::sync::Arc;

use millrun_core::{Epoch, Partition, RunId};
use millrun_persistence::Granted;

use crate::RunError;
use crate::mail::{PartitionMessage, Request, Target};
use crate::opening::recovery;
use crate::ownership::partition_set::PartitionSet;
use crate::shard::Shard;
use crate::shard::runs::entry::{Errand, Parking, Residence};
use crate::shard::sweeps::answers::Response;
use crate::timers::TimerCommand;

impl Shard {
    /// Drops everything of these partitions, which are not owned any more.
    #[cold]
    pub(in crate::shard) fn lose(&mut self, lost: &PartitionSet) {
        if lost.is_empty() {
            return;
        }
        // What is durable by now was decided and recorded before the loss.
        self.perform_durable();
        let partitions: Vec<Partition> = lost.iter().collect();
        tracing::info!(
            shard = self.ways.index(),
            partitions = partitions.len(),
            "partitions are lost, or given back"
        );
        for partition in &partitions {
            if let Some(epoch) = self.epochs.get(*partition) {
                self.shared.claims.note_loss(*partition, epoch);
            }
            self.epochs.set(*partition, None);
        }
        let mut moved = Vec::new();
        self.effects.lose(lost, &mut moved);
        self.sweeps.lose(lost, &mut moved);
        self.lose_runs(lost, &mut moved);
        self.lose_publishes(lost);
        self.shared.durable.waits.lose(lost);
        self.calls.lose(lost);
        let unbegun = self.asking.lose(lost);
        self.residency.lose(lost);
        self.told.lose(lost);
        self.dispatch.lose(lost);
        for pool in &self.shared.pools {
            pool.lose(lost);
        }
        self.updates.lose(lost, &mut moved);
        // Their callers ask again, and are then told of the loss.
        self.watchers.lose(lost);
        self.alarms.want(TimerCommand::End(partitions));
        self.alarms.send(&self.shared.timers);
        self.outbox.send(&mut moved);
        for (partition, request) in unbegun {
            self.shared.ask_elsewhere(partition, request);
        }
        self.census.tell();
    }

    /// Drops the runs of these partitions, and tells the callers that wait for them.
    fn lose_runs(&mut self, lost: &PartitionSet, moved: &mut Vec<Response>) {
        let here = self.entries.iter().map(|known| known.run);
        let runs: Vec<_> = here.filter(|run| lost.contains(run.partition())).collect();
        for run in runs {
            let Some(mut entry) = self.entries.remove(run) else {
                continue;
            };
            let partition = run.partition();
            let error = || RunError::Moved {
                partition,
                owner: None,
            };
            for reply in entry.take_waiters() {
                // If another node may own the partition, it is asked in the caller's place.
                let target = Target::Run(run);
                self.shared
                    .ask_elsewhere(partition, Request::Await { target, reply });
            }
            self.census.set_parking(&mut entry, Parking::Runs);
            if let Residence::Ended(number) = entry.residence {
                self.results.void(number);
                continue;
            }
            self.census.leave(&entry);
            if matches!(entry.residence, Residence::Hot(_)) {
                self.residency.leave(&mut entry);
            }
            if let Residence::Loading(loading) = entry.residence {
                for errand in loading.held {
                    match errand.into_request(run) {
                        Ok(request) => self.shared.ask_elsewhere(partition, request),
                        Err(errand) => moved.extend(errand.refuse(error())),
                    }
                }
            }
        }
    }

    /// Takes in the partitions that a claim gave to this shard, with their runs.
    #[cold]
    pub(in crate::shard) fn take_granted(&mut self, mut granted: Granted) {
        let now = self.shared.host.now();
        let owned = self.shared.claims.owned();
        let claim = granted.claim;
        let given: Vec<Partition> = granted.partitions.iter().map(|owned| owned.partition).collect();
        // A partition that was lost or claimed again since is handled by later news.
        let begun: Vec<(Partition, Epoch)> = granted
            .partitions
            .iter()
            .map(|owned| (owned.partition, owned.epoch))
            .filter(|(partition, epoch)| owned.is_owned_under(*partition, *epoch))
            .collect();
        let set: PartitionSet = begun.iter().map(|(partition, _)| *partition).collect();
        // Claimed a second time: what the shard has of it belongs to an earlier epoch.
        self.lose_former(&begun);
        for (partition, epoch) in &begun {
            self.epochs.set(*partition, Some(*epoch));
        }
        let (folds, report) = (granted.take_folds(), granted.report);
        let (mut shards, _) = recovery::by_shard(folds, 1, report);
        let mut runs = shards.pop().unwrap_or_default();
        runs.retain(|run| set.contains(run.run.partition()));
        for pool in &self.shared.pools {
            // A drain that was set while the partition was lost. What it has put aside is of an earlier epoch, and is found anew.
            drop(pool.resume(&set));
        }
        self.seed(runs, &begun, false, now);
        let partitions = Arc::new(set);
        // This shard's own runs may wait for children there too.
        self.ways
            .send_to_each(&PartitionSet::all(), || PartitionMessage::Begun {
                partitions: Arc::clone(&partitions),
            });
        self.ways.send_to_nodes(|| PartitionMessage::Begun {
            partitions: Arc::clone(&partitions),
        });
        if let Some(mail) = &self.shared.mail {
            // Mail for these partitions may be waiting.
            mail.bell().ring();
        }
        let given = given.into_iter().filter(|partition| self.owns(*partition));
        self.shared.claims.answer(claim, Ok(given.collect()));
    }

    /// Drops what a failed predecessor has left with pools and timers for partitions that it had lost: it may have failed
    /// before it heard of the loss.
    pub(in crate::shard) fn drop_left(&mut self) {
        let here = self.ways.here();
        let left: PartitionSet = here.iter().filter(|partition| !self.owns(*partition)).collect();
        if left.is_empty() {
            return;
        }
        for pool in &self.shared.pools {
            pool.lose(&left);
        }
        self.alarms.want(TimerCommand::End(left.iter().collect()));
    }

    /// Drops what the shard has of partitions that it owns under another epoch from now on.
    fn lose_former(&mut self, begun: &[(Partition, Epoch)]) {
        let here = begun.iter().map(|(partition, _)| *partition);
        let former: PartitionSet = here.filter(|partition| self.owns(*partition)).collect();
        self.lose(&former);
    }
}

impl Errand {
    /// Turns an errand that was not begun back into a request for the run's next owner.
    fn into_request(self, run: RunId) -> Result<Request, Self> {
        let target = Target::Run(run);
        Ok(match self {
            Self::Tell(what, reply) => Request::Tell { target, what, reply },
            Self::Query(question, reply) => Request::Query {
                target,
                question,
                reply,
            },
            Self::Update(request, reply) => Request::Update {
                target,
                request,
                reply,
            },
            other => return Err(other),
        })
    }

    /// The response that tells an errand's caller that it cannot be done; `None` if no caller waits.
    pub(in crate::shard) fn refuse(self, error: RunError) -> Option<Response> {
        match self {
            Self::Tell(_, reply) => Some(Response::Tell(reply, Err(error))),
            Self::Describe(reply) => Some(Response::Describe(reply, Err(error))),
            Self::Query(_, reply) => Some(Response::Query(reply, Err(error.into()))),
            Self::Update(_, reply) => Some(Response::Update(reply, Err(error.into()))),
            Self::Command(_, reply) => Some(Response::Command(reply, Err(error.into()))),
            Self::Replace(replacement) => Some(replacement.refuse(error)),
            // Its sender is told by a message, if at all.
            Self::Signal(_) => None,
            Self::Input(_)
            | Self::Failed(..)
            | Self::Resume
            | Self::Dispatch(_)
            | Self::CallAgain(_)
            | Self::Append(_)
            | Self::Republish(..) => None,
        }
    }
}
