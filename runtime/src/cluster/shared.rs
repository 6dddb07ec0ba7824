//! What a runtime knows of the nodes of its store, for its other parts.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrun_core::{Bell, Partition};
use millrun_persistence::{NodeKey, NodeTerms, NodesSeen};
use tokio::sync::watch;

use super::beats::BeatClock;
use super::view::{ClusterStatus, NodeStatus};
use crate::RuntimeConfig;
use crate::host::server_time::ServerTime;

/// Until when attempts may begin, by the host's monotonic clock. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct LeaseGate(Arc<AtomicU64>);

/// Not bounded by a lease.
const OPEN: u64 = u64::MAX;

impl LeaseGate {
    /// The gate of a store that no other process uses.
    pub(crate) fn open() -> Self {
        Self(Arc::new(AtomicU64::new(OPEN)))
    }

    /// Lets attempts begin until this time.
    pub(crate) fn hold_until(&self, until: Duration) {
        let micros = u64::try_from(until.as_micros()).unwrap_or(OPEN - 1);
        self.0.store(micros.min(OPEN - 1), Ordering::Release);
    }

    /// Until when attempts may begin; `None` if they are not bounded. One load.
    #[inline]
    pub(crate) fn holds_until(&self) -> Option<Duration> {
        match self.0.load(Ordering::Acquire) {
            OPEN => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    /// When the last flush that has landed was asked for, for a node with this lease; `None` if attempts are not bounded.
    pub(crate) fn confirmed(&self, lease: Duration) -> Option<Duration> {
        let until = self.holds_until()?;
        Some(until.saturating_sub(BeatClock::held(lease)))
    }
}

/// What is known of the nodes.
#[derive(Debug)]
pub(crate) struct ClusterShared {
    pub(crate) node: NodeKey,
    /// The time of day, if the store has a server that tells it.
    pub(crate) time: Option<ServerTime>,
    /// The result of the last successful look.
    seen: Mutex<LastLook>,
    /// The shortest lease of all nodes by that look, in microseconds.
    shortest_lease: AtomicU64,
    /// How many partitions this node drains to give them to others.
    draining_len: AtomicUsize,
    /// Whether a shutdown has begun.
    is_leaving: AtomicBool,
    /// The bell of the part that looks.
    bell: Bell,
    /// The bell that the store rings when another node says that it has left; it rings the part's bell.
    told: Bell,
    /// Notified after each successful look.
    looks: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct LastLook {
    nodes: NodesSeen,
    /// For each partition, the index of its owner in `nodes`.
    owners: Vec<Option<usize>>,
}

impl ClusterShared {
    pub(crate) fn new(node: NodeKey, time: Option<ServerTime>) -> Self {
        let (bell, told) = (Bell::new(), Bell::new());
        let rung = bell.clone();
        told.connect(move || rung.ring());
        Self {
            node,
            time,
            seen: Mutex::default(),
            shortest_lease: AtomicU64::new(u64::MAX),
            draining_len: AtomicUsize::new(0),
            is_leaving: AtomicBool::new(false),
            bell,
            told,
            looks: watch::Sender::default(),
        }
    }

    /// What a node with this configuration announces. A program that names the partitions to claim decides about partitions
    /// itself, and one that hosts no instances claims none.
    pub(crate) fn terms(config: &RuntimeConfig) -> NodeTerms {
        NodeTerms::new(config.lease, config.first_claim().is_none())
    }

    /// Tells the other nodes that this node claims nothing any more.
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// The bell of the part that looks.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// The bell that the store rings.
    pub(crate) fn told(&self) -> &Bell {
        &self.told
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    /// Notes how many partitions this node drains.
    pub(crate) fn note_draining(&self, len: usize) {
        self.draining_len.store(len, Ordering::Relaxed);
    }

    /// The shortest lease of all nodes in the last look; the longest possible before the first look.
    pub(crate) fn shortest_lease(&self) -> Duration {
        Duration::from_micros(self.shortest_lease.load(Ordering::Relaxed))
    }

    pub(crate) fn note(&self, nodes: NodesSeen) {
        let leases = nodes.nodes.iter().filter_map(|node| node.terms);
        let shortest = leases.map(|terms| terms.lease).min().unwrap_or(Duration::MAX);
        let shortest = u64::try_from(shortest.as_micros()).unwrap_or(u64::MAX);
        self.shortest_lease.store(shortest, Ordering::Relaxed);
        let mut owners = vec![None; usize::from(Partition::COUNT)];
        for (index, node) in nodes.nodes.iter().enumerate() {
            for partition in &node.partitions {
                owners[usize::from(partition.index())] = Some(index);
            }
        }
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = LastLook { nodes, owners };
        self.looks.send_replace(());
    }

    /// Completes after the next successful look.
    pub(crate) fn looked(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut looks = self.looks.subscribe();
        // An error means that the runtime is gone.
        async move { drop(looks.changed().await) }
    }

    /// The node that owned a partition when the nodes were looked at last, this one or another.
    pub(crate) fn owner_key(&self, partition: Partition) -> Option<NodeKey> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let index = seen.owners.get(usize::from(partition.index())).copied()??;
        Some(seen.nodes.nodes.get(index)?.node.clone())
    }

    /// The name of the node that owned a partition when the nodes were looked at last, unless that is this one.
    pub(crate) fn owner_of(&self, partition: Partition) -> Option<Arc<str>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let index = seen.owners.get(usize::from(partition.index())).copied()??;
        let node = &seen.nodes.nodes.get(index)?.node;
        (*node != self.node).then(|| node.name().into())
    }

    /// The status of all nodes, with the number of pieces of mail that were set aside.
    pub(crate) fn status(&self, mail_set_aside_len: u64) -> ClusterStatus {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = seen.nodes.nodes.iter().map(|node| NodeStatus {
            name: node.node.name().to_owned(),
            number: node.node.number(),
            is_here: node.node == self.node,
            claims: node.claims(),
            lease: node.terms.map(|terms| terms.lease),
            partitions: node.partitions.clone(),
        });
        ClusterStatus {
            name: self.node.name().to_owned(),
            number: self.node.number(),
            nodes: nodes.collect(),
            free_len: seen.nodes.free.len(),
            draining_len: self.draining_len.load(Ordering::Relaxed),
            mail_set_aside_len,
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_persistence::NodeSeen;

    use super::*;

    #[test]
    fn a_gate_holds_until_the_time_that_it_was_given_and_an_open_one_for_ever() {
        let gate = LeaseGate::open();
        assert_eq!(gate.holds_until(), None);
        gate.hold_until(Duration::from_millis(1_500));
        assert_eq!(gate.clone().holds_until(), Some(Duration::from_millis(1_500)));
        // The longest time is still a bound.
        gate.hold_until(Duration::MAX);
        assert!(gate.holds_until().is_some());
    }

    #[test]
    fn the_owner_of_a_partition_is_named_unless_it_is_this_node_or_none() {
        let [mine, theirs, free] = [1, 2, 3].map(|index| Partition::from_index(index).unwrap());
        let me = NodeKey::new("a", 1);
        let cluster = ClusterShared::new(me.clone(), None);
        assert_eq!(cluster.owner_of(theirs), None, "nobody has looked yet");
        let mut seen = NodesSeen::default();
        // Another opening under the same name is another node.
        seen.nodes = vec![
            NodeSeen::new(me, 5, vec![mine]),
            NodeSeen::new(NodeKey::new("a", 2), 5, vec![theirs]),
        ];
        seen.free = vec![free];
        cluster.note(seen);
        assert_eq!(cluster.owner_of(theirs).as_deref(), Some("a"));
        assert_eq!((cluster.owner_of(mine), cluster.owner_of(free)), (None, None));
        let status = cluster.status(0);
        assert_eq!((status.nodes.len(), status.free_len), (2, 1));
        assert!(status.nodes[0].is_here && !status.nodes[1].is_here);
    }
}
