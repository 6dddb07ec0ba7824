//! Nothing disappears: what was published is delivered, dropped, refused, waiting or a dead letter,
//! across all policies, queue groups, fan-out, services, expiry and subscriptions that end.
//!
//! ```text
//!   publishes × matching targets = pushed + dropped + refused + unresolved + passed over (ended)
//!   pushed, per inbox            = taken + queued + displaced + discarded
//!   taken, per service           = handled + failed + expired
//!   given up, all reasons        = dead letters received + dead letters lost
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use millrun_broker::mailbox::{MailboxConfig, MailboxStats};
use millrun_broker::{
    AnyEnvelope, Broker, BrokerConfig, DEAD_LETTERS, DeadLetter, Envelope, FailurePolicy, Filter,
    GroupChoice, GroupConfig, Headers, Inbox, LastResort, Overflow, Publish, PublishError, Published,
    Service, ServiceConfig, SubscriptionConfig, SubscriptionId, SubscriptionStats, TopicHandle, TopicName,
    Undeliverable,
};
use millrun_core::Host;
use proptest::prelude::*;

use crate::host::{TestHost, poll_once};

const TOPICS: [&str; 3] = ["a.x", "a.y", "b.x"];
const FILTERS: [&str; 6] = ["a.x", "a.*", "*.x", ">", "b.>", "a.y"];

#[derive(Clone, Debug)]
struct Shape {
    filter: &'static str,
    overflow: Overflow,
    capacity: usize,
    group: Option<usize>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Typed,
    Any,
    /// Its handler fails for every third number.
    Served,
}

#[derive(Clone, Debug)]
enum Step {
    Subscribe(Shape),
    /// Of the subscription at this place: take some, close, close and discard, drop.
    Take(usize, usize),
    Close(usize),
    Discard(usize),
    Drop(usize),
    TryPublish(usize),
    Publish(usize),
    PublishForAWhile(usize),
    PollPending(usize),
    Abandon(usize),
    /// Lets services work, and time pass.
    Run(u64),
}

fn shape() -> impl Strategy<Value = Shape> {
    let overflow = prop::sample::select(vec![
        Overflow::Block,
        Overflow::Fail,
        Overflow::DropNewest,
        Overflow::DropOldest,
    ]);
    let kind = prop::sample::select(vec![Kind::Typed, Kind::Any, Kind::Served]);
    let group = prop::option::weighted(0.4, 0..GROUPS.len());
    (
        prop::sample::select(&FILTERS[..]),
        overflow,
        1_usize..4,
        group,
        kind,
    )
        .prop_map(|(filter, overflow, capacity, group, kind)| Shape {
            filter,
            overflow,
            capacity,
            group,
            kind,
        })
}

const GROUPS: [(&str, GroupChoice); 2] = [
    ("in turn", GroupChoice::RoundRobin),
    ("least loaded", GroupChoice::LeastLoaded),
];

fn step() -> impl Strategy<Value = Step> {
    let place = 0_usize..8;
    let topic = 0..TOPICS.len();
    prop_oneof![
        2 => shape().prop_map(Step::Subscribe),
        3 => (place.clone(), 0_usize..4).prop_map(|(place, count)| Step::Take(place, count)),
        1 => place.clone().prop_map(Step::Close),
        1 => place.clone().prop_map(Step::Discard),
        1 => place.clone().prop_map(Step::Drop),
        4 => topic.clone().prop_map(Step::TryPublish),
        4 => topic.clone().prop_map(Step::Publish),
        1 => topic.prop_map(Step::PublishForAWhile),
        3 => place.clone().prop_map(Step::PollPending),
        1 => place.prop_map(Step::Abandon),
        2 => (0_u64..4).prop_map(Step::Run),
    ]
}

enum AnInbox {
    Typed(Inbox<Envelope<u32>>),
    Any(Inbox<dyn AnyEnvelope>),
    Served(
        Inbox<Envelope<u32>>,
        #[expect(dead_code, reason = "held, so that it goes on")] Service<Envelope<u32>>,
    ),
}

impl AnInbox {
    fn id(&self) -> SubscriptionId {
        match self {
            Self::Typed(inbox) | Self::Served(inbox, _) => inbox.id(),
            Self::Any(inbox) => inbox.id(),
        }
    }

    fn stats(&self) -> MailboxStats {
        match self {
            Self::Typed(inbox) | Self::Served(inbox, _) => inbox.stats(),
            Self::Any(inbox) => inbox.stats(),
        }
    }

    fn subscription_stats(&self) -> SubscriptionStats {
        match self {
            Self::Typed(inbox) | Self::Served(inbox, _) => inbox.subscription_stats(),
            Self::Any(inbox) => inbox.subscription_stats(),
        }
    }

    fn take(&self, count: usize) {
        match self {
            Self::Typed(inbox) => drop(inbox.take().take(count).count()),
            Self::Any(inbox) => drop(inbox.take().take(count).count()),
            // Its service does that.
            Self::Served(..) => {}
        }
    }

    fn close(&self, discarding: bool) {
        match (self, discarding) {
            (Self::Typed(inbox) | Self::Served(inbox, _), true) => drop(inbox.close_discarding()),
            (Self::Typed(inbox) | Self::Served(inbox, _), false) => inbox.close(),
            (Self::Any(inbox), true) => drop(inbox.close_discarding()),
            (Self::Any(inbox), false) => inbox.close(),
        }
    }
}

struct Subscriber {
    inbox: AnInbox,
    shape: Shape,
    is_open: bool,
}

/// One that gets the envelope: a subscription, or one of a group's.
struct Target(Vec<SubscriptionId>);

struct Waiting<'a> {
    publish: Pin<Box<Publish<'a, u32>>>,
    targets: Vec<Target>,
    /// Targets that took the envelope, or dropped it.
    settled: u64,
}

#[derive(Default)]
struct Books {
    offered: u64,
    refused: u64,
    passed_over: u64,
    unrouted: u64,
    /// Of inboxes that are gone.
    pushed_before: u64,
    unresolved: u64,
}

struct World<'a> {
    host: Arc<TestHost>,
    broker: Broker,
    topics: &'a [TopicHandle<u32>],
    letters: Inbox<Envelope<DeadLetter>>,
    subscribers: Vec<Subscriber>,
    ended: Vec<SubscriptionId>,
    waiting: Vec<Waiting<'a>>,
    books: Books,
    next: u32,
}

impl<'a> World<'a> {
    fn subscribe(&mut self, shape: Shape) {
        if self.subscribers.len() == 8 {
            return;
        }
        let config = SubscriptionConfig {
            inbox: MailboxConfig {
                capacity: shape.capacity,
                ..MailboxConfig::default()
            },
            overflow: shape.overflow,
            group: shape.group.map(|group| GroupConfig {
                name: GROUPS[group].0.to_owned(),
                choice: GROUPS[group].1,
            }),
            ..SubscriptionConfig::default()
        };
        let inbox = match shape.kind {
            Kind::Any => AnInbox::Any(self.broker.subscribe_any(shape.filter, config).unwrap()),
            Kind::Typed => AnInbox::Typed(self.broker.subscribe(shape.filter, config).unwrap()),
            Kind::Served => {
                let inbox: Inbox<Envelope<u32>> = self.broker.subscribe(shape.filter, config).unwrap();
                let once = ServiceConfig {
                    failure: FailurePolicy {
                        attempts_max: 1,
                        then: LastResort::DeadLetter,
                        ..FailurePolicy::default()
                    },
                    ..ServiceConfig::default()
                };
                let service = inbox.serve(once, |envelope| {
                    let fails = envelope.payload().is_multiple_of(3);
                    async move { if fails { Err("a multiple of three") } else { Ok(()) } }
                });
                AnInbox::Served(inbox, service.unwrap())
            }
        };
        self.subscribers.push(Subscriber {
            inbox,
            shape,
            is_open: true,
        });
    }

    /// Who is to get an envelope of this topic, as one would first write it down.
    fn targets(&self, topic: usize) -> Vec<Target> {
        let name = TopicName::new(TOPICS[topic]).unwrap();
        let mut groups: [Vec<SubscriptionId>; 2] = Default::default();
        let mut targets = Vec::new();
        for subscriber in &self.subscribers {
            let matches = Filter::new(subscriber.shape.filter).unwrap().matches(&name);
            if !subscriber.is_open || !matches {
                continue;
            }
            match subscriber.shape.group {
                Some(group) => groups[group].push(subscriber.inbox.id()),
                None => targets.push(Target(vec![subscriber.inbox.id()])),
            }
        }
        let groups = groups.into_iter().filter(|members| !members.is_empty());
        targets.extend(groups.map(Target));
        targets
    }

    fn pushed(&self) -> u64 {
        let inboxes = self.subscribers.iter();
        self.books.pushed_before + inboxes.map(|known| known.inbox.stats().pushed).sum::<u64>()
    }

    /// Pushed, or dropped by policy unpushed.
    fn settled(&self) -> u64 {
        self.pushed() + self.broker.given_up(Undeliverable::DroppedNewest)
    }

    fn begin(&mut self, topic: usize) -> Vec<Target> {
        self.next += 1;
        let targets = self.targets(topic);
        self.books.offered += targets.len() as u64;
        self.books.unrouted += u64::from(targets.is_empty());
        targets
    }

    /// Books what came of a publish whose envelope is settled at `settled` of its targets.
    fn close_books(
        &mut self,
        targets: &[Target],
        settled: u64,
        outcome: Result<Published, PublishError<u32>>,
    ) -> Result<(), TestCaseError> {
        let refused = match outcome {
            Ok(_) => 0,
            Err(error) => {
                let refused = error.into_refused();
                let by = refused.by();
                let refusing = |target: &&Target| target.0.iter().any(|id| by.contains(id));
                targets.iter().filter(refusing).count() as u64
            }
        };
        let ended = targets
            .iter()
            .filter(|target| target.0.iter().any(|id| self.ended.contains(id)));
        let left = targets.len() as u64 - settled - refused;
        prop_assert!(
            left <= ended.count() as u64,
            "{left} targets got nothing and are open"
        );
        self.books.refused += refused;
        self.books.passed_over += left;
        // All that wanted it were closed.
        self.books.unrouted += u64::from(left > 0 && settled + refused == 0);
        Ok(())
    }

    fn end(&mut self, place: usize, how: &Step) {
        if place >= self.subscribers.len() {
            return;
        }
        let subscriber = &mut self.subscribers[place];
        subscriber.is_open = false;
        self.ended.push(subscriber.inbox.id());
        match how {
            Step::Close(_) => subscriber.inbox.close(false),
            Step::Discard(_) => subscriber.inbox.close(true),
            _ => {
                subscriber.inbox.close(false);
                self.books.pushed_before += subscriber.inbox.stats().pushed;
                drop(self.subscribers.remove(place));
            }
        }
    }

    fn poll(&mut self, place: usize) -> Result<(), TestCaseError> {
        if place >= self.waiting.len() {
            return Ok(());
        }
        let before = self.settled();
        let polled = poll_once(self.waiting[place].publish.as_mut());
        let settled = self.settled() - before;
        self.waiting[place].settled += settled;
        if let Poll::Ready(outcome) = polled {
            let done = self.waiting.remove(place);
            self.close_books(&done.targets, done.settled, outcome)?;
        }
        Ok(())
    }

    fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Subscribe(shape) => self.subscribe(shape),
            Step::Take(place, count) => {
                if let Some(known) = self.subscribers.get(place) {
                    known.inbox.take(count);
                }
            }
            Step::Close(place) | Step::Discard(place) | Step::Drop(place) => self.end(place, &step),
            Step::TryPublish(topic) => {
                let targets = self.begin(topic);
                let before = self.settled();
                let outcome = self.topics[topic].try_publish(self.next);
                let settled = self.settled() - before;
                self.close_books(&targets, settled, outcome)?;
            }
            Step::Publish(topic) | Step::PublishForAWhile(topic) => {
                let targets = self.begin(topic);
                let headers = match step {
                    Step::Publish(_) => Headers::new(),
                    _ => Headers::new().expires(self.host.now() + Duration::from_millis(1)),
                };
                self.waiting.push(Waiting {
                    publish: Box::pin(self.topics[topic].publish_with(headers, self.next)),
                    targets,
                    settled: 0,
                });
                self.poll(self.waiting.len() - 1)?;
            }
            Step::PollPending(place) => self.poll(place)?,
            Step::Abandon(place) => {
                if place < self.waiting.len() {
                    let abandoned = self.waiting.remove(place);
                    self.books.unresolved += abandoned.targets.len() as u64 - abandoned.settled;
                }
            }
            Step::Run(millis) => {
                self.host.settle();
                self.host.advance(Duration::from_millis(millis));
            }
        }
        self.check()
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let books = &self.books;
        let unresolved = self.waiting.iter().map(|waiting| {
            let targets = waiting.targets.len() as u64;
            targets - waiting.settled
        });
        let unresolved = books.unresolved + unresolved.sum::<u64>();
        prop_assert_eq!(
            books.offered,
            self.settled() + books.refused + unresolved + books.passed_over
        );
        prop_assert_eq!(self.broker.given_up(Undeliverable::Unrouted), books.unrouted);
        for subscriber in &self.subscribers {
            let stats = subscriber.inbox.stats();
            prop_assert_eq!(
                stats.pushed,
                stats.taken + stats.queued as u64 + stats.in_hand as u64 + stats.displaced + stats.discarded
            );
            prop_assert!(stats.queued + stats.in_hand <= subscriber.shape.capacity);
            if let AnInbox::Served(..) = subscriber.inbox {
                let served = subscriber.inbox.subscription_stats();
                prop_assert_eq!(stats.taken, served.handled + served.failed + served.expired);
            }
        }
        let reasons = [
            Undeliverable::Unrouted,
            Undeliverable::DroppedNewest,
            Undeliverable::DroppedOldest,
            Undeliverable::Expired,
            Undeliverable::Discarded,
            Undeliverable::Failed,
        ];
        let given_up: u64 = reasons.iter().map(|reason| self.broker.given_up(*reason)).sum();
        prop_assert_eq!(
            given_up,
            self.letters.stats().pushed + self.broker.dead_letters_lost()
        );
        Ok(())
    }
}

proptest! {
    #[test]
    fn nothing_disappears_whatever_the_policies_do(
        shapes in prop::collection::vec(shape(), 1..5),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let host = TestHost::new();
        let broker = Broker::new(BrokerConfig::default(), Arc::clone(&host) as Arc<dyn Host>);
        let topics: Vec<TopicHandle<u32>> = TOPICS.iter().map(|name| broker.topic(name).unwrap()).collect();
        // Small enough that some letters are lost, which is counted as well.
        let letters = SubscriptionConfig {
            inbox: MailboxConfig { capacity: 64, ..MailboxConfig::default() },
            ..SubscriptionConfig::default()
        };
        let letters = broker.subscribe(DEAD_LETTERS, letters).unwrap();
        let mut world = World {
            host,
            broker,
            topics: &topics,
            letters,
            subscribers: Vec::new(),
            ended: Vec::new(),
            waiting: Vec::new(),
            books: Books::default(),
            next: 0,
        };
        shapes.into_iter().for_each(|shape| world.subscribe(shape));
        for step in steps {
            world.run(step)?;
        }
    }
}
