//! The bound for the number of streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::problem::Problem;

/// How many streams a router has at once.
pub const STREAMS_LEN_MAX: usize = 8_192;

/// The streams of a router. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    len_max: usize,
}

/// The place of one stream, freed when it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Default for Places {
    fn default() -> Self {
        Self::of(STREAMS_LEN_MAX)
    }
}

impl Places {
    /// Places for at most `len_max` streams at a time.
    pub(crate) fn of(len_max: usize) -> Self {
        Self {
            taken: Arc::default(),
            len_max,
        }
    }

    /// Takes a place for one more stream.
    pub(crate) fn take(&self) -> Result<Place, Problem> {
        let more = |taken: usize| (taken < self.len_max).then_some(taken + 1);
        match self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        {
            Ok(_) => Ok(Place(Arc::clone(&self.taken))),
            Err(taken) => Err(Problem::new("too-many-streams", format!("there are {taken}")).retryable()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_left_is_given_again() {
        let places = Places {
            len_max: 2,
            ..Places::default()
        };
        let (first, second) = (places.take().unwrap(), places.take().unwrap());
        assert!(places.take().is_err());
        drop(first);
        let third = places.take().unwrap();
        assert!(places.take().is_err());
        drop((second, third));
        assert_eq!(places.taken.load(Ordering::Relaxed), 0);
    }
}
