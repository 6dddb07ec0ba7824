//! How far the work is, for a person who watches.
//!
//! What was done before an interruption is not done again, so it is not seen being done: a tree
//! that goes on begins at the first chunk that is not complete, and a chunk that ends counts
//! for all its files, whichever worker digested them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use millrun::RunId;

use crate::output::note;
use crate::path_bytes::PathBytes;

/// How many files that changed while they were read are named; further ones are only counted.
const CHANGED_NAMED_MAX: u64 = 10;

/// The bar, and what has been counted for it. Without a terminal nothing is drawn.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    counted: Mutex<Counted>,
    /// How often a file was read in vain, because it changed meanwhile.
    changed: AtomicU64,
}

#[derive(Debug, Default)]
struct Counted {
    /// Trees whose size is part of the bar.
    trees: BTreeSet<RunId>,
    /// Files counted one by one, for each chunk under way.
    chunks: BTreeMap<String, u64>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        // The bar takes what the terminal has left: all else fits into 40 columns.
        let style = "{spinner} {elapsed:>3} {wide_bar} {human_pos}/{human_len}, {eta} left";
        let bar = ProgressBar::new(0);
        bar.set_style(ProgressStyle::with_template(style).expect("the template is well-formed"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self {
            bar,
            counted: Mutex::default(),
            changed: AtomicU64::new(0),
        }
    }

    /// A chunk is begun or gone on with; `before` files come before it, of all `files` in its tree.
    pub(crate) fn begin_chunk(&self, tree: RunId, before: u64, files: u64) {
        if self.counted().trees.insert(tree) {
            self.bar.inc_length(files);
            self.bar.inc(before);
        }
    }

    /// One file of a chunk is done.
    pub(crate) fn count_file(&self, chunk: &str) {
        *self.counted().chunks.entry(chunk.to_owned()).or_default() += 1;
        self.bar.inc(1);
    }

    /// A chunk is done: those of its files that were not counted one by one count now.
    pub(crate) fn end_chunk(&self, chunk: &str, files: u64) {
        let counted = self.counted().chunks.remove(chunk).unwrap_or(0);
        self.bar.inc(files.saturating_sub(counted));
    }

    /// A file changed while it was read, so that it is read again, or skipped in the end. The first are named.
    pub(crate) fn note_changed(&self, path: &PathBytes) {
        if self.changed.fetch_add(1, Ordering::Relaxed) < CHANGED_NAMED_MAX {
            self.tell(&format!("{path} changed while it was read"));
        }
    }

    /// How often a file was read in vain so far, in this process.
    pub(crate) fn changed(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }

    /// Writes a line for a person above the bar.
    pub(crate) fn tell(&self, line: &str) {
        self.bar.suspend(|| note(line));
    }

    /// Takes the bar off the screen.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_goes_on_ends_at_its_size() {
        let progress = Progress::new();
        let tree = RunId::from_bits(7).unwrap();
        progress.begin_chunk(tree, 256, 600);
        progress.begin_chunk(tree, 512, 600);
        assert_eq!((progress.bar.position(), progress.bar.length()), (256, Some(600)));
        // Of the first of the two chunks, 255 files had been done before the interruption.
        progress.count_file("tree/1");
        progress.end_chunk("tree/1", 256);
        progress.end_chunk("tree/2", 88);
        assert_eq!(progress.bar.position(), 600);
    }
}
