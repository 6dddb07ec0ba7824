//! The waits of a runtime's runs, and the tasks that look for their records.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use millrun_core::{Host, RunId, Sequence, Timestamp, panic_message};
use millrun_persistence::{ReadError, TopicChunk, TopicNumber, TopicRecord};
use millrun_workflow::{Payload, RawRecord, ReceiveScheduled};

use super::delivering::deliver;
use super::reading::TopicPages;
use super::recent::RecentRecords;
use super::selector::{FilteredRecord, Selector};
use super::wait_index::{RecordWait, WaitFrom, WaitIndex};
use crate::mail::ShardDoors;
use crate::ownership::partition_set::PartitionSet;
use crate::shared::ShardShared;
use crate::topics::durable::news::TopicNews;
use crate::topics::durable::stored::{FilteredTexts, StoredHeader};

/// How many records of a topic are on their way to runs at once.
const AT_ONCE_MAX: usize = 1_024;
/// How many records are compared before others get a look at the waits.
const COMPARED_MAX: usize = 256;
/// The pause before a task that has failed begins again.
const PAUSE: Duration = Duration::from_secs(1);

/// The waits for records of durable topics, by topic.
#[derive(Debug, Default)]
pub(crate) struct RecordWaits(Mutex<BTreeMap<TopicNumber, Arc<WaitsOfTopic>>>);

/// A wait that stands in a durable history.
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
    state: Mutex<WaitingState>,
}

#[derive(Debug)]
struct WaitingState {
    /// How far the live reader has come.
    recent: RecentRecords,
    /// Compared with all records up to there.
    listed: WaitIndex,
    /// Compared with none.
    late: WaitIndex,
    /// Those that the present pass looks for.
    passing: WaitIndex,
    has_pass: bool,
}

impl WaitingState {
    fn indexes(&mut self) -> [&mut WaitIndex; 3] {
        [&mut self.listed, &mut self.late, &mut self.passing]
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

    /// Looks for the record of a wait, in the topic of this number, from now on.
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

    /// Nobody waits for the record any more.
    pub(crate) fn cancel(&self, topic: TopicNumber, run: RunId, scheduled: &ReceiveScheduled) {
        let known = self.topics().get(&topic).map(Arc::clone);
        if let Some(known) = known {
            let hash = Selector::of(&scheduled.filter).hash();
            let mut state = known.lock();
            for index in state.indexes() {
                index.remove(hash, run, scheduled.operation);
            }
        }
    }

    /// The runs of these partitions have another owner.
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
            state: Mutex::new(WaitingState {
                recent: RecentRecords::behind(last, shared.host.now()),
                listed: WaitIndex::default(),
                late: WaitIndex::default(),
                passing: WaitIndex::default(),
                has_pass: false,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(self: Arc<Self>, wait: NewWait<'_>) {
        let selector = Selector::of(&wait.scheduled.filter);
        let has_time = wait.scheduled.behind.is_none() && wait.scheduled.since.is_some();
        let from = match wait.scheduled.behind {
            Some(behind) => WaitFrom::Behind(behind),
            None => WaitFrom::Since(wait.scheduled.since.unwrap_or(wait.run_began)),
        };
        let wait = RecordWait::new(wait.run, wait.scheduled.operation, from);
        let begins_pass = {
            let mut state = self.lock();
            if state.recent.has_none_for(&selector, &wait) {
                // All that comes from now on meets it, whatever the clock of its writer says, unless the run names a time.
                let wait = match has_time {
                    true => wait,
                    false => {
                        let from = WaitFrom::Behind(state.recent.last());
                        RecordWait::new(wait.run(), wait.operation(), from)
                    }
                };
                state.listed.insert(&selector, wait);
                false
            } else {
                state.late.insert(&selector, wait);
                !std::mem::replace(&mut state.has_pass, true)
            }
        };
        if begins_pass {
            let host = Arc::clone(&self.host);
            drop(host.spawn("millrun-receive-late", Box::pin(passes(self))));
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

    /// Behind which record those stand that this wait may be met by; `None` when the runtime is gone, or the topic is deleted.
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

/// Records on their way to runs.
#[derive(Default)]
struct Deliveries(FuturesUnordered<BoxFuture<'static, ()>>);

impl Deliveries {
    /// What `future` gives; meanwhile records get on.
    async fn beside<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|cx| {
            while let Poll::Ready(Some(())) = self.0.poll_next_unpin(cx) {}
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Compares the records of a page with the waits that `index` gives, and has those that are met told.
    async fn compare(
        &mut self,
        waits: &WaitsOfTopic,
        chunks: Vec<TopicChunk>,
        mut index: impl FnMut(&mut WaitingState, &FilteredRecord<'_>, &TopicRecord) -> Vec<RecordWait>,
    ) {
        for chunk in chunks {
            let mut records = chunk.records();
            loop {
                let mut met = Vec::new();
                let mut compared = 0;
                {
                    let mut state = waits.lock();
                    for record in records.by_ref().take(COMPARED_MAX) {
                        compared += 1;
                        let filtered = FilteredRecord::new(FilteredTexts::of(&record.body));
                        let found = index(&mut state, &filtered, &record);
                        if !found.is_empty() {
                            met.push((found, record));
                        }
                    }
                }
                for (found, record) in met {
                    self.tell(waits, found, &record).await;
                }
                if compared < COMPARED_MAX {
                    break;
                }
            }
        }
    }

    async fn tell(&mut self, waits: &WaitsOfTopic, met: Vec<RecordWait>, record: &TopicRecord) {
        let Some(record) = raw_record(record).map(Arc::new) else {
            tracing::warn!(topic = %waits.topic, sequence = %record.sequence, "no run can receive a record that cannot be decoded");
            return;
        };
        for wait in met {
            while self.0.len() >= AT_ONCE_MAX {
                self.0.next().await;
            }
            let (host, doors) = (Arc::clone(&waits.host), waits.doors.clone());
            self.0
                .push(Box::pin(deliver(host, doors, wait, Arc::clone(&record))));
        }
    }
}

/// A record as a run has it.
fn raw_record(record: &TopicRecord) -> Option<RawRecord> {
    let (header, payload) = StoredHeader::decode(&record.body).ok()?;
    Some(RawRecord {
        sequence: record.sequence,
        time: record.time,
        key: header.key,
        correlation: header.correlation,
        cause: header.cause,
        value: Payload::from_bytes(payload),
    })
}

/// Compares each new record with the waits, as long as the runtime is there.
async fn live(waits: Arc<WaitsOfTopic>) {
    loop {
        let reading = AssertUnwindSafe(read_live(&waits)).catch_unwind().await;
        let Err(panic) = reading else { return };
        tracing::error!(topic = %waits.topic, panic = panic_message(panic), "looking for records of a topic has failed, and begins again");
        waits.host.sleep_until(waits.host.now() + PAUSE).await;
    }
}

async fn read_live(waits: &WaitsOfTopic) {
    let mut deliveries = Deliveries::default();
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
}

/// Looks through what is there for waits that are late, until none is left.
async fn passes(waits: Arc<WaitsOfTopic>) {
    loop {
        let passing = AssertUnwindSafe(pass(&waits)).catch_unwind().await;
        match passing {
            Ok(true) => {}
            Ok(false) => return,
            Err(panic) => {
                tracing::error!(topic = %waits.topic, panic = panic_message(panic), "looking for records of a topic has failed, and begins again");
                waits.host.sleep_until(waits.host.now() + PAUSE).await;
            }
        }
    }
}

/// One pass. Whether there may be another.
async fn pass(waits: &WaitsOfTopic) -> bool {
    let lowest = {
        let mut state = waits.lock();
        let WaitingState {
            late,
            passing,
            has_pass,
            ..
        } = &mut *state;
        passing.append(late);
        if passing.is_empty() {
            *has_pass = false;
            return false;
        }
        passing.lowest()
    };
    let Some(begin) = waits.begin_of(lowest).await else {
        return false;
    };
    let (mut pages, mut deliveries) = (waits.pages(begin), Deliveries::default());
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
                // From here on the live reader looks for them.
                listed.append_behind(passing, pages.after());
                break;
            }
        }
        let Some(chunks) = deliveries.beside(pages.there()).await else {
            return false;
        };
        let compared = deliveries.compare(waits, chunks, |state, filtered, record| {
            let mut met = Vec::new();
            state
                .passing
                .take_met(filtered, (record.sequence, record.time), &mut met);
            met
        });
        compared.await;
    }
    while deliveries.0.next().await.is_some() {}
    true
}
