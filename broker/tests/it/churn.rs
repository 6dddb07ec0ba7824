//! Filters against a naive matcher, while subscriptions come and go on threads of their own and
//! publishers never stop.
//!
//! A subscriber gets, of each publisher, all matching envelopes that were begun after the
//! subscription was there and were finished before it ended; perhaps some at both edges; never one
//! that does not match, never one twice, never one out of order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{Broker, BrokerConfig, Envelope, Receiver, SubscriptionConfig};
use proptest::prelude::*;
use proptest::test_runner::Config;
use tokio::task::JoinSet;

use crate::names::naive;

const PUBLISHERS: usize = 2;
const NAMES: [&str; 7] = ["a.a", "a.b", "b.a", "b.b", "a.b.c", "a", "b.b.b.b"];

/// Which publisher, its how-manieth.
type Numbered = (usize, u32);

/// The topic of a publisher's envelope: looks random, is the same for everybody.
fn name_of(publisher: usize, number: u32) -> &'static str {
    let mixed = (number ^ 0x9e37_79b9).wrapping_mul(0x85eb_ca6b) >> 13;
    NAMES[(mixed as usize + publisher) % NAMES.len()]
}

/// How far each publisher is.
#[derive(Default)]
struct Progress {
    begun: [AtomicU32; PUBLISHERS],
    finished: [AtomicU32; PUBLISHERS],
    over: AtomicBool,
}

impl Progress {
    fn read(counters: &[AtomicU32; PUBLISHERS]) -> [u32; PUBLISHERS] {
        [0, 1].map(|publisher| counters[publisher].load(Ordering::SeqCst))
    }
}

async fn publish(broker: Broker, publisher: usize, count: u32, progress: Arc<Progress>) {
    let topics = NAMES.map(|name| (name, broker.topic::<Numbered>(name).unwrap()));
    let mut publishers = topics.map(|(name, topic)| (name, topic.publisher()));
    for number in 0..count {
        let name = name_of(publisher, number);
        let (_, topic) = publishers.iter_mut().find(|(known, _)| *known == name).unwrap();
        progress.begun[publisher].store(number + 1, Ordering::SeqCst);
        topic.publish((publisher, number)).await.unwrap();
        progress.finished[publisher].store(number + 1, Ordering::SeqCst);
    }
}

struct Life {
    filter: String,
    /// What was begun when the subscription was there, and finished when it ended.
    from: [u32; PUBLISHERS],
    to: [u32; PUBLISHERS],
    got: Vec<Numbered>,
}

/// Subscribes, receives for a while, ends.
async fn live(broker: &Broker, filter: &str, capacity: usize, takes: usize, progress: &Progress) -> Life {
    let config = SubscriptionConfig {
        inbox: MailboxConfig {
            capacity,
            ..MailboxConfig::default()
        },
        ..SubscriptionConfig::default()
    };
    let inbox = broker.subscribe::<Numbered>(filter, config).unwrap();
    let from = Progress::read(&progress.begun);
    let mut receiver: Receiver<Envelope<Numbered>> = inbox.clone().into_receiver();
    let mut got = Vec::new();
    // At least once, so that each life lets other tasks run: a publisher that was woken by one that
    // never does would wait in its worker's slot for ever.
    for _ in 0..takes {
        got.extend(receiver.try_recv().map(|envelope| *envelope.payload()));
        tokio::task::yield_now().await;
    }
    let to = Progress::read(&progress.finished);
    inbox.close();
    while let Some(envelope) = receiver.recv().await {
        got.push(*envelope.payload());
    }
    Life {
        filter: filter.to_owned(),
        from,
        to,
        got,
    }
}

fn check(life: &Life) {
    let filter: Vec<&str> = life.filter.split('.').collect();
    let matches = |publisher, number| {
        naive(
            &filter,
            &name_of(publisher, number).split('.').collect::<Vec<_>>(),
        )
    };
    for publisher in 0..PUBLISHERS {
        let of_publisher = life.got.iter().filter(|(by, _)| *by == publisher);
        let got: Vec<u32> = of_publisher.map(|(_, number)| *number).collect();
        assert!(got.is_sorted_by(|one, next| one < next), "twice or out of order");
        assert!(
            got.iter().all(|number| matches(publisher, *number)),
            "{} got what it does not select",
            life.filter
        );
        for number in life.from[publisher]..life.to[publisher] {
            let expected = matches(publisher, number);
            assert_eq!(got.binary_search(&number).is_ok(), expected, "{}", life.filter);
        }
    }
}

fn filters() -> impl Strategy<Value = Vec<(String, usize, usize)>> {
    let token = prop::sample::select(vec!["a", "b", "c", "*"]);
    let filter = (prop::collection::vec(token, 1..4), any::<bool>()).prop_map(|(mut tokens, rest)| {
        if rest {
            tokens.push(">");
        }
        tokens.join(".")
    });
    prop::collection::vec((filter, 1_usize..20, 1_usize..40), 2..12)
}

proptest! {
    #![proptest_config(Config::with_cases(24))]

    #[test]
    fn a_subscription_gets_what_it_selects_and_nothing_else_while_others_come_and_go(lives in filters()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let lived = runtime.block_on(async {
            let broker = Broker::without_host(BrokerConfig::default());
            let progress = Arc::new(Progress::default());
            let mut publishers = JoinSet::new();
            for publisher in 0..PUBLISHERS {
                publishers.spawn(publish(broker.clone(), publisher, 3_000, Arc::clone(&progress)));
            }
            let mut subscribers = JoinSet::new();
            for half in [0, 1] {
                let (broker, progress) = (broker.clone(), Arc::clone(&progress));
                let lives: Vec<_> = lives.iter().skip(half).step_by(2).cloned().collect();
                subscribers.spawn(async move {
                    let mut lived = Vec::new();
                    while lived.len() < lives.len() || !progress.over.load(Ordering::SeqCst) {
                        let (filter, capacity, takes) = &lives[lived.len() % lives.len()];
                        lived.push(live(&broker, filter, *capacity, *takes, &progress).await);
                    }
                    lived
                });
            }
            publishers.join_all().await;
            progress.over.store(true, Ordering::SeqCst);
            subscribers.join_all().await.into_iter().flatten().collect::<Vec<Life>>()
        });
        prop_assert!(lived.len() >= lives.len());
        lived.iter().for_each(check);
    }
}
