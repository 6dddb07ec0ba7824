//! The cases of `bench-fibo`, and what others published for them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use millrun::process::Process;
use millrun::workflow::Call;
use millrun::{
    Activity, ActivityContext, ActivityError, RuntimeBuilder, Workflow, WorkflowContext, WorkflowError,
};

use super::Case;
use crate::runs::{Row, Store};
use crate::{BarChart, Chart, Table, approximate, grouped};

/// Ends at once.
const FIBO: Activity<u64, u64> = Activity::named("bench.fibo");
/// Computes for so long that it has a thread of its own.
const LONG_FIBO: Activity<u64, u64> = Activity::named("bench.fibo-long");
/// Larger numbers are computed there.
const SHORT_MAX: u64 = 20;
const PROCESSES: &str = "bench.processes";
const NATIVE_FIBO: Activity<u64, u64> = Activity::named("bench.fibo-native").on_queue(PROCESSES);
/// How many of them run at once, whatever a workflow asks for.
const PROCESSES_MAX: usize = 16;
/// About what a call costs besides computing. Only for saying beforehand how long it will take.
const CALL: Duration = Duration::from_micros(300);
const PROCESS_CALL: Duration = Duration::from_micros(1_500);
/// A run that takes as long as this is measured once, others several times.
const LONG: Duration = Duration::from_secs(3);
/// What tells how fast this machine computes.
const TRIED: u64 = 27;

type Fibos = Workflow<(u64, u64), u64>;

/// Gets (n, calls); gives the sum of the results.
const SEQUENCE: Fibos = Workflow::named("bench.fibo-sequence");
const PARALLEL: Fibos = Workflow::named("bench.fibo-parallel");
const NATIVE_SEQUENCE: Fibos = Workflow::named("bench.fibo-native-sequence");
const NATIVE_PARALLEL: Fibos = Workflow::named("bench.fibo-native-parallel");

/// One workload of the published comparison.
struct Workload {
    n: u64,
    calls: u64,
    at_once: bool,
    /// Whether it takes too long for `--quick`.
    is_long: bool,
    /// Published seconds: Obelisk's WASM activity and its native process, Windmill's best.
    obelisk: Option<f64>,
    obelisk_native: Option<f64>,
    windmill: Option<f64>,
}

const WORKLOADS: [Workload; 5] = [
    Workload {
        n: 10,
        calls: 40,
        at_once: false,
        is_long: false,
        obelisk: Some(0.226),
        obelisk_native: None,
        windmill: Some(2.1),
    },
    Workload {
        n: 33,
        calls: 10,
        at_once: false,
        is_long: false,
        obelisk: Some(0.379),
        obelisk_native: Some(0.220),
        windmill: Some(0.8),
    },
    Workload {
        n: 38,
        calls: 100,
        at_once: false,
        is_long: true,
        obelisk: Some(35.1),
        obelisk_native: Some(15.5),
        windmill: Some(27.6),
    },
    Workload {
        n: 38,
        calls: 100,
        at_once: true,
        is_long: true,
        obelisk: Some(17.5),
        obelisk_native: Some(7.65),
        windmill: Some(11.9),
    },
    Workload {
        n: 10,
        calls: 1_000,
        at_once: true,
        is_long: false,
        obelisk: Some(4.367),
        obelisk_native: None,
        windmill: None,
    },
];

impl Workload {
    /// About how long one run takes on `threads` threads, if [`TRIED`] is computed in `tried`. Each
    /// number takes as much longer than the one before it as it is larger.
    fn run_time(&self, tried: Duration, call: Duration, threads: usize) -> Duration {
        let golden = f64::midpoint(1.0, 5_f64.sqrt());
        let exponent = self.n as f64 - TRIED as f64;
        let computing = tried.mul_f64(golden.powf(exponent));
        let at_once = if self.at_once { threads } else { 1 };
        (computing + call).mul_f64(self.calls as f64 / at_once.max(1) as f64)
    }

    fn name(&self) -> String {
        let order = if self.at_once {
            "in parallel"
        } else {
            "in sequence"
        };
        format!("Fibo({}) x {} {order}", self.n, self.calls)
    }
}

/// The slow way, on purpose.
#[must_use]
pub fn fibonacci(n: u64) -> u64 {
    match n {
        0 | 1 => n,
        n => fibonacci(n - 1) + fibonacci(n - 2),
    }
}

/// Every workload with both kinds of activity, synced and relaxed, for `threads` worker threads.
#[must_use]
pub fn suite(quick: bool, threads: usize) -> Vec<Case> {
    let started = Instant::now();
    black_box(fibonacci(black_box(TRIED)));
    let tried = started.elapsed();
    let mut cases = Vec::new();
    for workload in WORKLOADS.iter().filter(|workload| !(quick && workload.is_long)) {
        let (input, expected) = (
            (workload.n, workload.calls),
            fibonacci(workload.n) * workload.calls,
        );
        let kinds = match workload.at_once {
            false => [
                ("function", SEQUENCE, CALL),
                ("process", NATIVE_SEQUENCE, PROCESS_CALL),
            ],
            true => [
                ("function", PARALLEL, CALL),
                ("process", NATIVE_PARALLEL, PROCESS_CALL),
            ],
        };
        for (kind, workflow, call) in kinds {
            let name = format!("{}, {kind}", workload.name());
            let run_time = workload.run_time(tried, call, threads);
            cases.extend([Store::Durable, Store::Relaxed].map(|store| {
                let case = Case::repeated(&name, workflow, workload.calls, (input, expected), store);
                case.taking(run_time, LONG)
            }));
        }
    }
    cases
}

/// Adds the definitions of this suite to a runtime.
pub(super) fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .configure(|config| {
            config
                .queue_running_max
                .extend([(PROCESSES.to_owned(), PROCESSES_MAX)])
        })
        .register(FIBO, async |_, n| Ok(fibonacci(n)))
        .register_blocking(LONG_FIBO, |_, n| Ok(fibonacci(n)))
        .register(NATIVE_FIBO, native_fibo)
        .register(SEQUENCE, |cx, input| in_sequence(cx, function, input))
        .register(PARALLEL, |cx, input| in_parallel(cx, function, input))
        .register(NATIVE_SEQUENCE, |cx, input| in_sequence(cx, process, input))
        .register(NATIVE_PARALLEL, |cx, input| in_parallel(cx, process, input))
}

/// How a number is asked for.
type Ask = fn(&WorkflowContext, u64) -> Call<u64, ActivityError>;

fn function(cx: &WorkflowContext, n: u64) -> Call<u64, ActivityError> {
    cx.call(if n <= SHORT_MAX { FIBO } else { LONG_FIBO }, n)
}

fn process(cx: &WorkflowContext, n: u64) -> Call<u64, ActivityError> {
    cx.call(NATIVE_FIBO, n)
}

async fn in_sequence(cx: WorkflowContext, ask: Ask, (n, calls): (u64, u64)) -> Result<u64, WorkflowError> {
    let mut sum = 0;
    for _ in 0..calls {
        sum += ask(&cx, n).await?;
    }
    Ok(sum)
}

async fn in_parallel(cx: WorkflowContext, ask: Ask, (n, calls): (u64, u64)) -> Result<u64, WorkflowError> {
    let mut sum = 0;
    for result in cx.join_all((0..calls).map(|_| ask(&cx, n))).await {
        sum += result?;
    }
    Ok(sum)
}

/// The same number from a process, which is this program again.
async fn native_fibo(_cx: ActivityContext, n: u64) -> Result<u64, ActivityError> {
    let program = std::env::current_exe()?.display().to_string();
    let output = Process::new(program)
        .args(["--compute".to_owned(), n.to_string()])
        .run()
        .await?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// What others published, as rows that say so.
#[must_use]
pub fn published() -> Vec<Row> {
    WORKLOADS
        .iter()
        .flat_map(|workload| {
            [
                ("obelisk", "WASM", workload.obelisk),
                ("obelisk", "process", workload.obelisk_native),
                ("windmill", "its best", workload.windmill),
            ]
            .into_iter()
            .filter_map(|(engine, kind, seconds)| {
                let name = format!("{}, {kind}", workload.name());
                Some(Row::published(
                    engine,
                    name,
                    workload.calls,
                    "t2.medium",
                    seconds?,
                ))
            })
        })
        .collect()
}

/// Milliseconds per run, ours beside the published ones.
#[must_use]
pub fn charts(rows: &[Row]) -> Vec<(String, Chart)> {
    let mut chart = BarChart::new(
        "Fibonacci, ms per run (less is better); others as published, on a t2.medium",
        "ms",
    )
    .logarithmic();
    for workload in &WORKLOADS {
        let name = workload.name();
        for row in rows {
            let Some(kind) = row
                .workload
                .strip_prefix(&name)
                .and_then(|kind| kind.strip_prefix(", "))
            else {
                continue;
            };
            let who = match row.engine.as_str() {
                "millrun" => format!("{kind}, {}", row.store.name()),
                engine => format!("{engine}, {kind}"),
            };
            chart.bar(&name, &who, row.p50_us / 1e3);
        }
    }
    vec![("fibo".to_owned(), chart.into())]
}

/// Milliseconds per run, ours beside the published ones.
#[must_use]
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(
        "Milliseconds per run, the median of so many rounds; the last three as published, measured on a t2.medium",
        1,
        [
            "workload",
            "rounds",
            "function, fsync",
            "function, relaxed",
            "process, fsync",
            "process, relaxed",
            "Obelisk WASM",
            "Obelisk process",
            "Windmill",
        ],
    );
    let millis =
        |seconds: Option<f64>| seconds.map_or_else(|| "-".into(), |seconds| approximate(seconds * 1e3));
    for workload in &WORKLOADS {
        let own = |kind: &str, store: Store| {
            let name = format!("{}, {kind}", workload.name());
            rows.iter()
                .find(move |row| row.workload == name && row.store == store)
        };
        let ours = |kind: &str, store: Store| millis(own(kind, store).map(|row| row.p50_us / 1e6));
        let any = rows.iter().find(|row| row.workload.starts_with(&workload.name()));
        table.line([
            workload.name(),
            any.map_or_else(|| "-".into(), |row| grouped(row.rounds as f64)),
            ours("function", Store::Durable),
            ours("function", Store::Relaxed),
            ours("process", Store::Durable),
            ours("process", Store::Relaxed),
            millis(workload.obelisk),
            millis(workload.obelisk_native),
            millis(workload.windmill),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_run_grows_with_the_number_and_shrinks_with_threads() {
        let time = |place: usize, threads| {
            let workload: &Workload = &WORKLOADS[place];
            workload
                .run_time(Duration::from_millis(1), Duration::ZERO, threads)
                .as_secs_f64()
        };
        assert!(
            (1.9..2.1).contains(&(time(2, 2) / time(3, 2))),
            "{} {}",
            time(2, 2),
            time(3, 2)
        );
        let eleven_steps_apart = 1.618_034_f64.powi(11) * 0.1;
        assert!(
            (time(2, 1) / eleven_steps_apart - 1.0).abs() < 1e-3,
            "{}",
            time(2, 1)
        );
    }

    #[test]
    fn the_slow_way_is_right() {
        assert_eq!(
            (0..=10).map(fibonacci).collect::<Vec<_>>(),
            [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55]
        );
    }
}
