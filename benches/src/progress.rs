//! How far a suite is, on standard error: a bar on a terminal, elsewhere a line now and then.
//!
//! It has no thread of its own: a second thread alone makes some allocators slower.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// So much time lies between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How far a suite is.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    /// When the next line is due, if there are lines.
    line_at: Cell<Option<Instant>>,
}

impl Progress {
    /// A bar of `steps` steps; of an unknown number if that is zero.
    ///
    /// # Panics
    /// Never: the template is fixed.
    #[must_use]
    pub fn new(steps: u64) -> Self {
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
            line_at: Cell::new(has_lines.then(|| started + LINE_EVERY)),
        }
    }

    /// Says what runs now.
    pub fn running(&self, what: impl Into<String>) {
        let what = what.into();
        let now = Instant::now();
        if self.line_at.get().is_some_and(|at| at <= now) {
            self.line_at.set(Some(now + LINE_EVERY));
            let done = match self.bar.length() {
                Some(steps) if steps > 0 => format!("{} of {steps} done, ", self.bar.position()),
                _ => String::new(),
            };
            eprintln!("{:.0} s: {done}{what}", self.started.elapsed().as_secs_f64());
        }
        self.bar.set_message(what);
    }

    /// One more step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
