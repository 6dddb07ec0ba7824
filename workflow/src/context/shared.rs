//! What an instance's code and its machine share: the table of operations.
//!
//! The code's futures write decisions into it and read resolutions from it; the machine does the
//! opposite. Both are on the same thread while they do, one after the other, so the lock is
//! never waited for; it is there because workflow futures are `Send`.

use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use millrun_core::{RunId, Timestamp};

use crate::event::{ActivityFailure, Event, Name};
use crate::machine::Limits;
use crate::{OperationId, Payload};

#[derive(Debug)]
pub(crate) struct Shared(Mutex<Table>);

impl Shared {
    pub(crate) fn new(run: RunId, limits: Limits, now: Timestamp) -> Self {
        Self(Mutex::new(Table {
            run,
            limits,
            now,
            epoch: 0,
            is_polled: false,
            is_cancel_requested: false,
            operations_len: 0,
            random_len: 0,
            slots: BTreeMap::new(),
            signals: BTreeMap::new(),
            cancel_waiters: Vec::new(),
            decisions: Vec::new(),
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic of the code is caught with the table unlocked or consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) run: RunId,
    pub(crate) limits: Limits,
    /// The time of the event that is being applied.
    pub(crate) now: Timestamp,
    /// The owner's epoch, for the events decided now.
    pub(crate) epoch: u64,
    /// Whether the machine polls this instance's code at the moment. Only then does dropping an
    /// operation mean anything.
    pub(crate) is_polled: bool,
    pub(crate) is_cancel_requested: bool,
    /// How many operations the code has issued.
    pub(crate) operations_len: u32,
    /// How many random numbers the code has drawn.
    pub(crate) random_len: u64,
    slots: BTreeMap<OperationId, Slot>,
    signals: BTreeMap<Name, Inbox>,
    cancel_waiters: Vec<Waker>,
    decisions: Vec<Decision>,
}

/// Something the code decided, and where.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) event: Event,
    pub(crate) location: Option<&'static Location<'static>>,
}

#[derive(Debug)]
struct Slot {
    is_shielded: bool,
    state: SlotState,
}

#[derive(Debug)]
enum SlotState {
    Waiting(Waker),
    Resolved(Resolution),
}

/// How an operation ended.
#[derive(Debug)]
pub(crate) enum Resolution {
    Value(Payload),
    Failure(ActivityFailure),
    Fired,
}

#[derive(Debug, Default)]
struct Inbox {
    values: VecDeque<Payload>,
    waiters: Vec<Waiter>,
    waiters_len: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    is_shielded: bool,
    waker: Waker,
}

impl Table {
    /// Issues an operation: numbers it, records the decision, and keeps the waker.
    pub(crate) fn issue(
        &mut self,
        is_shielded: bool,
        waker: &Waker,
        location: &'static Location<'static>,
        event: impl FnOnce(OperationId) -> Event,
    ) -> OperationId {
        self.operations_len = self
            .operations_len
            .checked_add(1)
            .expect("fewer than 2^32 operations in one run");
        let operation = OperationId::new(self.operations_len);
        self.decisions.push(Decision {
            event: event(operation),
            location: Some(location),
        });
        self.slots.insert(
            operation,
            Slot {
                is_shielded,
                state: SlotState::Waiting(waker.clone()),
            },
        );
        operation
    }

    /// Takes an operation's resolution, or keeps the waker until there is one.
    pub(crate) fn poll(&mut self, operation: OperationId, waker: &Waker) -> Option<Resolution> {
        let slot = self.slots.get_mut(&operation)?;
        match &mut slot.state {
            SlotState::Waiting(kept) => {
                kept.clone_from(waker);
                None
            }
            SlotState::Resolved(_) => match self.slots.remove(&operation)?.state {
                SlotState::Resolved(resolution) => Some(resolution),
                SlotState::Waiting(_) => None,
            },
        }
    }

    /// The code lost interest in an operation. A decision only while the code is being polled;
    /// otherwise the whole future goes away, which decides nothing.
    pub(crate) fn abandon(&mut self, operation: OperationId) {
        if !self.is_polled {
            return;
        }
        if let Some(Slot {
            state: SlotState::Waiting(_),
            ..
        }) = self.slots.remove(&operation)
        {
            let event = Event::OperationCancelled { operation };
            self.decisions.push(Decision {
                event,
                location: None,
            });
        }
    }

    /// The machine resolves an operation. `None` if the code has lost interest.
    pub(crate) fn resolve(&mut self, operation: OperationId, resolution: Resolution) -> Option<Waker> {
        let slot = self.slots.get_mut(&operation)?;
        match std::mem::replace(&mut slot.state, SlotState::Resolved(resolution)) {
            SlotState::Waiting(waker) => Some(waker),
            SlotState::Resolved(_) => None,
        }
    }

    /// The machine delivers a signal; those who wait for its name are woken in their order.
    pub(crate) fn deliver(&mut self, name: &Name, value: Payload) -> Vec<Waker> {
        let inbox = self.inbox(name);
        inbox.values.push_back(value);
        inbox.waiters.iter().map(|waiter| waiter.waker.clone()).collect()
    }

    /// Takes the oldest signal of this name.
    pub(crate) fn take_signal(&mut self, name: &Name) -> Option<Payload> {
        self.signals.get_mut(name)?.values.pop_front()
    }

    /// Waits for a signal; `number` is that of an earlier call for the same wait.
    pub(crate) fn wait_signal(
        &mut self,
        name: &Name,
        number: Option<u64>,
        is_shielded: bool,
        waker: &Waker,
    ) -> u64 {
        let inbox = self.inbox(name);
        if let Some(number) = number
            && let Some(waiter) = inbox.waiters.iter_mut().find(|waiter| waiter.number == number)
        {
            waiter.waker.clone_from(waker);
            return number;
        }
        inbox.waiters_len += 1;
        let number = inbox.waiters_len;
        inbox.waiters.push(Waiter {
            number,
            is_shielded,
            waker: waker.clone(),
        });
        number
    }

    /// Ends a wait for a signal.
    pub(crate) fn forget_waiter(&mut self, name: &Name, number: u64) {
        if let Some(inbox) = self.signals.get_mut(name) {
            inbox.waiters.retain(|waiter| waiter.number != number);
        }
    }

    fn inbox(&mut self, name: &Name) -> &mut Inbox {
        if !self.signals.contains_key(name) {
            self.signals.insert(name.clone(), Inbox::default());
        }
        self.signals
            .get_mut(name)
            .expect("inserted just above if it was absent")
    }

    /// Keeps a waker until the run is asked to cancel.
    pub(crate) fn wait_cancel(&mut self, waker: &Waker) {
        if !self.cancel_waiters.iter().any(|kept| kept.will_wake(waker)) {
            self.cancel_waiters.push(waker.clone());
        }
    }

    /// The machine passes on a request to cancel: everything unshielded is woken.
    pub(crate) fn request_cancel(&mut self) -> Vec<Waker> {
        self.is_cancel_requested = true;
        let mut wakers = std::mem::take(&mut self.cancel_waiters);
        for slot in self.slots.values() {
            if let SlotState::Waiting(waker) = &slot.state
                && !slot.is_shielded
            {
                wakers.push(waker.clone());
            }
        }
        for inbox in self.signals.values() {
            let unshielded = inbox.waiters.iter().filter(|waiter| !waiter.is_shielded);
            wakers.extend(unshielded.map(|waiter| waiter.waker.clone()));
        }
        wakers
    }

    /// Whether anything the engine knows of can wake the code again.
    pub(crate) fn is_waiting(&self) -> bool {
        self.slots
            .values()
            .any(|slot| matches!(slot.state, SlotState::Waiting(_)))
            || self.signals.values().any(|inbox| !inbox.waiters.is_empty())
            || !self.cancel_waiters.is_empty()
    }

    /// How many operations the code waits for.
    pub(crate) fn outstanding_len(&self) -> usize {
        self.slots.len()
    }

    /// How many signals have arrived and not been taken.
    pub(crate) fn buffered_signals_len(&self) -> usize {
        self.signals.values().map(|inbox| inbox.values.len()).sum()
    }

    /// The names of signals that somebody waits for.
    pub(crate) fn awaited_signals(&self) -> Vec<String> {
        let awaited = self.signals.iter().filter(|(_, inbox)| !inbox.waiters.is_empty());
        awaited.map(|(name, _)| name.to_string()).collect()
    }

    /// Adds a decision that is no operation: the run's end.
    pub(crate) fn decide(&mut self, event: Event) {
        self.decisions.push(Decision {
            event,
            location: None,
        });
    }

    /// Moves the decisions made since the last call into `into`, which is empty.
    pub(crate) fn take_decisions(&mut self, into: &mut Vec<Decision>) {
        std::mem::swap(&mut self.decisions, into);
    }
}
