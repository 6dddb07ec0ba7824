//! Who waits for whom, and since when.
//!
//! ```text
//!   handler of A ──publishes to──► full inbox B
//!        ▲                              │
//!        └───── full inbox A ◄──publishes─ handler of B        a cycle: nobody moves
//! ```
//!
//! A publish that meets a full `Block` inbox enters itself here until it gets in or is dropped. A
//! handler that publishes does so in the name of its subscription, so each entry is an edge from
//! the subscription that is held up to those it waits for. A wait longer than the bound is
//! reported, with the cycle it is part of if there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrun_core::Timestamp;

use crate::cause::Scope;
use crate::clock::Clock;
use crate::envelope::EnvelopeId;
use crate::monitor::{BrokerEvent, Monitor};
use crate::subscription::SubscriptionId;
use crate::tap::{FlowEvent, TapSlot};

/// A publish that has waited for long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LongWait {
    /// Whose handler publishes; none for a publisher outside of any handler.
    pub held_up: Option<SubscriptionId>,
    /// The full inboxes.
    pub waits_for: Vec<SubscriptionId>,
    /// Since when, by the broker's coarse clock.
    pub since: Timestamp,
    /// The subscriptions that wait for each other, starting with `held_up`: empty if there is no
    /// cycle, just somebody slow.
    pub cycle: Vec<SubscriptionId>,
}

pub(crate) struct Waits {
    report_after: Duration,
    monitor: Arc<Monitor>,
    tap: Arc<TapSlot>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<u64, Entry>,
    next: u64,
    watched: bool,
}

struct Entry {
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

    /// Notes that the current handler, or somebody outside, waits for room in these inboxes.
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
            Entry {
                held_up,
                waits_for,
                since,
                reported: false,
            },
        );
        let watch = !state.watched && clock.host().is_some();
        state.watched |= watch;
        drop(state);
        if watch {
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
        let long = state
            .entries
            .values()
            .filter(|entry| now.saturating_since(entry.since) >= self.report_after);
        long.map(|entry| state.describe(entry)).collect()
    }

    /// Reports the long waits that were not reported yet; true if anybody still waits.
    pub(crate) fn report(&self, now: Timestamp) -> bool {
        let mut fresh = Vec::new();
        let mut state = self.state();
        for entry in state.entries.values_mut() {
            if !entry.reported && now.saturating_since(entry.since) >= self.report_after {
                entry.reported = true;
                fresh.push((entry.held_up, entry.waits_for.clone(), entry.since));
            }
        }
        let reports: Vec<LongWait> = fresh
            .into_iter()
            .map(|(held_up, waits_for, since)| {
                state.describe(&Entry {
                    held_up,
                    waits_for,
                    since,
                    reported: true,
                })
            })
            .collect();
        let anybody = !state.entries.is_empty();
        state.watched = anybody;
        drop(state);
        for report in reports {
            self.monitor.tell(|| BrokerEvent::LongWait(report));
        }
        anybody
    }

    /// Looks from time to time, for as long as anybody waits.
    fn watch(self: &Arc<Self>, clock: &Arc<Clock>) {
        let Some(host) = clock.host() else { return };
        let (waits, watching) = (Arc::downgrade(self), Arc::clone(host));
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
        // Not kept: it ends by itself when nobody waits, or with the broker.
        drop(host.spawn("broker wait watch", Box::pin(watch)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn describe(&self, entry: &Entry) -> LongWait {
        let cycle = entry
            .held_up
            .map_or_else(Vec::new, |start| self.cycle_through(start));
        LongWait {
            held_up: entry.held_up,
            waits_for: entry.waits_for.clone(),
            since: entry.since,
            cycle,
        }
    }

    /// A shortest chain of waits from `start` back to it.
    fn cycle_through(&self, start: SubscriptionId) -> Vec<SubscriptionId> {
        let mut seen = BTreeSet::new();
        let mut chains = vec![vec![start]];
        while !chains.is_empty() {
            let mut longer = Vec::new();
            for chain in chains {
                let last = chain[chain.len() - 1];
                for next in self.waited_for_by(last) {
                    if next == start {
                        return chain;
                    }
                    if seen.insert(next) {
                        let mut chain = chain.clone();
                        chain.push(next);
                        longer.push(chain);
                    }
                }
            }
            chains = longer;
        }
        Vec::new()
    }

    fn waited_for_by(&self, id: SubscriptionId) -> impl Iterator<Item = SubscriptionId> {
        let of_id = self
            .entries
            .values()
            .filter(move |entry| entry.held_up == Some(id));
        of_id.flat_map(|entry| entry.waits_for.iter().copied())
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
