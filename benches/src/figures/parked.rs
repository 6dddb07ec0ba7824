//! Instances whose publish waits for room in a full topic: what they weigh, and how fast they go on.
//!
//! The topic has one subscription with room for one value, of the policy `Block`, that nobody reads.
//! So one value is in it, one waits with a task, and all others are list entries whose instances are
//! unloaded as any that wait.

use std::path::Path;
use std::time::{Duration, Instant};

use millrun::Runtime;
use millrun::broker::mailbox::MailboxConfig;
use millrun::broker::{Envelope, Inbox, SubscriptionConfig};

use super::Figure;
use super::definitions::{ANNOUNCE, ANNOUNCED, registered};
use super::waiting::start_all;
use crate::scale::{failed, unless_stopped};
use crate::{BenchError, resident_bytes, store_in, workers};

pub(super) const NAME: &str = "parked publishers";

/// How many values are taken out in the end, and so how many instances go on.
const TAKEN: u64 = 2_000;

/// `level` instances with the default configuration: memory of this process while they are parked,
/// then some values are taken out.
pub(super) fn measure(folder: &Path, level: u64, threads: usize) -> Result<Vec<Figure>, BenchError> {
    let store = store_in(folder)?;
    let before = resident_bytes().unwrap_or(0);
    let (resident, hot, per_s, taken_per_s) = workers(threads)?.block_on(async {
        let builder = registered(Runtime::open(store.path().join("store.redb"))).topic(ANNOUNCED);
        let runtime = builder.start().await.map_err(failed)?;
        let inbox = full(&runtime)?;
        let started = Instant::now();
        start_all(&runtime, ANNOUNCE, level).await?;
        // Of each: that it began, its decision, and that it is parked; the first one ends instead.
        let all_parked = async {
            while runtime.stats().events < 3 * level {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        unless_stopped(&runtime, all_parked).await?;
        let per_s = level as f64 / started.elapsed().as_secs_f64();
        let (resident, hot) = (resident_bytes(), runtime.stats().hot);
        let mut receiver = inbox.into_receiver();
        let started = Instant::now();
        for _ in 0..TAKEN.min(level) {
            let taken = unless_stopped(&runtime, receiver.recv()).await?;
            taken.ok_or_else(|| failed("the topic has ended"))?;
        }
        let taken_per_s = TAKEN.min(level) as f64 / started.elapsed().as_secs_f64();
        drop(receiver);
        runtime.shutdown().await.map_err(failed)?;
        Ok::<_, BenchError>((resident, hot, per_s, taken_per_s))
    })?;
    let figure = |what, value, unit| Figure::new(NAME, level, what, value, unit);
    let mut figures = vec![
        figure("started and parked", per_s, "instances/s"),
        figure("of them with their code in memory", hot as f64, "instances"),
    ];
    if let Some(resident) = resident {
        let own = resident.saturating_sub(before) as f64 / level as f64;
        figures.push(figure("resident memory of the process", resident as f64, "bytes"));
        figures.push(figure("more than before, for each instance", own, "bytes"));
    }
    figures.push(figure(
        "values of unloaded ones, taken one by one",
        taken_per_s,
        "values/s",
    ));
    Ok(figures)
}

fn full(runtime: &Runtime) -> Result<Inbox<Envelope<u64>>, BenchError> {
    let config = SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: 1,
            ..MailboxConfig::default()
        },
        ..SubscriptionConfig::default()
    };
    runtime
        .broker()
        .subscribe(ANNOUNCED.name(), config)
        .map_err(failed)
}
