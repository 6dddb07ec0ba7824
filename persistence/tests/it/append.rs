//! Waiting for durability as a future.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use millrun_core::Partition;
use millrun_persistence::appender::Appender;
use millrun_persistence::contract::Author;
use millrun_persistence::{Batch, EnqueueError, FailureKind, Journal, JournalConfig, MemoryJournal};

use crate::host::HandHost;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct World {
    host: Arc<HandHost>,
    journal: Arc<MemoryJournal>,
    appender: Appender,
    flag: Arc<Flag>,
}

impl World {
    fn new(config: JournalConfig) -> Self {
        let host = HandHost::new();
        let journal = Arc::new(MemoryJournal::held(config).unwrap());
        let appender = Appender::new(journal.clone(), &*host).unwrap();
        host.run();
        Self {
            host,
            journal,
            appender,
            flag: Arc::new(Flag(AtomicBool::new(false))),
        }
    }

    fn poll<T>(&self, future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        self.flag.0.store(false, Ordering::SeqCst);
        future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.flag))))
    }

    fn is_woken(&self) -> bool {
        self.host.run();
        self.flag.0.load(Ordering::SeqCst)
    }
}

#[test]
fn an_append_completes_when_it_is_durable_and_not_before() {
    let world = World::new(JournalConfig::default());
    let batch = Author::new(&*world.journal, "a", 1).batch(&[b"x"], false);
    let mut append = std::pin::pin!(world.appender.append(&batch));
    assert!(world.poll(append.as_mut()).is_pending());
    assert!(!world.is_woken());
    world.journal.commit();
    assert!(world.is_woken());
    assert!(matches!(world.poll(append.as_mut()), Poll::Ready(Ok(enqueued)) if enqueued.refused.is_empty()));
}

#[test]
fn whoever_enqueues_alone_can_wait_for_the_offset() {
    let world = World::new(JournalConfig::default());
    let mut batch = Author::new(&*world.journal, "a", 1).batch(&[b"x"], false);
    let enqueued = world.journal.enqueue(&batch).unwrap();
    // The batch is free before it is durable.
    batch.clear();
    let mut durable = std::pin::pin!(world.appender.durable(enqueued.offset));
    assert!(world.poll(durable.as_mut()).is_pending());
    assert!(!world.is_woken());
    world.journal.commit();
    assert!(world.is_woken());
    assert!(matches!(world.poll(durable.as_mut()), Poll::Ready(Ok(()))));
    let mut again = std::pin::pin!(world.appender.durable(enqueued.offset));
    assert!(matches!(world.poll(again.as_mut()), Poll::Ready(Ok(()))));
}

#[test]
fn a_full_journal_makes_the_append_wait_for_room() {
    let mut config = JournalConfig::default();
    config.batch_len_max = 1;
    let world = World::new(config);
    let first = Author::new(&*world.journal, "a", 1).batch(&[b"x"], false);
    let second = Author::new(&*world.journal, "b", 2).batch(&[b"x"], false);
    assert!(world.journal.enqueue(&first).unwrap().refused.is_empty());
    let mut append = std::pin::pin!(world.appender.append(&second));
    assert!(world.poll(append.as_mut()).is_pending());
    world.journal.commit();
    assert!(world.is_woken());
    assert!(
        world.poll(append.as_mut()).is_pending(),
        "queued now, not durable yet"
    );
    world.journal.commit();
    assert!(world.is_woken());
    assert!(world.poll(append.as_mut()).is_ready());
}

#[test]
fn a_failure_reaches_who_waits() {
    let world = World::new(JournalConfig::default());
    let batch = Author::new(&*world.journal, "a", 1).batch(&[b"x"], false);
    let mut append = std::pin::pin!(world.appender.append(&batch));
    assert!(world.poll(append.as_mut()).is_pending());
    world.journal.fail(FailureKind::Corrupted, "gone");
    assert!(world.is_woken());
    assert!(matches!(
        world.poll(append.as_mut()),
        Poll::Ready(Err(EnqueueError::Failed(_)))
    ));
}

#[test]
fn a_dropped_append_is_queued_and_appending_again_is_safe() {
    let world = World::new(JournalConfig::default());
    let mut author = Author::new(&*world.journal, "a", 1);
    let batch = author.batch(&[b"x"], false);
    {
        let mut append = std::pin::pin!(world.appender.append(&batch));
        assert!(world.poll(append.as_mut()).is_pending());
    }
    let mut again = std::pin::pin!(world.appender.append(&batch));
    assert!(world.poll(again.as_mut()).is_pending());
    world.journal.commit();
    let Poll::Ready(Ok(enqueued)) = world.poll(again.as_mut()) else {
        panic!("it is durable")
    };
    assert_eq!(enqueued.refused.len(), 1);
    author.assert_history(&*world.journal);
}

#[test]
fn an_append_that_is_never_polled_does_nothing() {
    let world = World::new(JournalConfig::default());
    drop(world.appender.append(&Batch::new()));
    assert_eq!(world.journal.stats().queued_bytes, 0);
}

/// Appends of many callers, of whom more wait than one turn wakes.
#[test]
fn all_who_wait_are_woken_in_the_end_in_whatever_order_they_were_polled() {
    let world = World::new(JournalConfig::default());
    let mut authors: Vec<_> = (0..1_000)
        .map(|number| Author::new(&*world.journal, &format!("id-{number}"), number))
        .collect();
    let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let epoch = world.journal.take_over(&all).unwrap();
    let batches: Vec<_> = authors
        .iter_mut()
        .map(|author| {
            author.epoch = epoch;
            author.batch(&[b"x"], false)
        })
        .collect();
    let mut appends: Vec<_> = batches
        .iter()
        .map(|batch| Box::pin(world.appender.append(batch)))
        .collect();
    let flags: Vec<_> = (0..1_000)
        .map(|_| Arc::new(Flag(AtomicBool::new(false))))
        .collect();
    let mut poll = |number: usize| {
        let waker = Waker::from(Arc::clone(&flags[number]));
        appends[number].as_mut().poll(&mut Context::from_waker(&waker))
    };
    let (early, late) = (0..600, 600..1_000);
    assert!(early.clone().all(|number| poll(number).is_pending()));
    // Polled again, as by a select: the latest offsets register first.
    assert!(early.clone().rev().all(|number| poll(number).is_pending()));
    world.journal.commit();
    assert!(late.clone().all(|number| poll(number).is_pending()));
    world.host.run();
    let is_woken = |number: usize| flags[number].0.load(Ordering::SeqCst);
    assert!(early.clone().all(is_woken));
    assert!(!late.clone().any(is_woken), "their batches are not durable");
    world.journal.commit();
    world.host.run();
    assert!(late.clone().all(is_woken));
    assert!((0..1_000).all(|number| poll(number).is_ready()));
}

/// As many as are woken at once wait for room, and come again each time.
#[test]
fn those_who_are_durable_are_told_however_many_wait_for_room() {
    let mut config = JournalConfig::default();
    config.batch_len_max = 1;
    let world = World::new(config);
    let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let mut authors: Vec<_> = (0..300)
        .map(|number| Author::new(&*world.journal, &format!("id-{number}"), number))
        .collect();
    let epoch = world.journal.take_over(&all).unwrap();
    let mut batches: Vec<_> = authors
        .iter_mut()
        .map(|author| {
            author.epoch = epoch;
            author.batch(&[b"x"], false)
        })
        .collect();
    let first = batches.remove(0);
    let mut durable = std::pin::pin!(world.appender.append(&first));
    assert!(world.poll(durable.as_mut()).is_pending());
    let waker = Waker::noop();
    let mut appends: Vec<_> = batches
        .iter()
        .map(|batch| Box::pin(world.appender.append(batch)))
        .collect();
    for append in &mut appends {
        assert!(append.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    world.journal.commit();
    // A turn of each of the two parts.
    assert!(world.host.step());
    assert!(world.host.step());
    assert!(world.flag.0.load(Ordering::SeqCst));
    assert!(world.poll(durable.as_mut()).is_ready());
}
