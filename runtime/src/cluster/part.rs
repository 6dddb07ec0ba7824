//! The part that carries out the machine's decisions: it looks, declares dead, claims, drains and gives back. It has a thread of its
//! own, since a look may wait for the server.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Next, Part, Partition, Timestamp};
use millrun_persistence::{ClaimRefused, NodeTerms, SharedStore};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::beats::BEATS_OF_LEASE;
use super::draining::Draining;
use super::machine::{ClusterAction, ClusterMachine};
use super::pace::Refusal;
use super::shared::ClusterShared;
use crate::host::server_time::ToldTime;
use crate::mail::ShardDoors;
use crate::opening::recovery::Histories;
use crate::ownership::claims::{How, Wanted};
use crate::shared::ShardShared;

/// The outstanding answers to a claim, one for each shard, with the partitions that were claimed for the shard.
type Answers = Vec<(
    Vec<Partition>,
    oneshot::Receiver<Result<Vec<Partition>, ClaimRefused>>,
)>;

/// The shortest time between two turns, and between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(10);

pub(crate) struct ClusterPart {
    shared: Arc<ShardShared>,
    cluster: Arc<ClusterShared>,
    doors: ShardDoors,
    machine: ClusterMachine,
    answers: Answers,
    draining: Draining,
    /// When the last look ended.
    looked_at: Duration,
    /// When the server is asked for the time next.
    next_time: Duration,
    /// Whether the other nodes know that this node is about to leave.
    has_told: bool,
}

impl ClusterPart {
    pub(crate) fn new(shared: Arc<ShardShared>, cluster: Arc<ClusterShared>, doors: ShardDoors) -> Self {
        let (lease, now) = (shared.config.lease, shared.host.elapsed());
        let grace = shared.config.handover_grace;
        let is_deciding = ClusterShared::terms(&shared.config).claims && !shared.is_read_only;
        let machine = ClusterMachine::new(cluster.node.clone(), lease, grace, is_deciding, now);
        Self {
            draining: Draining::new(&shared, &doors),
            shared,
            cluster,
            doors,
            machine,
            answers: Vec::new(),
            looked_at: Duration::ZERO,
            next_time: now,
            has_told: false,
        }
    }

    /// Tells the other nodes that this node leaves and claims no partitions any more: their shares grow, and they claim what is free.
    fn leave(&mut self, store: &dyn SharedStore) {
        self.draining.clear();
        self.machine.leave();
        let terms = NodeTerms::new(self.shared.config.lease, false);
        match store.announce(terms) {
            Ok(()) => self.has_told = true,
            // The next turn tries again.
            Err(error) => tracing::debug!(%error, "the other nodes could not be told that this one leaves"),
        }
    }

    fn act(&mut self, store: &dyn SharedStore, action: ClusterAction) -> Vec<ClusterAction> {
        let host = Arc::clone(&self.shared.host);
        match action {
            ClusterAction::Look => {
                let began = host.elapsed();
                let looked = store.look();
                self.looked_at = host.elapsed();
                match looked {
                    Ok(seen) => {
                        let (ended, lease) = (self.looked_at, self.shared.config.lease);
                        let confirmed = self.shared.gate.confirmed(lease).unwrap_or(ended);
                        let actions = self.machine.looked((began, ended), confirmed, &seen);
                        self.cluster.note(seen);
                        return actions;
                    }
                    Err(error) => {
                        tracing::debug!(%error, "the nodes of the store could not be looked at");
                        self.machine.look_failed(host.elapsed());
                    }
                }
            }
            ClusterAction::DeclareDead(node) => {
                tracing::warn!(%node, "a node has not written for a lease, and is declared dead");
                match store.declare_dead(&node) {
                    Ok(()) => self.machine.look_at(host.elapsed()),
                    Err(error) => tracing::warn!(%node, %error, "a node could not be declared dead"),
                }
            }
            ClusterAction::Claim(partitions) => self.claim(partitions),
            ClusterAction::Drain { len, of } => {
                let drained = self.draining.begin(&self.shared, len, &of);
                tracing::info!(
                    partitions = drained.len(),
                    "partitions are drained for other nodes"
                );
                self.machine.drained(host.elapsed(), &drained);
            }
            ClusterAction::Resume(partitions) => {
                tracing::info!(
                    partitions = partitions.len(),
                    "partitions are kept that were drained"
                );
                let partitions = partitions.into_iter().collect();
                self.draining.resume(&self.shared, &self.doors, &partitions);
            }
            ClusterAction::Release(partitions) => {
                tracing::info!(
                    partitions = partitions.len(),
                    "partitions are given to other nodes"
                );
                self.draining.end(&partitions);
                let shared = &self.shared;
                shared.claims.release(shared.journal.as_ref(), &partitions);
            }
        }
        Vec::new()
    }

    /// Asks the server for the time, as often as this node beats.
    fn ask_time(&mut self, store: &dyn SharedStore) {
        let host = &*self.shared.host;
        let now = host.elapsed();
        let Some(time) = self.cluster.time.as_ref().filter(|_| now >= self.next_time) else {
            return;
        };
        self.next_time = now + self.shared.config.lease / BEATS_OF_LEASE;
        match ToldTime::ask_once(host, || store.time()) {
            Ok(told) => told.iter().for_each(|told| time.hear(told)),
            Err(error) => tracing::debug!(%error, "the server could not be asked for the time"),
        }
    }

    fn claim(&mut self, partitions: Vec<Partition>) {
        tracing::info!(partitions = partitions.len(), "partitions are claimed");
        let mut by_shard: BTreeMap<usize, Vec<Partition>> = BTreeMap::new();
        for partition in partitions {
            let shard = self.doors.index_of(partition);
            by_shard.entry(shard).or_default().push(partition);
        }
        for (shard, partitions) in by_shard {
            let (reply, answer) = oneshot::channel();
            let wanted = Wanted {
                shard,
                partitions: partitions.clone(),
                how: How::IfFree,
                reply,
            };
            let (shared, fold) = (&self.shared, Box::<Histories>::default());
            shared.claims.claim(shared.journal.as_ref(), fold, wanted);
            self.answers.push((partitions, answer));
        }
    }

    /// Takes the answers that have come since the last turn.
    fn hear(&mut self) {
        let had_answers = !self.answers.is_empty();
        let (machine, now) = (&mut self.machine, self.shared.host.elapsed());
        self.answers
            .retain_mut(|(partitions, answer)| match answer.try_recv() {
                Err(TryRecvError::Empty) => true,
                Ok(Err(error)) => {
                    tell_refused(machine.refused(now, std::mem::take(partitions)), &error);
                    false
                }
                Ok(Ok(_)) => {
                    machine.granted(partitions);
                    false
                }
                Err(TryRecvError::Closed) => false,
            });
        if had_answers && self.answers.is_empty() {
            self.machine.claimed();
        }
    }
}

fn tell_refused(refusal: Refusal, error: &ClaimRefused) {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    match refusal {
        // Another node was quicker, or a partition cannot be read; the next, smaller claims will tell.
        Refusal::Halved => tracing::debug!(%error, cause, "a claim of partitions was refused"),
        Refusal::SetAside(partition) => tracing::warn!(
            partition = partition.index(),
            %error,
            cause,
            "a partition cannot be claimed: its runs stand still until a later try"
        ),
        Refusal::Paused => tracing::warn!(%error, cause, "partitions cannot be claimed for now"),
    }
}

impl Part for ClusterPart {
    fn turn(&mut self, now: Timestamp, _budget: usize) -> Next {
        let journal = Arc::clone(&self.shared.journal);
        let (Some(store), None) = (journal.nodes(), journal.failure()) else {
            // The supervision tree looks at the journal when a part has stopped.
            return Next::Stop;
        };
        if self.cluster.is_leaving() && !self.has_told {
            self.leave(store);
        }
        self.hear();
        self.ask_time(store);
        if self.cluster.told().has_rung() && self.cluster.told().answer() {
            // The partitions of the node that has left are free: their runs stand still until these are claimed.
            let soon = self.looked_at + PAUSE_MIN;
            self.machine.look_at(self.machine.next().min(soon));
        }
        if !self.cluster.is_leaving() {
            let elapsed = self.shared.host.elapsed();
            let is_draining = |partition| self.machine.is_draining(partition);
            self.draining.keep(&self.shared, &self.doors, is_draining);
            let at_rest = self.draining.turn(&self.shared, &self.doors, elapsed);
            self.machine.at_rest(&at_rest);
        }
        let mut actions = VecDeque::from(self.machine.turn(self.shared.host.elapsed()));
        while let Some(action) = actions.pop_front() {
            actions.extend(self.act(store, action));
        }
        self.cluster.note_draining(self.draining.len());
        let elapsed = self.shared.host.elapsed();
        let round = self.draining.next(elapsed).unwrap_or(Duration::MAX);
        let pause = self.machine.next().min(round).saturating_sub(elapsed);
        Next::At(now + pause.max(PAUSE_MIN))
    }
}
