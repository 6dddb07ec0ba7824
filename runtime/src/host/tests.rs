//! What a host promises to parts and tasks, on both kinds of tokio runtime.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use millrun_core::{Bell, Host, Next, OnExit, Part, PartExit, PartHandle, Placement, Timestamp};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::clock::Clock;
use super::{HostConfig, HostError, TokioHost};

/// A test that takes longer hangs, and fails here.
const HANGS_AFTER: Duration = Duration::from_secs(60);

thread_local! {
    /// Whether the hosts of the test have a thread of their own for actors.
    static OWN_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test on a current-thread and on a multi-thread runtime, on the latter also with a thread of
/// the host's own.
fn on_both<T: Future<Output = ()>>(test: impl Fn() -> T) {
    let multi_thread = || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2);
        builder
    };
    let kinds = [
        (Builder::new_current_thread(), false),
        (multi_thread(), false),
        (multi_thread(), true),
    ];
    for (mut builder, own_thread) in kinds {
        OWN_THREAD.set(own_thread);
        let tokio = builder.enable_time().build().unwrap();
        tokio
            .block_on(async { tokio::time::timeout(HANGS_AFTER, test()).await })
            .expect("the test hangs");
    }
}

/// Runs a test on both kinds of runtime for both placements, each on a host of its own.
fn on_each(test: impl AsyncFn(&TokioHost, Placement)) {
    on_both(async || {
        for placement in [Placement::Actor, Placement::Thread] {
            let host = spawn().await;
            test(&host, placement).await;
            shut_down(host).await;
        }
    });
}

/// A part made of a closure.
struct Closure<F>(F);

impl<F: FnMut(Timestamp, usize) -> Next + Send + 'static> Part for Closure<F> {
    fn turn(&mut self, now: Timestamp, budget: usize) -> Next {
        (self.0)(now, budget)
    }
}

/// Sends a word when it is dropped.
struct LastWord(UnboundedSender<&'static str>, &'static str);

impl Drop for LastWord {
    fn drop(&mut self) {
        self.0.send(self.1).ok();
    }
}

fn start(
    host: &Arc<dyn Host>,
    placement: Placement,
    bell: &Bell,
    on_exit: OnExit,
    turn: impl FnMut(Timestamp, usize) -> Next + Send + 'static,
) -> PartHandle {
    let part = Box::new(Closure(turn));
    host.spawn_part("probe", placement, bell.clone(), part, on_exit)
        .expect("the host is not closed")
}

/// Starts a part that nobody rings for and whose end nobody looks at.
fn start_alone(
    host: &TokioHost,
    placement: Placement,
    turn: impl FnMut(Timestamp, usize) -> Next + Send + 'static,
) {
    start(&host.host(), placement, &Bell::new(), ignore_exit(), turn);
}

fn exit_channel() -> (OnExit, UnboundedReceiver<PartExit>) {
    let (exited, exit) = unbounded_channel();
    (Box::new(move |exit| exited.send(exit).unwrap()), exit)
}

fn ignore_exit() -> OnExit {
    Box::new(drop)
}

fn config() -> HostConfig {
    HostConfig {
        own_thread: OWN_THREAD.get(),
        ..HostConfig::default()
    }
}

async fn spawn() -> TokioHost {
    TokioHost::spawn(config()).await.unwrap()
}

async fn shut_down(host: TokioHost) {
    host.shutdown(HANGS_AFTER).await.unwrap();
}

#[test]
fn a_part_has_a_turn_at_once_and_one_more_for_each_ring() {
    on_each(async |host, placement| {
        let (turned, mut turns) = unbounded_channel();
        let bell = Bell::new();
        let (on_exit, mut exit) = exit_channel();
        let part = start(&host.host(), placement, &bell, on_exit, move |_, budget| {
            turned.send(budget).unwrap();
            Next::Idle
        });
        assert_eq!(turns.recv().await, Some(1_024));
        for _ in 0..3 {
            bell.ring();
            assert_eq!(turns.recv().await, Some(1_024));
        }
        part.stop();
        assert_eq!(exit.recv().await, Some(PartExit::Stopped));
        assert_eq!(turns.recv().await, None, "no turn without a reason");
    });
}

#[test]
fn no_ring_is_lost_when_many_ring_at_once() {
    const RINGERS: usize = 4;
    const RINGS: usize = 5_000;
    on_each(async |host, placement| {
        let bell = Bell::new();
        let (pushed, done) = (Arc::new(AtomicUsize::new(0)), oneshot::channel());
        let (mut done, all_seen) = (Some(done.0), done.1);
        let seen = Arc::clone(&pushed);
        start(&host.host(), placement, &bell, ignore_exit(), move |_, _| {
            if seen.load(Ordering::SeqCst) == RINGERS * RINGS
                && let Some(done) = done.take()
            {
                done.send(()).unwrap();
            }
            Next::Idle
        });
        thread::scope(|scope| {
            for _ in 0..RINGERS {
                scope.spawn(|| {
                    for _ in 0..RINGS {
                        pushed.fetch_add(1, Ordering::SeqCst);
                        bell.ring();
                    }
                });
            }
        });
        all_seen.await.unwrap();
    });
}

#[test]
fn a_part_that_always_wants_another_turn_can_be_stopped() {
    on_each(async |host, placement| {
        let (on_exit, mut exit) = exit_channel();
        let (turned, mut turns) = unbounded_channel();
        let part = start(&host.host(), placement, &Bell::new(), on_exit, move |_, _| {
            turned.send(()).ok();
            Next::Again
        });
        for _ in 0..100 {
            turns.recv().await.unwrap();
        }
        part.stop();
        part.stop();
        assert_eq!(exit.recv().await, Some(PartExit::Stopped));
        assert_eq!(exit.recv().await, None, "the end is reported once");
        assert_eq!(host.parts(), []);
    });
}

#[test]
fn a_part_that_always_wants_another_turn_lets_others_go_first() {
    let tokio = Builder::new_current_thread().enable_time().build().unwrap();
    tokio.block_on(async {
        let host = spawn().await;
        let (counted, turns) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&turns);
        start_alone(&host, Placement::Actor, move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
            Next::Again
        });
        let (other, seen) = oneshot::channel();
        host.host().spawn(
            "other",
            Box::pin(async move {
                for _ in 0..100 {
                    let before = turns.load(Ordering::SeqCst);
                    super::actor::to_the_back_of_the_queue().await;
                    let between = turns.load(Ordering::SeqCst) - before;
                    counted.fetch_max(between, Ordering::SeqCst);
                }
                other.send(counted.load(Ordering::SeqCst)).unwrap();
            }),
        );
        assert_eq!(
            seen.await,
            Ok(1),
            "between two polls of a ready task a part has one turn"
        );
        shut_down(host).await;
    });
}

#[test]
fn a_part_that_has_finished_gets_no_further_turn() {
    on_each(async |host, placement| {
        let (on_exit, mut exit) = exit_channel();
        let (turned, mut turns) = unbounded_channel();
        let bell = Bell::new();
        let own_bell = bell.clone();
        start(&host.host(), placement, &bell, on_exit, move |_, _| {
            own_bell.ring();
            turned.send(()).unwrap();
            Next::Stop
        });
        assert_eq!(exit.recv().await, Some(PartExit::Stopped));
        bell.ring();
        assert_eq!(turns.recv().await, Some(()));
        assert_eq!(turns.recv().await, None);
    });
}

#[test]
fn a_deadline_is_never_early_and_an_earlier_one_replaces_a_later() {
    on_each(async |host, placement| {
        let (turned, mut turns) = unbounded_channel();
        let bell = Bell::new();
        let mut wanted = vec![Timestamp::EPOCH];
        start(&host.host(), placement, &bell, ignore_exit(), move |now, _| {
            assert!(now >= Timestamp::EPOCH);
            turned.send((now, *wanted.last().unwrap())).unwrap();
            // In an hour; when rung, in 3 ms, again and again.
            let next = if wanted.len() == 1 {
                Duration::from_secs(3_600)
            } else {
                Duration::from_millis(3)
            };
            wanted.push(now + next);
            Next::At(now + next)
        });
        turns.recv().await.unwrap();
        bell.ring();
        turns.recv().await.unwrap();
        for _ in 0..5 {
            let (now, deadline) = turns.recv().await.unwrap();
            assert!(now >= deadline, "{now} is before {deadline}");
        }
    });
}

/// A laptop that had slept for a night, and a machine whose clock was corrected by hours, kept to the old time
/// until the process was started again: timers that were long due came hours late. The host had read the wall
/// clock once, when it started.
#[test]
fn what_has_become_due_by_a_correction_of_the_wall_clock_comes_though_nothing_else_happens() {
    on_both(async || {
        for placement in [Placement::Actor, Placement::Thread] {
            let hours = Arc::new(AtomicU64::new(1_000));
            let moved = Arc::clone(&hours);
            let hour = |hours: u64| Timestamp::EPOCH + Duration::from_secs(hours * 3_600);
            let wall = move || hour(moved.load(Ordering::SeqCst));
            let often = Duration::from_millis(1);
            let clock = Clock::following(Box::new(wall), often, often);
            let host = TokioHost::spawn_with(config(), clock).await.unwrap();
            let (turned, mut turns) = unbounded_channel();
            start(
                &host.host(),
                placement,
                &Bell::new(),
                ignore_exit(),
                move |now, _| {
                    turned.send(now).unwrap();
                    let due = hour(1_008);
                    if now < due { Next::At(due) } else { Next::Idle }
                },
            );
            let sleep = host.host().sleep_until(hour(1_008));
            assert!(turns.recv().await.unwrap() < hour(1_001));
            hours.store(1_010, Ordering::SeqCst);
            assert!(turns.recv().await.unwrap() >= hour(1_010));
            sleep.await;
            assert!(host.host().now() >= hour(1_010));
            shut_down(host).await;
        }
    });
}

#[test]
fn a_panic_in_a_turn_is_reported_once_and_ends_only_that_part() {
    on_each(async |host, placement| {
        let (turned, mut turns) = unbounded_channel();
        let survivor = Bell::new();
        start(&host.host(), placement, &survivor, ignore_exit(), move |_, _| {
            turned.send(()).unwrap();
            Next::Idle
        });
        turns.recv().await.unwrap();

        let (on_exit, mut exit) = exit_channel();
        start(&host.host(), placement, &Bell::new(), on_exit, |_, _| {
            panic!("order {} is broken", 42)
        });
        assert_eq!(
            exit.recv().await,
            Some(PartExit::Panicked("order 42 is broken".to_owned()))
        );
        assert_eq!(exit.recv().await, None);

        survivor.ring();
        turns.recv().await.unwrap();
        assert_eq!(host.parts().len(), 1);
    });
}

#[test]
fn the_exit_callback_comes_after_the_part_is_dropped_and_may_start_its_successor() {
    on_each(async |host, placement| {
        let (said, mut words) = unbounded_channel();
        let bell = Bell::new();
        let last_word = LastWord(said.clone(), "dropped");
        let (seam, successor_bell) = (host.host(), bell.clone());
        let on_exit: OnExit = Box::new(move |_| {
            said.send("exited").unwrap();
            start(&seam, placement, &successor_bell, ignore_exit(), move |_, _| {
                said.send("turn of the successor").unwrap();
                Next::Idle
            });
        });
        start(&host.host(), placement, &bell, on_exit, move |_, _| {
            let LastWord(..) = &last_word;
            Next::Stop
        });
        for word in ["dropped", "exited", "turn of the successor"] {
            assert_eq!(words.recv().await, Some(word));
        }
        bell.ring();
        assert_eq!(words.recv().await, Some("turn of the successor"));
    });
}

#[test]
fn a_part_on_a_thread_has_a_thread_of_its_own() {
    on_both(async || {
        let host = spawn().await;
        let (turned, mut turns) = unbounded_channel::<(ThreadId, Option<String>)>();
        start_alone(&host, Placement::Thread, move |_, _| {
            let thread = thread::current();
            turned
                .send((thread.id(), thread.name().map(str::to_owned)))
                .unwrap();
            Next::Idle
        });
        let (id, name) = turns.recv().await.unwrap();
        assert_ne!(id, thread::current().id());
        assert_eq!(name.as_deref(), Some("probe"));
        let listed = host.parts();
        assert_eq!(listed.len(), 1);
        assert_eq!(
            (listed[0].name.as_str(), listed[0].placement),
            ("probe", Placement::Thread)
        );
        shut_down(host).await;
    });
}

#[test]
fn dropping_the_host_ends_its_threads_before_it_returns() {
    on_both(async || {
        let host = spawn().await;
        let (said, mut words) = unbounded_channel();
        let (turned, mut turns) = unbounded_channel();
        let last_word = LastWord(said, "dropped");
        start_alone(&host, Placement::Thread, move |_, _| {
            let LastWord(..) = &last_word;
            turned.send(()).unwrap();
            Next::Idle
        });
        turns.recv().await.unwrap();
        drop(host);
        assert_eq!(words.try_recv(), Ok("dropped"));
    });
}

#[test]
fn dropping_the_host_ends_actors_and_tasks() {
    on_both(async || {
        let host = spawn().await;
        let seam = host.host();
        let (on_exit, mut exit) = exit_channel();
        start(&seam, Placement::Actor, &Bell::new(), on_exit, |_, _| Next::Idle);
        let (said, mut words) = unbounded_channel();
        let last_word = LastWord(said, "dropped");
        seam.spawn(
            "waits for ever",
            Box::pin(async move {
                let _last_word = last_word;
                std::future::pending::<()>().await;
            }),
        );
        drop(host);
        assert_eq!(exit.recv().await, Some(PartExit::Stopped));
        assert_eq!(words.recv().await, Some("dropped"));
        let part = Box::new(Closure(|_, _| Next::Idle));
        let refused = seam.spawn_part("late", Placement::Actor, Bell::new(), part, ignore_exit());
        assert_eq!(refused.unwrap_err().cause, "the host has been shut down");
    });
}

#[test]
fn the_end_of_tokio_is_the_end_of_its_parts() {
    let tokio = Builder::new_current_thread().enable_time().build().unwrap();
    let (on_exit, mut exit) = exit_channel();
    let host = tokio.block_on(async {
        let host = spawn().await;
        start(&host.host(), Placement::Actor, &Bell::new(), on_exit, |_, _| {
            Next::Idle
        });
        host
    });
    drop(tokio);
    assert_eq!(exit.try_recv(), Ok(PartExit::Stopped));
    drop(host);
}

#[test]
fn a_shutdown_that_runs_out_of_time_says_what_still_runs() {
    on_both(async || {
        let host = spawn().await;
        let (release, held) = crossbeam_channel::bounded::<()>(0);
        let (turned, mut turns) = unbounded_channel();
        let (on_exit, mut exit) = exit_channel();
        start(
            &host.host(),
            Placement::Thread,
            &Bell::new(),
            on_exit,
            move |_, _| {
                turned.send(()).unwrap();
                // As a disk that does not answer.
                held.recv().ok();
                Next::Idle
            },
        );
        turns.recv().await.unwrap();
        let late = host.shutdown(Duration::ZERO).await.unwrap_err();
        assert_eq!(late.to_string(), "1 parts and 0 tasks were still running");
        assert_eq!(late.parts[0].name, "probe");
        drop(release);
        assert_eq!(exit.recv().await, Some(PartExit::Stopped));
    });
}

#[test]
fn an_aborted_task_is_dropped_and_a_finished_one_is_forgotten() {
    on_both(async || {
        let host = spawn().await;
        let (said, mut words) = unbounded_channel();
        let last_word = LastWord(said.clone(), "dropped");
        let waiting = host.host().spawn(
            "waits for ever",
            Box::pin(async move {
                let _last_word = last_word;
                std::future::pending::<()>().await;
            }),
        );
        let finished = host.host().spawn(
            "speaks",
            Box::pin(async move {
                said.send("spoken").unwrap();
            }),
        );
        assert_eq!(words.recv().await, Some("spoken"));
        finished.abort();
        waiting.abort();
        assert_eq!(words.recv().await, Some("dropped"));
        shut_down(host).await;
    });
}

#[test]
fn many_tasks_come_and_go_without_leaving_a_trace() {
    on_both(async || {
        let host = spawn().await;
        let seam = host.host();
        let (ended, mut ends) = unbounded_channel();
        for index in 0..10_000_u32 {
            let ended = ended.clone();
            let task = seam.spawn(
                "short",
                Box::pin(async move {
                    tokio::task::yield_now().await;
                    ended.send(()).unwrap();
                }),
            );
            if index % 3 == 0 {
                task.abort();
            }
        }
        drop(ended);
        while ends.recv().await.is_some() {}
        shut_down(host).await;
        assert_eq!(format!("{seam:?}"), "TokioHost { parts: [], tasks: 0, .. }");
    });
}

#[test]
fn a_sleep_ends_at_its_deadline_or_later() {
    on_both(async || {
        let host = spawn().await;
        let seam = host.host();
        let deadline = seam.now() + Duration::from_millis(5);
        seam.sleep_until(deadline).await;
        assert!(seam.now() >= deadline);
        seam.sleep_until(Timestamp::EPOCH).await;
        shut_down(host).await;
    });
}

#[test]
fn without_a_runtime_or_a_timer_there_is_no_host() {
    let outside = pin!(TokioHost::spawn(HostConfig::default()));
    let outside = outside.poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(outside, Poll::Ready(Err(HostError::NoRuntime))));
    let tokio = Builder::new_current_thread().build().unwrap();
    let timerless = tokio.block_on(TokioHost::spawn(HostConfig::default()));
    assert!(matches!(timerless, Err(HostError::NoTimer)));
}

#[test]
fn actors_with_a_thread_of_their_own_stay_on_it_and_work_goes_to_the_workers() {
    on_both(async || {
        let host = spawn().await;
        let seam = host.host();
        let (told, mut threads) = unbounded_channel();
        for _ in 0..3 {
            let (told, inner) = (told.clone(), host.host());
            start_alone(&host, Placement::Actor, move |_, _| {
                let here = thread::current().id();
                let told = told.clone();
                inner.within(&mut || {
                    let told = told.clone();
                    // What a task of the user's may do.
                    let tokio = tokio::runtime::Handle::current();
                    tokio.spawn(async move { told.send((here, thread::current().id())) });
                });
                Next::Idle
            });
        }
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(threads.recv().await.unwrap());
        }
        if OWN_THREAD.get() {
            let (own, _) = seen[0];
            assert!(
                seen.iter().all(|(actor, task)| *actor == own && *task != own),
                "{seen:?}"
            );
        }
        drop(seam);
        shut_down(host).await;
    });
}

#[test]
fn a_host_that_is_dropped_ends_its_own_thread_even_from_there() {
    OWN_THREAD.set(true);
    let tokio = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    tokio.block_on(async {
        let host = spawn().await;
        let seam = host.host();
        let (on_exit, mut exit) = exit_channel();
        let mut owner = Some(host);
        start(&seam, Placement::Actor, &Bell::new(), on_exit, move |_, _| {
            drop(owner.take());
            Next::Idle
        });
        assert_eq!(exit.recv().await, Some(PartExit::Stopped));
    });
}

/// A sleep on a plain thread used a timer of the host's tokio runtime: it panicked when that had ended,
/// and never went off on a current-thread runtime that nobody drove.
#[test]
fn a_sleep_ends_in_time_on_any_executor_whether_or_not_the_host_is_driven() {
    let tokio = Builder::new_current_thread().enable_time().build().unwrap();
    let owner = tokio.block_on(spawn());
    let host = owner.host();
    let sleep_twice = |host: Arc<dyn Host>| {
        move || {
            // The earlier one behind the later one, and one that is given up.
            let now = host.now();
            let (late, early) = (now + Duration::from_millis(4), now + Duration::from_millis(2));
            let (late_sleep, early_sleep) = (host.sleep_until(late), host.sleep_until(early));
            let mut given_up = host.sleep_until(now + Duration::from_secs(3_600));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(given_up.as_mut().poll(&mut cx).is_pending());
            drop(given_up);
            block_on(futures_util::future::join(late_sleep, early_sleep));
            assert!(host.now() >= late);
        }
    };
    // Begun on the host, and awaited to its end elsewhere.
    let mut begun = host.sleep_until(host.now() + Duration::from_millis(50));
    tokio.block_on(async { assert!(futures_util::poll!(&mut begun).is_pending()) });
    hangs_not(sleep_twice(Arc::clone(&host)));
    drop(tokio);
    hangs_not(sleep_twice(Arc::clone(&host)));
    hangs_not(move || block_on(begun));
    hangs_not(move || block_on(owner.shutdown(HANGS_AFTER)).unwrap());
    hangs_not(sleep_twice(host));
}

/// Does some work on a thread of its own, which must end.
fn hangs_not(work: impl FnOnce() + Send + 'static) {
    let (done, end) = std::sync::mpsc::channel();
    let on_thread = move || {
        work();
        done.send(()).ok();
    };
    thread::Builder::new().spawn(on_thread).unwrap();
    end.recv_timeout(HANGS_AFTER).expect("it hangs or panics");
}

/// Awaits a future on a thread that knows nothing of tokio.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);

    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
