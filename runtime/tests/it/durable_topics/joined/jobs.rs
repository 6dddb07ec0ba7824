//! Jobs: a topic that keeps few records, and a consumer that answers as the dice of the world say. What it cannot do goes to a
//! topic for that, and is sent back from there.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, join, select};
use millrun::host::Host;
use millrun::topics::{
    DurableSubscription, DurableTopicHandle, LeaseLost, ReadFrom, RecordDelivery, SubscriptionReadError,
    TopicReadError, UndeliveredRecord,
};
use millrun::{DurableTopic, Runtime, RuntimeBuilder, Topic};

use super::ledger::{Deed, Ledger};

const JOBS: DurableTopic<u64> = Topic::named("jobs").durable().len_max(5);
const DEAD: DurableTopic<UndeliveredRecord> = Topic::named("dead").durable();

const LEASE: Duration = Duration::from_millis(20);
/// How many jobs are there before the first is taken, so that the first ones are not there any more, and how many in all.
const FIRST: u64 = 8;
const LEN: u64 = 12;
/// A job that nobody can do before it was sent back.
const POISON: u64 = LEN;

pub(super) fn declare(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.durable_topic(JOBS).durable_topic(DEAD)
}

/// Publishes all jobs, and does them, until nothing is left; then what was given up, once more.
pub(super) async fn live(runtime: &Runtime, host: &Arc<dyn Host>, ledger: &Ledger) {
    let jobs = runtime.durable_topic(JOBS).unwrap();
    let subscribe = jobs.subscribe("worker").lease(LEASE).in_flight_max(3);
    let subscription = subscribe.undelivered_to(DEAD, 2).await.unwrap();
    let open_at = last_of(runtime);
    let mut worker = Worker {
        to_do: subscription.status().lag,
        subscription,
        host,
        ledger,
        done: 0,
        missed: 0,
    };
    publish(&jobs, 1..=FIRST).await;
    let are_published = AtomicBool::new(false);
    let more = async {
        publish(&jobs, FIRST + 1..=LEN).await;
        are_published.store(true, Ordering::Relaxed);
    };
    join(more, worker.work(|| are_published.load(Ordering::Relaxed))).await;
    let dead = runtime.durable_topic(DEAD).unwrap();
    let mut behind = None;
    loop {
        // Few at a time, so that all of them are there until they are done.
        let sent = dead.send_back_behind(behind, 2).await.unwrap();
        assert_eq!(sent.passed_over, 0);
        ledger.see(Deed::SentBack, sent.sent_back);
        worker.work(|| true).await;
        match sent.next {
            Some(next) => behind = Some(next),
            None => break,
        }
    }
    worker.to_do += last_of(runtime) - open_at;
    worker.check();
}

async fn publish(jobs: &DurableTopicHandle<u64>, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let (key, id) = ((number % 3).to_string(), number.to_string());
        jobs.publish(&number).key(&key).id(&id).await.unwrap();
    }
}

fn last_of(runtime: &Runtime) -> u64 {
    let topics = runtime.durable_topics();
    topics.iter().find(|topic| topic.name == "jobs").unwrap().last
}

/// The consumer of one life.
struct Worker<'a> {
    subscription: DurableSubscription<u64>,
    host: &'a Arc<dyn Host>,
    ledger: &'a Ledger,
    /// How many records were not acknowledged when it began, and then those that have come since.
    to_do: u64,
    done: u64,
    missed: u64,
}

impl Worker<'_> {
    /// Takes records until all are published and nothing is left of them.
    async fn work(&mut self, are_published: impl Fn() -> bool) {
        let mut held = Vec::new();
        while !are_published() || self.subscription.status().lag > 0 {
            let pause = self.host.sleep_until(self.host.now() + Duration::from_millis(2));
            let given = match select(pin!(self.subscription.next()), pause).await {
                Either::Left((given, _)) => given,
                Either::Right(_) => continue,
            };
            match given {
                Ok(delivery) => held.extend(self.answer(delivery).await),
                Err(SubscriptionReadError::Missed(TopicReadError::Dropped { count })) => {
                    self.missed += count;
                    self.ledger.see(Deed::Missed, count);
                }
                Err(error) => panic!("{error}"),
            }
        }
        // While one is held its record is not done; so the lease of each has ended.
        for delivery in held {
            assert_eq!(delivery.ack().err(), Some(LeaseLost));
            self.ledger.see(Deed::LeaseEnded, 1);
        }
    }

    /// Answers as the dice say. Gives what it holds without an answer.
    async fn answer(&mut self, delivery: RecordDelivery<u64>) -> Option<RecordDelivery<u64>> {
        let sequence = delivery.record().token().sequence().get();
        let value = *delivery.payload();
        let stems_from = delivery.record().stems_from().map(|token| token.to_string());
        let is_sent_back = stems_from.is_some();
        self.give(sequence, stems_from);
        let dice = match (is_sent_back, value) {
            (true, _) => 0,
            (false, POISON) => 5,
            (false, _) => self.host.random() % 8,
        };
        match dice {
            0..4 => {
                let saved = delivery.ack().unwrap();
                self.done(value);
                saved.await.unwrap();
                self.ledger.book().jobs_kept.insert(sequence);
            }
            // Nobody waits until it is kept.
            4 => {
                drop(delivery.ack().unwrap());
                self.done(value);
            }
            5 | 6 => {
                let pause = Duration::from_millis(5 * (dice - 5));
                delivery.send_back(pause, "not now").unwrap().await.unwrap();
                self.ledger.see(Deed::GivenBack, 1);
            }
            _ => return Some(delivery),
        }
        None
    }

    fn give(&self, sequence: u64, stems_from: Option<String>) {
        let mut book = self.ledger.book();
        assert!(!book.jobs_kept.contains(&sequence), "{sequence} comes again");
        if let Some(origin) = stems_from {
            let one = *book.copies.entry(origin).or_insert(sequence);
            assert_eq!(one, sequence, "a record was sent back twice");
        }
        let is_again = !book.jobs_given.insert(sequence);
        drop(book);
        self.ledger.see(Deed::GivenAgain, u64::from(is_again));
    }

    fn done(&mut self, value: u64) {
        self.done += 1;
        self.ledger.book().jobs_done.insert(value);
        self.ledger.see(Deed::Acknowledged, 1);
    }

    /// Each record that there was to do is done, was given up, or was told as missed.
    fn check(&self) {
        let status = self.subscription.status();
        assert_eq!(status.missed, self.missed, "{status:?}");
        let Self { done, missed, .. } = *self;
        let given_up = status.undelivered;
        assert_eq!(
            done + given_up + missed,
            self.to_do,
            "{done} done, {given_up} given up, {missed} missed"
        );
    }
}

/// What was given up is there once, and of all jobs only those are not done that the consumer was told to have missed.
pub(super) async fn check(runtime: &Runtime, ledger: &Ledger) {
    let dead = runtime.durable_topic(DEAD).unwrap();
    let mut reader = dead.read(ReadFrom::Beginning).await.unwrap();
    let mut origins = BTreeSet::new();
    while let Some(record) = reader.next_encoded_now().await.unwrap() {
        let undelivered: UndeliveredRecord = record.payload().decode().unwrap();
        let origin = undelivered.token.to_string();
        assert!(origins.insert(origin), "{undelivered:?} is there twice");
    }
    ledger.see(Deed::Buried, origins.len() as u64);
    let (last, missed) = (last_of(runtime), ledger.seen(Deed::Missed));
    let book = ledger.book();
    let copies: BTreeSet<_> = book.copies.keys().cloned().collect();
    assert_eq!(copies, origins, "each was sent back");
    assert!(book.jobs_done.contains(&POISON), "what was sent back is done");
    let not_given = (1..=last).filter(|number| !book.jobs_given.contains(number));
    let not_done = (1..=LEN).filter(|value| !book.jobs_done.contains(value));
    for (what, len) in [("given", not_given.count()), ("done", not_done.count())] {
        assert!(
            len as u64 <= missed,
            "{len} were not {what}, and {missed} told as missed"
        );
    }
}
