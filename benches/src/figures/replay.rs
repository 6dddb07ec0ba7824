//! One run with a long history that is on disk: how fast is it read, decoded and replayed through its
//! code?

use std::path::Path;
use std::time::{Duration, Instant};

use millrun::Runtime;

use super::Figure;
use super::definitions::{GO, WIDE, registered};
use crate::scale::{failed, unless_stopped};
use crate::{BenchError, store_in, workers};

pub(super) const NAME: &str = "replay of one run";

/// Steps at once; each is two events.
const AT_ONCE: u64 = 1_000;
const WAKES: u64 = 5;

/// A run gets about `level` events, and is woken after its store was opened again.
pub(super) fn measure(folder: &Path, level: u64, threads: usize) -> Result<Vec<Figure>, BenchError> {
    let store = store_in(folder)?;
    let path = store.path().join("store.redb");
    let rounds = (level / (2 * AT_ONCE)).max(1);
    let events = workers(threads)?.block_on(async {
        let runtime = registered(Runtime::open(&path)).start().await.map_err(failed)?;
        let mut events = 0;
        for wake in 0..WAKES {
            let before = runtime.stats().events;
            let id = format!("wide-{wake}");
            runtime
                .start(WIDE, &id, (rounds, AT_ONCE))
                .await
                .map_err(failed)?;
            let all_steps = async {
                while runtime.stats().events < before + 1 + 2 * rounds * AT_ONCE {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            unless_stopped(&runtime, all_steps).await?;
            events = runtime.stats().events - before;
        }
        runtime.shutdown().await.map_err(failed)?;
        Ok::<_, BenchError>(events)
    })?;
    let mut times = workers(threads)?.block_on(async {
        let runtime = registered(Runtime::open(&path)).start().await.map_err(failed)?;
        let mut times = Vec::new();
        for wake in 0..WAKES {
            let run = runtime.attach(WIDE, &format!("wide-{wake}")).map_err(failed)?;
            let started = Instant::now();
            run.signal(GO, 7).await.map_err(failed)?;
            let result = run.result().await.map_err(failed)?;
            times.push(started.elapsed());
            if result != rounds * AT_ONCE + 7 {
                return Err(BenchError::Wrong {
                    contestant: "millrun".into(),
                    what: format!("{rounds} times {AT_ONCE} steps and 7 gave {result}"),
                });
            }
        }
        runtime.shutdown().await.map_err(failed)?;
        Ok::<_, BenchError>(times)
    })?;
    times.sort_unstable();
    let median = times[times.len() / 2].as_secs_f64();
    let figure = |what, value, unit| Figure::new(NAME, events, what, value, unit);
    Ok(vec![
        figure("from its signal to its result", median * 1e3, "ms"),
        figure("events replayed per second", events as f64 / median, "events/s"),
    ])
}
