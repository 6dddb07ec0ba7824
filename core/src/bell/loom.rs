//! Threads that ring, connect and answer one bell, in every order that loom finds:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p millrun-core --lib loom
//! ```

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;

use super::Bell;

/// A bell that counts whom it wakes.
fn counted(bell: &Bell) -> Arc<AtomicUsize> {
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    bell.connect(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    woken
}

#[test]
fn a_ring_against_connect_wakes() {
    loom::model(|| {
        let bell = Bell::new();
        let other = bell.clone();
        let ringer = thread::spawn(move || other.ring());
        let woken = counted(&bell);
        ringer.join().unwrap();
        assert!((1..=2).contains(&woken.load(Ordering::Relaxed)));
        assert!(bell.answer());
    });
}

#[test]
fn a_ring_against_a_change_of_listeners_reaches_one_or_is_remembered() {
    loom::model(|| {
        let bell = Bell::new();
        let former = counted(&bell);
        let other = bell.clone();
        let ringer = thread::spawn(move || other.ring());
        bell.disconnect();
        ringer.join().unwrap();
        let successor = counted(&bell);
        assert!(former.load(Ordering::Relaxed) <= 1);
        // Nobody has answered, so the successor is woken for what the former one may have missed.
        assert_eq!(successor.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn two_rings_at_once_wake_once() {
    loom::model(|| {
        let bell = Bell::new();
        let woken = counted(&bell);
        let other = bell.clone();
        let ringer = thread::spawn(move || other.ring());
        bell.ring();
        ringer.join().unwrap();
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    });
}

/// The protocol of a part: put work somewhere, ring; answer, then look.
#[test]
fn work_put_down_before_a_ring_is_found() {
    find_work_after(Bell::ring, None);
}

#[test]
fn work_put_down_under_a_lock_before_a_cheaper_ring_is_found() {
    // Its loads branch so often that exploring all of it takes minutes.
    find_work_after(Bell::ring_after_lock, Some(3));
}

fn find_work_after(ring: fn(&Bell), preemptions_max: Option<usize>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions_max;
    model.check(move || {
        let (bell, work) = (Bell::new(), Arc::new(Mutex::new(0)));
        let notify = Arc::new(Notify::new());
        let wake = Arc::clone(&notify);
        bell.connect(move || wake.notify());
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (bell, work) = (bell.clone(), Arc::clone(&work));
                thread::spawn(move || {
                    *work.lock().unwrap() += 1;
                    ring(&bell);
                })
            })
            .collect();
        let mut found = 0;
        while found < 2 {
            // A lost wake-up would be a deadlock here, which loom reports.
            notify.wait();
            bell.answer();
            found += std::mem::take(&mut *work.lock().unwrap());
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}
