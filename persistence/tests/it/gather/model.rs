//! Callers in any order, seeded, against what each of them knows that it wrote.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

use millrun_core::{RunId, Sequence};
use millrun_persistence::contract::Author;
use millrun_persistence::{Batch, EnqueueError, Journal, JournalConfig, TurnRefused};

use super::world::{Outcome, Waiting, World, accepted};

/// A caller of the test below.
struct Caller<'a> {
    waiting: Waiting<'a>,
    batch: Batch,
    /// It has been polled, and is to be woken.
    sleeps: bool,
}

/// Authors whose runs end, and begin anew.
struct Crowd {
    authors: Vec<Author>,
    ended: Vec<Author>,
}

impl Crowd {
    /// The author's next turn has been taken.
    fn go_on(&mut self, number: usize, author: Author, closes: bool) {
        self.authors[number] = author;
        if closes {
            let author = &mut self.authors[number];
            let unique = 1_000_000 + self.ended.len() as u64;
            let next = Author {
                run: RunId::new(author.id.partition(), author.time, unique),
                head: Sequence::ZERO,
                written: Vec::new(),
                trimmed: 0,
                ..author.clone()
            };
            self.ended.push(std::mem::replace(author, next));
        }
    }
}

/// Callers that come, go, come again and are polled in any order: all that was taken is appended once,
/// in the order of each run, and everybody is told.
#[test]
fn whatever_the_order_everybody_is_told_what_became_of_his_turns() {
    for seed in 1..30_u64 {
        let mut state = seed;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).unwrap() % below
        };
        let mut config = JournalConfig::default();
        config.batch_len_max = 150;
        let world = World::new(config);
        let mut crowd = Crowd {
            authors: world.authors(300),
            ended: Vec::new(),
        };
        let mut callers = BTreeMap::new();
        for _ in 0..4_000 {
            let number = random(crowd.authors.len());
            match random(20) {
                0 => world.journal.commit(),
                1..=2 => drop(world.host.step()),
                3..=5 => {
                    // Cut off, it appends its turn again, and goes on at once.
                    if let Some(Caller { batch, waiting, .. }) = callers.remove(&number) {
                        drop(waiting);
                        append_again(&world, &batch);
                        let mut author = crowd.authors[number].clone();
                        if author.head > Sequence::ZERO && random(2) == 0 {
                            append_again(&world, &author.batch(&[b"end"], true));
                            crowd.go_on(number, author, true);
                        }
                    }
                }
                6..=11 => {
                    let Some(caller) = callers.get_mut(&number) else {
                        continue;
                    };
                    let outcome: Poll<Outcome> = caller.waiting.poll();
                    caller.sleeps = outcome.is_pending();
                    if let Poll::Ready(outcome) = outcome {
                        assert_eq!(outcome, Ok(Vec::new()));
                        callers.remove(&number);
                    }
                }
                _ if callers.contains_key(&number) => {}
                _ => {
                    let mut author = crowd.authors[number].clone();
                    let closes = author.head > Sequence::ZERO && random(3) == 0;
                    let batch = author.batch(&[&[1; 40]], closes);
                    match world.appender.gather(&batch) {
                        Ok(gathered) => {
                            let waiting = Waiting {
                                gathered: Box::pin(gathered),
                                flag: Arc::default(),
                            };
                            let sleeps = false;
                            callers.insert(
                                number,
                                Caller {
                                    waiting,
                                    batch,
                                    sleeps,
                                },
                            );
                            crowd.go_on(number, author, closes);
                        }
                        Err(error) => assert_eq!(error, EnqueueError::Full),
                    }
                }
            }
        }
        for _ in 0..10 {
            world.host.run();
            world.journal.commit();
        }
        world.host.run();
        for caller in callers.values_mut() {
            assert!(!caller.sleeps || caller.waiting.is_woken());
            assert_eq!(caller.waiting.poll(), accepted());
        }
        let begun = || crowd.authors.iter().filter(|author| !author.written.is_empty());
        let all = begun().chain(&crowd.ended);
        all.for_each(|author| drop(author.assert_history(&*world.journal)));
        let stats = world.journal.stats();
        assert!(!crowd.ended.is_empty());
        assert_eq!(stats.finished_runs, crowd.ended.len() as u64);
        assert_eq!(stats.live_runs, begun().count() as u64);
    }
}

/// Whether it was taken the first time or not: afterwards it is there.
fn append_again(world: &World, batch: &Batch) {
    let enqueued = loop {
        match world.journal.enqueue(batch) {
            Err(EnqueueError::Full) => world.journal.commit(),
            outcome => break outcome.unwrap(),
        }
    };
    for refused in enqueued.refused {
        let error = refused.error;
        let is_there = [TurnRefused::AlreadyAppended, TurnRefused::NotLive].contains(&error);
        assert!(is_there, "{error}");
    }
}
