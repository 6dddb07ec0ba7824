//! What a reset reads, and what it is refused without; and that both of its turns are taken, or neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrun::history::Sequence;
use millrun::operating::{ResetPoint, ResetRefused};
use millrun::store::MemoryJournal;
use millrun::{
    OnConflict, RunError, RunHandle, RunId, Runtime, RuntimeBuilder, Signal, StartError, StopCause, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_persistence::{Batch, Enqueued, Journal, JournalConfig};

use crate::support::described;
use crate::tapped::{Tapped, intrude};

const MORE: Signal<String> = Signal::named("more");
const COUNT: Workflow<String, usize> = Workflow::named("count");
const PARENT: Workflow<String, usize> = Workflow::named("parent");

/// 1 Started, then one event for each signal, the last of which is empty, and Completed.
async fn count(cx: WorkflowContext, _input: String) -> Result<usize, WorkflowError> {
    let mut len = 0;
    while !cx.receive(MORE).await?.is_empty() {
        len += 1;
    }
    Ok(len)
}

async fn parent(cx: WorkflowContext, id: String) -> Result<usize, WorkflowError> {
    Ok(cx.child(COUNT, &*id, String::new()).await?)
}

/// Keeps a beginning whenever it makes a checkpoint.
async fn trimming(cx: WorkflowContext, _input: String) -> Result<usize, WorkflowError> {
    let len = cx.checkpointed::<usize>().transpose()?.unwrap_or(0);
    match cx.receive(MORE).await?.is_empty() {
        true => Ok(len),
        false => Ok(cx.checkpoint(&(len + 1)).await?),
    }
}

fn with_code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.register(COUNT, count).register(PARENT, parent)
}

fn memory(turn_bytes_max: usize) -> Arc<MemoryJournal> {
    let mut config = JournalConfig::default();
    config.turn_bytes_max = turn_bytes_max;
    Arc::new(MemoryJournal::new(config).unwrap())
}

fn tapped() -> Arc<Tapped> {
    let journal = memory(JournalConfig::default().turn_bytes_max);
    Tapped::new(journal, |journal, batch| journal.enqueue(batch))
}

fn run_of<O>(handle: &RunHandle<O>) -> RunId {
    handle.run_id().unwrap()
}

fn refused<T: std::fmt::Debug>(answer: Result<T, RunError>) -> ResetRefused {
    match answer {
        Err(RunError::NotReset(refused)) => *refused,
        other => panic!("{other:?}"),
    }
}

async fn last<O>(run: &RunHandle<O>) -> Sequence {
    described(run, |_| true).await.sequence
}

/// A reset of a long history kept its shard from all other runs while the history was replayed twice, also where the answer was
/// no.
#[tokio::test]
async fn what_needs_no_history_is_refused_without_one_and_the_run_stays_in_memory() {
    let journal = tapped();
    let builder = with_code(Runtime::volatile()).journal(Arc::clone(&journal) as _);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(COUNT, "c", String::new()).await.unwrap();
    run.signal(MORE, "x".into()).await.unwrap();
    let parent = runtime.start(PARENT, "p", "child".into()).await.unwrap();
    let child = runtime.attach(COUNT, "child").unwrap();
    described(&parent, |parent| !parent.pending.is_empty()).await;
    // Nothing that was stored of them is read from now on.
    journal.slow_down(run_of(&run));
    journal.slow_down(run_of(&parent));
    for to in [0, 3, u64::MAX] {
        let (to, head) = (Sequence::new(to), Sequence::new(2));
        assert_eq!(
            refused(run.reset(ResetPoint::to_event(to.get())).await),
            ResetRefused::NoEvent { to, head }
        );
    }
    let other = ResetPoint::to_event(1).of_run(run_of(&parent));
    let latest = run_of(&run);
    let of_latest = runtime.attach(COUNT, "c").unwrap();
    assert_eq!(
        refused(of_latest.reset(other).await),
        ResetRefused::NotLatest { latest }
    );
    let lives = refused(parent.reset(ResetPoint::to_event(1)).await);
    assert_eq!(
        lives,
        ResetRefused::ChildLives {
            child: child.id().clone()
        }
    );
    assert_eq!((journal.waiting_reads(), runtime.stats().loads), (0, 0));
    journal.let_go();
    runtime.shutdown().await.unwrap();
}

/// While a history is read, its shard goes on with other runs, and what comes for the run that is reset waits.
#[tokio::test]
async fn a_run_that_is_reset_holds_up_no_other_and_is_not_read_to_be_brought_back() {
    let journal = tapped();
    let builder = with_code(Runtime::volatile()).journal(Arc::clone(&journal) as _);
    let runtime = builder.start().await.unwrap();
    let former = runtime.start(COUNT, "c", String::new()).await.unwrap();
    former.signal(MORE, "x".into()).await.unwrap();
    journal.slow_down(run_of(&former));
    let reset = tokio::spawn({
        let former = former.clone();
        async move { former.reset(ResetPoint::to_event(2)).await }
    });
    while journal.waiting_reads() == 0 {
        tokio::task::yield_now().await;
    }
    let signalled = tokio::spawn({
        let former = former.clone();
        async move { former.signal(MORE, String::new()).await }
    });
    let other = runtime.start(COUNT, "other", String::new()).await.unwrap();
    other.signal(MORE, String::new()).await.unwrap();
    assert_eq!(other.result().await.unwrap(), 0);
    assert!(!reset.is_finished());
    journal.let_go();
    let next = reset.await.unwrap().unwrap();
    signalled.await.unwrap().unwrap();
    assert_eq!(
        next.result().await.unwrap(),
        1,
        "the signal has come behind the reset"
    );
    assert_eq!(runtime.stats().loads, 0);
    runtime.shutdown().await.unwrap();
}

/// A reset read the whole history, which the former run was brought back from too: beyond `history_bytes_max` that parked it.
#[tokio::test]
async fn of_a_history_that_is_longer_than_may_be_read_at_once_only_what_is_kept_is_read() {
    let builder = with_code(Runtime::volatile()).configure(|config| {
        config.limits.payload_bytes_max = 2_000;
        config.journal.turn_bytes_max = 16_000;
        config.journal.history_bytes_max = 30_000;
        config.history_page_bytes_max = 3_000;
    });
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(COUNT, "c", String::new()).await.unwrap();
    for _ in 0..30 {
        run.signal(MORE, "x".repeat(1_500)).await.unwrap();
    }
    let too_large = refused(run.reset(ResetPoint::to_event(25)).await);
    assert!(
        matches!(too_large, ResetRefused::TooLarge { bytes, bytes_max: 16_000 } if bytes > 16_000 && bytes < 20_000),
        "{too_large:?}"
    );
    let kept = refused(run.reset(ResetPoint::to_event(3).keep_signals()).await);
    assert!(matches!(kept, ResetRefused::TooLarge { .. }), "{kept:?}");
    let next = run.reset(ResetPoint::to_event(3)).await.unwrap();
    next.signal(MORE, "x".into()).await.unwrap();
    next.signal(MORE, String::new()).await.unwrap();
    assert_eq!(next.result().await.unwrap(), 3);
    // Of one that has ended.
    let run = runtime.start(COUNT, "d", String::new()).await.unwrap();
    for _ in 0..30 {
        run.signal(MORE, "x".repeat(1_500)).await.unwrap();
    }
    run.signal(MORE, String::new()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 30);
    let too_large = refused(run.reset(ResetPoint::to_event(25)).await);
    assert!(
        matches!(too_large, ResetRefused::TooLarge { .. }),
        "{too_large:?}"
    );
    let to = last(&run).await;
    assert_eq!(
        refused(run.reset(ResetPoint::to_event(to.get())).await),
        ResetRefused::End { to }
    );
    let next = run.reset(ResetPoint::to_event(2)).await.unwrap();
    next.signal(MORE, String::new()).await.unwrap();
    assert_eq!(next.result().await.unwrap(), 1);
    runtime.shutdown().await.unwrap();
}

/// A run on disk that is refused stays there; one that is asked for at the same time is brought back for that.
#[tokio::test]
async fn a_trimmed_history_is_refused_by_its_first_record_and_the_run_goes_on() {
    for hot_len_max in [0, 100] {
        let builder = Runtime::volatile().register(COUNT, trimming).configure(|config| {
            config.limits.kept_beginning_every = 4;
            config.hot_len_max = hot_len_max;
        });
        let runtime = builder.start().await.unwrap();
        let run = runtime.start(COUNT, "c", String::new()).await.unwrap();
        for _ in 0..20 {
            run.signal(MORE, "x".into()).await.unwrap();
        }
        let to = last(&run).await;
        let before = runtime.stats().loads;
        let refusal = refused(run.reset(ResetPoint::to_event(to.get())).await);
        assert!(
            matches!(refusal, ResetRefused::Trimmed { first, .. } if first.get() > 1),
            "{refusal:?}"
        );
        assert_eq!(runtime.stats().loads, before, "it is not brought back for that");
        let (again, told) = tokio::join!(
            run.reset(ResetPoint::to_event(1)),
            run.signal(MORE, String::new())
        );
        told.unwrap();
        assert!(again.is_err(), "{again:?}");
        assert_eq!(run.result().await.unwrap(), 20);
        let ended = refused(run.reset(ResetPoint::to_event(1)).await);
        assert!(matches!(ended, ResetRefused::Trimmed { .. }), "{ended:?}");
        runtime.shutdown().await.unwrap();
    }
}

/// The end of the former run was taken by itself where the journal refused the beginning of the other one: the instance had no
/// run any more.
#[tokio::test]
async fn where_the_journal_refuses_one_of_both_turns_the_former_run_goes_on() {
    // The journal takes less than the runtime believes; or another writer has appended to the former run.
    for is_small in [true, false] {
        let (is_on, journal) = (
            Arc::new(AtomicBool::new(false)),
            memory(if is_small { 8_000 } else { 1 << 20 }),
        );
        let interferes = Arc::clone(&is_on);
        let enqueue = move |journal: &dyn Journal, batch: &Batch| {
            if !is_small && interferes.load(Ordering::SeqCst) && batch.turns() == 2 {
                interferes.store(false, Ordering::SeqCst);
                intrude(journal, batch, 0);
            }
            let enqueued: Enqueued = journal.enqueue(batch)?;
            assert!(enqueued.refused.is_empty() || enqueued.refused.len() == batch.turns());
            Ok(enqueued)
        };
        let builder = with_code(Runtime::volatile()).journal(Tapped::new(journal, enqueue));
        let builder = builder.configure(|config| config.limits.payload_bytes_max = 6_000);
        let runtime = builder.start().await.unwrap();
        let run = runtime.start(COUNT, "c", String::new()).await.unwrap();
        for _ in 0..4 {
            run.signal(MORE, "x".repeat(3_000)).await.unwrap();
        }
        is_on.store(true, Ordering::SeqCst);
        let reset = run.reset(ResetPoint::to_event(4)).await;
        assert!(
            matches!(reset, Err(RunError::Stopped(StopCause::Part { .. }))),
            "{reset:?}"
        );
        is_on.store(true, Ordering::SeqCst);
        // More than the small journal takes at a time.
        let start = runtime.start(COUNT, "c", "x".repeat(5_000));
        let start = start.on_conflict(OnConflict::TerminateRunning);
        let started = start.with_signal(MORE, "x".repeat(5_000)).await;
        assert!(started.is_err(), "{started:?}");
        let stats = runtime.stats();
        assert_eq!((stats.live, stats.parked, stats.finished), (1, 0, 0), "{stats:?}");
        let described = described(&run, |_| true).await;
        assert_eq!((described.run, described.parked), (run_of(&run), None));
        run.signal(MORE, String::new()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 4);
        runtime.shutdown().await.unwrap();
    }
}

/// What does not fit with the turn that ends the former run is refused before that ends.
#[tokio::test]
async fn both_turns_together_have_to_fit_one() {
    let builder = with_code(Runtime::volatile()).configure(|config| {
        config.limits.payload_bytes_max = 4_000;
        config.journal.turn_bytes_max = 8_000;
    });
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(COUNT, "c", String::new()).await.unwrap();
    run.signal(MORE, "x".repeat(3_000)).await.unwrap();
    let point = || ResetPoint::to_event(2);
    let long = refused(run.reset(point().because("x".repeat(4_000))).await);
    assert!(matches!(long, ResetRefused::TooLarge { .. }), "{long:?}");
    let next = run.reset(point().because("x".repeat(500))).await.unwrap();
    let start = runtime.start(COUNT, "c", "x".repeat(3_900));
    let start = start.on_conflict(OnConflict::TerminateRunning);
    let large = start.with_signal(MORE, "x".repeat(3_900)).await;
    let is_refused = matches!(
        &large,
        Err(millrun::StartWithSignalError::Start(StartError::Turn(_)))
    );
    assert!(is_refused, "{large:?}");
    next.signal(MORE, String::new()).await.unwrap();
    assert_eq!(next.result().await.unwrap(), 1);
    runtime.shutdown().await.unwrap();
}
