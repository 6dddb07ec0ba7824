//! The broker against a naive one: order, policy and accounting.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{
    Broker, BrokerConfig, Envelope, Inbox, Overflow, Publisher, SubscriptionConfig, Undeliverable,
};
use proptest::prelude::*;

use crate::host::poll_once;

/// An inbox as one would first write it down.
struct Naive {
    capacity: usize,
    overflow: Overflow,
    queue: VecDeque<u32>,
    pushed: u64,
    dropped: u64,
    taken: u64,
}

impl Naive {
    /// False if the publisher would wait or be refused.
    fn offer(&mut self, number: u32) -> bool {
        if self.queue.len() == self.capacity {
            match self.overflow {
                Overflow::Block | Overflow::Fail => return false,
                Overflow::DropNewest => {
                    self.dropped += 1;
                    return true;
                }
                Overflow::DropOldest => {
                    self.queue.pop_front();
                    self.dropped += 1;
                }
            }
        }
        self.pushed += 1;
        self.queue.push_back(number);
        true
    }
}

#[derive(Clone, Debug)]
enum Step {
    TryPublish,
    /// Publishes to the end, taking from full inboxes while it waits.
    Publish,
    /// Publishes, and drops the future if it waits.
    Abandon,
    /// As `TryPublish`, without a publisher.
    TryByTopic,
    Batch(u8),
    /// Takes this many from an inbox, and puts the rest of the hand back.
    Take(usize, u8),
    /// As `Take`, but only borrows.
    Lend(usize, u8),
    Join(usize, Overflow),
    /// Closes an inbox: drained, or discarded.
    Leave(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::TryPublish),
        4 => Just(Step::Publish),
        1 => Just(Step::Abandon),
        1 => (0_u8..8).prop_map(Step::Batch),
        6 => (0_usize..4, 0_u8..6).prop_map(|(inbox, count)| Step::Take(inbox, count)),
    ]
}

/// Steps of a world in which many share what is published.
fn step_of_many() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => Just(Step::TryPublish),
        20 => Just(Step::Publish),
        4 => Just(Step::Abandon),
        4 => Just(Step::TryByTopic),
        4 => (0_u8..8).prop_map(Step::Batch),
        20 => (0_usize..9, 0_u8..16).prop_map(|(inbox, count)| Step::Take(inbox, count)),
        20 => (0_usize..9, 0_u8..16).prop_map(|(inbox, count)| Step::Lend(inbox, count)),
        2 => (8_usize..24, mostly_block()).prop_map(|(capacity, overflow)| Step::Join(capacity, overflow)),
        2 => (0_usize..9, any::<bool>()).prop_map(|(inbox, discards)| Step::Leave(inbox, discards)),
    ]
}

fn mostly_block() -> impl Strategy<Value = Overflow> {
    prop_oneof![6 => Just(Overflow::Block), 1 => overflow()]
}

fn overflow() -> impl Strategy<Value = Overflow> {
    prop::sample::select(vec![
        Overflow::Block,
        Overflow::Fail,
        Overflow::DropNewest,
        Overflow::DropOldest,
    ])
}

struct World {
    broker: Broker,
    publisher: Publisher<u32>,
    inboxes: Vec<(Inbox<Envelope<u32>>, Naive)>,
    next: u32,
    /// What those that have left had dropped, and what was left in them.
    dropped: u64,
    discarded: u64,
}

impl World {
    fn new(shapes: Vec<(usize, Overflow)>) -> Self {
        let broker = Broker::without_host(BrokerConfig::default());
        let publisher = broker.topic::<u32>("a").unwrap().publisher();
        let mut world = Self {
            broker,
            publisher,
            inboxes: Vec::new(),
            next: 0,
            dropped: 0,
            discarded: 0,
        };
        for (capacity, overflow) in shapes {
            world.join(capacity, overflow);
        }
        world
    }

    fn join(&mut self, capacity: usize, overflow: Overflow) {
        let config = SubscriptionConfig {
            inbox: MailboxConfig {
                capacity,
                ..MailboxConfig::default()
            },
            overflow,
            ..SubscriptionConfig::default()
        };
        let naive = Naive {
            capacity,
            overflow,
            queue: VecDeque::new(),
            pushed: 0,
            dropped: 0,
            taken: 0,
        };
        self.inboxes
            .push((self.broker.subscribe("a", config).unwrap(), naive));
    }

    fn leave(&mut self, index: usize, discards: bool) -> Result<(), TestCaseError> {
        if self.inboxes.len() == 1 {
            return Ok(());
        }
        let (inbox, naive) = self.inboxes.remove(index % self.inboxes.len());
        self.dropped += naive.dropped;
        if discards {
            self.discarded += naive.queue.len() as u64;
            prop_assert_eq!(inbox.close_discarding(), naive.queue.len());
        } else {
            inbox.close();
            let left: Vec<u32> = inbox.take().map(|envelope| *envelope.payload()).collect();
            prop_assert_eq!(left, Vec::from(naive.queue));
        }
        prop_assert!(inbox.is_finished());
        Ok(())
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Who refuses one more envelope, as the naive broker has it; the others get it.
    fn offer(&mut self, number: u32) -> Vec<usize> {
        (0..self.inboxes.len())
            .filter(|index| !self.inboxes[*index].1.offer(number))
            .collect()
    }

    fn take(&mut self, index: usize, count: u8, lends: bool) -> Result<(), TestCaseError> {
        let index = index % self.inboxes.len();
        let (inbox, naive) = &mut self.inboxes[index];
        let mut hand = inbox.take();
        for _ in 0..count {
            let expected = naive.queue.pop_front();
            naive.taken += u64::from(expected.is_some());
            let payload = if lends {
                hand.next_ref().map(|envelope| *envelope.payload())
            } else {
                hand.next().map(|envelope| *envelope.payload())
            };
            prop_assert_eq!(payload, expected);
            prop_assert_eq!(hand.len() + inbox.stats().queued, naive.queue.len());
        }
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Take(index, count) => self.take(*index, *count, false)?,
            Step::Lend(index, count) => self.take(*index, *count, true)?,
            Step::Join(capacity, overflow) => self.join(*capacity, *overflow),
            Step::Leave(index, discards) => self.leave(*index, *discards)?,
            Step::TryPublish | Step::TryByTopic => {
                let number = self.number();
                let refusing = self.offer(number);
                let outcome = if matches!(step, Step::TryPublish) {
                    self.publisher.try_publish(number)
                } else {
                    self.broker.topic::<u32>("a").unwrap().try_publish(number)
                };
                let by = match outcome {
                    Ok(_) => Vec::new(),
                    Err(error) => error.into_refused().by().to_vec(),
                };
                let expected: Vec<_> = refusing.iter().map(|index| self.inboxes[*index].0.id()).collect();
                prop_assert_eq!(by, expected);
            }
            Step::Abandon => {
                let number = self.number();
                self.offer(number);
                let mut publish = Box::pin(self.publisher.publish(number));
                let outcome = poll_once(publish.as_mut());
                drop(outcome);
            }
            Step::Publish => {
                let number = self.number();
                let refusing = self.offer(number);
                let mut publisher = std::mem::replace(
                    &mut self.publisher,
                    self.broker.topic::<u32>("a").unwrap().publisher(),
                );
                self.drive(Box::pin(publisher.publish(number)), number, refusing)?;
                self.publisher = publisher;
            }
            Step::Batch(count) => {
                let numbers: Vec<u32> = (0..*count).map(|_| self.number()).collect();
                // One after the other is the same, as long as nobody waits.
                let waits = self.inboxes.iter().any(|(_, naive)| {
                    naive.overflow == Overflow::Block && naive.queue.len() + numbers.len() > naive.capacity
                });
                if !waits {
                    for number in &numbers {
                        self.offer(*number);
                    }
                    let mut batch = Box::pin(self.publisher.publish_batch(numbers));
                    prop_assert!(poll_once(batch.as_mut()).is_ready());
                }
            }
        }
        self.check()
    }

    /// Makes room wherever the publish waits, until it is done.
    fn drive<F: Future>(
        &mut self,
        mut publish: Pin<Box<F>>,
        number: u32,
        refusing: Vec<usize>,
    ) -> Result<(), TestCaseError> {
        let waiting: Vec<usize> = refusing
            .into_iter()
            .filter(|index| self.inboxes[*index].1.overflow == Overflow::Block)
            .collect();
        prop_assert_eq!(poll_once(publish.as_mut()).is_pending(), !waiting.is_empty());
        for (done, index) in waiting.iter().enumerate() {
            self.take(*index, 1, done % 2 == 1)?;
            prop_assert!(self.inboxes[*index].1.offer(number));
            let last = done + 1 == waiting.len();
            prop_assert_eq!(poll_once(publish.as_mut()).is_ready(), last);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let mut dropped = self.dropped;
        for (inbox, naive) in &self.inboxes {
            let stats = inbox.stats();
            prop_assert_eq!(stats.queued, naive.queue.len());
            prop_assert_eq!(stats.waiting, 0);
            prop_assert_eq!(
                (stats.pushed, stats.taken, inbox.subscription_stats().dropped),
                (naive.pushed, naive.taken, naive.dropped)
            );
            prop_assert_eq!(stats.pushed, stats.taken + stats.queued as u64 + stats.displaced);
            dropped += naive.dropped;
        }
        let given_up = self.broker.given_up(Undeliverable::DroppedNewest)
            + self.broker.given_up(Undeliverable::DroppedOldest);
        prop_assert_eq!(given_up, dropped);
        prop_assert_eq!(self.broker.given_up(Undeliverable::Discarded), self.discarded);
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_broker_does_what_the_naive_one_does(
        shapes in prop::collection::vec((1_usize..6, overflow()), 1..4),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new(shapes);
        for step in &steps {
            world.run(step)?;
        }
    }

    #[test]
    fn many_that_share_what_is_published_get_what_each_would_get_alone(
        shapes in prop::collection::vec((8_usize..24, mostly_block()), 4..9),
        steps in prop::collection::vec(step_of_many(), 1..250),
    ) {
        let mut world = World::new(shapes);
        for step in &steps {
            world.run(step)?;
        }
    }
}
