//! Which nodes are dead, and what this node claims: a pure machine, without a clock and without a store.
//!
//! ```text
//!   turn(now) ──► Look, each 250 ms ─────► the driver reads ────► looked(began, ended, what is seen) or look_failed
//!                                                                    │
//!        DeclareDead ◄── a beat stood still for a lease ◄────────────┤
//!        Claim ◄── shares.rs ◄───────────────────────────────────────┤
//!        Drain, Resume, Release ◄── handover.rs ◄────────────────────┘
//! ```
//!
//! Times are those of a clock of this process that never jumps ([`Host::elapsed`](millrun_core::Host::elapsed)); no time of
//! day decides anything. A node counts as dead when this node's own successful reads have shown the same beat of it for the
//! lease that it has announced, or for this node's lease if it has announced none. Time in which this node could not see
//! beats does not count, so all watches begin anew:
//!
//! - after a time without a successful read: the store was away, or this process stood still;
//! - while this node's own flushes do not land: perhaps the other nodes' do not either.
//!
//! The first watch after such a gap lasts for several leases: another node may still wait for an answer that the server has
//! lost, and reach the server later than this node does. Once such a node has beaten, it is watched as usual.
//!
//! Safety does not rest on this: a node that is declared dead by mistake is fenced, and stops.

use std::collections::BTreeMap;
use std::time::Duration;

use millrun_core::Partition;
use millrun_persistence::{NodeKey, NodesSeen};

use super::handover::{HandOver, Surplus};
use super::pace::{ClaimPace, Refusal};
use super::shares;

/// How often the nodes are looked at. With a short lease it is ten times in the lease, if that is more often.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How many successful reads it takes at least to declare a node dead.
pub(crate) const READS_MIN: u32 = 4;

/// For how many leases a node may be silent after an outage, as seen by the node that looks, until it has been seen to beat.
pub(crate) const FIRST_WATCH_LEASES: u32 = 5;

/// For how many leases nothing is given back for a node that lives but did not claim its share: it would not claim it again.
const SHUNNED_LEASES: u32 = 20;

/// An order to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClusterAction {
    /// Look at the nodes of the store.
    Look,
    DeclareDead(NodeKey),
    /// Claim these partitions, perhaps in several claims. The driver reports the answers by [`ClusterMachine::granted`] or
    /// [`ClusterMachine::refused`], and calls [`ClusterMachine::claimed`] once all are answered.
    Claim(Vec<Partition>),
    /// Let no further attempt begin in `len` of these partitions, those without attempts under way first, and of those the
    /// last ones. The driver reports which by [`ClusterMachine::drained`], and by [`ClusterMachine::at_rest`] when no attempt
    /// is under way there.
    Drain {
        len: usize,
        of: Vec<Partition>,
    },
    /// Let attempts begin again in these partitions.
    Resume(Vec<Partition>),
    /// Give these partitions back. What is under way there is cut.
    Release(Vec<Partition>),
}

/// What is known of another node.
#[derive(Clone, Copy, Debug)]
struct WatchedNode {
    beat: u64,
    /// The end of the first successful read that has shown this beat.
    since: Duration,
    /// How many successful reads have shown it.
    reads: u32,
    /// How long the same beat may be shown until the node counts as dead: its lease, or several.
    patience: Duration,
    /// Since when it has been seen to beat, never silent for half of a lease.
    lives_since: Duration,
}

/// The decisions of one node.
#[derive(Debug)]
pub(crate) struct ClusterMachine {
    me: NodeKey,
    lease: Duration,
    look_every: Duration,
    /// Whether it claims, gives back and declares dead by itself.
    is_deciding: bool,
    watched: BTreeMap<NodeKey, WatchedNode>,
    /// The end of the last successful read.
    last_read: Option<Duration>,
    next_look: Duration,
    is_claiming: bool,
    hand_over: HandOver,
    pace: ClaimPace,
    /// Since when partitions are free, by the end of the first successful read that has shown them free.
    free_since: BTreeMap<Partition, Duration>,
    first_watch_leases: u32,
    /// Nodes that live but have left their share to others, and until when nothing is given back for them.
    shunned: BTreeMap<NodeKey, Duration>,
    /// The nodes that the last look has shown. Shares are only evened out while the set of nodes does not change.
    stable: Vec<NodeKey>,
}

impl ClusterMachine {
    /// The machine of a node that begins to look now. It waits for attempts in partitions that it gives to others for at most
    /// `handover_grace`.
    pub(crate) fn new(
        me: NodeKey,
        lease: Duration,
        handover_grace: Duration,
        is_deciding: bool,
        now: Duration,
    ) -> Self {
        Self {
            me,
            lease,
            look_every: LOOK_EVERY.min(lease / 10),
            is_deciding,
            watched: BTreeMap::new(),
            last_read: None,
            next_look: now,
            is_claiming: false,
            hand_over: HandOver::new(handover_grace),
            pace: ClaimPace::default(),
            free_since: BTreeMap::new(),
            first_watch_leases: FIRST_WATCH_LEASES,
            shunned: BTreeMap::new(),
            stable: Vec::new(),
        }
    }

    /// Stops deciding about other nodes and about partitions: this node is about to leave.
    pub(crate) fn leave(&mut self) {
        self.is_deciding = false;
        self.hand_over.clear();
    }

    /// When the next turn is due.
    pub(crate) fn next(&self) -> Duration {
        self.next_look
    }

    /// The actions that are due.
    pub(crate) fn turn(&mut self, now: Duration) -> Vec<ClusterAction> {
        let mut actions = Vec::new();
        if now >= self.next_look {
            self.next_look = now + self.look_every;
            actions.push(ClusterAction::Look);
        }
        actions.extend(self.hand_over.turn());
        actions
    }

    /// Sets when the nodes are looked at next.
    pub(crate) fn look_at(&mut self, time: Duration) {
        self.next_look = time;
    }

    /// A claim was granted.
    pub(crate) fn granted(&mut self, partitions: &[Partition]) {
        self.pace.granted(partitions);
        self.hand_over.forget(partitions);
    }

    /// These partitions are drained from now on.
    pub(crate) fn drained(&mut self, now: Duration, partitions: &[Partition]) {
        self.hand_over.drained(now, partitions);
    }

    /// Whether a partition is drained.
    pub(crate) fn is_draining(&self, partition: Partition) -> bool {
        self.hand_over.is_draining(partition)
    }

    /// No attempt is under way in these drained partitions, and everything that attempts have reported is recorded.
    pub(crate) fn at_rest(&mut self, partitions: &[Partition]) {
        self.hand_over.at_rest(partitions);
    }

    /// A claim was refused.
    pub(crate) fn refused(&mut self, now: Duration, partitions: Vec<Partition>) -> Refusal {
        let spread = u32::try_from(self.me.number() % 4).unwrap_or(0);
        self.pace.refused(now, partitions, spread)
    }

    /// All claims are answered.
    pub(crate) fn claimed(&mut self) {
        self.is_claiming = false;
    }

    /// A look has failed: it tells nothing about any node.
    pub(crate) fn look_failed(&mut self, now: Duration) {
        self.next_look = self.next_look.max(now + self.look_every);
    }

    /// Takes the result of a look that lasted from `began` to `ended`. This node's last flush that has landed was asked for
    /// at `confirmed`.
    pub(crate) fn looked(
        &mut self,
        (began, ended): (Duration, Duration),
        confirmed: Duration,
        seen: &NodesSeen,
    ) -> Vec<ClusterAction> {
        let gap = self.last_read.map(|last| began.saturating_sub(last));
        self.last_read = Some(ended);
        let unconfirmed_for = ended.saturating_sub(confirmed);
        // Whether earlier looks still count, for a lease of this length.
        let has_watched = |lease: Duration, look_every: Duration| {
            let gap_max = (lease / 4).max(4 * look_every);
            gap.is_some_and(|gap| gap <= gap_max) && unconfirmed_for <= lease / 2
        };
        let mut actions = Vec::new();
        let others = seen.nodes.iter().filter(|node| node.node != self.me);
        let mut watched = BTreeMap::new();
        for node in others {
            let lease = node.terms.map_or(self.lease, |terms| terms.lease);
            let is_watch_on = has_watched(lease, self.look_every);
            // A node that has just begun to look has seen no outage.
            let is_first = gap.is_some() && !is_watch_on;
            let known = self.watched.get(&node.node).filter(|_| is_watch_on);
            let lives = known.filter(|known| began.saturating_sub(known.since) < lease / 2);
            let fresh = WatchedNode {
                lives_since: lives.map_or(ended, |known| known.lives_since),
                beat: node.beat,
                since: ended,
                reads: 1,
                patience: lease * if is_first { self.first_watch_leases } else { 1 },
            };
            let known = known.filter(|known| known.beat == node.beat);
            let now = known.map_or(fresh, |known| WatchedNode {
                reads: known.reads.saturating_add(1),
                ..*known
            });
            let still_for = began.saturating_sub(now.since);
            if self.is_deciding && still_for >= now.patience && now.reads >= READS_MIN {
                actions.push(ClusterAction::DeclareDead(node.node.clone()));
            }
            watched.insert(node.node.clone(), now);
        }
        self.watched = watched;
        let nodes: Vec<_> = seen.nodes.iter().map(|node| node.node.clone()).collect();
        let is_stable = nodes == self.stable;
        self.stable = nodes;
        if !has_watched(self.lease, self.look_every) {
            self.free_since.clear();
        }
        self.note_free(ended, &seen.free);
        let mine = seen.nodes.iter().find(|node| node.node == self.me);
        let mine = mine.map_or(&[][..], |node| &node.partitions);
        self.hand_over.note_owned(mine);
        if self.is_deciding && !self.is_claiming && unconfirmed_for <= self.lease / 2 {
            let wanted = self.wanted((began, ended), seen);
            if !wanted.is_empty() {
                self.is_claiming = true;
                let is_shunned = |node: &NodeKey| self.shunned.contains_key(node);
                // A node that takes up what another has left may have surplus all the same.
                let surplus = Surplus {
                    len: shares::surplus_len(&self.me, seen, is_shunned),
                    may_drain_more: false,
                };
                actions.extend(self.hand_over.wanted(ended, mine, surplus));
                actions.push(ClusterAction::Claim(wanted));
            } else if is_stable && actions.is_empty() {
                self.shunned.retain(|_, until| ended < *until);
                let is_shunned = |node: &NodeKey| self.shunned.contains_key(node);
                let surplus = Surplus {
                    len: shares::surplus_len(&self.me, seen, is_shunned),
                    // Free partitions are claimed first, since their runs stand still until then.
                    may_drain_more: seen.free.len() <= self.left(began).len(),
                };
                actions.extend(self.hand_over.wanted(ended, mine, surplus));
            }
        }
        actions
    }

    /// Notes which partitions a look has shown to be free.
    fn note_free(&mut self, ended: Duration, free: &[Partition]) {
        self.free_since
            .retain(|partition, _| free.binary_search(partition).is_ok());
        for partition in free {
            self.free_since.entry(*partition).or_insert(ended);
        }
    }

    /// The partitions that this node should claim: its share; or else, partitions that other nodes should have claimed and
    /// have left free for a lease.
    fn wanted(&mut self, (began, ended): (Duration, Duration), seen: &NodesSeen) -> Vec<Partition> {
        let share = self.pace.allowed(ended, shares::to_claim(&self.me, seen));
        if !share.is_empty() {
            return self.pace.next(share);
        }
        let left = self.pace.allowed(ended, self.left(began));
        let taken_up = shares::to_take_up(&self.me, seen, &left);
        if !taken_up.is_empty() {
            let until = ended + self.lease * SHUNNED_LEASES;
            // A node that was silent meanwhile is dead, or has come back and is about to claim; only one that lives is
            // shunned.
            let lives = |node: &NodeKey| {
                let watched = self.watched.get(node);
                watched.is_some_and(|watched| {
                    let beats = began.saturating_sub(watched.since) < self.lease / 2;
                    beats && began.saturating_sub(watched.lives_since) >= self.lease
                })
            };
            let lacking = shares::lacking(seen).filter(|node| lives(node));
            self.shunned.extend(lacking.map(|node| (node.clone(), until)));
        }
        self.pace.next(taken_up)
    }

    /// The partitions that have been free for a lease, in order.
    fn left(&self, began: Duration) -> Vec<Partition> {
        let is_left = |since: &Duration| began.saturating_sub(*since) >= self.lease;
        let left = self.free_since.iter().filter(|(_, since)| is_left(since));
        left.map(|(partition, _)| *partition).collect()
    }
}

#[cfg(test)]
mod tests;
