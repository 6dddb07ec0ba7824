//! Sleeping, on any executor.
//!
//! ```text
//!   a sleep ── polled on the host's tokio runtime ──► a timer of tokio's
//!     └─────── polled anywhere else ────────────────► sleepers ──► thread "millrun-sleepers" ──► waker
//! ```
//!
//! A timer of tokio panics when its runtime has ended, and does not fire while no thread drives a current-thread runtime. A
//! shutdown, or a question with a deadline, may be awaited on another runtime or on a plain thread, and must end there too.
//!
//! Invariant: on the host's own runtime, a sleep is polled by one of its tasks, and its tasks end before its timers. The
//! thread starts with the first sleep outside of that runtime, and ends with the host.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use millrun_core::{Timestamp, panic_message};
use tokio::runtime::Handle;

use super::clock::Clock;

/// Completes at a deadline, never before it.
pub(super) async fn sleep_until(deadline: Timestamp, clock: Clock, tokio: Handle, sleepers: Sleepers) {
    let is_inside = || Handle::try_current().is_ok_and(|here| here.id() == tokio.id());
    while clock.now() < deadline {
        if !is_inside() {
            let (place, clock, sleepers) = (None, &clock, &sleepers);
            Outside {
                deadline,
                clock,
                sleepers,
                place,
            }
            .await;
            continue;
        }
        // One wait may be shorter than the whole sleep, see the clock.
        let mut sleep = pin!(tokio::time::sleep_until(clock.instant(deadline).into()));
        let mut is_first = true;
        poll_fn(|cx| {
            // The future may have been moved to another runtime, or to none.
            if mem::take(&mut is_first) || is_inside() {
                sleep.as_mut().poll(cx)
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }
}

/// The part of a sleep that waits among the sleepers.
struct Outside<'a> {
    deadline: Timestamp,
    clock: &'a Clock,
    sleepers: &'a Sleepers,
    place: Option<Key>,
}

type Key = (Timestamp, u64);

/// The sleeps outside of the host's tokio runtime. A cheap clone. The number of waiting tasks bounds their number.
#[derive(Clone, Default)]
pub(super) struct Sleepers(Arc<Mutex<List>>);

#[derive(Default)]
struct List {
    by_deadline: BTreeMap<Key, Waker>,
    last_number: u64,
    /// Wakes the thread, which ends when this is dropped; `None` until there is a thread.
    earlier: Option<Sender<()>>,
    is_over: bool,
}

impl Future for Outside<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.deadline {
            return Poll::Ready(());
        }
        let this = &mut *self;
        if let Err(error) = this
            .sleepers
            .enter(this.clock, this.deadline, &mut this.place, cx.waker())
        {
            tracing::warn!(%error, "no thread for those who sleep: looking again and again");
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.place.take() {
            let stale = self.sleepers.lock().by_deadline.remove(&key);
            drop(stale);
        }
    }
}

impl Sleepers {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a `waker` to be woken at the deadline.
    fn enter(
        &self,
        clock: &Clock,
        deadline: Timestamp,
        place: &mut Option<Key>,
        waker: &Waker,
    ) -> io::Result<()> {
        let mut list = self.lock();
        let key = *place.get_or_insert_with(|| {
            list.last_number += 1;
            (deadline, list.last_number)
        });
        let stale = list.by_deadline.insert(key, waker.clone());
        let is_first = list
            .by_deadline
            .first_key_value()
            .is_some_and(|(first, _)| *first == key);
        let started = match &list.earlier {
            None => self.start(&mut list, clock),
            Some(earlier) => {
                if is_first {
                    look(earlier);
                }
                Ok(())
            }
        };
        drop(list);
        drop(stale);
        started
    }

    fn start(&self, list: &mut List, clock: &Clock) -> io::Result<()> {
        let (earlier, woken) = bounded(1);
        let (sleepers, clock) = (self.clone(), clock.clone());
        thread::Builder::new()
            .name("millrun-sleepers".into())
            .spawn(move || sleepers.wake_in_time(&clock, &woken))?;
        list.earlier = Some(earlier);
        Ok(())
    }

    /// The loop of the sleepers' thread: wakes each sleeper at its deadline.
    fn wake_in_time(&self, clock: &Clock, woken: &Receiver<()>) {
        loop {
            let now = clock.now();
            let (due, next) = {
                let mut list = self.lock();
                let later = list.by_deadline.split_off(&(now, u64::MAX));
                let due = mem::replace(&mut list.by_deadline, later);
                let next = list.by_deadline.first_key_value().map(|((at, _), _)| *at);
                if next.is_none() && list.is_over {
                    list.earlier = None;
                    drop(list);
                    due.into_values().for_each(wake);
                    return;
                }
                (due, next)
            };
            due.into_values().for_each(wake);
            // The time, or a new sleeper, may have ended the wait: the top of the loop finds out.
            match next {
                Some(at) => woken.recv_deadline(clock.instant(at)).unwrap_or_default(),
                None => woken.recv().unwrap_or_default(),
            }
        }
    }

    /// The host ends. The thread ends once no sleep waits there.
    pub(super) fn end(&self) {
        let mut list = self.lock();
        list.is_over = true;
        if let Some(earlier) = &list.earlier {
            look(earlier);
        }
    }
}

/// Wakes the thread to look at the list. If the channel is full, the thread is about to look anyway.
fn look(earlier: &Sender<()>) {
    earlier.try_send(()).ok();
}

/// A waker is foreign code: its panic must not harm other sleepers.
fn wake(waker: Waker) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        tracing::error!(panic = panic_message(panic), "waking a sleeper panicked");
    }
}

impl fmt::Debug for Sleepers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sleepers")
            .field(&self.lock().by_deadline.len())
            .finish()
    }
}
