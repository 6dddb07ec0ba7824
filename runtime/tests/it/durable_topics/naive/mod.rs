//! Random programs, run by a runtime in a seeded world and by a [model] of lists: both answer alike, and what can be seen
//! behind each operation is alike. Processes are killed behind any commit of an operation; then, one of the states that the
//! model has had behind its commits is found, and none before the one with which an answer was given.
//!
//! Each operation runs until nothing is left to do. Runs that publish, wait and are started are in other tests.

mod model;
mod ops;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use millrun::store::{Journal, JournalConfig, MemoryJournal, Sequence};
use millrun::topics::{
    AckSaved, DurableRecord, DurableSubscription, DurableTopicHandle, LeaseLost, PurgeBefore, ReadFrom,
    RecordDelivery, RecordToken, SubscriptionReadError, TopicReadError, UndeliveredRecord,
};
use millrun::{DurableTopic, Payload, Runtime, Timestamp, Topic};
use millrun_persistence::{TopicRecord, TopicSummary};
use millrun_testkit::{SimConfig, SimHost, SimStop};
use proptest::prelude::*;

use self::model::{Answer, Buried, Facts, Keep, Model, SENT_BACK, Sight, Standing};
use self::ops::{IDLE_MAX, LEASE, LONG_WAIT, Op, PAUSES, Start, Step, WAIT, WHO, programs};

const TOPIC: &str = "modelled";
const UNDELIVERED: DurableTopic<UndeliveredRecord> = Topic::named("undelivered").durable();

/// Records have about 60 bytes.
const KEEPS: [Keep; 4] = [
    Keep {
        len_max: u64::MAX,
        bytes_max: u64::MAX,
        unread_bytes_max: 0,
    },
    Keep {
        len_max: 3,
        bytes_max: u64::MAX,
        unread_bytes_max: 0,
    },
    Keep {
        len_max: u64::MAX,
        bytes_max: 200,
        unread_bytes_max: 0,
    },
    Keep {
        len_max: 1,
        bytes_max: u64::MAX,
        unread_bytes_max: 400,
    },
];

impl Keep {
    fn topic(self) -> DurableTopic<u64> {
        Topic::named(TOPIC)
            .durable()
            .age_max(Duration::MAX)
            .len_max(self.len_max)
            .bytes_max(self.bytes_max)
            .unread_bytes_max(self.unread_bytes_max)
            .subscription_idle_max(IDLE_MAX)
    }
}

/// What a process has.
struct Process {
    runtime: Runtime,
    topic: DurableTopicHandle<u64>,
    undelivered: DurableTopicHandle<UndeliveredRecord>,
    open: BTreeMap<usize, DurableSubscription<u64>>,
    given: Vec<(usize, RecordDelivery<u64>)>,
}

/// A seeded world in which processes follow each other over one journal.
struct World {
    sim: SimHost,
    keep: Keep,
    journal: Arc<MemoryJournal>,
    process: Option<Process>,
    /// The token and the time of each record.
    records: BTreeMap<u64, (RecordToken, Timestamp)>,
}

/// What was answered, if anything, and whether that was said to be durable.
type Answered = (Option<Answer>, bool);

impl World {
    fn new(seed: u64, keep: Keep) -> Self {
        let mut world = Self {
            sim: SimHost::new(SimConfig::seeded(seed)),
            keep,
            journal: Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap()),
            process: None,
            records: BTreeMap::new(),
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let builder = Runtime::volatile()
            .host(self.sim.host())
            .journal(Arc::clone(&self.journal) as Arc<dyn Journal>)
            .durable_topic(self.keep.topic())
            .durable_topic(UNDELIVERED);
        let runtime = self
            .run(u32::MAX, async { builder.start().await.unwrap() })
            .unwrap();
        self.process = Some(Process {
            topic: runtime.durable_topic(self.keep.topic()).unwrap(),
            undelivered: runtime.durable_topic(UNDELIVERED).unwrap(),
            runtime,
            open: BTreeMap::new(),
            given: Vec::new(),
        });
    }

    fn restart(&mut self) {
        self.sim.crash();
        self.process = None;
        self.journal = Arc::new(self.journal.reopened());
        self.start();
    }

    fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    fn topics(&self) -> Vec<TopicSummary> {
        self.journal.topics().unwrap().list()
    }

    fn summary(&self) -> TopicSummary {
        self.topics()
            .into_iter()
            .find(|topic| topic.name == TOPIC)
            .unwrap()
    }

    fn last(&self) -> u64 {
        self.summary().last.get()
    }

    /// Bytes of the last record, by what retention says of their size.
    fn bytes_of_last(&self) -> u64 {
        let TopicSummary { number, last, .. } = self.summary();
        let before = Sequence::new(last.get().saturating_sub(1));
        let page = self.journal.topics().unwrap().read(number, before, 1).unwrap();
        let bytes = |record: TopicRecord| 20 + record.body.len() + record.id.map_or(0, |_| 16);
        page.records().last().map_or(0, bytes) as u64
    }

    /// Lets the world go on until nothing is left to do, and commits meanwhile what is queued: as many times at most as the
    /// topics change by it.
    fn settle(&self, mut commits_max: u32) {
        let mut quiet = 0;
        while quiet < 4 {
            assert_eq!(self.sim.advance(Duration::from_millis(1)), SimStop::Reached);
            let before = self.topics();
            if commits_max > 0 {
                self.journal.commit();
            }
            quiet += 1;
            if self.topics() != before {
                (commits_max, quiet) = (commits_max - 1, 0);
            }
        }
    }

    /// What a future gives, if it ends within as many commits.
    fn run<T: Send + 'static>(
        &self,
        commits_max: u32,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let output = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&output);
        let future = async move {
            let output = future.await;
            *slot.lock().unwrap() = Some(output);
        };
        let task = self.sim.host().spawn("operation", Box::pin(future));
        self.settle(commits_max);
        drop(task);
        output.lock().unwrap().take()
    }

    fn pass(&self, time: Duration) {
        let stretch = Duration::from_secs(1_800);
        let end = self.sim.now() + time;
        while self.sim.now() < end {
            let left = end.saturating_since(self.sim.now());
            assert_eq!(self.sim.advance(left.min(stretch)), SimStop::Reached);
            self.settle(u32::MAX);
        }
    }

    fn perform(&mut self, op: Op, value: u64, commits_max: u32) -> Answered {
        match op {
            Op::Publish { key, id } => {
                let (topic, id) = (self.process().topic.clone(), id.map(|id| id.to_string()));
                let published = self.run(commits_max, async move {
                    let key = key.to_string();
                    let publish = topic.publish(&value).key(&key);
                    match &id {
                        Some(id) => publish.id(id).await.unwrap(),
                        None => publish.await.unwrap(),
                    }
                });
                durable(
                    published.map(|record| Answer::Published(record.sequence().get(), record.is_repeat())),
                )
            }
            Op::SendUndelivered { nth } => {
                let undelivered = self.process().undelivered.clone();
                let sent = self.run(commits_max, async move {
                    let buried = read_all(&undelivered).await;
                    if buried.is_empty() {
                        return Answer::Nothing;
                    }
                    let buried: UndeliveredRecord = buried[nth % buried.len()].payload().decode().unwrap();
                    let sent = undelivered.send_back(&buried).await.unwrap();
                    Answer::Published(sent.sequence().get(), sent.is_repeat())
                });
                durable(sent)
            }
            Op::Release { who, key } => {
                let runtime = self.process().runtime.clone();
                let released = self.run(commits_max, async move {
                    let key = key.to_string();
                    let released = runtime.release_held_key(TOPIC, WHO[who].name, &key);
                    // There may be no such subscription yet, or not any more.
                    released.await.unwrap_or_default()
                });
                durable(released.map(Answer::Released))
            }
            Op::Subscribe { who, from } => self.subscribe(who, from, commits_max),
            Op::Close { who } => {
                let process = self.process.as_mut().unwrap();
                process.given.retain(|(of, _)| *of != who);
                process.open.remove(&who);
                self.settle(commits_max);
                (Some(Answer::Nothing), true)
            }
            Op::Take { who } => {
                let answer = self.take(who);
                self.settle(commits_max);
                (Some(answer), true)
            }
            Op::Ack {
                nth,
                is_through: true,
            } => self.answer(nth, commits_max, RecordDelivery::ack_through),
            Op::Ack { nth, .. } => self.answer(nth, commits_max, RecordDelivery::ack),
            Op::SendBack { nth, pause } => self.answer(nth, commits_max, |given| {
                given.send_back(PAUSES[pause], SENT_BACK)
            }),
            Op::Purge { but } => {
                let (runtime, last) = (self.process().runtime.clone(), self.last());
                let before = PurgeBefore::Number((last + 1).saturating_sub(but));
                let purged = self.run(commits_max, async move {
                    runtime.purge_durable_topic(TOPIC, before).await.unwrap().count
                });
                durable(purged.map(Answer::Purged))
            }
            Op::Wait => {
                self.pass(WAIT);
                (Some(Answer::Nothing), true)
            }
            Op::LongWait => {
                self.pass(LONG_WAIT);
                (Some(Answer::Nothing), true)
            }
        }
    }

    fn subscribe(&mut self, who: usize, from: Start, commits_max: u32) -> Answered {
        let last = self.last();
        let from = match from {
            Start::Now => ReadFrom::Now,
            Start::Behind(at) if last > 0 => ReadFrom::After(self.records[&(1 + at % last)].0),
            Start::TimeOf(at) if last > 0 => ReadFrom::Time(self.records[&(1 + at % last)].1),
            Start::Beginning | Start::Behind(_) | Start::TimeOf(_) => ReadFrom::Beginning,
        };
        let topic = self.process().topic.clone();
        let opened = self.run(commits_max, async move {
            let it = &WHO[who];
            let subscribe = topic
                .subscribe(it.name)
                .from(from)
                .lease(LEASE)
                .in_flight_max(it.in_flight_max);
            let subscribe = if it.is_ordered {
                subscribe
            } else {
                subscribe.unordered()
            };
            let subscribe = if it.holds_keys {
                subscribe.hold_key_when_undelivered()
            } else {
                subscribe
            };
            match it.deliveries_max {
                Some(max) => subscribe.undelivered_to(UNDELIVERED, max).await.unwrap(),
                None => subscribe.await.unwrap(),
            }
        });
        let has_begun_anew = opened.map(|opened| {
            let has_begun_anew = opened.has_begun_anew();
            self.process.as_mut().unwrap().open.insert(who, opened);
            has_begun_anew
        });
        durable(has_begun_anew.map(Answer::Opened))
    }

    fn take(&mut self, who: usize) -> Answer {
        let process = self.process.as_mut().unwrap();
        let next = process.open.get(&who).and_then(|open| open.next().now_or_never());
        match next {
            None => Answer::Nothing,
            Some(Ok(given)) => {
                let error = given.last_error().map(str::to_owned);
                let answer = Answer::Given(*given.payload(), given.deliveries(), error);
                process.given.push((who, given));
                answer
            }
            Some(Err(SubscriptionReadError::Missed(TopicReadError::Dropped { count }))) => {
                Answer::Missed(count)
            }
            Some(Err(error)) => panic!("{error}"),
        }
    }

    fn answer(
        &mut self,
        nth: usize,
        commits_max: u32,
        answer: impl FnOnce(RecordDelivery<u64>) -> Result<AckSaved, LeaseLost>,
    ) -> Answered {
        let given = &mut self.process.as_mut().unwrap().given;
        if given.is_empty() {
            return (Some(Answer::Nothing), true);
        }
        let (_, given) = given.remove(nth % given.len());
        match answer(given) {
            Ok(saved) => {
                let saved = self.run(commits_max, async { saved.await.unwrap() });
                (Some(Answer::Answered(true)), saved.is_some())
            }
            Err(LeaseLost) => {
                self.settle(commits_max);
                (Some(Answer::Answered(false)), true)
            }
        }
    }

    fn look(&mut self) -> Sight {
        let Process {
            runtime,
            topic,
            undelivered,
            ..
        } = self.process();
        let (runtime, topic, undelivered) = (runtime.clone(), topic.clone(), undelivered.clone());
        let bounds = runtime
            .durable_topics()
            .into_iter()
            .find(|topic| topic.name == TOPIC)
            .unwrap();
        let (records, buried, told) = self
            .run(u32::MAX, async move {
                let told = runtime.durable_subscriptions(TOPIC, None, 10).await.unwrap();
                (read_all(&topic).await, read_all(&undelivered).await, told)
            })
            .unwrap();
        let seen = records.iter().map(|record| {
            let sequence = record.token().sequence().get();
            self.records
                .insert(sequence, (record.token(), record.appended_at()));
            (sequence, record.payload().decode().unwrap(), of_key(record.key()))
        });
        let seen = seen.collect();
        let buried = buried.iter().map(|record| {
            let buried: UndeliveredRecord = record.payload().decode().unwrap();
            Buried {
                who: WHO
                    .iter()
                    .find(|who| who.name == buried.subscription)
                    .unwrap()
                    .name,
                sequence: buried.token.sequence().get(),
                value: Payload::from_bytes(buried.payload.into()).decode().unwrap(),
                key: of_key(buried.key.as_deref()),
                deliveries: buried.deliveries,
                error: buried.error,
            }
        });
        let standings = told.into_iter().map(|told| {
            let status = told.status.unwrap();
            let standing = Standing {
                is_open: told.is_open,
                through: status.acknowledged_through.get(),
                lag: status.lag,
                dropped: status.dropped,
                in_hand: status.in_hand,
                leased: status.leased,
                returned: status.returned,
                held_keys: status.held_keys,
                missed: status.missed,
                buried: status.undelivered,
            };
            (told.name, standing)
        });
        Sight {
            records: seen,
            bounds: (bounds.first, bounds.last, bounds.bytes),
            buried: buried.collect(),
            standings: standings.collect(),
        }
    }
}

fn durable(answer: Option<Answer>) -> Answered {
    let is_durable = answer.is_some();
    (answer, is_durable)
}

fn of_key(key: Option<&str>) -> char {
    key.unwrap().chars().next().unwrap()
}

async fn read_all<T: serde::de::DeserializeOwned>(
    topic: &DurableTopicHandle<T>,
) -> Vec<DurableRecord<Payload>> {
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next_encoded_now().await.unwrap() {
        records.push(record);
    }
    records
}

fn check(seed: u64, keep: Keep, program: &[Step]) {
    let mut world = World::new(seed, keep);
    // Behind a crash there may be several that agree with all that was seen.
    let mut models = vec![Model::new(keep)];
    for (value, Step { op, killed_behind }) in (1_000..).zip(program) {
        let now = world.sim.now();
        let (answer, is_durable) = world.perform(*op, value, killed_behind.unwrap_or(u32::MAX));
        let bytes = world.bytes_of_last();
        if killed_behind.is_some() {
            world.restart();
        }
        let seen = world.look();
        let mut possible = Vec::new();
        for mut model in models {
            let before = model.clone();
            let done = model.apply(*op, Facts { now, value, bytes });
            if let Some(answer) = &answer {
                assert_eq!(*answer, done.answer, "{op:?}");
            }
            if killed_behind.is_none() {
                assert!(is_durable, "{op:?} is not answered");
                possible.push(model);
                continue;
            }
            let durable_with = done.durable_with.filter(|_| is_durable);
            let states = [before].into_iter().chain(done.commits);
            possible.extend(
                states
                    .skip(durable_with.map_or(0, |at| at + 1))
                    .map(Model::crashed),
            );
        }
        let expected = possible.last().unwrap().sight();
        possible.retain(|model| model.sight() == seen);
        possible.dedup();
        assert!(
            !possible.is_empty(),
            "behind {op:?}, expected {expected:#?}, seen {seen:#?}"
        );
        models = possible;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_do_what_a_model_of_lists_does(
        seed in any::<u64>(),
        keep in 0..KEEPS.len(),
        program in programs(),
    ) {
        check(seed, KEEPS[keep], &program);
    }
}
