//! A journal whose traffic a test can see.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use millrun::Timestamp;
use millrun::host::Bell;
use millrun_core::{Offset, Sequence};
use millrun_persistence::{
    Batch, Claim, ClaimRefused, Claimant, EnqueueError, Enqueued, FinishedFound, FinishedRun, FinishedSearch,
    Glance, History, HistoryPage, Journal, JournalFailure, Lane, LatestRecords, Progress, PurgedRecords,
    ReadError, Reads, RecoveryReport, Snapshot, SnapshotRefused, Stats, TopicChangeRefused, TopicNumber,
    TopicPage, TopicRefused, TopicRename, TopicRetention, TopicStreams, TopicSummary, TurnHeader,
    TurnRefused, UpkeepNumber, UpkeepUndone,
};
use millrun_workflow::{Event, Payload, wire};

type Enqueue = dyn Fn(&dyn Journal, &Batch) -> Result<Enqueued, EnqueueError> + Send + Sync;

/// What is queued goes through a function, and it can be told not to be readable; all else goes straight on.
pub(crate) struct Tapped {
    inner: Arc<dyn Journal>,
    enqueue: Box<Enqueue>,
    unreadable: AtomicU64,
    /// The watermark at which it hangs, and [`NOT_HANGING`] as long as it does not.
    hangs_at: AtomicU64,
    /// By how much what it confirms is behind what is queued.
    confirms_behind: AtomicU64,
    /// Whether it says nothing without a disk.
    asks_always: AtomicBool,
    /// Whether it keeps topics, as its inner one does.
    keeps_topics: AtomicBool,
    /// The record of a topic up to which none can be read.
    damaged_until: AtomicU64,
    /// Whether all records of a topic pass for written together.
    writes_together: AtomicBool,
    slow: Slow,
}

/// Runs and ids whose histories are not read until they are let go.
#[derive(Default)]
struct Slow {
    state: Mutex<SlowState>,
    changed: Condvar,
}

#[derive(Default)]
struct SlowState {
    runs: BTreeSet<millrun::RunId>,
    ids: BTreeSet<String>,
    /// How many reads wait for one of them.
    waiting: usize,
}

impl Slow {
    fn wait(&self, is_slow: impl Fn(&SlowState) -> bool) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        while is_slow(&state) {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting -= 1;
    }
}

const NOT_HANGING: u64 = u64::MAX;

impl Tapped {
    pub(crate) fn new(
        inner: Arc<dyn Journal>,
        enqueue: impl Fn(&dyn Journal, &Batch) -> Result<Enqueued, EnqueueError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let enqueue = Box::new(enqueue);
        Arc::new(Self {
            inner,
            enqueue,
            unreadable: AtomicU64::new(0),
            hangs_at: AtomicU64::new(NOT_HANGING),
            confirms_behind: AtomicU64::new(0),
            asks_always: AtomicBool::new(false),
            keeps_topics: AtomicBool::new(false),
            damaged_until: AtomicU64::new(0),
            writes_together: AtomicBool::new(false),
            slow: Slow::default(),
        })
    }

    /// Keeps topics from now on.
    pub(crate) fn keep_topics(&self) {
        self.keeps_topics.store(true, Ordering::Relaxed);
    }

    /// The records of topics up to this one cannot be read from now on.
    pub(crate) fn damage_topics(&self, until: u64) {
        self.damaged_until.store(until, Ordering::Relaxed);
    }

    /// All records of a topic pass for written together: a time leads to the first.
    pub(crate) fn write_together(&self) {
        self.writes_together.store(true, Ordering::Relaxed);
    }

    fn inner_topics(&self) -> &dyn TopicStreams {
        self.inner.topics().unwrap()
    }

    /// From now on nothing becomes durable, and it does not close: as of a disk that does not answer.
    pub(crate) fn hang(&self) {
        let at = self.inner.high_watermark().get();
        self.hangs_at.store(at, Ordering::SeqCst);
    }

    /// From now on, an answer that rests on no turn waits for this many batches behind those that are durable.
    pub(crate) fn confirm_behind(&self, batches: u64) {
        self.confirms_behind.store(batches, Ordering::SeqCst);
    }

    /// From now on, reads of this run's history wait.
    pub(crate) fn slow_down(&self, run: millrun::RunId) {
        self.slow.state.lock().unwrap().runs.insert(run);
    }

    /// From now on, nothing is known of finished runs without a read.
    pub(crate) fn ask_always(&self) {
        self.asks_always.store(true, Ordering::SeqCst);
    }

    /// From now on, reads of the finished run of this id wait.
    pub(crate) fn slow_down_id(&self, id: &str) {
        self.slow.state.lock().unwrap().ids.insert(id.into());
    }

    /// How many wait for the histories of slow runs.
    pub(crate) fn waiting_reads(&self) -> usize {
        self.slow.state.lock().unwrap().waiting
    }

    /// Reads of this run's history go on.
    pub(crate) fn let_go_of(&self, run: millrun::RunId) {
        self.slow.state.lock().unwrap().runs.remove(&run);
        self.slow.changed.notify_all();
    }

    /// Those who wait read what they wanted.
    pub(crate) fn let_go(&self) {
        let mut slow = self.slow.state.lock().unwrap();
        slow.runs.clear();
        slow.ids.clear();
        drop(slow);
        self.slow.changed.notify_all();
    }

    fn is_hanging(&self) -> bool {
        self.hangs_at.load(Ordering::SeqCst) != NOT_HANGING
    }

    /// The next `len` recoveries fail.
    pub(crate) fn fail_recoveries(&self, len: u64) {
        self.unreadable.store(len, Ordering::SeqCst);
    }

    /// One that panics when a batch is queued, at the calls with these numbers.
    pub(crate) fn panicking(inner: Arc<dyn Journal>, panics_at: impl IntoIterator<Item = u64>) -> Arc<Self> {
        let panics_at: Vec<_> = panics_at.into_iter().collect();
        let calls = AtomicU64::new(0);
        Self::new(inner, move |journal, batch| {
            if !batch.is_empty() {
                let call = calls.fetch_add(1, Ordering::SeqCst);
                assert!(!panics_at.contains(&call), "call {call} panics as told");
            }
            journal.enqueue(batch)
        })
    }
}

impl fmt::Debug for Tapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tapped").field(&self.inner).finish()
    }
}

impl TopicStreams for Tapped {
    fn declare(&self, name: &str, retention: TopicRetention) -> Result<TopicNumber, TopicRefused> {
        self.inner_topics().declare(name, retention)
    }

    fn list(&self) -> Vec<TopicSummary> {
        self.inner_topics().list()
    }

    fn store_number(&self) -> u64 {
        self.inner_topics().store_number()
    }

    fn appended_with(&self, topic: TopicNumber, id: u128) -> Option<Sequence> {
        self.inner_topics().appended_with(topic, id)
    }

    fn summary(&self, topic: TopicNumber) -> Option<TopicSummary> {
        self.inner_topics().summary(topic)
    }

    fn latest(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
    ) -> Result<LatestRecords, ReadError> {
        if after.get() < self.damaged_until.load(Ordering::Relaxed) {
            return Ok(LatestRecords::Ask);
        }
        self.inner_topics().latest(topic, after, bytes_max)
    }

    fn read(&self, topic: TopicNumber, after: Sequence, bytes_max: usize) -> Result<TopicPage, ReadError> {
        let until = Sequence::new(self.damaged_until.load(Ordering::Relaxed));
        if after < until {
            let cause = "a bad disk".into();
            return Err(ReadError::TopicDamaged {
                topic,
                after,
                until,
                cause,
            });
        }
        self.inner_topics().read(topic, after, bytes_max)
    }

    fn at_time(&self, topic: TopicNumber, time: Timestamp) -> Result<Sequence, ReadError> {
        match self.writes_together.load(Ordering::Relaxed) {
            true => Ok(Sequence::ZERO),
            false => self.inner_topics().at_time(topic, time),
        }
    }

    fn purge(&self, topic: TopicNumber, through: Sequence) -> Result<PurgedRecords, TopicChangeRefused> {
        self.inner_topics().purge(topic, through)
    }

    fn delete(&self, topics: &[TopicNumber]) -> Result<Offset, TopicChangeRefused> {
        self.inner_topics().delete(topics)
    }

    fn rename(&self, renames: &[TopicRename], deleted: &[TopicNumber]) -> Result<Offset, TopicChangeRefused> {
        self.inner_topics().rename(renames, deleted)
    }

    fn note_reader(&self, topic: TopicNumber, reader: TopicNumber, through: Sequence) {
        self.inner_topics().note_reader(topic, reader, through);
    }

    fn all_readers_noted(&self, topic: TopicNumber) {
        self.inner_topics().all_readers_noted(topic);
    }
}

impl Journal for Tapped {
    fn topics(&self) -> Option<&dyn TopicStreams> {
        self.keeps_topics.load(Ordering::Relaxed).then_some(self)
    }

    fn enqueue(&self, batch: &Batch) -> Result<Enqueued, EnqueueError> {
        (self.enqueue)(self.inner.as_ref(), batch)
    }

    fn read_again(
        &self,
        run: millrun::RunId,
        epoch: millrun::store::Epoch,
    ) -> Result<millrun_core::Sequence, TurnRefused> {
        self.inner.read_again(run, epoch)
    }

    fn high_watermark(&self) -> millrun::store::Offset {
        if self.is_hanging() {
            return millrun::store::Offset::new(self.hangs_at.load(Ordering::SeqCst));
        }
        self.inner.high_watermark()
    }

    fn confirm(&self, queued: millrun::store::Offset) -> millrun::store::Offset {
        let behind = self.confirms_behind.load(Ordering::SeqCst);
        let present = self.inner.high_watermark().get();
        queued.max(millrun::store::Offset::new(present + behind))
    }

    fn failure(&self) -> Option<JournalFailure> {
        self.inner.failure()
    }

    fn watch(&self, bell: Bell) {
        self.inner.watch(bell);
    }

    fn claim(&self, claim: Claim) {
        let one_less = |left: u64| left.checked_sub(1);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        if self.unreadable.fetch_update(set, get, one_less).is_ok() {
            let error = ReadError::Damaged {
                run: None,
                position: 7,
                cause: "as told".into(),
            };
            return drop(claim.refuse(ClaimRefused::Unreadable(error)));
        }
        self.inner.claim(claim);
    }

    fn take_from(&self, claim: Claim) {
        self.inner.take_from(claim);
    }

    fn release(&self, claimant: &Claimant, partitions: &[millrun::store::Partition]) {
        self.inner.release(claimant, partitions);
    }

    fn take_over(
        &self,
        partitions: &[millrun::store::Partition],
    ) -> Result<millrun::store::Epoch, JournalFailure> {
        self.inner.take_over(partitions)
    }

    fn put_snapshot(&self, snapshot: Snapshot) -> Result<(), SnapshotRefused> {
        self.inner.put_snapshot(snapshot)
    }

    fn delete_snapshot(&self, run: millrun::RunId) -> Result<(), JournalFailure> {
        self.inner.delete_snapshot(run)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn begin_close(&self) {
        self.inner.begin_close();
    }

    fn is_closed(&self) -> bool {
        !self.is_hanging() && self.inner.is_closed()
    }

    fn close(&self) -> Result<(), JournalFailure> {
        self.inner.close()
    }

    fn glance(&self, id: &millrun::InstanceId) -> Glance {
        if self.asks_always.load(Ordering::SeqCst) {
            return Glance::Ask;
        }
        self.inner.glance(id)
    }

    fn upkeep(&self, now: Timestamp, done: Bell) -> UpkeepNumber {
        self.inner.upkeep(now, done)
    }

    fn upkept(&self, number: UpkeepNumber) -> Option<Result<(), UpkeepUndone>> {
        self.inner.upkept(number)
    }

    fn is_quarantined(&self, run: millrun::RunId) -> bool {
        self.inner.is_quarantined(run)
    }
}

impl Reads for Tapped {
    fn history(&self, run: millrun::RunId) -> Result<History, ReadError> {
        self.slow.wait(|slow| slow.runs.contains(&run));
        self.inner.history(run)
    }

    fn history_page(
        &self,
        run: millrun::RunId,
        after: millrun_core::Sequence,
        bytes_max: usize,
    ) -> Result<HistoryPage, ReadError> {
        self.slow.wait(|slow| slow.runs.contains(&run));
        self.inner.history_page(run, after, bytes_max)
    }

    fn snapshot(&self, run: millrun::RunId) -> Result<Option<Snapshot>, ReadError> {
        self.inner.snapshot(run)
    }

    fn finished(&self, id: &millrun::InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        self.slow.wait(|slow| slow.ids.contains(id.as_str()));
        self.inner.finished(id)
    }

    fn find_finished(&self, search: &FinishedSearch, len_max: usize) -> Result<FinishedFound, ReadError> {
        self.inner.find_finished(search, len_max)
    }

    fn list_finished(
        &self,
        after: Option<millrun::RunId>,
        limit: usize,
    ) -> Result<Vec<FinishedRun>, ReadError> {
        self.inner.list_finished(after, limit)
    }

    fn recover(
        &self,
        lanes: &mut [Lane<'_>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RecoveryReport, ReadError> {
        self.inner.recover(lanes, progress)
    }
}

/// Another writer appends to a run of this batch, under its owner's epoch, or tries to, so far ahead of the run's
/// head. If the run has two turns here, the head of the second one fits afterwards.
pub(crate) fn intrude(journal: &dyn Journal, batch: &Batch, ahead: u64) {
    let turns: Vec<_> = batch
        .iter()
        .map(|turn| (turn.run(), turn.head(), turn.epoch()))
        .collect();
    let pairs = turns
        .iter()
        .flat_map(|first| turns.iter().map(move |second| (first, second)));
    let mut pairs: Vec<_> = pairs
        .filter(|((of, first, _), (run, second, _))| of == run && first <= second && *first > Sequence::ZERO)
        .collect();
    pairs.sort_by_key(|(first, second)| second.1.get() - first.1.get());
    let Some(&(&(run, head, epoch), second)) = pairs.last() else {
        return;
    };
    let len = (second.1.get() - head.get()).max(1);
    let head = Sequence::new(head.get() + ahead);
    let time = Timestamp::from_micros(1_704_067_200_000_000);
    let header = TurnHeader {
        run,
        head,
        epoch,
        time,
        opens: None,
    };
    let event = Event::SignalReceived {
        name: "of a stranger".into(),
        value: Payload::encode(&()).unwrap(),
        cause: None,
        request: None,
    };
    let mut batch = Batch::new();
    let mut turn = batch.turn(header);
    for _ in 0..len {
        turn.record(wire::kind(&event), |body| wire::encode(&event, body))
            .unwrap();
    }
    turn.finish(false).unwrap();
    drop(journal.enqueue(&batch).unwrap());
}
