//! What an instance's code and its machine share: the table of operations.
//!
//! The code's futures write decisions into it and read resolutions from it; the machine does the
//! opposite. Both are on the same thread while they do, one after the other, so the lock is
//! never waited for; it is there because workflow futures are `Send`.

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

/// How many wakers of a run are not the code's: the root, and what the table compares with it.
const OWN_WAKERS: usize = 2;

#[derive(Debug)]
pub(crate) struct Shared {
    pulse: Arc<Pulse>,
    /// The root of the run's wakers: wakes the pulse.
    waker: Waker,
    /// Whether the machine polls this instance's code at the moment. Only then does dropping an
    /// operation mean anything.
    is_polled: AtomicBool,
    /// Whether the code has decided as much in one turn as it may: nothing of it counts then.
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

    /// Lets go of everything but memory, for [`renew`](Self::renew). `false` if that is much, or
    /// a waker is still held.
    pub(crate) fn clear(&mut self, operations_max: usize) -> bool {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        table.clear();
        let is_small = table.slots.capacity() <= operations_max;
        // Nobody else has one, nor can get one any more.
        let is_unshared = Arc::strong_count(&self.pulse) == 1 + OWN_WAKERS;
        // What others last did with theirs comes before what the next run does.
        fence(Ordering::Acquire);
        is_small && is_unshared && !self.table.is_poisoned()
    }

    /// Begins for another run, after [`clear`](Self::clear).
    pub(crate) fn renew(&mut self, run: RunId, bounds: Bounds, now: Timestamp) {
        self.pulse.renew();
        *self.is_full.get_mut() = false;
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        (table.run, table.bounds, table.time) = (run, bounds, RunTime::new(now));
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic of the code is caught with the table unlocked or consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// What the code is polled with.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// The table, if the code is being polled by its machine. Everything else that polls or drops
    /// one of its futures must not decide anything: a destructor after the end, another task.
    pub(crate) fn lock_polled(&self) -> Option<MutexGuard<'_, Table>> {
        if !self.pulse.check_inside() || !self.is_polled() {
            return None;
        }
        let table = self.lock();
        if table.decisions.len() >= table.decisions_len_max as usize {
            // A loop whose operations are ready at once would go on until the memory is used up.
            self.is_full.store(true, Ordering::Relaxed);
            return None;
        }
        Some(table)
    }

    /// Whether the code has decided as much as it may, and more.
    pub(crate) fn is_full(&self) -> bool {
        // Written and read on the thread that is inside.
        self.is_full.load(Ordering::Relaxed)
    }

    /// Whether the code is being polled by its machine, on this thread.
    pub(crate) fn is_polled_here(&self) -> bool {
        self.is_polled() && self.pulse.check_inside()
    }

    fn is_polled(&self) -> bool {
        self.is_polled.load(Ordering::Acquire)
    }

    /// The machine begins to poll the code, or has ended it.
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
    /// How many signals wait in all inboxes.
    signals_len: usize,
    /// The size of their values.
    signals_bytes: usize,
    cancel_waiters: Waiters,
    decisions: Vec<Decision>,
    /// How many decisions one event may lead to.
    decisions_len_max: u32,
    /// Whether the code is shown its history, and not what happens now.
    is_replayed: bool,
    /// The state that others may look at.
    pub(crate) cell: Option<Arc<Cell>>,
    state_waiters: Waiters,
    /// How many wait in all lists of those: for signals, conditions and the request to cancel.
    waits_len: u32,
    /// Behind a pointer, since every instance in memory has room for it.
    seldom: Option<Box<Seldom>>,
    /// How many checkpoints the code has made in this turn.
    pub(crate) restarts_len: u16,
}

/// What few runs have.
#[derive(Debug, Default)]
struct Seldom {
    /// In a replay, what the turn that is replayed recorded and the code needs back.
    replayed: VecDeque<Event>,
    /// Why the run was asked to cancel, if the code is shown that.
    cancel_reason: Option<Arc<str>>,
    /// Which way the code took at each change.
    patches: BTreeMap<Name, bool>,
    /// Set when the code has ended in order to begin again: in another run, or from a checkpoint.
    next: Option<After>,
    /// The state of the checkpoint from which the code began.
    restored: Option<Payload>,
    /// What an entity has beside its state.
    desk: EntityDesk,
    /// How far it has come in durable topics, in the order of their names and filters.
    taken: Vec<TakenThrough>,
    /// The topics that the history, or the code, may know by former names. Those in `taken` are the present ones.
    renamed: Option<Arc<TopicRenames>>,
    /// How many of the signals that wait the run began with, by name: they are the first. Only of a run that is tried again
    /// when it fails.
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

/// How code begins again that has ended in order to do so.
#[derive(Debug)]
pub(crate) enum After {
    /// Another run, of this workflow, with this argument.
    Run(Name, Payload, &'static Location<'static>),
    /// The same code again, with this state.
    Checkpoint(Payload, &'static Location<'static>),
}

/// Something the code decided, and where.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) event: Event,
    pub(crate) location: Option<&'static Location<'static>>,
}

/// What a replay knows of a value that the code asks for.
#[derive(Debug)]
pub(crate) enum Replayed<T> {
    /// This is no replay.
    Live,
    /// It was recorded.
    Value(T),
    /// It was not: the code does not fit the history.
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

    /// The code lost interest in an operation: a decision, if it had not ended yet.
    pub(crate) fn abandon(&mut self, operation: OperationId) {
        if self.slots.abandon(operation) {
            let event = Event::OperationCancelled { operation };
            self.decide(event, None);
        }
    }

    /// The machine shows an event to the code: the futures that it concerns are to be woken, in order.
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
            | Event::Reset { .. }
            | Event::Parked { .. }
            | Event::Resumed
            | Event::VersionChanged { .. } => Wakers::Nobody,
        }
    }

    /// The machine delivers a signal; the waits for its name are all woken, in their order:
    /// one that nobody polls any more must not keep it from the others.
    fn deliver(&mut self, name: &Name, value: Payload) -> Vec<Waker> {
        self.signals_len += 1;
        self.signals_bytes += value.len();
        let inbox = self.signals.of(name);
        inbox.values.push_back(value);
        let waiting = inbox.waiters.waiting.iter();
        waiting.map(|waiter| waiter.waker.clone()).collect()
    }

    /// What signals and the waits for them hold, in bytes.
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

    /// Begins with signals that a former run had not taken.
    pub(crate) fn carry_signals(&mut self, signals: &[(Name, Payload)]) {
        for (name, value) in signals {
            // Nobody waits before the code has begun.
            drop(self.deliver(name, value.clone()));
        }
    }

    /// Ends all that the code waits for, and gives what it begins with again.
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

    /// Notes how the code, which has ended, is to begin again.
    pub(crate) fn go_on(&mut self, next: After) {
        self.seldom.get_or_insert_default().next = Some(next);
    }

    /// The beginning that the code has come to, if it has.
    pub(crate) fn take_next(&mut self) -> Option<After> {
        self.seldom.as_mut()?.next.take()
    }

    /// Takes over what a checkpoint holds.
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

    /// How many of the signals that wait the run began with, where there are any.
    fn begun_with(&self) -> Vec<(Name, u32)> {
        let begun_with = self.seldom.iter().flat_map(|seldom| &seldom.begun_with);
        begun_with.filter(|(_, len)| *len > 0).cloned().collect()
    }

    /// How far the code has come in durable topics.
    pub(crate) fn taken(&self) -> Vec<TakenThrough> {
        let taken = self.seldom.iter().flat_map(|seldom| &seldom.taken);
        taken.cloned().collect()
    }

    /// Begins where a former run, or the code before a checkpoint, has come to in durable topics.
    pub(crate) fn carry_taken(&mut self, taken: &[TakenThrough]) {
        if !taken.is_empty() {
            let seldom = self.seldom.get_or_insert_default();
            let renamed = seldom.renamed.as_ref();
            let renamed = renamed.and_then(|renamed| renamed.of_taken(taken));
            seldom.taken = renamed.unwrap_or_else(|| taken.to_vec());
        }
    }

    /// Tells of topics that have other names than before, before the code begins.
    pub(crate) fn rename_topics(&mut self, renamed: &Arc<TopicRenames>) {
        self.seldom.get_or_insert_default().renamed = Some(Arc::clone(renamed));
    }

    /// The last record that the code has taken of these.
    pub(crate) fn taken_through(&self, topic: &str, filter: &RecordFilter) -> Option<Sequence> {
        let seldom = self.seldom.as_ref()?;
        let at = seldom.find_taken(topic, filter).ok()?;
        Some(seldom.taken[at].sequence)
    }

    /// In how many places of durable topics the code is.
    pub(crate) fn taken_len(&self) -> usize {
        self.seldom.as_ref().map_or(0, |seldom| seldom.taken.len())
    }

    /// The code has taken a record of these.
    pub(crate) fn take_record(&mut self, topic: &Name, filter: &RecordFilter, sequence: Sequence) {
        let seldom = self.seldom.get_or_insert_default();
        match seldom.find_taken(topic, filter) {
            // A wait that was issued earlier may be polled later.
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

    /// Takes all signals that wait and that the run did not begin with.
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

    /// Notes with which signals a run begins that is tried again when it fails.
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

    /// Those to wake because the state has changed.
    pub(crate) fn wake_state(&self) -> Vec<Waker> {
        let waiting = self.state_waiters.waiting.iter();
        waiting.map(|waiter| waiter.waker.clone()).collect()
    }

    /// The machine passes on a request to cancel.
    fn request_cancel(&mut self) -> Vec<Waker> {
        self.is_cancel_requested = true;
        self.wake_cancelled()
    }

    /// The cancel that has reached this scope, if one has.
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

    /// Those to wake because a cancel has reached them.
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

    /// Whether anything the engine knows of can wake the code again.
    pub(crate) fn is_waiting(&self) -> bool {
        self.slots.waiting_len() > 0 || self.waits_len > 0
    }

    /// How many waits the code has that are no operations: for signals, conditions, the request to cancel.
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

    /// What the code waits for beside operations: signals by name, conditions, the request to cancel.
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

    /// Before code is polled in a replay: what the turn recorded. `None` when it is over.
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

    /// The next value that was recorded in the turn that is replayed, if it is of this name. One that was
    /// recorded without a name is of any.
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

    /// Which way to take at a change: the new one, unless the run has been here before the change.
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

    /// An event that was recorded then is about to be shown to the code, which may use `spare` for its
    /// decisions.
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

    /// Gives an empty list, whose memory serves the next turn.
    pub(crate) fn lend(&mut self, spare: Vec<Decision>) {
        if self.decisions.capacity() == 0 {
            self.decisions = spare;
        }
    }
}
