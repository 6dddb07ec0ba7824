//! The waits of a runtime's runs for records, and the tasks that look for the records.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use millrun_core::{Host, RunId, Sequence, Timestamp, panic_message};
use millrun_persistence::{ReadError, TopicChunk, TopicNumber, TopicRecord};
use millrun_workflow::{Payload, RawRecord, ReceiveScheduled};
use tokio::sync::Notify;

use super::compared::ComparedWaits;
use super::delivering::deliver;
use super::reading::TopicPages;
use super::recent::RecentRecords;
use super::selector::{FilteredRecord, Selector};
use super::wait_index::{RecordWait, WaitFrom, WaitIndex};
use crate::mail::ShardDoors;
use crate::ownership::partition_set::PartitionSet;
use crate::shared::ShardShared;
use crate::topics::durable::news::TopicNews;
use crate::topics::durable::stored::StoredHeader;

/// How many records of a topic are being delivered to runs at once.
const AT_ONCE_MAX: usize = 1_024;
/// How many records are compared before the lock is released for others.
const COMPARED_MAX: usize = 256;
/// The pause before a failed task begins again.
const PAUSE: Duration = Duration::from_secs(1);

/// The waits for records of durable topics, by topic.
#[derive(Debug, Default)]
pub(crate) struct RecordWaits(Mutex<BTreeMap<TopicNumber, Arc<WaitsOfTopic>>>);

/// A wait in a durable history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewWait<'a> {
    pub(crate) run: RunId,
    pub(crate) scheduled: &'a ReceiveScheduled,
    pub(crate) run_began: Timestamp,
}

struct WaitsOfTopic {
    topic: TopicNumber,
    /// The tasks do not keep the runtime alive.
    shared: Weak<ShardShared>,
    host: Arc<dyn Host>,
    news: Arc<TopicNews>,
    doors: ShardDoors,
    /// Wakes the task for late waits, when it has nothing to do.
    late_bell: Notify,
    state: Mutex<WaitingState>,
}

#[derive(Debug)]
struct WaitingState {
    /// The latest records that the live reader has seen.
    recent: RecentRecords,
    /// Waits that have been compared with all records up to the live reader.
    listed: WaitIndex,
    /// How far cancelled waits had been compared.
    compared: ComparedWaits,
    /// Waits that have been compared with no record yet.
    late: WaitIndex,
    /// Waits of the present pass.
    passing: WaitIndex,
    /// The last record that the present pass has compared; `None` until its beginning is known.
    passed: Option<Sequence>,
    /// Whether the task for late waits is running.
    has_late_task: bool,
}

/// What the task for late waits has to do next.
enum NextPass {
    /// Look for records from these places on.
    From(Option<Sequence>, Option<Timestamp>),
    /// Nothing, for now.
    None,
    /// End: it is not counted as running any more.
    End,
}

impl WaitingState {
    fn indexes(&mut self) -> [&mut WaitIndex; 3] {
        [&mut self.listed, &mut self.late, &mut self.passing]
    }

    /// Takes the late waits for the next pass.
    fn next_pass(&mut self, may_end: bool) -> NextPass {
        self.passing.append(&mut self.late);
        self.passed = None;
        if !self.passing.is_empty() {
            let (behind, since) = self.passing.lowest();
            return NextPass::From(behind, since);
        }
        if !may_end {
            return NextPass::None;
        }
        self.has_late_task = false;
        NextPass::End
    }
}

impl fmt::Debug for WaitsOfTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitsOfTopic")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

impl RecordWaits {
    fn topics(&self) -> MutexGuard<'_, BTreeMap<TopicNumber, Arc<WaitsOfTopic>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, looks for the record of a wait in this topic.
    pub(crate) fn list(
        &self,
        shared: &Arc<ShardShared>,
        doors: &ShardDoors,
        topic: TopicNumber,
        wait: NewWait<'_>,
    ) {
        let Some(news) = shared.durable.news() else { return };
        let known = {
            let mut topics = self.topics();
            let known = topics.entry(topic).or_insert_with(|| {
                let known = Arc::new(WaitsOfTopic::new(shared, doors, topic, news));
                let live = live(Arc::clone(&known));
                drop(shared.host.spawn("millrun-receive", Box::pin(live)));
                known
            });
            Arc::clone(known)
        };
        known.list(wait);
    }

    /// Removes a wait.
    pub(crate) fn cancel(&self, topic: TopicNumber, run: RunId, scheduled: &ReceiveScheduled) {
        let known = self.topics().get(&topic).map(Arc::clone);
        if let Some(known) = known {
            let hash = Selector::of(&scheduled.filter).hash();
            let mut state = known.lock();
            state.late.remove(hash, run, scheduled.operation);
            let through = if state.listed.remove(hash, run, scheduled.operation) {
                Some(state.recent.last())
            } else {
                let was_passing = state.passing.remove(hash, run, scheduled.operation);
                state.passed.filter(|_| was_passing)
            };
            if let Some(through) = through {
                state.compared.note(run, scheduled, through);
            }
        }
    }

    /// How many waits are compared with each new record.
    #[cfg(test)]
    pub(crate) fn listed_len(&self, topic: TopicNumber) -> usize {
        let known = self.topics().get(&topic).map(Arc::clone);
        known.map_or(0, |known| known.lock().listed.len())
    }

    /// The record behind which the earliest wait begins.
    #[cfg(test)]
    pub(crate) fn listed_behind(&self, topic: TopicNumber) -> Option<Sequence> {
        let known = self.topics().get(&topic).map(Arc::clone)?;
        let (behind, _) = known.lock().listed.lowest();
        behind
    }

    /// Forgets the waits of runs in these partitions, which have another owner.
    pub(crate) fn lose(&self, lost: &PartitionSet) {
        for known in self.topics().values() {
            let mut state = known.lock();
            for index in state.indexes() {
                index.lose(lost);
            }
        }
    }
}

impl WaitsOfTopic {
    fn new(shared: &Arc<ShardShared>, doors: &ShardDoors, topic: TopicNumber, news: &Arc<TopicNews>) -> Self {
        let summary = shared.journal.topics().and_then(|streams| streams.summary(topic));
        let last = summary.map_or(Sequence::ZERO, |summary| summary.last);
        Self {
            topic,
            shared: Arc::downgrade(shared),
            host: Arc::clone(&shared.host),
            news: Arc::clone(news),
            doors: doors.clone(),
            late_bell: Notify::new(),
            state: Mutex::new(WaitingState {
                recent: RecentRecords::behind(last, shared.host.now()),
                listed: WaitIndex::default(),
                compared: ComparedWaits::default(),
                late: WaitIndex::default(),
                passing: WaitIndex::default(),
                passed: None,
                has_late_task: false,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(
        self: Arc<Self>,
        NewWait {
            run,
            scheduled,
            run_began,
        }: NewWait<'_>,
    ) {
        let selector = Selector::of(&scheduled.filter);
        // Every record is from the epoch or later, so an earlier time is no condition.
        let time = scheduled.since.filter(|since| *since > Timestamp::EPOCH);
        let time = time.filter(|_| scheduled.behind.is_none());
        let from = match scheduled.behind {
            Some(behind) => WaitFrom::Behind(behind),
            None => WaitFrom::Since(scheduled.since.unwrap_or(run_began)),
        };
        let wait = |from| RecordWait::new(run, scheduled.operation, from);
        let is_first_late = {
            let mut state = self.lock();
            let last = state.recent.last();
            let from = match state.compared.through(run, scheduled) {
                // A place cannot also hold the wait's time, so this wait is looked for from its beginning.
                Some(through) if time.is_some() && through < last => from,
                Some(through) => WaitFrom::Behind(through),
                None => from,
            };
            if state.recent.has_none_for(&selector, &wait(from)) {
                // Every later record meets it, whatever its writer's clock says, unless the run has set a time.
                let from = match (time, scheduled.behind) {
                    (Some(since), _) => WaitFrom::Since(since),
                    // A pass may have given the run a record that the live reader has not reached.
                    (None, behind) => WaitFrom::Behind(last.max(behind.unwrap_or(Sequence::ZERO))),
                };
                state.listed.insert(&selector, wait(from));
                false
            } else {
                state.late.insert(&selector, wait(from));
                self.late_bell.notify_one();
                !std::mem::replace(&mut state.has_late_task, true)
            }
        };
        if is_first_late {
            let host = Arc::clone(&self.host);
            drop(host.spawn("millrun-receive-late", Box::pin(late(self))));
        }
    }

    fn count_unreadable(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.counters.unreadable_records.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn pages(&self, after: Sequence) -> TopicPages {
        TopicPages::behind(
            Weak::clone(&self.shared),
            Arc::clone(&self.news),
            self.topic,
            after,
        )
    }

    /// The record behind which this wait may be met; `None` when the runtime is gone, or the topic is deleted.
    async fn begin_of(&self, (behind, since): (Option<Sequence>, Option<Timestamp>)) -> Option<Sequence> {
        let Some(since) = since else {
            return Some(behind.unwrap_or(Sequence::ZERO));
        };
        loop {
            let shared = self.shared.upgrade()?;
            match shared.reader.topic_at_time(self.topic, since).await {
                Some(Ok(found)) => return Some(behind.map_or(found, |behind| behind.min(found))),
                Some(Err(ReadError::UnknownTopic { .. })) => return None,
                Some(Err(_)) | None => {
                    drop(shared);
                    self.host.sleep_until(self.host.now() + PAUSE).await;
                }
            }
        }
    }
}

/// Records that are being delivered to runs. They stay listed if the task that found them panics.
#[derive(Default)]
struct Deliveries {
    under_way: FuturesUnordered<BoxFuture<'static, ()>>,
    /// Waits that were removed from all indexes, each with the record that meets it.
    met: VecDeque<(RecordWait, Arc<RawRecord>)>,
}

impl Deliveries {
    /// Runs `future`, while deliveries continue.
    async fn beside<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|cx| {
            while let Poll::Ready(Some(())) = self.under_way.poll_next_unpin(cx) {}
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Waits until all are delivered.
    async fn finish(&mut self) {
        while self.under_way.next().await.is_some() {}
    }

    fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.met.is_empty()
    }

    /// Compares the records of a page with the waits that `take_met` searches, and delivers them to the runs.
    async fn compare(
        &mut self,
        waits: &WaitsOfTopic,
        chunks: Vec<TopicChunk>,
        mut take_met: impl FnMut(&mut WaitingState, &FilteredRecord<'_>, &TopicRecord) -> Vec<RecordWait>,
    ) {
        for chunk in chunks {
            let mut records = chunk.records();
            loop {
                let mut compared = 0;
                {
                    let mut state = waits.lock();
                    for record in records.by_ref().take(COMPARED_MAX) {
                        compared += 1;
                        let (header, payload) = match StoredHeader::read(&record.body) {
                            Ok(read) => read,
                            // It is unknown which waits it meets: these keep waiting for later records.
                            Err(problem) => {
                                waits.count_unreadable();
                                tracing::warn!(topic = %waits.topic, sequence = %record.sequence, %problem, "no run can receive a record that cannot be decoded");
                                continue;
                            }
                        };
                        let filtered = FilteredRecord::of(&header);
                        let found = take_met(&mut state, &filtered, &record);
                        if !found.is_empty() {
                            let record = Arc::new(raw_record(&record, &header, payload));
                            let met = found.into_iter().map(|wait| (wait, Arc::clone(&record)));
                            self.met.extend(met);
                        }
                    }
                }
                self.tell(waits).await;
                if compared < COMPARED_MAX {
                    break;
                }
            }
        }
    }

    /// Delivers records to the runs whose waits they meet.
    async fn tell(&mut self, waits: &WaitsOfTopic) {
        while let Some((wait, record)) = self.met.pop_front() {
            let (host, doors) = (Arc::clone(&waits.host), waits.doors.clone());
            self.under_way.push(Box::pin(deliver(host, doors, wait, record)));
            while self.under_way.len() >= AT_ONCE_MAX {
                self.under_way.next().await;
            }
        }
    }
}

/// A record in the form for a run.
fn raw_record(record: &TopicRecord, header: &StoredHeader<&str>, payload: &[u8]) -> RawRecord {
    RawRecord {
        sequence: record.sequence,
        time: record.time,
        key: header.key.map(Into::into),
        correlation: header.correlation.map(Into::into),
        cause: header.cause,
        value: Payload::from_bytes(record.body.slice_ref(payload)),
    }
}

/// Compares each new record with the waits, while the runtime exists.
async fn live(waits: Arc<WaitsOfTopic>) {
    let mut deliveries = Deliveries::default();
    until_done(&waits, &mut deliveries, read_live).await;
}

async fn read_live(waits: &WaitsOfTopic, deliveries: &mut Deliveries) {
    let last = waits.lock().recent.last();
    let mut pages = waits.pages(last);
    while let Some(chunks) = deliveries.beside(pages.next()).await {
        let compared = deliveries.compare(waits, chunks, |state, filtered, record| {
            let mut met = Vec::new();
            if record.sequence > state.recent.last() {
                state.recent.note(filtered, record.sequence, record.time);
                if !state.listed.is_empty() {
                    state
                        .listed
                        .take_met(filtered, (record.sequence, record.time), &mut met);
                }
            }
            met
        });
        compared.await;
        waits.lock().recent.skip_to(pages.after());
    }
    deliveries.finish().await;
}

/// Looks through existing records for late waits, until none is left.
async fn late(waits: Arc<WaitsOfTopic>) {
    let mut deliveries = Deliveries::default();
    until_done(&waits, &mut deliveries, passes).await;
}

/// Repeats work that has panicked, after a pause. Deliveries continue meanwhile.
async fn until_done(
    waits: &WaitsOfTopic,
    deliveries: &mut Deliveries,
    work: impl AsyncFn(&WaitsOfTopic, &mut Deliveries),
) {
    loop {
        let worked = async {
            // Waits that were met when the work panicked come first.
            deliveries.tell(waits).await;
            work(waits, deliveries).await;
        };
        let Err(panic) = AssertUnwindSafe(worked).catch_unwind().await else {
            return;
        };
        tracing::error!(topic = %waits.topic, panic = panic_message(panic), "looking for records of a topic has failed, and begins again");
        waits.host.sleep_until(waits.host.now() + PAUSE).await;
    }
}

async fn passes(waits: &WaitsOfTopic, deliveries: &mut Deliveries) {
    loop {
        let next = waits.lock().next_pass(deliveries.is_empty());
        match next {
            NextPass::From(behind, since) => {
                // A run that cannot record its delivery delays no other: the delivery continues during the next passes.
                let Some(()) = pass(waits, deliveries, (behind, since)).await else {
                    return deliveries.finish().await;
                };
            }
            NextPass::None => {
                let (bell, arrived) = (pin!(waits.late_bell.notified()), deliveries.under_way.next());
                select(bell, arrived).await;
            }
            NextPass::End => return,
        }
    }
}

/// Compares the waits of a pass with existing records. `None` when the runtime is gone, or the topic is deleted.
async fn pass(
    waits: &WaitsOfTopic,
    deliveries: &mut Deliveries,
    lowest: (Option<Sequence>, Option<Timestamp>),
) -> Option<()> {
    let begin = deliveries.beside(waits.begin_of(lowest)).await?;
    waits.lock().passed = Some(begin);
    let mut pages = waits.pages(begin);
    loop {
        {
            let mut state = waits.lock();
            let WaitingState {
                recent,
                listed,
                passing,
                ..
            } = &mut *state;
            if passing.is_empty() || pages.after() >= recent.last() {
                // From here on the live reader compares them.
                listed.append_behind(passing, pages.after());
                return Some(());
            }
        }
        let chunks = deliveries.beside(pages.there()).await?;
        let compared = deliveries.compare(waits, chunks, |state, filtered, record| {
            let mut met = Vec::new();
            state.passed = Some(record.sequence);
            state
                .passing
                .take_met(filtered, (record.sequence, record.time), &mut met);
            met
        });
        compared.await;
    }
}
