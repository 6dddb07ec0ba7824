//! Which publish waits for which inbox, and since when.
//!
//! ```text
//!   handler of A ──publishes to──► full inbox B
//!        ▲                              │
//!        └───── full inbox A ◄──publishes─ handler of B        a cycle: nobody moves
//! ```
//!
//! A publish that meets a full `Block` inbox is listed here until it gets in or is dropped. A handler publishes in the name
//! of its subscription, so each entry is an edge from the delayed subscription to those it waits for. A wait longer than the
//! bound is reported, with the cycle it is part of if there is one.

use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrun_core::Timestamp;

use crate::clock::Clock;
use crate::envelope::Scope;
use crate::id::EnvelopeId;
use crate::id::SubscriptionId;
use crate::watch::monitor::{BrokerEvent, LongWait, Monitor};
use crate::watch::tap::{FlowEvent, TapSlot};

pub(crate) struct Waits {
    report_after: Duration,
    monitor: Arc<Monitor>,
    tap: Arc<TapSlot>,
    state: Mutex<WaitTable>,
}

#[derive(Default)]
struct WaitTable {
    entries: BTreeMap<u64, WaitingPublish>,
    next: u64,
    /// A task checks the entries. It clears this flag under the same lock under which it found none.
    watched: bool,
}

struct WaitingPublish {
    held_up: Option<SubscriptionId>,
    waits_for: Vec<SubscriptionId>,
    since: Timestamp,
    reported: bool,
}

impl Waits {
    pub(crate) fn new(report_after: Duration, monitor: Arc<Monitor>, tap: Arc<TapSlot>) -> Self {
        Self {
            report_after,
            monitor,
            tap,
            state: Mutex::default(),
        }
    }

    /// Lists that the current handler, or a publisher outside of any, waits for room in these inboxes.
    pub(crate) fn enter(
        self: &Arc<Self>,
        clock: &Arc<Clock>,
        envelope: EnvelopeId,
        waits_for: Vec<SubscriptionId>,
    ) -> WaitEntry {
        let held_up = Scope::current().map(|scope| scope.subscription);
        let since = clock.now();
        let mut state = self.state();
        let key = state.next;
        state.next += 1;
        state.entries.insert(
            key,
            WaitingPublish {
                held_up,
                waits_for,
                since,
                reported: false,
            },
        );
        drop(state);
        if !clock.is_ticking() {
            self.watch(clock);
        }
        WaitEntry {
            waits: Arc::clone(self),
            envelope,
            key,
        }
    }

    /// How many publishes wait now.
    pub(crate) fn len(&self) -> usize {
        self.state().entries.len()
    }

    /// All waits that have lasted longer than the bound.
    pub(crate) fn long_waits(&self, now: Timestamp) -> Vec<LongWait> {
        let state = self.state();
        let graph = state.graph();
        let long: Vec<LongWait> = state
            .entries
            .values()
            .filter(|entry| now.saturating_since(entry.since) >= self.report_after)
            .map(WaitingPublish::describe)
            .collect();
        drop(state);
        long.into_iter().map(|wait| graph.complete(wait)).collect()
    }

    /// Reports the long waits that were not reported yet; true if any publish still waits.
    pub(crate) fn report(&self, now: Timestamp) -> bool {
        let mut state = self.state();
        let mut fresh = Vec::new();
        for entry in state.entries.values_mut() {
            if !entry.reported && now.saturating_since(entry.since) >= self.report_after {
                entry.reported = true;
                fresh.push(entry.describe());
            }
        }
        let graph = if fresh.is_empty() {
            Graph::default()
        } else {
            state.graph()
        };
        let anybody = !state.entries.is_empty();
        state.watched = anybody;
        drop(state);
        // One at a time: if thousands wait for each other, each report names them all.
        for wait in fresh {
            self.monitor.tell(|| BrokerEvent::LongWait(graph.complete(wait)));
        }
        anybody
    }

    /// Starts a task that checks for long waits, unless one runs; it ends when no publisher waits. Most waits end before the
    /// clock's next tick, which is when this is called; those start no task.
    pub(crate) fn watch(self: &Arc<Self>, clock: &Arc<Clock>) {
        let Some(host) = clock.host() else { return };
        {
            let mut state = self.state();
            if state.watched || state.entries.is_empty() {
                return;
            }
            state.watched = true;
        }
        let (waits, watching) = (Arc::downgrade(self), Arc::clone(&host));
        let pause = (self.report_after / 2).max(Duration::from_millis(1));
        let watch = async move {
            loop {
                watching.sleep_until(watching.now() + pause).await;
                let Some(waits) = waits.upgrade() else { return };
                if !waits.report(watching.now()) {
                    return;
                }
            }
        };
        // The handle is not kept: the task ends by itself when no publish waits, or with the broker.
        drop(host.spawn("broker wait watch", Box::pin(watch)));
    }

    /// The host of the checking task has ended, or is about to: the next task starts anew.
    pub(crate) fn forget_watch(&self) {
        self.state().watched = false;
    }

    fn state(&self) -> MutexGuard<'_, WaitTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitingPublish {
    /// The report without the cycle.
    fn describe(&self) -> LongWait {
        LongWait {
            held_up: self.held_up,
            waits_for: self.waits_for.clone(),
            since: self.since,
            cycle: Vec::new(),
        }
    }
}

impl WaitTable {
    fn graph(&self) -> Graph {
        let mut graph = Graph::default();
        for entry in self.entries.values() {
            if let Some(id) = entry.held_up {
                graph.0.entry(id).or_default().extend(&entry.waits_for);
            }
        }
        graph
    }
}

/// The waits at one moment, to be searched without the lock.
#[derive(Default)]
struct Graph(BTreeMap<SubscriptionId, BTreeSet<SubscriptionId>>);

impl Graph {
    /// Adds the cycle that the wait is part of, if there is one.
    fn complete(&self, wait: LongWait) -> LongWait {
        let cycle = wait.held_up.and_then(|start| self.cycle_through(start));
        LongWait {
            cycle: cycle.unwrap_or_default(),
            ..wait
        }
    }

    /// A shortest chain of waits from `start` back to it: each subscription is visited once.
    fn cycle_through(&self, start: SubscriptionId) -> Option<Vec<SubscriptionId>> {
        let mut reached_from = BTreeMap::new();
        let mut next = VecDeque::from([start]);
        while let Some(id) = next.pop_front() {
            for waited_for in self.0.get(&id).into_iter().flatten() {
                if *waited_for == start {
                    let mut cycle: Vec<_> =
                        std::iter::successors(Some(id), |id| reached_from.get(id).copied()).collect();
                    cycle.reverse();
                    return Some(cycle);
                }
                if let btree_map::Entry::Vacant(place) = reached_from.entry(*waited_for) {
                    place.insert(id);
                    next.push_back(*waited_for);
                }
            }
        }
        None
    }
}

/// A wait that is going on; it ends when this is dropped.
pub(crate) struct WaitEntry {
    waits: Arc<Waits>,
    envelope: EnvelopeId,
    key: u64,
}

impl Drop for WaitEntry {
    fn drop(&mut self) {
        let entry = self.waits.state().entries.remove(&self.key);
        drop(entry);
        self.waits.tap.tell(FlowEvent::WaitOver {
            envelope: self.envelope,
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn graph(waits: &[(u64, &[u64])]) -> Graph {
        let id = SubscriptionId;
        let waits = waits.iter();
        Graph(
            waits
                .map(|(from, to)| (id(*from), to.iter().copied().map(id).collect()))
                .collect(),
        )
    }

    fn cycle(graph: &Graph, start: u64) -> Option<Vec<u64>> {
        let cycle = graph.cycle_through(SubscriptionId(start))?;
        Some(cycle.into_iter().map(|id| id.0).collect())
    }

    #[test]
    fn the_shortest_way_back_is_the_cycle() {
        let graph = graph(&[(1, &[2, 3]), (2, &[4]), (3, &[1]), (4, &[1, 5]), (5, &[5])]);
        assert_eq!(cycle(&graph, 1), Some(vec![1, 3]));
        assert_eq!(cycle(&graph, 2), Some(vec![2, 4, 1]));
        assert_eq!(cycle(&graph, 5), Some(vec![5]), "one that waits for itself");
    }

    #[test]
    fn who_waits_for_a_cycle_is_not_part_of_it() {
        let graph = graph(&[(1, &[2]), (2, &[3]), (3, &[2])]);
        assert_eq!(cycle(&graph, 1), None);
        assert_eq!(cycle(&graph, 9), None, "nobody it waits for");
    }

    /// A hundred layers of a hundred, each waiting for all of the next: chains beyond number, and yet
    /// each subscription is looked at once.
    #[test]
    fn many_ways_around_are_not_walked_one_by_one() {
        const LAYERS: u64 = 100;
        const WIDTH: u64 = 100;
        let mut graph = Graph::default();
        for layer in 0..LAYERS {
            for place in 0..WIDTH {
                let next = (layer + 1) % LAYERS * WIDTH;
                let all = (next..next + WIDTH).map(SubscriptionId).collect();
                graph.0.insert(SubscriptionId(layer * WIDTH + place), all);
            }
        }
        let cycle = graph.cycle_through(SubscriptionId(7)).unwrap();
        assert_eq!(cycle.len() as u64, LAYERS);
        assert!(
            cycle
                .iter()
                .enumerate()
                .all(|(layer, id)| id.0 / WIDTH == layer as u64)
        );
    }
}
