//! Callers that go away, and a journal that has no room: what is taken back, and what stays.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use millrun_persistence::contract::Author;
use millrun_persistence::{Batch, EnqueueError, Journal, JournalConfig, Reads, TurnRefused};

use super::world::{FEW, Flag, TOGETHER, Waiting, World, accepted};

#[test]
fn a_full_journal_is_told_when_there_is_no_room_here_either_and_what_was_taken_goes_later() {
    let mut config = JournalConfig::default();
    config.batch_len_max = FEW;
    let world = World::new(config);
    let mut authors = world.authors(FEW + TOGETHER + 1);
    let (last, taken) = authors.split_last_mut().unwrap();
    let mut waiting = world.gather_all(taken);
    let batch = last.batch(&[b"x"], false);
    assert_eq!(world.appender.gather(&batch).unwrap_err(), EnqueueError::Full);
    assert!(waiting.iter_mut().all(|waiting| waiting.poll().is_pending()));
    world.host.run();
    world.journal.commit();
    // There is room; what is larger than all of it is taken alone.
    world.host.run();
    let mut late = world.gather(&batch);
    world.journal.commit();
    world.host.run();
    assert!(waiting.iter_mut().all(|waiting| waiting.poll() == accepted()));
    assert!(late.poll().is_pending());
    world.journal.commit();
    world.host.run();
    assert_eq!(late.poll(), accepted());
}

#[test]
fn a_dropped_one_is_appended_all_the_same() {
    let world = World::new(JournalConfig::default());
    let mut authors = world.authors(FEW + TOGETHER / 2);
    drop(world.gather_all(&mut authors));
    world.host.run();
    world.journal.commit();
    authors
        .iter()
        .for_each(|author| drop(author.assert_history(&*world.journal)));
}

/// The author's first turn, the same again, and the one that closes its run.
fn opening_again_and_closing(author: &mut Author) -> [Batch; 3] {
    let opening = author.batch(&[b"x"], false);
    [opening.clone(), opening, author.batch(&[b"y"], true)]
}

#[test]
fn what_is_appended_after_a_drop_stands_behind_what_was_dropped() {
    let world = World::new(JournalConfig::default());
    let mut authors = world.authors(FEW + 2);
    let (last, others) = authors.split_last_mut().unwrap();
    let mut waiting = world.gather_all(others);
    let [first, again, closing] = opening_again_and_closing(last);
    drop(world.gather(&first));
    let enqueued = world.journal.enqueue(&again).unwrap();
    assert_eq!(enqueued.refused[0].error, TurnRefused::AlreadyAppended);
    assert_eq!(world.journal.enqueue(&closing).unwrap().refused, []);
    world.host.run();
    world.journal.commit();
    world.host.run();
    last.assert_history(&*world.journal);
    assert_eq!(world.journal.stats().finished_runs, 1);
    assert_eq!(world.journal.stats().live_runs, others.len() as u64);
    assert!(waiting.iter_mut().all(|waiting| waiting.poll() == accepted()));
}

/// Otherwise the run would begin again after it has ended.
#[test]
fn while_the_journal_is_full_what_is_dropped_is_taken_back_and_no_other_notices() {
    let mut config = JournalConfig::default();
    config.batch_len_max = FEW;
    let world = World::new(config);
    let mut authors = world.authors(FEW + 5);
    let current = authors[0].epoch;
    let mut waiting = world.gather_all(&mut authors[..FEW]);
    let (left, right) = authors[FEW..].split_at_mut(2);
    let [first, again, closing] = opening_again_and_closing(&mut left[0]);
    let two = |author: &mut Author, second: &Author| {
        let mut batch = author.batch(&[b"x"], false);
        let mut fenced = second.clone();
        fenced.epoch = millrun_core::Epoch::new(0);
        fenced.put(&mut batch, &[b"z"], false);
        batch
    };
    let before = world.gather(&two(&mut right[0], &left[1]));
    let (dropped, also) = (
        world.gather(&first),
        world.gather(&left[1].clone().batch(&[b"x"], false)),
    );
    let mut others = vec![before, world.gather(&two(&mut right[1], &left[1]))];
    drop((dropped, also));
    others.push(world.gather(&two(&mut right[2], &left[1])));
    assert!(others.iter_mut().all(|waiting| waiting.poll().is_pending()));
    world.journal.commit();
    assert_eq!(world.journal.enqueue(&again).unwrap().refused, []);
    assert_eq!(world.journal.enqueue(&closing).unwrap().refused, []);
    for _ in 0..2 {
        world.host.run();
        world.journal.commit();
    }
    world.host.run();
    assert!(waiting.iter_mut().all(|waiting| waiting.poll() == accepted()));
    assert!(others.iter().all(Waiting::is_woken));
    for waiting in &mut others {
        let refused = vec![(1, TurnRefused::Fenced { current })];
        assert_eq!(waiting.poll(), Poll::Ready(Ok(refused)));
    }
    assert!(world.journal.history(left[1].run).is_err(), "it was taken back");
    left[0].assert_history(&*world.journal);
    right
        .iter()
        .for_each(|author| drop(author.assert_history(&*world.journal)));
    assert_eq!(world.journal.stats().finished_runs, 1);
    assert_eq!(world.journal.stats().live_runs, (FEW + 3) as u64);
}

#[test]
fn when_all_are_taken_back_nothing_is_left_of_them() {
    let mut config = JournalConfig::default();
    config.batch_len_max = FEW;
    let world = World::new(config);
    let mut authors = world.authors(FEW + TOGETHER);
    let mut waiting = world.gather_all(&mut authors[..FEW]);
    for _ in 0..3 {
        drop(world.gather_all(&mut authors.clone()[FEW..]));
    }
    world.journal.commit();
    world.host.run();
    assert_eq!(world.queued_bytes(), 0);
    assert!(waiting.iter_mut().all(|waiting| waiting.poll() == accepted()));
    waiting = world.gather_all(&mut authors[FEW..]);
    world.journal.commit();
    world.host.run();
    world.journal.commit();
    assert!(waiting.iter_mut().all(|waiting| waiting.poll() == accepted()));
}

/// Those who wait for room with a batch of their own fill the journal as soon as they run.
#[test]
fn what_was_gathered_gets_room_before_others_are_told_of_it() {
    let mut config = JournalConfig::default();
    config.batch_len_max = FEW;
    let world = World::new(config);
    let mut authors = world.authors(2 * FEW + 1);
    drop(world.gather_all(&mut authors[..FEW]));
    let mut waiting = world.gather_all(&mut authors[FEW..=FEW]);
    assert!(waiting[0].poll().is_pending());
    let batches: Vec<_> = authors[FEW + 1..]
        .iter_mut()
        .map(|author| author.batch(&[b"x"], false))
        .collect();
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    let mut cx = Context::from_waker(&waker);
    let mut appends: Vec<_> = batches
        .iter()
        .map(|batch| Box::pin(world.appender.append(batch)))
        .collect();
    let mut poll_all = || {
        for append in &mut appends {
            assert!(append.as_mut().poll(&mut cx).is_pending());
        }
    };
    poll_all();
    world.host.run();
    poll_all();
    flag.0.store(false, Ordering::SeqCst);
    world.journal.commit();
    // As on a runtime: who is woken runs before a part's next turn.
    while world.host.step() {
        if flag.0.swap(false, Ordering::SeqCst) {
            poll_all();
        }
    }
    world.journal.commit();
    world.host.run();
    assert!(waiting[0].is_woken());
    assert_eq!(waiting[0].poll(), accepted());
}

#[test]
fn the_last_appender_leaves_nothing_behind() {
    let world = World::new(JournalConfig::default());
    let journal = Arc::clone(&world.journal);
    let mut authors = world.authors(FEW + 3);
    for waiting in world.gather_all(&mut authors) {
        // What is dropped is enqueued at once.
        std::mem::forget(waiting.gathered);
    }
    drop(world);
    journal.commit();
    authors
        .iter()
        .for_each(|author| drop(author.assert_history(&*journal)));
}
