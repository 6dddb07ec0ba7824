//! Arrivals at a fixed pace, whether the ones before have been answered or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::BenchError;
use crate::runs::Sample;

/// How many arrive, how fast, and how many clients take them up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) per_s: f64,
    pub(super) lasts: Duration,
    pub(super) clients: usize,
}

/// Runs an operation for each arrival, with a number that no other has. The time of one counts from when it was to
/// arrive, so that what waits behind a slow one counts as well.
pub(super) async fn paced<F, O>(pace: Pace, operation: F) -> Result<Sample, BenchError>
where
    F: Fn(u64) -> O + Clone + Send + 'static,
    O: Future<Output = Result<(), BenchError>> + Send,
{
    let next = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..pace.clients {
        let (operation, next) = (operation.clone(), Arc::clone(&next));
        clients.spawn(async move {
            let mut times = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let after = Duration::from_secs_f64(number as f64 / pace.per_s);
                if after >= pace.lasts {
                    return Ok::<_, BenchError>(times);
                }
                let due = began + after;
                tokio::time::sleep_until(due.into()).await;
                operation(number).await?;
                times.push(due.elapsed());
            }
        });
    }
    let mut all = Vec::new();
    while let Some(client) = clients.join_next().await {
        all.extend(client.map_err(|error| BenchError::failed("a client", error))??);
    }
    Ok(Sample {
        measured: began.elapsed(),
        ..Sample::of(&all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_arrival_is_taken_up_once_and_those_behind_a_slow_one_count_their_wait() {
        let pace = Pace {
            per_s: 1_000.0,
            lasts: Duration::from_millis(50),
            clients: 1,
        };
        let sample = paced(pace, |number| async move {
            if number == 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!(sample.completed, 50);
        assert!(sample.nanos.value_at_quantile(0.5) >= 50_000_000);
    }
}
