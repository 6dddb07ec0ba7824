//! Parts on OS threads of their own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

use crossbeam_channel::{Receiver, Sender, bounded};
use millrun_core::{Next, PartExit, Stop, Timestamp};

use super::clock::Clock;
use super::driven::Driven;
use super::patience::Patience;

/// Tells a part's thread to end. A cheap clone.
#[derive(Clone)]
pub(super) struct ThreadStop {
    asked: Arc<AtomicBool>,
    wake: Sender<()>,
}

impl Stop for ThreadStop {
    fn stop(&self) {
        self.asked.store(true, Ordering::SeqCst);
        // If the channel is full, the thread is about to look anyway.
        self.wake.try_send(()).ok();
    }
}

/// A thread that waits to be given its part.
///
/// The part is handed over in a second step, so that it is not lost when the operating system
/// refuses the thread.
pub(super) struct PartThread {
    pub(super) stop: ThreadStop,
    pub(super) id: ThreadId,
    start: Sender<Driven>,
}

impl PartThread {
    pub(super) fn spawn(name: &str, clock: Clock) -> io::Result<Self> {
        let (wake, woken) = bounded(1);
        let (start, started) = bounded::<Driven>(1);
        let stop = ThreadStop {
            asked: Arc::new(AtomicBool::new(false)),
            wake,
        };
        let asked = Arc::clone(&stop.asked);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            if let Ok(driven) = started.recv() {
                drive(driven, &woken, &asked, clock);
            }
        })?;
        Ok(Self {
            stop,
            id: thread.thread().id(),
            start,
        })
    }

    /// Gives the thread its part.
    pub(super) fn start(self, driven: Driven) {
        let wake = self.stop.wake.clone();
        driven.bell.connect(move || {
            wake.try_send(()).ok();
        });
        driven.bell.ring();
        // The thread is waiting for this. If it were gone, the part would end here.
        self.start.send(driven).ok();
    }
}

fn drive(mut driven: Driven, woken: &Receiver<()>, asked_to_stop: &AtomicBool, clock: Clock) {
    let mut wake_at = None::<Timestamp>;
    let mut is_idle = true;
    let mut patience = Patience::default();
    loop {
        // Removes the wake-up of a ring during the turn: the bell itself remembers the ring.
        woken.try_recv().ok();
        if asked_to_stop.load(Ordering::SeqCst) {
            break;
        }
        let due = wake_at.is_some_and(|at| clock.now() >= at);
        if !driven.bell.answer() && !due {
            // A ring, a stop or the time may have ended the wait: the top of the loop finds out.
            let sleep = || match wake_at {
                Some(at) => woken.recv_deadline(clock.instant(at)).unwrap_or_default(),
                None => woken.recv().unwrap_or_default(),
            };
            if is_idle {
                patience.wait(&clock, || woken.try_recv().is_ok(), sleep);
            } else {
                sleep();
            }
            continue;
        }
        wake_at = None;
        is_idle = true;
        match driven.turn() {
            Ok(Next::Idle) => {}
            Ok(Next::Again) => driven.bell.ring(),
            Ok(Next::At(at)) => (wake_at, is_idle) = (Some(at), false),
            Ok(Next::IdleUntil(at)) => wake_at = Some(at),
            Ok(Next::Stop) => return,
            Err(panic) => {
                tracing::error!(part = driven.name(), panic, "a part failed");
                return;
            }
        }
    }
    driven.finish(PartExit::Stopped);
}
