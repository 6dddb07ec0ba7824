//! Batches of many callers, enqueued together.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use millrun_core::{Bell, Partition, RunId, Sequence};
use millrun_persistence::contract::Author;
use millrun_persistence::{
    Appender, Batch, Durability, EnqueueError, FailureKind, Gathered, Journal, JournalConfig, MemoryJournal,
    RedbJournal, TurnRefused,
};

use crate::host::{HandHost, ThreadHost};

/// So few are enqueued at once.
const FEW: usize = 32;
/// So many turns go together.
const TOGETHER: usize = 64;

#[derive(Default)]
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
        }
    }

    fn authors(&self, count: usize) -> Vec<Author> {
        let mut authors: Vec<_> = (0..count as u64)
            .map(|number| Author::new(&*self.journal, &format!("id-{number}"), number))
            .collect();
        let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
        let epoch = self.journal.take_over(&all).unwrap();
        authors.iter_mut().for_each(|author| author.epoch = epoch);
        authors
    }

    fn gather(&self, batch: &Batch) -> Waiting<'_> {
        Waiting {
            gathered: Box::pin(self.appender.gather(batch).unwrap()),
            flag: Arc::default(),
        }
    }

    /// One batch of each author.
    fn gather_all(&self, authors: &mut [Author]) -> Vec<Waiting<'_>> {
        let batches = authors.iter_mut().map(|author| author.batch(&[b"x"], false));
        batches.map(|batch| self.gather(&batch)).collect()
    }

    fn queued_bytes(&self) -> u64 {
        self.journal.stats().queued_bytes
    }
}

type Outcome = Result<Vec<(usize, TurnRefused)>, EnqueueError>;

struct Waiting<'a> {
    gathered: Pin<Box<Gathered<'a>>>,
    flag: Arc<Flag>,
}

impl Waiting<'_> {
    fn poll(&mut self) -> Poll<Outcome> {
        self.flag.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.flag));
        let outcome = self.gathered.as_mut().poll(&mut Context::from_waker(&waker));
        outcome.map_ok(|refused| refused.into_iter().map(|one| (one.turn, one.error)).collect())
    }

    fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::SeqCst)
    }
}

fn accepted() -> Poll<Outcome> {
    Poll::Ready(Ok(Vec::new()))
}

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

/// As when the host goes before those who append.
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

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Parks this thread until the future is ready.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn threads_gather_for_a_store_on_disk_and_some_go_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let mut config = JournalConfig::default();
    // Less than what each thread gathers, so that it is full all the time.
    config.batch_len_max = 100;
    let journal = Arc::new(RedbJournal::open(&path, config, ThreadHost::new()).unwrap());
    let appender = Appender::new(journal.clone(), &*ThreadHost::new()).unwrap();
    let mut authors: Vec<_> = (0..640)
        .map(|number| Author::new(&*journal, &format!("id-{number}"), number))
        .collect();
    let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let epoch = journal.take_over(&all).unwrap();
    authors.iter_mut().for_each(|author| author.epoch = epoch);
    thread::scope(|scope| {
        for authors in authors.chunks_mut(160) {
            let appender = appender.clone();
            scope.spawn(move || {
                for round in 0..8 {
                    append_all(&appender, authors, round);
                }
            });
        }
    });
    drop(appender);
    journal.close().unwrap();
    let journal = RedbJournal::open(&path, JournalConfig::default(), ThreadHost::new()).unwrap();
    authors
        .iter()
        .for_each(|author| drop(author.assert_history(&journal)));
    let stats = journal.stats();
    assert_eq!((stats.live_runs, stats.finished_runs), (480, 160));
    journal.close().unwrap();
}

/// A turn of each author; every fourth run ends in the last round.
fn append_all(appender: &Appender, authors: &mut [Author], round: usize) {
    let turns = authors.iter_mut().enumerate().map(|(number, author)| {
        let batch = author.batch(&[b"x"], round == 7 && number % 4 == 0);
        (appender.gather(&batch), batch)
    });
    let turns: Vec<_> = turns.collect();
    for (number, (outcome, batch)) in turns.into_iter().enumerate() {
        let refused = match outcome {
            // This one is cut off, and appends its turn again.
            Ok(gathered) if (number + round).is_multiple_of(5) => {
                drop(gathered);
                let mut refused = wait_for(appender.append(&batch)).unwrap().refused;
                let is_there = [TurnRefused::AlreadyAppended, TurnRefused::NotLive];
                refused.retain(|refused| !is_there.contains(&refused.error));
                refused
            }
            Ok(gathered) => wait_for(gathered).unwrap(),
            Err(EnqueueError::Full) => wait_for(appender.append(&batch)).unwrap().refused,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(refused, []);
    }
}
