//! What an instance's code and its machine share: the table of operations.
//!
//! The code's futures write decisions into it and read resolutions from it; the machine does the opposite. Both do so on the
//! same thread, one after the other, so the lock never waits; it is there because workflow futures are `Send`.

use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use millrun_core::{InstanceId, RunId, Sequence, Timestamp};

use crate::context::scope::Scope;
use crate::context::slots::{Resolution, Slots, Wakers};
use crate::context::time::RunTime;
use crate::context::waiting::{Awaited, Inboxes, Waiters};
use crate::context::{Cell, Pulse};
use crate::entity::EntityDesk;
use crate::event::{Bounds, Checkpoint, Event, Name, RecordFilter, TakenThrough, is_same_name};
use crate::machine::Moment;
use crate::{Cancelled, OperationId, Payload, TopicRenames};

/// How many references to a run's pulse are wakers of the engine's own: the root, and the table's copy for comparison.
const OWN_WAKERS: usize = 2;

#[derive(Debug)]
pub(crate) struct Shared {
    pulse: Arc<Pulse>,
    /// The root of the run's wakers: wakes the pulse.
    waker: Waker,
    /// Whether the machine is polling this instance's code. Only then does dropping an operation decide anything.
    is_polled: AtomicBool,
    /// Whether the code has decided more in one turn than it may: nothing of that turn counts.
    is_full: AtomicBool,
    table: Mutex<Table>,
}

impl Shared {
    pub(crate) fn new(run: RunId, bounds: Bounds, now: Timestamp) -> Self {
        let pulse = Arc::new(Pulse::default());
        let waker = Waker::from(Arc::clone(&pulse));
        Self {
            pulse,
            is_polled: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            table: Mutex::new(Table::new(run, bounds, now, waker.clone())),
            waker,
        }
    }

    /// Clears everything but keeps memory, for [`renew`](Self::renew). `false` if the memory is large, or a waker is still
    /// held.
    pub(crate) fn clear(&mut self, operations_max: usize) -> bool {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        table.clear();
        let is_small = table.slots.capacity() <= operations_max;
        // Nothing else holds a waker, nor can get one any more.
        let is_unshared = Arc::strong_count(&self.pulse) == 1 + OWN_WAKERS;
        // The last accesses through dropped wakers happen before what the next run does.
        fence(Ordering::Acquire);
        is_small && is_unshared && !self.table.is_poisoned()
    }

    /// Sets it up for another run, after [`clear`](Self::clear).
    pub(crate) fn renew(&mut self, run: RunId, bounds: Bounds, now: Timestamp) {
        self.pulse.renew();
        *self.is_full.get_mut() = false;
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        (table.run, table.bounds, table.time) = (run, bounds, RunTime::new(now));
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic of the code is caught while the table is unlocked or consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// The waker with which the code is polled.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// The table, if the machine is polling the code. Any other poll or drop of a future must not decide anything: a
    /// destructor after the end, another task.
    pub(crate) fn lock_polled(&self) -> Option<MutexGuard<'_, Table>> {
        if !self.pulse.check_inside() || !self.is_polled() {
            return None;
        }
        let table = self.lock();
        if table.decisions.len() >= table.decisions_len_max as usize {
            // Otherwise a loop over operations that are ready at once would run until memory is used up.
            self.is_full.store(true, Ordering::Relaxed);
            return None;
        }
        Some(table)
    }

    /// Whether the code has decided more than it may.
    pub(crate) fn is_full(&self) -> bool {
        // Written and read only by the thread that is inside.
        self.is_full.load(Ordering::Relaxed)
    }

    /// Whether the code is being polled by its machine, on this thread.
    pub(crate) fn is_polled_here(&self) -> bool {
        self.is_polled() && self.pulse.check_inside()
    }

    fn is_polled(&self) -> bool {
        self.is_polled.load(Ordering::Acquire)
    }

    /// Sets whether the machine is polling the code.
    pub(crate) fn set_polled(&self, is_polled: bool) {
        self.is_polled.store(is_polled, Ordering::Release);
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) run: RunId,
    pub(crate) bounds: Bounds,
    /// The time of the event that is being applied.
    pub(crate) time: RunTime,
    /// The owner's epoch, for the events decided now.
    pub(crate) epoch: u64,
    pub(crate) is_cancel_requested: bool,
    /// The id of the run's instance, once its code has been brought.
    pub(crate) id: Option<InstanceId>,
    /// How many operations the code has issued.
    pub(crate) operations_len: u32,
    /// How many random numbers the code has drawn.
    pub(crate) random_len: u64,
    slots: Slots,
    signals: Inboxes,
    /// The number of signals in all inboxes.
    signals_len: usize,
    /// The size of their values.
    signals_bytes: usize,
    cancel_waiters: Waiters,
    decisions: Vec<Decision>,
    /// How many decisions one event may lead to.
    decisions_len_max: u32,
    /// Whether the code is shown its history, in a replay.
    is_replayed: bool,
    /// The state that queries and updates see.
    pub(crate) cell: Option<Arc<Cell>>,
    state_waiters: Waiters,
    /// The number of waits for signals, conditions and the request to cancel.
    waits_len: u32,
    /// Behind a pointer, since every instance in memory has room for it.
    seldom: Option<Box<Seldom>>,
    /// How many checkpoints the code has made in this turn.
    pub(crate) restarts_len: u16,
}

/// Fields that few runs need.
#[derive(Debug, Default)]
struct Seldom {
    /// In a replay: the recorded values of the present turn that the code asks for.
    replayed: VecDeque<Event>,
    /// Why the run was asked to cancel, if the code is shown that.
    cancel_reason: Option<Arc<str>>,
    /// Which way the code took at each `patched` call.
    patches: BTreeMap<Name, bool>,
    /// Set when the code has ended to continue: in another run, or from a checkpoint.
    next: Option<After>,
    /// The state of the checkpoint from which the code began.
    restored: Option<Payload>,
    /// What an entity has beside its state.
    desk: EntityDesk,
    /// The run's places in durable topics, ordered by topic and filter.
    taken: Vec<TakenThrough>,
    /// Former names of topics that the history or the code may use. `taken` has the present names.
    renamed: Option<Arc<TopicRenames>>,
    /// How many of the waiting signals the run began with, by name: they come first. Only for a run that is tried again when
    /// it fails.
    begun_with: Vec<(Name, u32)>,
}

impl Seldom {
    fn find_taken(&self, topic: &str, filter: &RecordFilter) -> Result<usize, usize> {
        let topic = match &self.renamed {
            Some(renamed) => renamed.present(topic),
            None => topic,
        };
        self.taken
            .binary_search_by(|taken| (&*taken.topic, &taken.filter).cmp(&(topic, filter)))
    }
}

/// How code continues that has ended to do so.
#[derive(Debug)]
pub(crate) enum After {
    /// Another run, of this workflow, with this argument.
    Run(Name, Payload, &'static Location<'static>),
    /// The same code again, with this state.
    Checkpoint(Payload, &'static Location<'static>),
}

/// A decision of the code, and where in the code it was made.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) event: Event,
    pub(crate) location: Option<&'static Location<'static>>,
}

/// What a replay has for a value that the code asks for.
#[derive(Debug)]
pub(crate) enum Replayed<T> {
    /// This is no replay.
    Live,
    /// It was recorded.
    Value(T),
    /// It was not recorded: the code does not fit the history.
    Absent,
}

impl Table {
    fn new(run: RunId, bounds: Bounds, now: Timestamp, root: Waker) -> Self {
        Self {
            run,
            bounds,
            time: RunTime::new(now),
            epoch: 0,
            is_cancel_requested: false,
            id: None,
            operations_len: 0,
            random_len: 0,
            slots: Slots::new(root),
            signals: Inboxes::default(),
            signals_len: 0,
            signals_bytes: 0,
            cancel_waiters: Waiters::default(),
            decisions: Vec::new(),
            decisions_len_max: u32::MAX,
            is_replayed: false,
            cell: None,
            state_waiters: Waiters::default(),
            waits_len: 0,
            seldom: None,
            restarts_len: 0,
        }
    }

    /// Resets the table, except for what [`Shared::renew`] sets; the slots keep their memory.
    fn clear(&mut self) {
        let Self {
            run: _,
            bounds: _,
            time: _,
            epoch,
            is_cancel_requested,
            id,
            operations_len,
            random_len,
            slots,
            signals,
            signals_len,
            signals_bytes,
            cancel_waiters,
            decisions,
            decisions_len_max: _,
            is_replayed,
            cell,
            state_waiters,
            waits_len,
            seldom,
            restarts_len,
        } = self;
        (*epoch, *is_cancel_requested) = (0, false);
        *id = None;
        (*operations_len, *random_len, *restarts_len) = (0, 0, 0);
        slots.clear();
        *signals = Inboxes::default();
        (*signals_len, *signals_bytes) = (0, 0);
        *cancel_waiters = Waiters::default();
        *state_waiters = Waiters::default();
        *waits_len = 0;
        *decisions = Vec::new();
        *is_replayed = false;
        *cell = None;
        *seldom = None;
    }

    /// Issues an operation: numbers it, records the decision, and keeps the waker.
    pub(crate) fn issue(
        &mut self,
        scope: &Scope,
        waker: &Waker,
        location: &'static Location<'static>,
        event: impl FnOnce(OperationId) -> Event,
    ) -> OperationId {
        self.operations_len = self
            .operations_len
            .checked_add(1)
            .expect("fewer than 2^32 operations in one run");
        let operation = OperationId::new(self.operations_len);
        self.decide(event(operation), Some(location));
        self.slots.insert(operation, scope.clone(), waker, location);
        operation
    }

    /// Takes an operation's resolution, or keeps the waker until there is one.
    pub(crate) fn poll(&mut self, operation: OperationId, waker: &Waker) -> Option<Resolution> {
        self.slots.poll(operation, waker)
    }

    /// The code has dropped an operation. That is a decision, if the operation had not ended.
    pub(crate) fn abandon(&mut self, operation: OperationId) {
        if self.slots.abandon(operation) {
            let event = Event::OperationCancelled { operation };
            self.decide(event, None);
        }
    }

    /// Asks a child to cancel, and goes on waiting for it. Returns whether the code still waits for its end.
    pub(crate) fn cancel_child(
        &mut self,
        operation: OperationId,
        reason: String,
        location: &'static Location<'static>,
    ) -> bool {
        let is_awaited = self.slots.is_waiting(operation);
        if is_awaited {
            let event = Event::ChildCancelRequested { operation, reason };
            self.decide(event, Some(location));
        }
        is_awaited
    }

    /// The machine shows an event to the code. Returns the wakers of the futures that it concerns, in order.
    pub(crate) fn take_in(&mut self, event: &Event) -> Wakers {
        match event {
            Event::ActivityCompleted {
                operation, result, ..
            } => self.slots.resolve(*operation, Resolution::Value(result.clone())),
            Event::ActivityFailed {
                operation, failure, ..
            } => self
                .slots
                .resolve(*operation, Resolution::Failure(failure.clone())),
            Event::TimerFired { operation } => self.slots.resolve(*operation, Resolution::Fired),
            Event::Published { operation, outcome } => self
                .slots
                .resolve(*operation, Resolution::Published(outcome.clone())),
            Event::RecordReceived { operation, record } => {
                self.slots.resolve(*operation, Resolution::Record(record.clone()))
            }
            Event::SignalSent { operation, outcome } => self
                .slots
                .resolve(*operation, Resolution::Signalled(outcome.clone())),
            Event::PromiseSettled { operation, end } => self
                .slots
                .resolve(*operation, Resolution::KeptOrBroken(end.clone())),
            Event::ChildEnded { operation, end } => {
                self.slots.resolve(*operation, Resolution::Child(end.clone()))
            }
            Event::SignalReceived { name, value, .. } | Event::RunSignalReceived { name, value, .. } => {
                Wakers::Many(self.deliver(name, value.clone()))
            }
            Event::CancelRequested { reason, is_shown } => {
                let reason = reason.as_str();
                if *is_shown && !reason.is_empty() {
                    self.seldom.get_or_insert_default().cancel_reason = Some(reason.into());
                }
                Wakers::Many(self.request_cancel())
            }
            Event::Started(_)
            | Event::ActivityScheduled(_)
            | Event::AttemptFailed { .. }
            | Event::AttemptStarted { .. }
            | Event::AttemptHeartbeat { .. }
            | Event::TimerStarted { .. }
            | Event::PublishScheduled(_)
            | Event::ReceiveScheduled(_)
            | Event::SignalScheduled(_)
            | Event::PublishParked { .. }
            | Event::PromiseMade { .. }
            | Event::Checkpointed(_)
            | Event::ChildScheduled(_)
            | Event::ChildStarted { .. }
            | Event::ChildCancelRequested { .. }
            | Event::ContinuedAsNew { .. }
            | Event::OperationCancelled { .. }
            | Event::ValueRecorded { .. }
            | Event::Patched { .. }
            | Event::UpdateAccepted { .. }
            | Event::UpdateAnswered { .. }
            | Event::CommandPerformed(_)
            | Event::Completed { .. }
            | Event::Failed { .. }
            | Event::Cancelled { .. }
            | Event::Terminated { .. }
            | Event::TimedOut { .. }
            | Event::Reset { .. }
            | Event::Parked { .. }
            | Event::Resumed
            | Event::VersionChanged { .. } => Wakers::Nobody,
        }
    }

    /// The machine delivers a signal. All waits for its name are woken, in order: one that is not polled any more must not
    /// hide the signal from the others.
    fn deliver(&mut self, name: &Name, value: Payload) -> Vec<Waker> {
        self.signals_len += 1;
        self.signals_bytes += value.len();
        let inbox = self.signals.of(name);
        inbox.values.push_back(value);
        let waiting = inbox.waiters.waiting.iter();
        waiting.map(|waiter| waiter.waker.clone()).collect()
    }

    /// The size of signals and of the waits for them, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        const NAME_BYTES: usize = 192;
        let values = self.signals_len * size_of::<Payload>() + self.signals_bytes;
        self.signals.iter().len() * NAME_BYTES + values
    }

    /// The signals that have not been taken, by name, those of one name in their order.
    pub(crate) fn take_signals(&mut self) -> Vec<(Name, Payload)> {
        (self.signals_len, self.signals_bytes) = (0, 0);
        let mut left = Vec::new();
        for (name, inbox) in self.signals.iter_mut() {
            left.extend(inbox.values.drain(..).map(|value| (name.clone(), value)));
        }
        left
    }

    /// Adds signals that a former run had not taken.
    pub(crate) fn carry_signals(&mut self, signals: &[(Name, Payload)]) {
        for (name, value) in signals {
            // No wait exists before the code has begun.
            drop(self.deliver(name, value.clone()));
        }
    }

    /// Ends everything that the code waits for, and returns what the restarted code needs.
    pub(crate) fn checkpoint(
        &mut self,
        state: Payload,
        location: &'static Location<'static>,
        is_whole: bool,
    ) -> Checkpoint {
        let waiting = self.slots.operations();
        waiting.into_iter().for_each(|operation| self.abandon(operation));
        let mut signals = Vec::with_capacity(self.signals_len);
        for (name, inbox) in self.signals.iter_mut() {
            inbox.waiters = Waiters::default();
            signals.extend(inbox.values.iter().map(|value| (name.clone(), value.clone())));
        }
        let checkpoint = Checkpoint {
            state: state.clone(),
            signals,
            operations_len: self.operations_len,
            random_len: self.random_len,
            is_whole,
            now: self.time.apart(),
            taken: self.taken(),
            begun_with: self.begun_with(),
        };
        self.decide(Event::Checkpointed(Box::new(checkpoint.clone())), Some(location));
        self.cancel_waiters = Waiters::default();
        self.state_waiters = Waiters::default();
        self.waits_len = 0;
        self.cell = None;
        let seldom = self.seldom.get_or_insert_default();
        seldom.patches.clear();
        seldom.restored = Some(state);
        checkpoint
    }

    /// The state of the checkpoint from which the code began.
    pub(crate) fn restored(&self) -> Option<&Payload> {
        self.seldom.as_ref()?.restored.as_ref()
    }

    /// What an entity has beside its state.
    pub(crate) fn desk(&mut self) -> &mut EntityDesk {
        &mut self.seldom.get_or_insert_default().desk
    }

    /// Notes how the code, which has ended, is to continue.
    pub(crate) fn go_on(&mut self, next: After) {
        self.seldom.get_or_insert_default().next = Some(next);
    }

    /// How the code is to continue, if it has ended for that.
    pub(crate) fn take_next(&mut self) -> Option<After> {
        self.seldom.as_mut()?.next.take()
    }

    /// Restores what a checkpoint holds.
    pub(crate) fn restore(&mut self, checkpoint: &Checkpoint) {
        self.operations_len = checkpoint.operations_len;
        self.random_len = checkpoint.random_len;
        self.seldom.get_or_insert_default().restored = Some(checkpoint.state.clone());
        self.carry_signals(&checkpoint.signals);
        self.carry_taken(&checkpoint.taken);
        if !checkpoint.begun_with.is_empty() {
            self.seldom.get_or_insert_default().begun_with = checkpoint.begun_with.clone();
        }
    }

    /// How many waiting signals of each name the run began with.
    fn begun_with(&self) -> Vec<(Name, u32)> {
        let begun_with = self.seldom.iter().flat_map(|seldom| &seldom.begun_with);
        begun_with.filter(|(_, len)| *len > 0).cloned().collect()
    }

    /// The run's places in durable topics.
    pub(crate) fn taken(&self) -> Vec<TakenThrough> {
        let taken = self.seldom.iter().flat_map(|seldom| &seldom.taken);
        taken.cloned().collect()
    }

    /// Takes over places in durable topics from a former run, or from the code before a checkpoint.
    pub(crate) fn carry_taken(&mut self, taken: &[TakenThrough]) {
        if !taken.is_empty() {
            let seldom = self.seldom.get_or_insert_default();
            let renamed = seldom.renamed.as_ref();
            let renamed = renamed.and_then(|renamed| renamed.of_taken(taken));
            seldom.taken = renamed.unwrap_or_else(|| taken.to_vec());
        }
    }

    /// Sets the topics that were renamed, before the code begins.
    pub(crate) fn rename_topics(&mut self, renamed: &Arc<TopicRenames>) {
        self.seldom.get_or_insert_default().renamed = Some(Arc::clone(renamed));
    }

    /// The last record that the code has taken with this topic and filter.
    pub(crate) fn taken_through(&self, topic: &str, filter: &RecordFilter) -> Option<Sequence> {
        let seldom = self.seldom.as_ref()?;
        let at = seldom.find_taken(topic, filter).ok()?;
        Some(seldom.taken[at].sequence)
    }

    /// The number of the run's places in durable topics.
    pub(crate) fn taken_len(&self) -> usize {
        self.seldom.as_ref().map_or(0, |seldom| seldom.taken.len())
    }

    /// Notes that the code has taken a record.
    pub(crate) fn take_record(&mut self, topic: &Name, filter: &RecordFilter, sequence: Sequence) {
        let seldom = self.seldom.get_or_insert_default();
        match seldom.find_taken(topic, filter) {
            // A wait that was issued earlier may be polled later, so the place never moves back.
            Ok(at) => seldom.taken[at].sequence = seldom.taken[at].sequence.max(sequence),
            Err(at) => {
                let renamed = seldom.renamed.as_ref();
                let topic = renamed.map_or_else(|| topic.clone(), |renamed| renamed.replaced(topic));
                let taken = TakenThrough {
                    topic,
                    filter: filter.clone(),
                    sequence,
                };
                seldom.taken.insert(at, taken);
            }
        }
    }

    /// Takes all waiting signals except those that the run began with.
    pub(crate) fn take_later_signals(&mut self) -> Vec<(Name, Payload)> {
        let mut begun_with = self
            .seldom
            .as_mut()
            .map_or_else(Vec::new, |seldom| std::mem::take(&mut seldom.begun_with));
        let mut signals = self.take_signals();
        signals.retain(|(name, _)| {
            let mut of_name = begun_with
                .iter_mut()
                .filter(|(begun, len)| begun == name && *len > 0);
            match of_name.next() {
                Some((_, len)) => {
                    *len -= 1;
                    false
                }
                None => true,
            }
        });
        signals
    }

    /// Notes the signals with which a run begins, if it is tried again when it fails.
    pub(crate) fn begin_with_signals(&mut self, signals: &[(Name, Payload)]) {
        for (name, _) in signals {
            let begun_with = &mut self.seldom.get_or_insert_default().begun_with;
            match begun_with.iter_mut().find(|(begun, _)| begun == name) {
                Some((_, len)) => *len += 1,
                None => begun_with.push((name.clone(), 1)),
            }
        }
    }

    /// Takes the oldest signal of this name.
    pub(crate) fn take_signal(&mut self, name: &Name) -> Option<Payload> {
        let value = self.signals.get_mut(name)?.values.pop_front()?;
        if let Some(seldom) = &mut self.seldom
            && let Some((_, len)) = seldom.begun_with.iter_mut().find(|(begun, _)| begun == name)
        {
            *len = len.saturating_sub(1);
        }
        self.signals_len -= 1;
        self.signals_bytes -= value.len();
        Some(value)
    }

    /// Waits for a signal; `number` is that of an earlier call for the same wait.
    pub(crate) fn wait_signal(
        &mut self,
        name: &Name,
        number: Option<u64>,
        scope: &Scope,
        waker: &Waker,
        location: &'static Location<'static>,
    ) -> u64 {
        let now = self.time.host();
        let waiters = &mut self.signals.of(name).waiters;
        waiters.wait(number, scope, waker, location, now, &mut self.waits_len)
    }

    /// Ends a wait for a signal.
    pub(crate) fn forget_signal(&mut self, name: &Name, number: u64) {
        if let Some(inbox) = self.signals.get_mut(name) {
            inbox.waiters.forget(number, &mut self.waits_len);
        }
    }

    /// Waits for a cancel; `number` is that of an earlier call.
    pub(crate) fn wait_cancel(
        &mut self,
        number: Option<u64>,
        scope: &Scope,
        waker: &Waker,
        location: &'static Location<'static>,
    ) -> u64 {
        let (now, waits_len) = (self.time.host(), &mut self.waits_len);
        self.cancel_waiters
            .wait(number, scope, waker, location, now, waits_len)
    }

    /// Ends a wait for the request to cancel.
    pub(crate) fn forget_cancel(&mut self, number: u64) {
        self.cancel_waiters.forget(number, &mut self.waits_len);
    }

    /// Waits for a change of the state; `number` is that of an earlier call.
    pub(crate) fn wait_state(
        &mut self,
        number: Option<u64>,
        scope: &Scope,
        waker: &Waker,
        location: &'static Location<'static>,
    ) -> u64 {
        let (now, waits_len) = (self.time.host(), &mut self.waits_len);
        self.state_waiters
            .wait(number, scope, waker, location, now, waits_len)
    }

    /// Ends a wait for a change of the state.
    pub(crate) fn forget_state(&mut self, number: u64) {
        self.state_waiters.forget(number, &mut self.waits_len);
    }

    /// The wakers of waits for a changed state.
    pub(crate) fn wake_state(&self) -> Vec<Waker> {
        let waiting = self.state_waiters.waiting.iter();
        waiting.map(|waiter| waiter.waker.clone()).collect()
    }

    /// The machine passes on a request to cancel.
    fn request_cancel(&mut self) -> Vec<Waker> {
        self.is_cancel_requested = true;
        self.wake_cancelled()
    }

    /// The cancel that has reached this scope, if any.
    pub(crate) fn cancelled(&self, scope: &Scope) -> Option<Cancelled> {
        let is_by_request = self.is_cancel_requested && !scope.is_shielded();
        scope.is_cancelled(self.is_cancel_requested).then(|| {
            let reason = self
                .seldom
                .as_ref()
                .and_then(|seldom| seldom.cancel_reason.clone());
            Cancelled {
                reason: reason.filter(|_| is_by_request),
            }
        })
    }

    /// The wakers of waits that a cancel has reached.
    pub(crate) fn wake_cancelled(&self) -> Vec<Waker> {
        let is_reached = |scope: &Scope| scope.is_cancelled(self.is_cancel_requested);
        let reached = |waiters: &Waiters| {
            let waiting = waiters.waiting.iter();
            let reached = waiting.filter(|waiter| is_reached(&waiter.scope));
            reached.map(|waiter| waiter.waker.clone()).collect::<Vec<_>>()
        };
        let mut wakers = reached(&self.cancel_waiters);
        wakers.extend(self.slots.waiting(is_reached));
        let inboxes = self.signals.iter().map(|(_, inbox)| &inbox.waiters);
        for waiters in inboxes.chain([&self.state_waiters]) {
            wakers.extend(reached(waiters));
        }
        wakers
    }

    /// Whether something that the engine knows can wake the code again.
    pub(crate) fn is_waiting(&self) -> bool {
        self.slots.waiting_len() > 0 || self.waits_len > 0
    }

    /// The number of the code's waits that are no operations: for signals, conditions, the request to cancel.
    pub(crate) fn waits_len(&self) -> u32 {
        self.waits_len
    }

    /// How many operations the code waits for.
    pub(crate) fn outstanding_len(&self) -> usize {
        self.slots.len()
    }

    /// How many signals have arrived and not been taken.
    pub(crate) fn buffered_signals_len(&self) -> usize {
        self.signals_len
    }

    /// The code's waits that are no operations: signals by name, conditions, the request to cancel.
    pub(crate) fn awaited(&self) -> Vec<Awaited> {
        let signals = self.signals.iter().filter_map(|(name, inbox)| {
            let (since, at) = inbox.waiters.since().next()?;
            let name = name.to_string();
            Some(Awaited::Signal { name, since, at })
        });
        let conditions = self.state_waiters.since();
        let requests = self.cancel_waiters.since();
        signals
            .chain(conditions.map(|(since, at)| Awaited::Condition { since, at }))
            .chain(requests.map(|(since, at)| Awaited::CancelRequest { since, at }))
            .collect()
    }

    /// Where the code issued the operations that have not ended.
    pub(crate) fn lines(&self) -> Vec<(OperationId, &'static Location<'static>)> {
        self.slots.lines().collect()
    }

    /// Adds a decision.
    pub(crate) fn decide(&mut self, event: Event, location: Option<&'static Location<'static>>) {
        if self.decisions.capacity() == 0 {
            // Most turns decide one thing.
            self.decisions.reserve_exact(1);
        }
        self.decisions.push(Decision { event, location });
    }

    /// Sets, before code is polled in a replay, the recorded values of the turn; `None` when the replay is over.
    pub(crate) fn set_replayed(&mut self, events: Option<VecDeque<Event>>) {
        self.is_replayed = events.is_some();
        let events = events.unwrap_or_default();
        // Most turns have recorded nothing.
        if let Some(seldom) = &mut self.seldom {
            seldom.replayed = events;
        } else if !events.is_empty() {
            self.seldom.get_or_insert_default().replayed = events;
        }
    }

    /// The next recorded value of the turn that is replayed, if it has this name. A value without a name matches any name.
    pub(crate) fn replay_value(&mut self, name: Option<&str>) -> Replayed<Result<Payload, String>> {
        if !self.is_replayed {
            return Replayed::Live;
        }
        let Some(seldom) = &mut self.seldom else {
            return Replayed::Absent;
        };
        let events = &mut seldom.replayed;
        let at = events
            .iter()
            .position(|event| matches!(event, Event::ValueRecorded { .. }));
        let is_of_name = |event: &Event| match event {
            Event::ValueRecorded { name: recorded, .. } => is_same_name(recorded.as_deref(), name),
            _ => false,
        };
        let at = at.filter(|at| events.get(*at).is_some_and(is_of_name));
        match at.and_then(|at| events.remove(at)) {
            Some(Event::ValueRecorded { value, .. }) => Replayed::Value(value),
            _ => Replayed::Absent,
        }
    }

    /// Which way to take at a change: the new one, unless the run got here before the change.
    pub(crate) fn patch(&mut self, id: &'static str, location: &'static Location<'static>) -> bool {
        let seldom = self.seldom.get_or_insert_default();
        if let Some(is_new) = seldom.patches.get(id) {
            return *is_new;
        }
        let is_patch = |event: &Event| matches!(event, Event::Patched { id: recorded } if recorded == id);
        let is_new = !self.is_replayed || seldom.replayed.iter().any(is_patch);
        seldom.patches.insert(id.into(), is_new);
        if is_new {
            self.decide(Event::Patched { id: id.into() }, Some(location));
        }
        is_new
    }

    /// The changes that the code has asked for, and whether it took the new way of each.
    pub(crate) fn patches(&self) -> Vec<(Name, bool)> {
        let seldom = self.seldom.iter();
        let patches = seldom.flat_map(|seldom| &seldom.patches);
        patches.map(|(id, is_new)| (id.clone(), *is_new)).collect()
    }

    /// The decisions made since the last call.
    pub(crate) fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    /// Prepares for an event with this time that is about to be shown to the code; decisions may use `spare` as memory.
    pub(crate) fn begin_event(
        &mut self,
        recorded: Timestamp,
        moment: Moment,
        spare: Vec<Decision>,
        decisions_len_max: u32,
    ) {
        self.time.advance(recorded, moment.now);
        self.epoch = moment.epoch;
        self.decisions_len_max = decisions_len_max;
        self.lend(spare);
    }

    /// Lends an empty list as memory for the decisions of the next turn.
    pub(crate) fn lend(&mut self, spare: Vec<Decision>) {
        if self.decisions.capacity() == 0 {
            self.decisions = spare;
        }
    }
}
