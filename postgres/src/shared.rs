//! The state that the callers, the writer and the readers of a journal share, under one lock.
//!
//! No thread waits for a server while it holds the lock. Bells are rung without the lock, except for the answers to claims:
//! these are put on their lists under it, so that a loss is reported after its grant.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrun_core::{Bell, Epoch, Offset, Partition, RunId, Timestamp};
use millrun_persistence::{
    Batch, Claim, ClaimRefused, Claimant, FailureKind, JournalFailure, OutgoingMail, ReadError, RefusedTurn,
    Ringing, SealedTopics, TopicAppend, TopicRegister, TurnRefused, UpkeepNumber, Upkeeps,
};

use crate::heads::LiveHeads;
use crate::queued::QueuedEntry;
use crate::rows::MailRows;
use crate::server::{HeldPartition, StoredPartitions};

pub(crate) struct PostgresShared {
    state: Mutex<SharedState>,
    /// Notified of each entry for the writer, and of the writer's end.
    changed: Condvar,
}

pub(crate) struct SharedState {
    pub(crate) heads: LiveHeads,
    pub(crate) topics: TopicRegister,
    queue: Vec<QueuedEntry>,
    /// The latest epochs that are not stored yet.
    epochs: BTreeMap<Partition, Epoch>,
    /// Whether a flush is wanted without an entry: for changes of topics, or to check whether this opening still has the
    /// store.
    is_touched: bool,
    pub(crate) queued_len: usize,
    pub(crate) queued_bytes: usize,
    pub(crate) queued_snapshot_bytes: usize,
    /// Whether a caller was refused for lack of room, and waits for a bell.
    pub(crate) was_full: bool,
    pub(crate) enqueued: Offset,
    /// The offset of the last flush that the writer has taken. Its statement may be under way.
    taken: Offset,
    pub(crate) durable: Offset,
    /// Claims with fenced partitions, each with the offset that has to be durable first.
    claims: VecDeque<FencedClaim>,
    pub(crate) is_closing: bool,
    pub(crate) is_closed: bool,
    pub(crate) failure: Option<JournalFailure>,
    pub(crate) watchers: Vec<Bell>,
    pub(crate) upkeeps: Upkeeps,
    pub(crate) counts: WrittenCounts,
    /// `None` for a process that has the store to itself.
    pub(crate) node: Option<NodeState>,
}

/// What a node knows of the partitions that the store has given to it.
///
/// ```text
///   (others') ── claim ──► waits for the store ──► held, unread ── its runs are read ──► held ── release ──► (others')
/// ```
#[derive(Default)]
pub(crate) struct NodeState {
    /// The partitions that this node has: no other node may have them until this one gives them back.
    held: BTreeSet<Partition>,
    /// Those of `held` whose live runs are not known here.
    unread: BTreeSet<Partition>,
    /// Those of `held` that the next flush gives back.
    released: BTreeSet<Partition>,
    /// Claims whose partitions the store has not given yet.
    waiting: VecDeque<StoreClaim>,
    /// Counts of partitions that retention takes over with the next flush.
    adopted: Vec<(Partition, (u64, u64))>,
    /// Whether the caller beats in place of the writer.
    has_left_beats: bool,
    /// The mail steps of the next flush.
    mail: MailRows,
    /// Mail that does not belong to a turn, in order. Flushes post it in portions.
    posts: VecDeque<OutgoingMail>,
}

/// How many bytes of such mail one flush posts; the last piece may exceed it.
pub(crate) const POSTED_BYTES_MAX: usize = 16 << 20;

impl NodeState {
    /// Takes the mail steps for a flush.
    fn take_mail(&mut self) -> MailRows {
        let mut mail = std::mem::take(&mut self.mail);
        let mut bytes = 0;
        while bytes < POSTED_BYTES_MAX
            && let Some(post) = self.posts.pop_front()
        {
            bytes += post.body.len();
            mail.posted.push(post);
        }
        mail
    }
}

/// A claim that waits for the store.
struct StoreClaim {
    claim: Claim,
    how: ClaimHow,
    /// Partitions that its claimant has given back meanwhile.
    withdrawn: BTreeSet<Partition>,
}

/// From whom partitions may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimHow {
    /// Only free ones.
    IfFree,
    /// Also from other owners of this process.
    FromOthers,
}

/// A claim whose epochs are granted.
pub(crate) struct FencedClaim {
    pub(crate) claim: Claim,
    pub(crate) given: Vec<(Partition, Epoch)>,
    from: Offset,
}

/// Counts of durable data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenCounts {
    pub(crate) finished_runs: u64,
    pub(crate) finished_bytes: u64,
    pub(crate) dropped_runs: u64,
    pub(crate) commits: u64,
    pub(crate) turns: u64,
    pub(crate) bytes: u64,
    pub(crate) last_commit: Duration,
}

/// What the writer takes for a flush.
pub(crate) struct Taken {
    pub(crate) topics: SealedTopics,
    pub(crate) entries: Vec<QueuedEntry>,
    pub(crate) epochs: BTreeMap<Partition, Epoch>,
    pub(crate) offset: Offset,
    pub(crate) upkeep: Option<(UpkeepNumber, Timestamp)>,
    pub(crate) released: BTreeSet<Partition>,
    pub(crate) adopted: Vec<(Partition, (u64, u64))>,
    pub(crate) mail: MailRows,
}

/// What the writer finds in the queue.
pub(crate) enum Took {
    Flush(Box<Taken>),
    /// Only a claim that waits for the store.
    Claim,
    /// Nothing has come within the wait.
    Idle,
    /// The journal is closing, and nothing is left.
    End,
}

/// The writer's report about a durable flush.
pub(crate) struct Landed {
    pub(crate) offset: Offset,
    pub(crate) counts: WrittenCounts,
    /// An upkeep that is finished with it.
    pub(crate) upkept: Option<UpkeepNumber>,
}

impl PostgresShared {
    pub(crate) fn new(heads: LiveHeads, topics: TopicRegister, counts: WrittenCounts) -> Arc<Self> {
        let state = SharedState {
            heads,
            topics,
            queue: Vec::new(),
            epochs: BTreeMap::new(),
            is_touched: false,
            queued_len: 0,
            queued_bytes: 0,
            queued_snapshot_bytes: 0,
            was_full: false,
            enqueued: Offset::ZERO,
            taken: Offset::ZERO,
            durable: Offset::ZERO,
            claims: VecDeque::new(),
            is_closing: false,
            is_closed: false,
            failure: None,
            watchers: Vec::new(),
            upkeeps: Upkeeps::default(),
            counts,
            node: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if the journal accepts anything.
    pub(crate) fn open_state(&self) -> Result<MutexGuard<'_, SharedState>, JournalFailure> {
        let state = self.lock();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None if state.is_closing => Err(JournalFailure::closed()),
            None => Ok(state),
        }
    }

    /// Nothing is read after a close; after any other failure, reading continues.
    pub(crate) fn readable(&self) -> Result<(), ReadError> {
        match &self.lock().failure {
            Some(failure) if failure.kind() == FailureKind::Closed => Err(failure.clone().into()),
            _ => Ok(()),
        }
    }

    /// Wakes the writer.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// See [`Journal::confirm`](millrun_persistence::Journal::confirm).
    pub(crate) fn confirm(&self, queued: Offset) -> Offset {
        let mut state = self.lock();
        if state.failure.is_some() || state.is_closing {
            // The watermark never reaches an offset that is not queued.
            return state.enqueued.max(queued).next();
        }
        let offset = state.next_flush().max(queued);
        drop(state);
        self.wake();
        offset
    }

    /// Takes the entries for the next flush, waiting up to `wait_max` for some.
    pub(crate) fn take(&self, wait_max: Duration) -> Took {
        let mut state = self.lock();
        loop {
            let upkeep = state.upkeeps.next();
            if state.has_work() || upkeep.is_some() {
                let entries = std::mem::take(&mut state.queue);
                let epochs = std::mem::take(&mut state.epochs);
                state.is_touched = false;
                (state.queued_len, state.queued_bytes, state.queued_snapshot_bytes) = (0, 0, 0);
                let node = state.node.as_mut();
                let (released, adopted, mail) = node.map_or_else(Default::default, |node| {
                    (
                        std::mem::take(&mut node.released),
                        std::mem::take(&mut node.adopted),
                        node.take_mail(),
                    )
                });
                let (offset, topics) = (state.enqueued, state.topics.seal());
                state.leave_posts();
                state.taken = offset;
                let bells = match std::mem::take(&mut state.was_full) {
                    true => state.watchers.clone(),
                    false => Vec::new(),
                };
                drop(state);
                drop(Ringing::of(bells));
                return Took::Flush(Box::new(Taken {
                    topics,
                    entries,
                    epochs,
                    offset,
                    upkeep,
                    released,
                    adopted,
                    mail,
                }));
            }
            if state.is_closing {
                return Took::End;
            }
            if state.has_waiting_claim() {
                return Took::Claim;
            }
            let (woken, waited) = self
                .changed
                .wait_timeout(state, wait_max)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if waited.timed_out() && !state.has_work() && !state.has_waiting_claim() && !state.is_closing {
                return Took::Idle;
            }
        }
    }

    /// Whether the journal is closing: then the writer does not wait for a server.
    pub(crate) fn is_closing(&self) -> bool {
        self.lock().is_closing
    }

    /// Moves the watermark and notifies the waiting callers. Returns the claims that can be answered now.
    pub(crate) fn landed(&self, landed: Landed) -> Vec<FencedClaim> {
        let mut state = self.lock();
        state.durable = landed.offset;
        state.counts = landed.counts;
        state.count_adopted();
        let upkept = landed.upkept.map(|number| state.upkeeps.finish(number, Ok(())));
        let is_ready = |claim: &&FencedClaim| claim.from <= landed.offset;
        let ready = state.claims.iter().take_while(is_ready).count();
        let ready: Vec<_> = state.claims.drain(..ready).collect();
        let bells = state.watchers.clone();
        drop(state);
        drop((upkept, Ringing::of(bells)));
        self.changed.notify_all();
        ready
    }

    /// Ends the journal, for this reason unless it has one already, and notifies all that wait.
    pub(crate) fn end(&self, failure: JournalFailure) {
        let mut state = self.lock();
        let failure = state.failure.get_or_insert(failure).clone();
        let mut told = state.upkeeps.fail(&failure);
        for waiting in std::mem::take(&mut state.claims) {
            told.add(waiting.claim.refuse(ClaimRefused::Failed(failure.clone())));
        }
        let waiting = state.node.as_mut().map(|node| std::mem::take(&mut node.waiting));
        for StoreClaim { claim, .. } in waiting.into_iter().flatten() {
            told.add(claim.refuse(ClaimRefused::Failed(failure.clone())));
        }
        state.queue.clear();
        state.is_closed = true;
        told.add(Ringing::of(state.watchers.clone()));
        drop(state);
        drop(told);
        self.changed.notify_all();
    }

    /// Waits until the writer has ended.
    pub(crate) fn wait_closed(&self) -> Option<JournalFailure> {
        let mut state = self.lock();
        while !state.is_closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.clone()
    }

    /// The partitions of the first claim that waits for the store.
    pub(crate) fn waiting_claim(&self) -> Option<Vec<Partition>> {
        let state = self.lock();
        let first = state.node.as_ref()?.waiting.front()?;
        Some(first.claim.partitions().to_vec())
    }

    /// Takes the store's answer about the partitions of the first waiting claim.
    pub(crate) fn settle_claim(&self, told: &[HeldPartition]) {
        let ringing = self.lock().settle_claim(told);
        drop(ringing);
    }

    /// Notes that a record of this run is damaged.
    pub(crate) fn quarantine(&self, run: RunId) {
        self.lock().heads.quarantine(run);
    }
}

impl SharedState {
    /// Stops the writer from making empty flushes by itself: the caller beats.
    pub(crate) fn leave_beats(&mut self) {
        if let Some(node) = &mut self.node {
            node.has_left_beats = true;
        }
    }

    /// Whether the writer makes a flush when there is nothing to write.
    pub(crate) fn beats(&self) -> bool {
        self.node.as_ref().is_some_and(|node| !node.has_left_beats)
    }

    /// Grants epochs to a claim, which are stored before the claim is answered, or refuses it.
    pub(crate) fn begin_claim(&mut self, claim: Claim, how: ClaimHow) -> Ringing {
        let owners = &mut self.heads.owners;
        let taken = match how {
            ClaimHow::IfFree => owners.claim(&claim),
            ClaimHow::FromOthers => Ok(owners.take(&claim)),
        };
        match taken {
            Ok((given, told)) => {
                self.give(&given);
                self.wait(claim, given);
                told
            }
            Err(error) => claim.refuse(error),
        }
    }

    /// Takes a claim to partitions that the store has not all given to this node. Returns the claim if it has.
    pub(crate) fn ask_store(&mut self, claim: Claim, how: ClaimHow) -> Option<Claim> {
        let Some(node) = &mut self.node else {
            return Some(claim);
        };
        if claim
            .partitions()
            .iter()
            .all(|partition| node.held.contains(partition))
        {
            return Some(claim);
        }
        node.waiting.push_back(StoreClaim {
            claim,
            how,
            withdrawn: BTreeSet::new(),
        });
        None
    }

    fn has_waiting_claim(&self) -> bool {
        self.node.as_ref().is_some_and(|node| !node.waiting.is_empty())
    }

    fn settle_claim(&mut self, told: &[HeldPartition]) -> Ringing {
        let Some(node) = &mut self.node else {
            return Ringing::default();
        };
        let Some(StoreClaim {
            claim,
            how,
            withdrawn,
        }) = node.waiting.pop_front()
        else {
            return Ringing::default();
        };
        if !told.iter().all(|told| told.is_ours) {
            let others = told.iter().filter(|told| !told.is_ours);
            let held = others.clone().filter(|told| told.is_held);
            let mut partitions: Vec<_> = held.map(|told| told.partition).collect();
            if partitions.is_empty() {
                // Another node was about to take them.
                partitions = others.map(|told| told.partition).collect();
            }
            return claim.refuse(ClaimRefused::Owned { partitions });
        }
        let mut given = Vec::new();
        for told in told {
            self.heads.owners.heard(told.partition, told.epoch);
            // It belongs to this node still, or again.
            node.released.remove(&told.partition);
            if node.held.insert(told.partition) {
                node.unread.insert(told.partition);
                given.push(told.partition);
            }
        }
        let claimant = claim.claimant().clone();
        let partitions = claim.partitions().to_vec();
        let ringing = self.begin_claim(claim, how);
        let has_them = |partition: &Partition| {
            let owner = self.heads.owners.owner(*partition);
            owner.is_some_and(|owner| owner.is_same(&claimant))
        };
        if !partitions.iter().all(has_them) {
            // Another owner of this process has some of them, so the claim was refused.
            self.give_back_to_store(&given);
        } else if !withdrawn.is_empty() {
            self.release(&claimant, &withdrawn.into_iter().collect::<Vec<_>>());
        }
        ringing
    }

    /// See [`Journal::release`](millrun_persistence::Journal::release).
    pub(crate) fn release(&mut self, claimant: &Claimant, partitions: &[Partition]) {
        let mut partitions = partitions.to_vec();
        partitions.sort_unstable();
        if let Some(node) = &mut self.node {
            let waiting = node.waiting.iter_mut();
            for waiting in waiting.filter(|waiting| waiting.claim.claimant().is_same(claimant)) {
                waiting.withdrawn.extend(partitions.iter().copied());
            }
        }
        partitions.retain(|partition| {
            let owner = self.heads.owners.owner(*partition);
            owner.is_some_and(|owner| owner.is_same(claimant))
        });
        self.heads.owners.release(claimant, &partitions);
        self.give_back_to_store(&partitions);
    }

    /// Has the next flush give these partitions back, after what is queued of them. They are in order, and have no owner
    /// here.
    pub(crate) fn give_back_to_store(&mut self, partitions: &[Partition]) {
        let Some(node) = &mut self.node else { return };
        if partitions.is_empty() {
            return;
        }
        for partition in partitions {
            if node.held.remove(partition) {
                node.released.insert(*partition);
            }
            node.unread.remove(partition);
        }
        self.heads.forget(partitions);
        self.touch();
    }

    /// Those of these partitions whose live runs have to be read before anything is appended to them.
    pub(crate) fn unread(&self, owned: &[(Partition, Epoch)]) -> Vec<Partition> {
        let Some(node) = &self.node else {
            return Vec::new();
        };
        let unread = owned.iter().map(|(partition, _)| *partition);
        unread
            .filter(|partition| node.unread.contains(partition))
            .collect()
    }

    /// Takes what was read of partitions, ignoring those that have another owner by now.
    pub(crate) fn restore(&mut self, owned: &[(Partition, Epoch)], stored: StoredPartitions) {
        let Some(node) = &mut self.node else { return };
        let owners = &self.heads.owners;
        let owned = owned
            .iter()
            .filter(|(partition, epoch)| owners.check(*partition, *epoch).is_ok());
        let mut read = BTreeMap::new();
        for (partition, _) in owned {
            if node.unread.remove(partition) {
                read.insert(*partition, (0, 0));
            }
        }
        for live in stored.live {
            if !read.contains_key(&live.run.partition()) {
                continue;
            }
            if let Some(head) = live.head {
                self.heads.restore(live.run, head);
            }
            if live.is_damaged {
                self.heads.quarantine(live.run);
            }
        }
        for (partition, counts) in stored.finished {
            if let Some(counted) = read.get_mut(&partition) {
                *counted = counts;
            }
        }
        for (len, bytes) in read.values() {
            self.counts.finished_runs += len;
            self.counts.finished_bytes += bytes;
        }
        node.adopted.extend(read);
        self.is_touched = true;
    }

    /// Includes counts that the writer has not taken yet.
    fn count_adopted(&mut self) {
        let adopted = self.node.iter().flat_map(|node| &node.adopted);
        for (_, (len, bytes)) in adopted {
            self.counts.finished_runs += len;
            self.counts.finished_bytes += bytes;
        }
    }

    /// Whether this node has a partition; always, for a process that has the store to itself.
    pub(crate) fn has(&self, partition: Partition) -> bool {
        self.node
            .as_ref()
            .is_none_or(|node| node.held.contains(&partition))
    }

    /// Those of these partitions that have to be claimed from the store before anything is appended to them.
    pub(crate) fn missing(&self, partitions: &[Partition]) -> Vec<Partition> {
        let Some(node) = &self.node else {
            return Vec::new();
        };
        let is_missing =
            |partition: &Partition| !node.held.contains(partition) || node.unread.contains(partition);
        partitions.iter().copied().filter(is_missing).collect()
    }

    /// Queues an entry, which counts as a turn.
    pub(crate) fn push(&mut self, entry: QueuedEntry) {
        self.queue.push(entry);
        self.queued_len += 1;
    }

    fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.epochs.is_empty() || self.is_touched
    }

    /// Sets new epochs of partitions, which have to be durable before anybody relies on them. The partitions are in order.
    pub(crate) fn give(&mut self, given: &[(Partition, Epoch)]) {
        let partitions: Vec<_> = given.iter().map(|(partition, _)| *partition).collect();
        self.heads.trust(&partitions);
        self.epochs.extend(given.iter().copied());
        // An empty claim waits for a flush too.
        self.touch();
    }

    /// Appends the topic records of a batch, except those of the refused turns.
    pub(crate) fn append_to_topics(&mut self, batch: &Batch, refused: &[RefusedTurn]) -> Vec<TopicAppend> {
        let (len, bytes) = self.topics.queued();
        let appends = self.topics.append(batch, refused, &self.heads.owners);
        let (len_now, bytes_now) = self.topics.queued();
        if len_now > len {
            self.queued_len += len_now - len;
            self.queued_bytes += bytes_now - bytes;
            self.is_touched = true;
        }
        appends
    }

    /// Takes the mail steps of a batch, except those of the refused turns.
    pub(crate) fn take_mail(&mut self, batch: &Batch, refused: &[RefusedTurn]) {
        let is_refused = |run: RunId| {
            let mut others = refused
                .iter()
                .filter(|turn| turn.error != TurnRefused::AlreadyAppended);
            others.any(|turn| batch.turn_at(turn.turn).is_some_and(|turn| turn.run() == run))
        };
        for step in batch.mail_steps() {
            if step.with.is_some_and(is_refused) {
                continue;
            }
            if let Some(handled) = step.handled {
                // Mail for a lost partition is left to its next owner.
                let owners = &self.heads.owners;
                let is_lost = |(partition, epoch)| owners.check(partition, epoch).is_err();
                if handled.owned.is_some_and(is_lost) {
                    continue;
                }
                self.discard_mail(&[handled.number]);
            }
            for post in &step.posts {
                self.post_with_turns(post.clone());
            }
        }
    }

    /// Posts mail with the next flush, together with its turn.
    fn post_with_turns(&mut self, mail: OutgoingMail) {
        let Some(node) = &mut self.node else { return };
        self.queued_len += 1;
        self.queued_bytes += mail.body.len();
        node.mail.posted.push(mail);
        self.touch();
    }

    /// Posts mail with one of the next flushes, after earlier mail of this kind.
    pub(crate) fn post(&mut self, mail: OutgoingMail) {
        let Some(node) = &mut self.node else { return };
        self.queued_len += 1;
        self.queued_bytes += mail.body.len();
        node.posts.push_back(mail);
        self.touch();
    }

    /// Counts the mail that the taken flush had no room for, and wants another flush.
    fn leave_posts(&mut self) {
        let Some(node) = &self.node else { return };
        if node.posts.is_empty() {
            return;
        }
        self.queued_len += node.posts.len();
        self.queued_bytes += node.posts.iter().map(|mail| mail.body.len()).sum::<usize>();
        self.touch();
    }

    /// Deletes mail with the next flush.
    pub(crate) fn discard_mail(&mut self, numbers: &[u64]) {
        let Some(node) = &mut self.node else { return };
        self.queued_len += numbers.len();
        node.mail.handled.extend_from_slice(numbers);
        self.touch();
    }

    /// Hides mail from all readers, from the next flush on.
    pub(crate) fn set_mail_aside(&mut self, numbers: &[u64]) {
        let Some(node) = &mut self.node else { return };
        node.mail.aside.extend_from_slice(numbers);
        self.touch();
    }

    /// Wants a flush for a change. Returns its offset.
    pub(crate) fn touch(&mut self) -> Offset {
        self.is_touched = true;
        self.enqueued = self.enqueued.next();
        self.enqueued
    }

    /// The offset of a flush that the writer has not taken yet, and that so checks the term after this call.
    pub(crate) fn next_flush(&mut self) -> Offset {
        if self.enqueued > self.taken {
            return self.enqueued;
        }
        self.touch()
    }

    /// Lets a claim wait until everything that is queued is durable.
    pub(crate) fn wait(&mut self, claim: Claim, given: Vec<(Partition, Epoch)>) {
        let from = self.enqueued;
        self.claims.push_back(FencedClaim { claim, given, from });
    }
}
