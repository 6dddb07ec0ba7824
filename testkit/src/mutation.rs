//! Random damage to known bytes, for decoders that must survive anything.
//!
//! ```text
//!   corpus (golden bytes) ──► a few random changes ──► target(&bytes) ──► must not panic
//! ```
//!
//! A target is a plain function over bytes which panics if something is wrong. The same functions
//! run under a coverage-guided fuzzer; this is the form that needs no other compiler and gives
//! the same inputs each time.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::{fs, io};

/// A name and a function that panics if bytes are mistreated.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// Inputs grow by mutation up to this.
const BYTES_MAX: usize = 1 << 17;
/// Numbers at which decoders tend to go wrong.
const NUMBERS: [u64; 10] = [
    0,
    1,
    0x7f,
    0xff,
    0x100,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX.cast_unsigned(),
    u64::MAX,
];

/// The files of a folder, by name, as inputs to begin with.
///
/// # Errors
/// When the folder or a file in it cannot be read.
pub fn corpus(folder: impl AsRef<Path>) -> io::Result<Vec<Vec<u8>>> {
    let mut files = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    files.sort();
    files.iter().map(fs::read).collect()
}

/// Calls the target with every input of the corpus unchanged, and then with `cases` mutations of them. The same seed gives
/// the same mutations.
///
/// # Panics
/// When the corpus is empty, or the target panics; the input is then printed in hexadecimal.
pub fn fuzz(target: FuzzTarget, corpus: &[Vec<u8>], cases: u64, seed: u64) {
    let (name, run) = target;
    assert!(!corpus.is_empty(), "there is nothing to begin with for {name}");
    let call = |bytes: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(bytes))) {
            eprintln!("the target {name} panicked at {}", hexadecimal(bytes));
            resume_unwind(panic);
        }
    };
    for bytes in corpus {
        call(bytes);
    }
    let mut mutator = Mutator::new(seed);
    for _ in 0..cases {
        call(&mutator.input(corpus));
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

/// Makes inputs out of a corpus (splitmix64).
#[derive(Clone, Debug)]
struct Mutator(u64);

impl Mutator {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or zero.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % (bound.max(1) as u64)).expect("below a length in memory")
    }

    /// One to five changes to a copy of one input.
    fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(5) {
            self.change(&mut bytes, corpus);
        }
        bytes.truncate(BYTES_MAX);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(bytes.len() + 1);
        match self.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.roll().to_le_bytes()[0],
            2 => bytes.truncate(at),
            3 => {
                let end = (at + 1 + self.below(16)).min(bytes.len());
                bytes.drain(at.min(end)..end);
            }
            4 => {
                let end = (at + self.below(64)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = self.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            5 => {
                let number = self.number().to_le_bytes();
                let width = [1, 2, 4, 8][self.below(4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            6 => {
                let fill = [0, 0xff][self.below(2)];
                let end = (at + 1 + self.below(64)).min(bytes.len());
                bytes[at.min(end)..end].fill(fill);
            }
            7 => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let number = self.number().to_le_bytes();
                let width = [1, 2, 4, 8][self.below(4)];
                bytes.splice(at..at, number[..width].iter().copied());
            }
        }
    }

    fn number(&mut self) -> u64 {
        NUMBERS[self.below(NUMBERS.len())]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs_and_they_differ() {
        let corpus = [b"one input".to_vec(), b"and another".to_vec(), Vec::new()];
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..1_000).map(|_| mutator.input(&corpus)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(3), inputs(3));
        let different: HashSet<_> = inputs(3).into_iter().collect();
        assert!(different.len() > 700, "{}", different.len());
    }

    #[test]
    fn a_target_that_panics_is_caught_out() {
        let target: FuzzTarget = ("picky", |bytes| assert!(bytes.len() < 12));
        let caught = catch_unwind(|| fuzz(target, &[b"eleven byte".to_vec()], 1_000, 1));
        assert!(caught.is_err());
    }
}
