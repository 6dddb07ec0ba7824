//! How fast is Cloacina on the workloads of `bench-workflows`?
//!
//! Twice: with its default options, and with more tasks at a time and the shortest scheduler interval it accepts.
//! Its SQLite store commits with full syncs in WAL mode. A client learns of a result by polling the
//! store, every 500 ms by its own function; the tuned rows ask every 5 ms where a single run is
//! timed. Where results are added up, a task that depends on all others does it: one task more than
//! elsewhere. `--quick` leaves out 1,024 at a time.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cloacina::executor::{WorkflowExecutor, WorkflowStatus};
use cloacina::{
    Context, DefaultRunner, DefaultRunnerConfig, Runtime, Task, TaskError, TaskNamespace, Workflow,
};
use millrun_benches::runs::{Sample, Setting, Shape, Store, Workload, measure_peer, saturate};
use millrun_benches::{BenchError, exit};
use serde_json::{Value, json};
use tokio::runtime::Builder;

const RUN_LIMIT: Duration = Duration::from_secs(900);
/// What a run is given.
const INPUT: &str = "input";
/// The task whose result is that of the run.
const LAST: &str = "last";

/// How it is run.
#[derive(Clone, Debug)]
struct Options {
    config: DefaultRunnerConfig,
    /// How often a client asks; its own function where `None`.
    ask_every: Option<Duration>,
}

fn main() -> ExitCode {
    let default = DefaultRunnerConfig::builder().build();
    let tuned = DefaultRunnerConfig::builder()
        .max_concurrent_tasks(32)
        .scheduler_poll_interval(Duration::from_millis(10))
        .enable_cron_scheduling(false)
        .enable_trigger_scheduling(false)
        .enable_registry_reconciler(false)
        .build();
    let (default, tuned) = match (default, tuned) {
        (Ok(default), Ok(tuned)) => (default, tuned),
        (Err(error), _) | (_, Err(error)) => return exit(Err(failed(error))),
    };
    let setting = |name, config, ask_every| Setting {
        name,
        store: Store::Durable,
        options: Options { config, ask_every },
    };
    let settings = [
        setting("cloacina", default, None),
        setting("cloacina, tuned", tuned, Some(Duration::from_millis(5))),
    ];
    exit(measure_peer(
        "peers-cloacina",
        "Cloacina 0.11.0, SQLite",
        &settings,
        sample,
    ))
}

/// Adds one to the sum of what it is given, unless it only adds up.
#[derive(Clone, Debug)]
struct Add {
    id: String,
    dependencies: Vec<TaskNamespace>,
    /// The entries of the context that it adds up.
    given: Vec<String>,
    more: u64,
}

#[async_trait]
impl Task for Add {
    async fn execute(&self, mut context: Context<Value>) -> Result<Context<Value>, TaskError> {
        let given = self
            .given
            .iter()
            .map(|name| context.get(name).and_then(Value::as_u64));
        let sum = given
            .sum::<Option<u64>>()
            .ok_or_else(|| TaskError::ValidationFailed {
                message: format!("{} was not given all of {:?}", self.id, self.given),
            })?;
        context.insert(self.id.clone(), json!(sum + self.more))?;
        Ok(context)
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn dependencies(&self) -> &[TaskNamespace] {
        &self.dependencies
    }
}

fn namespace(workflow: &str, task: &str) -> TaskNamespace {
    TaskNamespace::new("public", "embedded", workflow, task)
}

/// The tasks of a shape: each is given the results of those it depends on.
fn tasks(workflow: &str, shape: Shape) -> Vec<Add> {
    let task = |id: &str, after: &[String], more| Add {
        id: id.to_owned(),
        dependencies: after.iter().map(|other| namespace(workflow, other)).collect(),
        given: if after.is_empty() {
            vec![INPUT.to_owned()]
        } else {
            after.to_vec()
        },
        more,
    };
    let mut tasks = Vec::new();
    match shape {
        Shape::Chain(steps) => {
            let mut before = Vec::new();
            for step in 1..=steps {
                let id = if step == steps {
                    LAST.to_owned()
                } else {
                    format!("step-{step}")
                };
                tasks.push(task(&id, &before, 1));
                before = vec![id];
            }
        }
        Shape::FiveTasks => {
            let parts: Vec<_> = (1..=3).map(|part| format!("part-{part}")).collect();
            tasks.push(task("split", &[], 1));
            tasks.extend(parts.iter().map(|part| task(part, &["split".to_owned()], 1)));
            tasks.push(task(LAST, &parts, 1));
        }
        Shape::Parallel(calls) => {
            let parts: Vec<_> = (0..calls).map(|part| format!("part-{part}")).collect();
            tasks.extend((1..).zip(&parts).map(|(more, part)| task(part, &[], more)));
            tasks.push(task(LAST, &parts, 0));
        }
    }
    tasks
}

fn name(shape: Shape) -> &'static str {
    match shape {
        Shape::Chain(_) => "chain",
        Shape::FiveTasks => "five",
        Shape::Parallel(_) => "parallel",
    }
}

fn registered(shape: Shape) -> Result<Runtime, BenchError> {
    let runtime = Runtime::empty();
    let name = name(shape);
    let tasks = tasks(name, shape);
    let mut builder = Workflow::builder(name);
    for task in &tasks {
        let task = Arc::new(task.clone());
        builder = builder.add_task(task.clone()).map_err(failed)?;
        runtime.register_task(namespace(name, &task.id), move || task.clone());
    }
    let workflow = builder.build().map_err(failed)?;
    runtime.register_workflow(name.to_owned(), move || workflow.clone());
    Ok(runtime)
}

fn sample(
    options: &Options,
    workload: &Workload,
    folder: &Path,
    threads: usize,
) -> Result<Sample, BenchError> {
    let store = tempfile::tempdir_in(folder).map_err(|source| BenchError::File {
        path: folder.to_owned(),
        source,
    })?;
    let url = format!("sqlite://{}", store.path().join("store.db").display());
    let tokio = Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(BenchError::Runtime)?;
    tokio.block_on(async {
        let runner = DefaultRunner::builder()
            .database_url(&url)
            .with_config(options.config.clone())
            .runtime(registered(workload.shape)?)
            .build()
            .await
            .map_err(failed)?;
        let runner = Arc::new(runner);
        let workload = *workload;
        let sample = if workload.concurrency == 1 {
            let started = Instant::now();
            let outcome = run_once(&runner, &workload, options.ask_every).await;
            outcome.map(|()| Sample::of(&[started.elapsed()]))
        } else {
            let on = Arc::clone(&runner);
            saturate(workload.load(), move |_| {
                let runner = Arc::clone(&on);
                async move { run_once(&runner, &workload, None).await }
            })
            .await
        };
        runner.shutdown().await.map_err(failed)?;
        sample
    })
}

async fn run_once(
    runner: &DefaultRunner,
    workload: &Workload,
    ask_every: Option<Duration>,
) -> Result<(), BenchError> {
    let mut context = Context::new();
    context.insert(INPUT, json!(workload.input)).map_err(failed)?;
    let name = name(workload.shape);
    let result = match ask_every {
        None => runner.execute(name, context).await.map_err(failed)?,
        Some(pause) => {
            let run = runner.execute_async(name, context).await.map_err(failed)?;
            let started = Instant::now();
            while !run.get_status().await.map_err(failed)?.is_terminal() {
                if started.elapsed() > RUN_LIMIT {
                    return Err(BenchError::Stuck {
                        contestant: "cloacina".into(),
                        limit: RUN_LIMIT,
                    });
                }
                tokio::time::sleep(pause).await;
            }
            run.wait_for_completion().await.map_err(failed)?
        }
    };
    if result.status != WorkflowStatus::Completed {
        return Err(failed(format!(
            "{} ended as {:?}: {:?}",
            workload.name, result.status, result.error_message
        )));
    }
    workload.check("cloacina", result.final_context.get(LAST).and_then(Value::as_u64))
}

fn failed(error: impl Display) -> BenchError {
    BenchError::failed("cloacina", error)
}
