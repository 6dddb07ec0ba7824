//! `kill -9` in the middle of the work, again and again, with a checker in another process.
//!
//! ```text
//!   checker ──start──► child: 16 threads append or gather, finish runs, drop old ones, compact
//!      │  ◄── pipe ───   │   "turn …": acknowledged           (the claims: another way than the disk)
//!      ├── SIGKILL ──►   ✗
//!      ├── copies the file, opens the copy, compares it with all claims so far
//!      └── starts the next child on the file as the kill left it, so that repairs are killed too
//! ```
//!
//! The child is this test binary, told by its environment to work instead of test. `MILLRUN_KILLS`
//! sets the number of kills (50), `MILLRUN_KILL_SEED` what is written and when is killed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use millrun_core::{Epoch, Partition, Sequence};
use millrun_persistence::appender::Appender;
use millrun_persistence::{Batch, EnqueueError, Journal, RedbConfig, RedbJournal, TurnRefused};

use super::claims::{Claims, Turn, live_records, put, run_id};
use super::disk::Dice;
use crate::host::ThreadHost;

const STORE: &str = "MILLRUN_TEST_KILL_STORE";
const LIFE: &str = "MILLRUN_TEST_KILL_LIFE";
const SEED: &str = "MILLRUN_KILL_SEED";
const THREADS: u64 = 16;
/// How many finished runs are retained.
const RETAINED: usize = 200;
/// Each thread has at most this many live runs. More begin than end; without a bound, what a life reads
/// back would grow from kill to kill, to seconds after a thousand.
const LIVE_MAX: usize = 64;
/// Each thread has at most this many turns in hand.
const TURNS_MAX: u64 = 3;

/// Small bounds, so that everything that upkeep does happens all the time.
fn config() -> RedbConfig {
    let mut config = RedbConfig::default();
    config.journal.retention.len_max = RETAINED;
    config.journal.retention.age_max = Duration::MAX;
    config.store.dead_bytes_max = 64 << 10;
    config.store.cache_bytes_max = 8 << 20;
    config.store.zero_ahead_bytes = 1 << 20;
    config
}

fn open(path: &Path) -> Arc<RedbJournal> {
    Arc::new(RedbJournal::open(path, config(), ThreadHost::new()).unwrap())
}

fn all() -> Vec<Partition> {
    (0..Partition::COUNT).filter_map(Partition::from_index).collect()
}

/// A number from the environment.
fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Says something in one write, so that only the last thing said can be torn.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).unwrap();
    out.flush().unwrap();
}

/// The child's work. It does not end by itself, except by a failed assertion.
#[test]
fn child_of_the_kill_loop() {
    let (Ok(path), Some(life), Some(seed)) = (std::env::var(STORE), variable(LIFE), variable(SEED)) else {
        // Run as an ordinary test, there is nothing to do.
        return;
    };
    say("opening end\n");
    let journal = open(Path::new(&path));
    let heads = live_records(&*journal).unwrap();
    let heads = heads.iter().map(|(run, records)| (*run, records.len() as u64));
    let epoch = journal.take_over(&all()).unwrap();
    say(&format!("open {} end\n", epoch.get()));

    let appender = Appender::new(journal.clone(), &*ThreadHost::new()).unwrap();
    // Later than anything of earlier lives.
    let clock = Arc::new(AtomicU64::new(life * 10_000_000));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (appender, journal) = (appender.clone(), &journal);
            let mut author = Author {
                runs: heads.clone().filter(|(run, _)| run % THREADS == number).collect(),
                next: (life * 1_000_000 / THREADS) * THREADS + number,
                dice: Dice::new(seed ^ (life << 20) ^ number),
                clock: Arc::clone(&clock),
                epoch,
                life,
                seed,
            };
            thread::Builder::new()
                .spawn_scoped(scope, move || {
                    let work = std::panic::AssertUnwindSafe(|| {
                        loop {
                            author.append(&appender, journal);
                        }
                    });
                    // The other threads would go on until the kill, and hide it.
                    if std::panic::catch_unwind(work).is_err() {
                        std::process::exit(1);
                    }
                })
                .unwrap();
        }
    });
}

/// One thread of the child.
struct Author {
    /// The heads of its live runs.
    runs: BTreeMap<u64, u64>,
    /// The number of the next run it begins.
    next: u64,
    dice: Dice,
    /// All threads take the time here.
    clock: Arc<AtomicU64>,
    epoch: Epoch,
    life: u64,
    seed: u64,
}

impl Author {
    /// Appends a few turns, waits until they are durable, and says so.
    fn append(&mut self, appender: &Appender, journal: &RedbJournal) {
        let (mut batch, mut turns) = (Batch::new(), Vec::new());
        for _ in 0..1 + self.dice.below(TURNS_MAX) {
            let turn = self.turn();
            put(&mut batch, self.seed, &turn, self.epoch);
            turns.push(turn);
        }
        // Where a turn stands matters to the checker only if it closes its run.
        let gathers = (self.next % THREADS).is_multiple_of(3) && turns.iter().all(|turn| !turn.closes);
        let (offset, refused) = if gathers {
            let gathered = appender.gather(&batch).unwrap();
            (0, durable(gathered))
        } else {
            let enqueued = durable(appender.append(&batch));
            (enqueued.offset.get(), enqueued.refused)
        };
        assert_eq!(refused, []);
        let mut lines = String::new();
        for (place, turn) in turns.iter().enumerate() {
            let order = (offset, place as u64);
            lines.push_str(&turn.line(order));
        }
        say(&lines);
        if self.dice.one_in(20) {
            self.provoke(journal, &turns);
        }
        if self.dice.one_in(400) {
            journal.begin_compact();
        }
    }

    fn turn(&mut self) -> Turn {
        let is_full = self.runs.len() >= LIVE_MAX;
        let is_new = self.runs.is_empty() || (self.dice.one_in(3) && !is_full);
        let run = if is_new {
            self.next += THREADS;
            self.next
        } else {
            let place = usize::try_from(self.dice.below(self.runs.len() as u64)).unwrap();
            *self.runs.keys().nth(place).unwrap()
        };
        let head = self.runs.get(&run).copied().unwrap_or(0);
        let turn = Turn {
            life: self.life,
            run,
            head,
            records: 1 + self.dice.below(3),
            closes: self.dice.one_in(4),
            time: self.clock.fetch_add(1, Ordering::SeqCst),
        };
        if turn.closes {
            self.runs.remove(&run);
        } else {
            self.runs.insert(run, head + turn.records);
        }
        turn
    }

    /// Asks for what must be refused.
    fn provoke(&self, journal: &RedbJournal, turns: &[Turn]) {
        // A run is known by its first turn only while it lives.
        let Some(last) = turns.iter().rfind(|turn| turn.head > 0 || !turn.closes) else {
            return;
        };
        let again = refusal(journal, self.seed, last, self.epoch);
        let next = Turn {
            head: last.head + last.records,
            ..*last
        };
        let fenced = refusal(journal, self.seed, &next, Epoch::new(self.epoch.get() - 1));
        let other = Turn {
            life: u64::MAX,
            ..*last
        };
        let conflict = refusal(journal, self.seed, &other, self.epoch);
        assert_eq!(fenced, Some(TurnRefused::Fenced { current: self.epoch }));
        let head = Sequence::new(next.head);
        let expected = if last.closes {
            [Some(TurnRefused::NotLive), Some(TurnRefused::NotLive)]
        } else {
            [
                Some(TurnRefused::AlreadyAppended),
                Some(TurnRefused::Conflict { head }),
            ]
        };
        assert_eq!([again, conflict], expected);
        if !last.closes {
            // Behind a conflict nothing more is taken of the run until it has been read again.
            assert_eq!(journal.read_again(run_id(last.run), self.epoch), Ok(head));
        }
    }
}

/// Why a turn is refused; `None` if it is not.
fn refusal(journal: &RedbJournal, seed: u64, turn: &Turn, epoch: Epoch) -> Option<TurnRefused> {
    let mut batch = Batch::new();
    put(&mut batch, seed, turn, epoch);
    let mut enqueued = loop {
        match journal.enqueue(&batch) {
            Err(error) if error.is_retryable() => thread::yield_now(),
            outcome => break outcome.unwrap(),
        }
    };
    enqueued.refused.pop().map(|refused| refused.error)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Parks this thread until what it appends is durable.
fn durable<T>(append: impl Future<Output = Result<T, EnqueueError>>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut append = std::pin::pin!(append);
    loop {
        match append.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => return outcome.unwrap(),
            Poll::Pending => thread::park(),
        }
    }
}

/// Lets a child work on the store and kills it at a moment of the dice. Returns its epoch, if it
/// came so far.
fn live_and_die(path: &Path, life: u64, seed: u64, dice: &mut Dice, claims: &mut Claims) -> Option<Epoch> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::kill::child_of_the_kill_loop"])
        .args(["--nocapture", "--test-threads=1"])
        .env(STORE, path)
        .env(LIFE, life.to_string())
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // While it opens or repairs the store, right when it begins, or later.
    let lines_max = match dice.below(6) {
        0 => 0,
        1 => 2,
        _ => 3 + dice.below(600),
    };
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (mut line, mut lines, mut epoch) = (String::new(), 0, None);
    while out.read_line(&mut line).unwrap() > 0 {
        let words: Vec<_> = line.split_whitespace().collect();
        if lines == lines_max {
            child.kill().unwrap();
        }
        // What was said before the kill counts, also if it is read after it. Only the last line
        // can be torn, and then its last word is missing. (The first lines are the test runner's.)
        match words.as_slice() {
            ["opening", "end"] => {}
            ["open", number, "end"] => epoch = Some(Epoch::new(number.parse().unwrap())),
            ["turn", numbers @ .., "end"] => claims.hear(numbers),
            _ => {
                line.clear();
                continue;
            }
        }
        lines += 1;
        line.clear();
    }
    let status = child.wait().unwrap();
    assert_eq!(
        status.signal(),
        Some(9),
        "the child of life {life} ended by itself: {status}"
    );
    epoch
}

/// What a writer from before the kill would try, and what one after it may not do.
fn assert_refused(journal: &RedbJournal, seed: u64, killed: Option<Epoch>, claims: &Claims) {
    let epoch = journal.take_over(&all()).unwrap();
    if let Some(turn) = claims.last_of_a_live_run() {
        let next = Turn {
            head: turn.head + turn.records,
            ..turn
        };
        if let Some(killed) = killed {
            let fenced = refusal(journal, seed, &next, killed);
            assert_eq!(fenced, Some(TurnRefused::Fenced { current: epoch }));
        }
        let again = refusal(journal, seed, &turn, epoch);
        assert_eq!(again, Some(TurnRefused::AlreadyAppended), "{turn:?}");
        let other = Turn {
            life: u64::MAX,
            ..turn
        };
        let head = Sequence::new(next.head);
        let conflict = refusal(journal, seed, &other, epoch);
        assert_eq!(conflict, Some(TurnRefused::Conflict { head }));
    }
    if let Some(turn) = claims.last_of_a_finished_run() {
        let next = Turn {
            head: turn.head + turn.records,
            closes: false,
            ..turn
        };
        let not_live = refusal(journal, seed, &next, epoch);
        assert_eq!(not_live, Some(TurnRefused::NotLive));
    }
}

#[test]
fn no_kill_loses_doubles_or_changes_what_was_acknowledged() {
    let seed = variable(SEED).unwrap_or(1);
    let kills = variable("MILLRUN_KILLS").unwrap_or(50);
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("store.redb"), folder.path().join("copy.redb"));
    let mut dice = Dice::new(seed);
    let mut claims = Claims::new(seed, RETAINED, usize::try_from(THREADS * TURNS_MAX).unwrap());
    let mut surplus = 0;
    for life in 1..=kills {
        let epoch = live_and_die(&path, life, seed, &mut dice, &mut claims);
        if !path.exists() {
            // Killed before there was a store.
            continue;
        }
        fs::copy(&path, &copy).unwrap();
        let journal = open(&copy);
        surplus += claims
            .check(&*journal, life)
            .unwrap_or_else(|fault| panic!("seed {seed}, life {life}: {fault}"));
        assert_refused(&journal, seed, epoch, &claims);
        journal.close().unwrap();
    }
    println!(
        "{kills} kills: {} turns acknowledged, {surplus} found that nobody had been told of, {} runs expired",
        claims.turns, claims.expired
    );
    assert!(
        claims.turns >= kills * 20,
        "only {} turns were acknowledged",
        claims.turns
    );
    assert!(claims.expired > 0 || kills < 20, "retention was never reached");

    // The control: a checker that notices nothing would mean nothing.
    let journal = open(&copy);
    let last = claims.last_of_a_live_run().expect("some runs are live");
    let never_written = Turn {
        head: last.head + last.records,
        ..last
    };
    claims.hear_turn(never_written, (0, 0));
    let fault = claims.check(&*journal, kills).unwrap_err();
    assert!(fault.contains("acknowledged"), "{fault}");
}
