//! There and back: how long a message and its answer take, one at a time.
//!
//! ```text
//!   asker ──► topic "there" ──► echo      brokered: two topics, four actors' worth of hops
//!     ▲                          │
//!     └────── topic "back" ◄─────┘        direct: a call to an address, and its reply
//! ```
//!
//! A trip lasts from handing over the message to having its answer in hand; the clock is read
//! once per trip, so its own cost (some 30 ns) is in every figure. The payload is made anew for
//! each trip and comes back whole.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::oneshot;

use super::{Flavor, Identity};
use crate::BenchError;

mod actix;
mod channel;
mod kameo;
mod maiko;
mod millrun;
mod ractor;

const SAMPLE_LIMIT: Duration = Duration::from_secs(60);
const STAMP_BYTES: usize = 8;
/// Longer trips count as this long: ten seconds.
const NANOS_MAX: u64 = 10_000_000_000;

/// One way to ask and be answered.
pub trait RoundTrip {
    /// Who this is.
    fn identity(&self) -> Identity;

    /// Runs one sample of `trips` trips, one after the other.
    ///
    /// # Errors
    /// When an answer was not the question, or the library refused.
    fn run(&self, flavor: Flavor, trips: u64, payload_bytes: usize) -> Result<Laps, BenchError>;
}

/// Everybody.
pub(super) fn all() -> Vec<Box<dyn RoundTrip>> {
    let mut all: Vec<Box<dyn RoundTrip>> = Vec::new();
    all.extend(millrun::all());
    all.extend(maiko::all());
    all.extend(actix::all());
    all.extend(ractor::all());
    all.extend(kameo::all());
    all.extend(channel::all());
    all
}

/// What one sample took.
#[derive(Debug)]
pub struct Laps {
    /// All trips together.
    pub elapsed: Duration,
    /// Each trip, in nanoseconds.
    pub nanos: Histogram<u64>,
}

/// The asker's side of a sample: makes the questions, checks the answers, keeps the times.
#[derive(Debug)]
pub struct Stopwatch {
    trips: u64,
    made: u64,
    payload_bytes: usize,
    started: Option<Instant>,
    lap_started: Option<Instant>,
    nanos: Histogram<u64>,
    ended: Option<oneshot::Sender<Result<Laps, String>>>,
}

/// The end of a sample.
#[derive(Debug)]
pub struct Laptimes(oneshot::Receiver<Result<Laps, String>>);

impl Stopwatch {
    /// Prepares a sample of `trips` trips.
    ///
    /// # Panics
    /// Never: the histogram's bounds are fixed.
    #[must_use]
    pub fn new(trips: u64, payload_bytes: usize) -> (Self, Laptimes) {
        let (ended, end) = oneshot::channel();
        let watch = Self {
            trips,
            made: 0,
            payload_bytes: payload_bytes.max(STAMP_BYTES),
            started: None,
            lap_started: None,
            nanos: Histogram::new_with_bounds(1, NANOS_MAX, 3)
                .expect("the bounds are in order and three digits are within a histogram's precision"),
            ended: Some(ended),
        };
        (watch, Laptimes(end))
    }

    /// The first question.
    pub fn first(&mut self) -> Vec<u8> {
        let now = Instant::now();
        self.started = Some(now);
        self.lap_started = Some(now);
        self.question()
    }

    /// Takes an answer and gives the next question; `None` after the last trip, or after an
    /// answer that was not the question.
    #[inline]
    pub fn lap(&mut self, answer: &[u8]) -> Option<Vec<u8>> {
        let now = Instant::now();
        let expected = (self.made - 1).to_le_bytes();
        if answer.first_chunk() != Some(&expected) || answer.len() != self.payload_bytes {
            self.end(Err(format!(
                "the answer to question {} was another",
                self.made - 1
            )));
            return None;
        }
        if let Some(lap_started) = self.lap_started.replace(now) {
            let nanos = now.duration_since(lap_started).as_nanos();
            self.nanos
                .saturating_record(u64::try_from(nanos).unwrap_or(u64::MAX));
        }
        if self.made < self.trips {
            return Some(self.question());
        }
        let laps = Laps {
            elapsed: self
                .started
                .map_or(Duration::ZERO, |started| now.duration_since(started)),
            nanos: self.nanos.clone(),
        };
        self.end(Ok(laps));
        None
    }

    fn question(&mut self) -> Vec<u8> {
        let mut payload = vec![0x6d; self.payload_bytes];
        payload[..STAMP_BYTES].copy_from_slice(&self.made.to_le_bytes());
        self.made += 1;
        payload
    }

    fn end(&mut self, end: Result<Laps, String>) {
        if let Some(ended) = self.ended.take() {
            // Nobody listens only when the sample was given up.
            ended.send(end).ok();
        }
    }
}

impl Laptimes {
    /// Waits for the last answer.
    ///
    /// # Errors
    /// When an answer was wrong, when the asker went away, or after a minute.
    pub async fn laps(self, contestant: &str) -> Result<Laps, BenchError> {
        match tokio::time::timeout(SAMPLE_LIMIT, self.0).await {
            Err(_) => Err(BenchError::Stuck {
                contestant: contestant.to_owned(),
                limit: SAMPLE_LIMIT,
            }),
            Ok(Err(_)) => Err(BenchError::failed(contestant, "the asker went away")),
            Ok(Ok(Err(what))) => Err(BenchError::Wrong {
                contestant: contestant.to_owned(),
                what,
            }),
            Ok(Ok(Ok(laps))) => Ok(laps),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_trip_is_counted_once() {
        let (mut watch, end) = Stopwatch::new(10, 32);
        let mut question = Some(watch.first());
        while let Some(payload) = question {
            question = watch.lap(&payload);
        }
        assert_eq!(end.laps("by hand").await.unwrap().nanos.len(), 10);
    }

    #[tokio::test]
    async fn an_answer_to_another_question_is_noticed() {
        let (mut watch, end) = Stopwatch::new(10, 32);
        let first = watch.first();
        watch.lap(&first);
        watch.lap(&first);
        assert!(matches!(end.laps("by hand").await, Err(BenchError::Wrong { .. })));
    }
}
