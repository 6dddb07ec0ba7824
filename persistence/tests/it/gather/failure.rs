//! A journal that fails or closes, and a host that ends: everybody is told, and nobody waits for ever.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use millrun_persistence::appender::Appender;
use millrun_persistence::contract::Author;
use millrun_persistence::{EnqueueError, FailureKind, Journal, JournalConfig, RedbJournal};

use super::world::{FEW, Flag, Outcome, TOGETHER, Waiting, World, accepted};
use crate::host::HandHost;

#[test]
fn a_failure_reaches_all_but_those_who_were_durable_before() {
    let world = World::new(JournalConfig::default());
    let mut authors = world.authors(2 * FEW + TOGETHER);
    let mut durable = world.gather_all(&mut authors[..FEW]);
    world.journal.commit();
    let mut lost = world.gather_all(&mut authors[FEW..]);
    assert!(lost.iter_mut().all(|waiting| waiting.poll().is_pending()));
    world.journal.fail(FailureKind::Corrupted, "gone");
    world.host.run();
    assert!(lost.iter().all(Waiting::is_woken));
    for waiting in &mut lost {
        assert!(matches!(
            waiting.poll(),
            Poll::Ready(Err(EnqueueError::Failed(_)))
        ));
    }
    assert!(durable.iter_mut().all(|waiting| waiting.poll() == accepted()));
    let batch = authors[0].batch(&[b"x"], false);
    assert!(matches!(
        world.appender.gather(&batch),
        Err(EnqueueError::Failed(_))
    ));
}

/// What was gathered and not enqueued finds the journal closed, if that is how others learn of it.
#[test]
fn those_who_were_gathered_are_woken_when_another_finds_the_journal_failed() {
    let world = World::new(JournalConfig::default());
    let mut authors = world.authors(FEW + TOGETHER);
    let (early, late) = authors.split_at_mut(FEW + 2);
    let mut waiting = world.gather_all(early);
    assert!(waiting.iter_mut().all(|waiting| waiting.poll().is_pending()));
    world.journal.fail(FailureKind::Closed, "closed");
    // None of them sees the failure before the batch is full and enqueued.
    let outcomes: Vec<_> = late
        .iter_mut()
        .map(|author| world.appender.gather(&author.batch(&[b"x"], false)).is_ok())
        .collect();
    assert!(outcomes[0]);
    world.host.run();
    assert!(waiting.iter().all(Waiting::is_woken));
    for waiting in &mut waiting {
        assert!(matches!(
            waiting.poll(),
            Poll::Ready(Err(EnqueueError::Failed(_)))
        ));
    }
}

/// As when the host goes before the tasks that append.
#[test]
fn when_whoever_wakes_is_gone_all_who_wait_are_told_and_all_who_come() {
    let world = World::new(JournalConfig::default());
    let mut authors = world.authors(FEW + 4);
    let (early, others) = authors.split_at_mut(1);
    let mut durable = world.gather(&early[0].batch(&[b"x"], false));
    assert!(durable.poll().is_pending());
    world.journal.commit();
    // Enqueued the most, and gathered the last few.
    let mut waiting = world.gather_all(others);
    assert!(waiting.iter_mut().all(|waiting| waiting.poll().is_pending()));
    let offset = world
        .journal
        .enqueue(&early[0].batch(&[b"y"], false))
        .unwrap()
        .offset;
    let mut another = Box::pin(world.appender.durable(offset));
    let flag = Arc::<Flag>::default();
    let waker = Waker::from(Arc::clone(&flag));
    assert!(
        another
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );

    world.host.end_parts();
    assert!(waiting.iter().all(Waiting::is_woken));
    assert!(flag.0.load(Ordering::SeqCst));
    let told = |outcome: &Outcome| matches!(outcome, Err(EnqueueError::Failed(_)));
    assert_eq!(durable.poll(), accepted());
    for waiting in &mut waiting {
        assert!(matches!(waiting.poll(), Poll::Ready(outcome) if told(&outcome)));
    }
    let outcome = another.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(matches!(outcome, Poll::Ready(Err(EnqueueError::Failed(_)))));
    let batch = early[0].batch(&[b"z"], false);
    assert!(matches!(
        world.appender.gather(&batch),
        Err(EnqueueError::Failed(_))
    ));
    let mut late = Box::pin(world.appender.append(&batch));
    let outcome = late.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(matches!(outcome, Poll::Ready(Err(EnqueueError::Failed(_)))));
    // What was enqueued may become durable all the same.
    world.journal.commit();
    assert_eq!(waiting[0].poll(), accepted());
}

/// A journal that closes takes nothing any more, and makes durable what it has.
#[test]
fn a_close_fails_those_who_come_and_not_those_who_are_queued() {
    let folder = tempfile::tempdir().unwrap();
    let host = HandHost::new();
    let path = folder.path().join("store.redb");
    let journal = Arc::new(RedbJournal::open(&path, JournalConfig::default(), host.clone()).unwrap());
    let appender = Appender::new(journal.clone(), &*host).unwrap();
    host.run();
    let mut queued = Author::new(&*journal, "a", 1);
    let mut late = Author::new(&*journal, "b", 2);
    let mut waiting = Waiting {
        gathered: Box::pin(appender.gather(&queued.batch(&[b"x"], false)).unwrap()),
        flag: Arc::default(),
    };
    assert!(waiting.poll().is_pending());
    journal.begin_close();
    // Nobody has told this one yet; after it, it is known here.
    let batch = late.batch(&[b"x"], false);
    drop(appender.gather(&batch));
    assert!(matches!(appender.gather(&batch), Err(EnqueueError::Failed(_))));
    assert!(waiting.poll().is_pending());
    host.run();
    assert!(journal.is_closed());
    assert!(waiting.is_woken());
    assert_eq!(waiting.poll(), accepted());
}
