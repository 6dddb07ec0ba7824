//! The least that a node has to say to the server: the rows of its runs, in fenced statements, one at a time.
//!
//! ```text
//!   half of the runs: begin ─┐                                   a run: begin ──► end, each in a statement of its own
//!   the other half: end ─────┴─► one statement ──► the next        beside the other half's
//! ```
//!
//! Each run is a turn and a row of the live ones when it begins, a turn and a row of the finished ones when it ends, as the
//! journal writes them.

use std::time::{Duration, Instant};

use millrun_testkit::PostgresServer;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::server::{connected, failed, schema};
use crate::runs::Sample;
use crate::{BenchError, workers};

/// Bytes of the frames of a turn of a run of one step: what the journal writes, on average. [`look_at_turns`] looks whether it is so.
const TURN_BYTES: usize = 148;

/// The tables and indexes of the journal that a run of one step has rows in, and the row of the fence.
const TABLES: &str = "
CREATE SCHEMA {s};
CREATE TABLE {s}.writer (node text PRIMARY KEY, term bigint NOT NULL, at bigint NOT NULL);
INSERT INTO {s}.writer VALUES ('one', 1, 0);
CREATE TABLE {s}.turn (
    part smallint NOT NULL, run uuid NOT NULL, seq bigint NOT NULL, last bigint NOT NULL, frames bytea NOT NULL,
    PRIMARY KEY (part, run, seq));
ALTER TABLE {s}.turn ALTER frames SET STORAGE EXTERNAL;
CREATE TABLE {s}.live (part smallint NOT NULL, run uuid NOT NULL, id bytea NOT NULL, PRIMARY KEY (part, run));
CREATE TABLE {s}.finished (
    number bigint PRIMARY KEY, part smallint NOT NULL, run uuid NOT NULL, id bytea NOT NULL, started bigint NOT NULL,
    closed_at bigint NOT NULL);
CREATE INDEX finished_run ON {s}.finished (run);
CREATE INDEX finished_id ON {s}.finished (id, number);
";

/// Runs from `$2` on begin, runs from `$3` on end, as many as `$1` of each; `$4` are the frames of a turn. A run's uuid, partition
/// and id are made from its number.
const STATEMENT: &str = "
WITH fence AS (
    SELECT w.node FROM {s}.writer w WHERE w.node = 'one' AND w.term = 1 FOR SHARE
), begun AS MATERIALIZED (
    SELECT n, (n % 1024)::smallint AS part, md5(n::text)::uuid AS run FROM generate_series($2::bigint, $2 + $1::bigint - 1) AS n
    WHERE EXISTS (SELECT FROM fence)
), ended AS MATERIALIZED (
    SELECT n, (n % 1024)::smallint AS part, md5(n::text)::uuid AS run FROM generate_series($3::bigint, $3 + $1 - 1) AS n
    WHERE n >= 0 AND EXISTS (SELECT FROM fence)
), turns AS (
    INSERT INTO {s}.turn SELECT part, run, 1, 2, $4::bytea FROM begun UNION ALL SELECT part, run, 3, 4, $4 FROM ended
), opened AS (
    INSERT INTO {s}.live SELECT part, run, convert_to('run-' || n, 'UTF8') FROM begun
), closed AS (
    DELETE FROM {s}.live l USING ended e WHERE l.part = e.part AND l.run = e.run
), finished AS (
    INSERT INTO {s}.finished SELECT n, part, run, convert_to('run-' || n, 'UTF8'), n, n FROM ended
)
SELECT count(*) FROM fence";

/// One turn: the fence, and a row.
const ONE_TURN: &str = "
WITH fence AS (
    SELECT w.node FROM {s}.writer w WHERE w.node = 'one' AND w.term = 1 FOR SHARE
), turns AS (
    INSERT INTO {s}.turn SELECT 0, '00000000-0000-0000-0000-000000000000', $1::bigint, $1, $2::bytea FROM fence
)
SELECT count(*) FROM fence";

async fn prepared(server: &PostgresServer, statement: &str) -> Result<(Client, Statement), BenchError> {
    let (client, schema) = (connected(server).await?, schema());
    let of_schema = |sql: &str| sql.replace("{s}", &schema);
    client.batch_execute(&of_schema(TABLES)).await.map_err(failed)?;
    let statement = client.prepare(&of_schema(statement)).await.map_err(failed)?;
    Ok((client, statement))
}

async fn fenced(
    client: &Client,
    statement: &Statement,
    values: &[&(dyn ToSql + Sync)],
) -> Result<(), BenchError> {
    let row = client.query_one(statement, values).await.map_err(failed)?;
    match row.get::<_, i64>(0) {
        1 => Ok(()),
        _ => Err(failed("the fence is gone")),
    }
}

/// `at_a_time` runs at a time, for so long behind a warm-up of a third of it.
pub(super) fn one_step(
    server: &PostgresServer,
    at_a_time: usize,
    lasts: Duration,
) -> Result<Sample, BenchError> {
    workers(1)?.block_on(async {
        let (client, statement) = prepared(server, STATEMENT).await?;
        let half = i64::try_from(at_a_time / 2).map_err(failed)?;
        let frames = vec![0x6d_u8; TURN_BYTES];
        let counts_from = Instant::now() + lasts / 3;
        let ends = counts_from + lasts;
        let (mut next, mut times) = (0, Vec::new());
        loop {
            let began = Instant::now();
            // Those that began with the statement before end with this one; with the first one none do.
            let values: [&(dyn ToSql + Sync); 4] = [&half, &next, &(next - half), &frames];
            fenced(&client, &statement, &values).await?;
            next += half;
            let now = Instant::now();
            if now >= ends {
                break;
            }
            if began >= counts_from {
                times.push(began.elapsed());
            }
        }
        let mut sample = Sample::of(&times);
        sample.completed *= at_a_time as u64 / 2;
        Ok(sample)
    })
}

/// The time of `len` statements, one after the other, with a turn each; again and again.
pub(super) fn in_sequence(server: &PostgresServer, len: usize, times: usize) -> Result<Sample, BenchError> {
    workers(1)?.block_on(async {
        let (client, statement) = prepared(server, ONE_TURN).await?;
        let frames = vec![0x6d_u8; TURN_BYTES];
        let (mut seq, mut took) = (0_i64, Vec::new());
        for _ in 0..times {
            let began = Instant::now();
            for _ in 0..len {
                seq += 1;
                fenced(&client, &statement, &[&seq, &frames]).await?;
            }
            took.push(began.elapsed());
        }
        Ok(Sample::of(&took))
    })
}

/// Looks whether the turns that the journal has written in a schema are as large as those here.
pub(super) async fn look_at_turns(server: &PostgresServer, schema: &str) -> Result<(), BenchError> {
    let client = connected(server).await?;
    let sql = format!("SELECT coalesce(avg(length(frames)), 0)::float8, count(*) FROM {schema}.turn");
    let row = client.query_one(&sql, &[]).await.map_err(failed)?;
    let (bytes, len): (f64, i64) = (row.get(0), row.get(1));
    let differs = (bytes - TURN_BYTES as f64).abs() > 0.2 * TURN_BYTES as f64;
    if len > 0 && differs {
        return Err(failed(format!(
            "the turns of the journal have {bytes:.0} bytes, those of the bare statements {TURN_BYTES}"
        )));
    }
    Ok(())
}
