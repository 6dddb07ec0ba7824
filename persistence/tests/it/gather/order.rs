//! What goes together, in which order, and to whom a refusal is told.

use std::task::Poll;

use millrun_persistence::{Batch, JournalConfig, TurnRefused};

use super::world::{FEW, TOGETHER, Waiting, World, accepted};

#[test]
fn few_are_enqueued_at_once_and_complete_when_they_are_durable() {
    let world = World::new(JournalConfig::default());
    let mut authors = world.authors(3);
    for author in &mut authors {
        let (before, batch) = (world.queued_bytes(), author.batch(&[b"x"], false));
        let mut waiting = world.gather(&batch);
        assert_eq!(world.queued_bytes(), before + batch.bytes() as u64);
        assert!(waiting.poll().is_pending());
        world.host.run();
        assert!(!waiting.is_woken());
        world.journal.commit();
        world.host.run();
        assert!(waiting.is_woken());
        assert_eq!(waiting.poll(), accepted());
        author.assert_history(&*world.journal);
    }
}

#[test]
fn of_many_turns_go_together_and_none_is_left_behind() {
    let world = World::new(JournalConfig::default());
    let mut authors = world.authors(FEW + TOGETHER + 10);
    let mut waiting = world.gather_all(&mut authors[..FEW + 1]);
    let one = world.queued_bytes();
    waiting.extend(world.gather_all(&mut authors[FEW + 1..FEW + TOGETHER - 1]));
    assert_eq!(world.queued_bytes(), one, "they wait for others to come");
    waiting.extend(world.gather_all(&mut authors[FEW + TOGETHER - 1..]));
    let most = world.queued_bytes();
    assert!(most > one, "as many as go together have gone");
    assert!(waiting.iter_mut().all(|waiting| waiting.poll().is_pending()));
    // Nobody adds to those that are left.
    world.host.run();
    assert!(world.queued_bytes() > most);
    world.journal.commit();
    world.host.run();
    assert!(waiting.iter().all(Waiting::is_woken));
    assert!(waiting.iter_mut().all(|waiting| waiting.poll() == accepted()));
    authors
        .iter()
        .for_each(|author| drop(author.assert_history(&*world.journal)));
}

#[test]
fn a_refusal_is_told_to_whose_turn_it_is() {
    let world = World::new(JournalConfig::default());
    let mut authors = world.authors(FEW + 3);
    let mut others = world.gather_all(&mut authors[..FEW]);
    // Three in one batch, with two turns each: the second's first turn, and the third's second.
    let mut batches = Vec::new();
    let (mut first, mut second) = (authors[FEW].clone(), authors[FEW + 1].clone());
    for wrong in [None, Some(0), Some(1)] {
        let mut batch = Batch::new();
        for turn in 0..2 {
            let author = if turn == 0 { &mut first } else { &mut second };
            let mut fenced = author.clone();
            fenced.epoch = millrun_core::Epoch::new(0);
            let author = if wrong == Some(turn) { &mut fenced } else { author };
            author.put(&mut batch, &[b"x"], false);
        }
        batches.push(batch);
    }
    let mut waiting: Vec<_> = batches.iter().map(|batch| world.gather(batch)).collect();
    assert!(waiting.iter_mut().all(|waiting| waiting.poll().is_pending()));
    world.host.run();
    world.journal.commit();
    world.host.run();
    let current = first.epoch;
    let fenced = |turn| Poll::Ready(Ok(vec![(turn, TurnRefused::Fenced { current })]));
    let outcomes: Vec<_> = waiting.iter_mut().map(Waiting::poll).collect();
    assert_eq!(outcomes, [accepted(), fenced(0), fenced(1)]);
    assert!(others.iter_mut().all(|waiting| waiting.poll() == accepted()));
    first.assert_history(&*world.journal);
    second.assert_history(&*world.journal);
}

#[test]
fn a_batch_larger_than_what_goes_together_goes_alone_and_behind_the_others() {
    let world = World::new(JournalConfig::default());
    let mut authors = world.authors(FEW + 2);
    let mut waiting = world.gather_all(&mut authors[..=FEW]);
    let body = vec![7; 100 << 10];
    // Its run began in the turn before, which waits here.
    let batch = authors[FEW].batch(&[&body], false);
    waiting.push(world.gather(&batch));
    assert!(world.queued_bytes() > body.len() as u64);
    world.journal.commit();
    assert!(waiting.iter_mut().all(|waiting| waiting.poll() == accepted()));
    authors[FEW].assert_history(&*world.journal);
}
