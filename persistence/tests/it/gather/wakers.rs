//! Wakers and bells that gather themselves, or panic: no foreign code runs under the lock, and none is
//! trusted.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use millrun_core::Bell;
use millrun_persistence::appender::Appender;
use millrun_persistence::contract::Author;
use millrun_persistence::{Batch, Durability, Journal, JournalConfig, MemoryJournal, RedbJournal};

use super::world::{FEW, TOGETHER, Waiting, World};
use crate::host::HandHost;

/// A task that gathers when it ends.
struct Ending(Appender);

impl Wake for Ending {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Ending {
    fn drop(&mut self) {
        drop(self.0.gather(&Batch::new()));
    }
}

/// Under the lock this would never end.
#[test]
fn a_waker_that_is_dropped_may_gather() {
    let world = World::new(JournalConfig::default());
    let mut authors = world.authors(FEW + 2);
    let mut waiting = world.gather_all(&mut authors);
    let poll = |waiting: &mut Waiting<'_>| {
        let waker = Waker::from(Arc::new(Ending(world.appender.clone())));
        let outcome = waiting.gathered.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(outcome.is_pending());
    };
    for waiting in &mut waiting {
        poll(waiting);
        assert!(waiting.poll().is_pending());
        poll(waiting);
    }
    drop(waiting);
    world.host.run();
    world.journal.commit();
    authors
        .iter()
        .for_each(|author| drop(author.assert_history(&*world.journal)));
}

/// Rings whenever something is enqueued: then more is gathered at once, as often as it is `left`.
fn gather_on_the_spot(journal: &dyn Journal, appender: &Appender, left: usize) -> Arc<AtomicUsize> {
    let left = Arc::new(AtomicUsize::new(left));
    let (bell, counter) = (Bell::new(), Arc::clone(&left));
    let (appender, answered) = (appender.clone(), bell.clone());
    bell.connect(move || {
        answered.answer();
        let more = |left: usize| left.checked_sub(1);
        if counter
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
        {
            drop(appender.gather(&Batch::new()));
        }
    });
    journal.watch(bell);
    left
}

/// Under the lock this would never end.
#[test]
fn whoever_hears_of_what_is_gathered_may_gather_on_the_spot() {
    let folder = tempfile::tempdir().unwrap();
    let host = HandHost::new();
    let on_disk = |name: &str, durability| {
        let mut config = JournalConfig::default();
        config.durability = durability;
        let path = folder.path().join(name);
        Arc::new(RedbJournal::open(path, config, host.clone()).unwrap())
    };
    let window = Duration::from_secs(1);
    let in_memory = MemoryJournal::new(JournalConfig::default()).unwrap();
    is_heard_without_a_lock(Arc::new(in_memory), &host);
    is_heard_without_a_lock(on_disk("volatile", Durability::Volatile), &host);
    is_heard_without_a_lock(on_disk("eventual", Durability::Eventual { window }), &host);
}

/// Of a journal that acknowledges as it takes: whatever is gathered is heard of at once.
fn is_heard_without_a_lock<J: Journal>(journal: Arc<J>, host: &Arc<HandHost>) {
    let appender = Appender::new(journal.clone(), &**host).unwrap();
    let left = gather_on_the_spot(&*journal, &appender, 3);
    let heard = || {
        let before = left.swap(3, Ordering::SeqCst);
        assert!(before < 3, "{journal:?} has told nobody");
    };
    let mut author = Author::new(&*journal, "a", 1);
    let batches: Vec<_> = (0..FEW + TOGETHER)
        .map(|number| author.batch(&[&[0; 10][..number % 10]], false))
        .collect();
    let mut gathered: Vec<_> = (batches.iter().map(|batch| appender.gather(batch).unwrap())).collect();
    heard();
    // Enqueued because one of them goes,
    gathered.pop();
    heard();
    // and because nobody adds more.
    let last = appender.gather(&author.batch(&[b"x"], false)).unwrap();
    host.run();
    heard();
    gathered.push(last);
    for mut gathered in gathered {
        let outcome = Pin::new(&mut gathered).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(outcome, Poll::Ready(Ok(refused)) if refused.is_empty()));
    }
}

/// A task whose waker is broken.
struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_from_being_woken() {
    let world = World::new(JournalConfig::default());
    let mut authors = world.authors(FEW + TOGETHER);
    let mut waiting = world.gather_all(&mut authors);
    assert!(waiting.iter_mut().all(|waiting| waiting.poll().is_pending()));
    let waker = Waker::from(Arc::new(Broken));
    let outcome = waiting[1]
        .gathered
        .as_mut()
        .poll(&mut Context::from_waker(&waker));
    assert!(outcome.is_pending());
    world.host.run();
    world.journal.commit();
    world.host.run();
    let woken = waiting.iter().filter(|waiting| waiting.is_woken()).count();
    assert_eq!(woken, waiting.len() - 1);
    // And it goes on.
    let mut another = world.gather(&authors[0].batch(&[b"y"], false));
    assert!(another.poll().is_pending());
    world.host.run();
    world.journal.commit();
    world.host.run();
    assert!(another.is_woken());
}
