//! What a node costs that has nothing to do.

use std::time::Duration;

use millrun::Runtime;
use millrun_testkit::PostgresServer;

use super::server::{connected, failed, schema};
use crate::workflows::registered;
use crate::{BenchError, cpu_time, workers};

/// For how long the node settles before it counts.
const SETTLES: Duration = Duration::from_secs(3);

/// Of each second.
pub(super) struct IdleCost {
    pub(super) statements: f64,
    pub(super) cpu: Duration,
}

/// A node that is alone, for so long. Each of its statements is a transaction of its own, by which the server counts them.
pub(super) fn idle(server: &PostgresServer, lasts: Duration) -> Result<IdleCost, BenchError> {
    workers(2)?.block_on(async {
        let url = format!("{}&node=idle", server.url(&schema()));
        let runtime = registered(Runtime::open(url)).start().await.map_err(failed)?;
        let client = connected(server).await?;
        // Counts of sessions are gathered each second at most.
        let transactions =
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'";
        let count = || async {
            let row = client.query_one(transactions, &[]).await.map_err(failed)?;
            Ok::<i64, BenchError>(row.get(0))
        };
        let cpu = || cpu_time().ok_or_else(|| failed("the system does not tell the time of a process"));
        tokio::time::sleep(SETTLES).await;
        let (before, cpu_before) = (count().await?, cpu()?);
        tokio::time::sleep(lasts).await;
        let (after, cpu_after) = (count().await?, cpu()?);
        runtime.shutdown().await.map_err(failed)?;
        let seconds = lasts.as_secs_f64();
        // Less the first look itself.
        let statements = (after - before - 1) as f64 / seconds;
        let cpu = cpu_after.saturating_sub(cpu_before).div_f64(seconds);
        Ok(IdleCost { statements, cpu })
    })
}
