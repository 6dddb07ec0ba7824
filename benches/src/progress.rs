//! How far a suite is, on standard error: a bar on a terminal, elsewhere a line now and then.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// So much time lies between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How often a ticking one looks at the clock.
const TICK_EVERY: Duration = Duration::from_secs(1);

/// How far a suite is.
#[derive(Debug)]
pub struct Progress {
    shown: Arc<Shown>,
    ticker: Option<(Sender<()>, JoinHandle<()>)>,
}

#[derive(Debug)]
struct Shown {
    bar: ProgressBar,
    started: Instant,
    lines: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    /// When the next line is due, if there are lines.
    due_at: Option<Instant>,
    what: String,
}

impl Progress {
    /// A bar of `steps` steps; of an unknown number if that is zero. It has no thread of its own: a
    /// second thread alone makes some allocators slower. So it only moves between steps, which
    /// should be short.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        Self {
            shown: Arc::new(Shown::new(steps)),
            ticker: None,
        }
    }

    /// The same with a thread that keeps its clock going, for steps that may take minutes.
    #[must_use]
    pub fn ticking(steps: u64) -> Self {
        let mut progress = Self::new(steps);
        let (stop, stopped) = channel();
        let shown = Arc::clone(&progress.shown);
        let tick = move || {
            while stopped.recv_timeout(TICK_EVERY) == Err(RecvTimeoutError::Timeout) {
                shown.bar.tick();
                shown.say_if_due(None);
            }
        };
        // Without a thread it is one that does not tick.
        let ticker = thread::Builder::new().name("bench-progress".into()).spawn(tick);
        progress.ticker = ticker.ok().map(|ticker| (stop, ticker));
        progress
    }

    /// Says what runs now.
    pub fn running(&self, what: impl Into<String>) {
        let what = what.into();
        self.shown.bar.set_message(what.clone());
        self.shown.say_if_due(Some(what));
    }

    /// One more step is done.
    pub fn step(&self) {
        self.shown.bar.inc(1);
    }

    /// Removes the bar.
    pub fn finish(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        if let Some((stop, ticker)) = self.ticker.take() {
            drop(stop);
            drop(ticker.join());
        }
        self.shown.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shown {
    fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        let template = match steps {
            0 => "{elapsed} {msg}",
            _ => "{bar:30} {pos}/{len} {elapsed} (left {eta}) {msg}",
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is constant and valid"));
        let started = Instant::now();
        let has_lines = !std::io::stderr().is_terminal();
        Self {
            bar,
            started,
            lines: Mutex::new(Lines {
                due_at: has_lines.then_some(started),
                what: String::new(),
            }),
        }
    }

    /// A line of what runs now, if it is time for one; the first at once.
    fn say_if_due(&self, what: Option<String>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(what) = what {
            lines.what = what;
        }
        let now = Instant::now();
        if lines.what.is_empty() || lines.due_at.is_none_or(|at| now < at) {
            return;
        }
        lines.due_at = Some(now + LINE_EVERY);
        let done = match self.bar.length() {
            Some(steps) if steps > 0 => format!("{} of {steps} done, ", self.bar.position()),
            _ => String::new(),
        };
        eprintln!(
            "{:.0} s: {done}{}",
            self.started.elapsed().as_secs_f64(),
            lines.what
        );
    }
}
