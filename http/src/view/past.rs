//! The last minutes of a runtime, as JSON.

use std::time::Duration;

use millrun::Timestamp;

use super::{Json, list, object};
use crate::past::{Latency, PAST_EVERY, PastSample};

/// The samples that a console has kept, and the present time; empty if it keeps none.
pub(crate) fn past(now: Timestamp, samples: &[PastSample]) -> Json {
    object([
        ("now_us", now.into()),
        ("every_us", micros(PAST_EVERY).into()),
        ("samples", list(samples, sample)),
    ])
}

fn sample(sample: &PastSample) -> Json {
    object([
        ("at_us", sample.at.into()),
        ("started", sample.started.into()),
        ("finished", sample.finished.into()),
        ("events", sample.events.into()),
        ("attempts", sample.attempts.into()),
        ("live", sample.live.into()),
        ("parked", sample.parked.into()),
        ("waiting", sample.waiting.into()),
        ("commits", sample.commits.into()),
        ("turns", sample.turns.into()),
        ("bytes", sample.bytes.into()),
        ("queued_bytes", sample.queued_bytes.into()),
        ("last_commit_us", micros(sample.last_commit).into()),
        ("run_times", latency(sample.runs)),
        ("attempt_times", latency(sample.attempt_times)),
        ("wait_times", latency(sample.waits)),
        ("commit_times", latency(sample.commit_times)),
    ])
}

fn latency(latency: Latency) -> Json {
    object([
        ("len", latency.len.into()),
        ("p50_us", latency.p50.map(micros).into()),
        ("p99_us", latency.p99.map(micros).into()),
    ])
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
