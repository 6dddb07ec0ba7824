//! The one-bit wake-up.

#[cfg(all(test, loom))]
mod loom;

use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::sync::{AtomicBool, Mutex, Ordering};

/// Wakes one [`Part`](crate::Part). A cheap clone; all clones ring the same bell.
///
/// A sender rings after it has put something into a part's mailbox. Ringing a bell that already
/// rings costs one atomic operation; only the first ring wakes anybody.
///
/// ```text
///   producer: push ──► ring ──► (first ring only) wake the part's actor or thread
///   part's driver: answer ──► turn, which drains the mailbox
/// ```
///
/// # Ordering
/// The driver answers *before* the part looks at its mailboxes, so a push that comes after that
/// look rings again: no wake-up is lost. A bell that nobody has connected yet remembers its ring.
#[derive(Clone)]
pub struct Bell(Arc<BellState>);

struct BellState {
    rung: AtomicBool,
    wake: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl Bell {
    /// A bell that wakes nobody yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(BellState {
            rung: AtomicBool::new(false),
            wake: Mutex::new(None),
        }))
    }

    /// Says whom to wake from now on, in place of any former one. If the bell has rung already,
    /// `wake` is called at once.
    ///
    /// `wake` must not block; it may be called from any thread.
    pub fn connect(&self, wake: impl Fn() + Send + Sync + 'static) {
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(wake);
        *self.0.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&wake));
        if self.0.rung.load(Ordering::SeqCst) {
            wake();
        }
    }

    /// Forgets whom to wake; later rings are remembered.
    pub fn disconnect(&self) {
        *self.0.wake.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Asks for a turn.
    pub fn ring(&self) {
        if self.0.rung.swap(true, Ordering::SeqCst) {
            return;
        }
        let wake = self.0.wake.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Whether both are the same bell.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// As [`Bell::ring`], for one who has put work down under a lock that the driver takes to look for
    /// work, after its [answer](Bell::answer). Costs a load if the bell rings already.
    ///
    /// # Ordering
    /// If the driver's look came before the work, its answer is known to the thread that took the lock after
    /// it, and the bell is seen silent; else the driver has seen the work.
    #[inline]
    pub fn ring_after_lock(&self) {
        if !self.0.rung.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Whether it has rung and was not answered yet: one load, for a part that looks for work of a bell which does
    /// not drive it.
    ///
    /// # Ordering
    /// Work that was put down before the ring is seen after this has said so, if the bell is answered before the
    /// look.
    #[inline]
    #[must_use]
    pub fn has_rung(&self) -> bool {
        self.0.rung.load(Ordering::SeqCst)
    }

    /// Called by the driver, right before a turn: silences the bell and says whether it had rung.
    pub fn answer(&self) -> bool {
        self.0.rung.swap(false, Ordering::SeqCst)
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell")
            .field("rung", &self.0.rung.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn counted() -> (Bell, Arc<AtomicUsize>) {
        (Bell::new(), Arc::new(AtomicUsize::new(0)))
    }

    #[test]
    fn only_the_first_ring_wakes() {
        let (bell, woken) = counted();
        let count = Arc::clone(&woken);
        bell.connect(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        bell.ring();
        bell.ring();
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        assert!(bell.has_rung());
        assert!(bell.answer());
        assert!(!bell.has_rung());
        assert!(!bell.answer());
        bell.ring();
        assert_eq!(woken.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_ring_after_a_lock_wakes_once_until_it_is_answered() {
        let (bell, woken) = counted();
        let count = Arc::clone(&woken);
        bell.connect(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        bell.ring_after_lock();
        bell.ring_after_lock();
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        assert!(bell.answer());
        bell.ring_after_lock();
        assert_eq!(woken.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_ring_before_anyone_listens_is_remembered() {
        let (bell, woken) = counted();
        bell.ring();
        let count = Arc::clone(&woken);
        bell.connect(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(woken.load(Ordering::SeqCst), 1);
    }
}
