use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use super::*;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;

/// A machine whose clocks a test moves, and that of a server.
#[derive(Debug, Default)]
struct OffMachine {
    elapsed: AtomicU64,
    wall: AtomicU64,
    server: AtomicU64,
    /// Until when it was asked to wait, by its own clock.
    waits_until: AtomicU64,
}

impl OffMachine {
    /// An hour behind the server.
    fn behind() -> Arc<Self> {
        let machine = Self::default();
        machine.elapsed.store(77 * SECOND, Ordering::SeqCst);
        machine.wall.store(1_000 * HOUR, Ordering::SeqCst);
        machine.server.store(1_001 * HOUR, Ordering::SeqCst);
        Arc::new(machine)
    }

    fn pass(&self, by: u64) {
        for clock in [&self.elapsed, &self.wall, &self.server] {
            clock.fetch_add(by, Ordering::SeqCst);
        }
    }

    fn server(&self) -> Timestamp {
        Timestamp::from_micros(self.server.load(Ordering::SeqCst))
    }

    /// Asks the server over a way that takes so long there and back.
    fn ask(&self, there: u64, back: u64) -> ToldTime {
        let told = ToldTime::ask_once::<Infallible>(self, || {
            self.pass(there);
            let time = self.server();
            self.pass(back);
            Ok(Some(time))
        });
        told.unwrap().unwrap()
    }
}

impl Host for OffMachine {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.wall.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.elapsed.load(Ordering::SeqCst))
    }

    fn random(&self) -> u64 {
        7
    }

    fn spawn(&self, _: &'static str, _: Task) -> TaskHandle {
        unreachable!("nothing is spawned here")
    }

    fn sleep_until(&self, deadline: Timestamp) -> Task {
        self.waits_until.store(deadline.as_micros(), Ordering::SeqCst);
        let mut is_first = true;
        Box::pin(std::future::poll_fn(move |_| {
            match std::mem::take(&mut is_first) {
                true => Poll::Pending,
                false => Poll::Ready(()),
            }
        }))
    }

    fn spawn_part(
        &self,
        name: &str,
        _: Placement,
        _: Bell,
        _: Box<dyn Part>,
        _: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        unreachable!("{name} is not spawned here")
    }
}

/// A machine an hour behind its server, and the time by that.
fn on_server() -> (Arc<OffMachine>, ServerTime) {
    let machine = OffMachine::behind();
    let told = machine.ask(5 * MILLI, 5 * MILLI);
    let time = ServerTime::new(Arc::clone(&machine) as Arc<dyn Host>, &told);
    (machine, time)
}

/// How far the time is ahead of the server's, in microseconds.
fn ahead(machine: &OffMachine, time: &ServerTime) -> i64 {
    signed(time.now().as_micros()) - signed(machine.server().as_micros())
}

#[test]
fn the_time_is_that_of_the_server_whatever_the_machine_shows() {
    let (machine, time) = on_server();
    assert_eq!(ahead(&machine, &time), 0);
    machine.pass(10 * SECOND);
    machine.wall.store(3 * HOUR, Ordering::SeqCst);
    assert_eq!(ahead(&machine, &time), 0);
    // The server was asked twice: the shorter way counts.
    let ways = std::sync::Mutex::new(vec![(MILLI, MILLI), (0, 900 * MILLI)]);
    let told = ToldTime::ask::<Infallible>(&*machine, || {
        let (there, back) = ways.lock().unwrap().pop().unwrap();
        machine.pass(there);
        let server = machine.server();
        machine.pass(back);
        Ok(Some(server))
    });
    assert_eq!(told.unwrap().unwrap().half_trip(), Duration::from_millis(1));
    assert!(
        ToldTime::ask::<Infallible>(&*machine, || Ok(None))
            .unwrap()
            .is_none()
    );
}

#[test]
fn an_answer_that_took_long_moves_the_time_only_as_far_as_it_is_sure_of() {
    let (machine, time) = on_server();
    // 300 ms there, and nothing back: halfway it was another time, which the way does not tell from the true one.
    time.hear(&machine.ask(300 * MILLI, 0));
    assert_eq!(ahead(&machine, &time), 0);
    // The two clocks drift apart, and a short way tells.
    machine.server.fetch_add(40 * MILLI, Ordering::SeqCst);
    time.hear(&machine.ask(100 * MILLI, 100 * MILLI));
    assert_eq!(ahead(&machine, &time), -40_000);
    time.hear(&machine.ask(MILLI, MILLI));
    assert_eq!(ahead(&machine, &time), 0);
}

#[test]
fn the_time_never_runs_backwards() {
    let (machine, time) = on_server();
    let mut last = time.now();
    machine.server.fetch_sub(SECOND, Ordering::SeqCst);
    for _ in 0..90 {
        time.hear(&machine.ask(MILLI, MILLI));
        let now = time.now();
        assert!(now >= last);
        last = now;
        machine.pass(100 * MILLI);
    }
    // An eighth slower.
    assert_eq!(ahead(&machine, &time), 0);
}

/// The clocks of two nodes differ by a part of the ways to their server.
#[test]
fn a_run_that_comes_from_another_node_is_not_dated_before_its_last_turn() {
    let (machine, time) = on_server();
    let at = |ahead: u64| machine.server() + Duration::from_micros(ahead);
    time.reach([at(3 * MILLI), at(7 * MILLI)].into_iter());
    assert_eq!(ahead(&machine, &time), 7_000);
    // That is made up for.
    machine.pass(SECOND);
    assert_eq!(ahead(&machine, &time), 0);
    // One that a wrong clock has dated is not followed.
    let at = |ahead: u64| machine.server() + Duration::from_micros(ahead);
    time.reach([at(0), at(HOUR), at(2 * MILLI)].into_iter());
    assert_eq!(ahead(&machine, &time), 2_000);
    time.reach(std::iter::empty());
}

/// A part that wants its next turn at a time.
struct Wants(Next, Arc<AtomicU64>);

impl Part for Wants {
    fn turn(&mut self, now: Timestamp, _: usize) -> Next {
        self.1.store(now.as_micros(), Ordering::SeqCst);
        self.0
    }
}

#[test]
fn a_part_is_told_the_server_s_time_and_waits_by_the_machine_s() {
    let (machine, time) = on_server();
    let in_micros = |micros| Duration::from_micros(micros);
    let turn = |next| {
        let told = Arc::new(AtomicU64::new(0));
        let part = Box::new(Wants(next, Arc::clone(&told)));
        let time = time.clone();
        let next = PartOnServerTime { part, time }.turn(Timestamp::EPOCH, 1);
        assert_eq!(told.load(Ordering::SeqCst), machine.server().as_micros());
        next
    };
    let (here, there) = (machine.now(), machine.server());
    for (wanted, asked) in [
        (
            Next::At(there + in_micros(MILLI)),
            Next::At(here + in_micros(MILLI)),
        ),
        // The clock of the machine may be corrected meanwhile.
        (Next::At(there + in_micros(HOUR)), Next::At(here + WAIT_MAX)),
        (Next::At(Timestamp::EPOCH), Next::At(here)),
        (
            Next::IdleUntil(there + in_micros(HOUR)),
            Next::IdleUntil(here + in_micros(HOUR)),
        ),
        (Next::Again, Next::Again),
        (Next::Idle, Next::Idle),
        (Next::Stop, Next::Stop),
    ] {
        assert_eq!(turn(wanted), asked, "{wanted:?}");
    }
}

#[test]
fn a_wait_ends_when_the_server_has_come_to_its_time_and_not_before() {
    let (machine, time) = on_server();
    let mut context = Context::from_waker(Waker::noop());
    let deadline = machine.server() + Duration::from_secs(7);
    let mut wait = time.sleep_until(deadline);
    assert!(wait.as_mut().poll(&mut context).is_pending());
    let until = || Timestamp::from_micros(machine.waits_until.load(Ordering::SeqCst));
    assert_eq!(until(), machine.now() + WAIT_MAX);
    machine.pass(5 * SECOND);
    // The clock of the machine is put right, and does not end the wait.
    machine.wall.fetch_add(HOUR, Ordering::SeqCst);
    assert!(wait.as_mut().poll(&mut context).is_pending());
    assert_eq!(until(), machine.now() + Duration::from_secs(2));
    machine.pass(2 * SECOND);
    assert!(wait.as_mut().poll(&mut context).is_ready());
}
