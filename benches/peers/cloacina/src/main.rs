//! How fast is Cloacina on the workloads of `bench-workflows`?
//!
//! Twice: with its default options, and with those that were fastest among some dozen that were tried:
//! the shortest scheduler interval that it accepts for a single run, but 50 ms for many, since its
//! scheduler looks at all of them each time; and without claims, which tell several processes apart.
//! Its SQLite store commits with full syncs in WAL mode. A client learns of a result by polling the
//! store, every 500 ms by its own function; the tuned rows ask more often. Where results are added up, a task that depends on all others does it: one task more than
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
use millrun_benches::{BenchError, exit, store_in, workers};
use serde_json::{Value, json};

/// As in `Cargo.toml`.
const VERSION: &str = "0.11.0";
const RUN_LIMIT: Duration = Duration::from_secs(900);
/// So many clients ask as often as [`Way::ask_every`] says; more of them each ask less often, but
/// not less than its own function does.
const CLIENTS_PER_PAUSE: u32 = 32;
const ASK_EVERY_MAX: Duration = Duration::from_millis(500);
/// What a run is given.
const INPUT: &str = "input";
/// The task whose result is that of the run.
const LAST: &str = "last";

/// How it is run.
#[derive(Clone, Debug)]
struct Options {
    one: Way,
    /// Where several run at a time.
    many: Way,
}

/// Its settings, and how often a client asks: by its own function where `None`.
#[derive(Clone, Debug)]
struct Way {
    config: DefaultRunnerConfig,
    ask_every: Option<Duration>,
}

fn main() -> ExitCode {
    let settings = default_options().and_then(|default| {
        let setting = |name, options| Setting {
            name,
            store: Store::Durable,
            options,
        };
        let tuned = Options {
            one: tuned(16, 10, 5)?,
            many: tuned(8, 50, 30)?,
        };
        Ok([setting("cloacina", default), setting("cloacina, tuned", tuned)])
    });
    exit(settings.and_then(|settings| {
        measure_peer("peers-cloacina", ("Cloacina, SQLite", VERSION), &settings, sample)
    }))
}

fn default_options() -> Result<Options, BenchError> {
    let config = DefaultRunnerConfig::builder().build().map_err(failed)?;
    let way = Way {
        config,
        ask_every: None,
    };
    Ok(Options {
        one: way.clone(),
        many: way,
    })
}

/// So many tasks at a time, a scheduler that looks so often, clients that ask so often.
fn tuned(tasks_max: usize, look_ms: u64, ask_ms: u64) -> Result<Way, BenchError> {
    let config = DefaultRunnerConfig::builder()
        .max_concurrent_tasks(tasks_max)
        .scheduler_poll_interval(Duration::from_millis(look_ms))
        .enable_claiming(false)
        .enable_cron_scheduling(false)
        .enable_trigger_scheduling(false)
        .enable_registry_reconciler(false)
        .build()
        .map_err(failed)?;
    Ok(Way {
        config,
        ask_every: Some(Duration::from_millis(ask_ms)),
    })
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
    let store = store_in(folder)?;
    let url = format!("sqlite://{}", store.path().join("store.db").display());
    let way = if workload.concurrency == 1 {
        &options.one
    } else {
        &options.many
    };
    workers(threads)?.block_on(async {
        let runner = DefaultRunner::builder()
            .database_url(&url)
            .with_config(way.config.clone())
            .runtime(registered(workload.shape)?)
            .build()
            .await
            .map_err(failed)?;
        let runner = Arc::new(runner);
        let workload = *workload;
        // Many who ask at once keep the store from its work: together they ask about as often as one.
        let ask_every = way.ask_every.map(|pause| {
            let clients = u32::try_from(workload.concurrency).unwrap_or(u32::MAX);
            (pause * clients.div_ceil(CLIENTS_PER_PAUSE)).min(ASK_EVERY_MAX)
        });
        let sample = if workload.concurrency == 1 {
            let started = Instant::now();
            let outcome = run_once(&runner, &workload, ask_every).await;
            outcome.map(|()| Sample::of(&[started.elapsed()]))
        } else {
            let on = Arc::clone(&runner);
            saturate(workload.load(), move |_| {
                let runner = Arc::clone(&on);
                async move { run_once(&runner, &workload, ask_every).await }
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
