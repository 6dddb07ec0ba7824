//! A progress bar on standard error; silent where that is not a terminal.
//!
//! It has no thread of its own: a second thread alone makes some allocators slower.

use indicatif::{ProgressBar, ProgressStyle};

/// How far a suite is.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of `steps` steps.
    ///
    /// # Panics
    /// Never: the template is fixed.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        bar.set_style(
            ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} (left {eta}) {msg}")
                .expect("the template is constant and valid"),
        );
        Self(bar)
    }

    /// Says what runs now.
    pub fn running(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// One more step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
