//! Starting runs: what happens when an id is taken, and starts that wait.

use std::time::Duration;

use millrun::operating::InstanceStatus;
use millrun::prelude::*;
use millrun::{OnConflict, StartError};
use millrun_testkit::{SimConfig, SimHost};

const IMPORT: Workflow<u64, u64> = Workflow::named("import");
const REMIND: Workflow<String, String> = Workflow::named("remind");
const ANSWERED: Signal<String> = Signal::named("answered");

async fn import(_cx: WorkflowContext, rows: u64) -> Result<u64, WorkflowError> {
    match rows {
        0 => Err(WorkflowError::failed("the file is empty")),
        rows => Ok(rows),
    }
}

async fn remind(cx: WorkflowContext, whom: String) -> Result<String, WorkflowError> {
    let answer = cx.receive(ANSWERED).await?;
    Ok(format!("{whom} has answered: {answer}"))
}

// ANCHOR: failed
/// Imports a day's file, again only if it has not worked out.
async fn import_once(runtime: &Runtime, day: &str, rows: u64) -> Result<(), StartError> {
    let id = format!("import/{day}");
    let start = runtime.start(IMPORT, &id, rows);
    match start.on_conflict(OnConflict::RestartFailed).await {
        Ok(run) => println!("{day}: {:?}", run.result().await.ok()),
        Err(StartError::AlreadyFinished { .. }) => println!("{day} is there already"),
        Err(error) => return Err(error),
    }
    Ok(())
}
// ANCHOR_END: failed

// ANCHOR: replace
/// Reminds somebody of something else: what waits for an answer ends.
async fn remind_anew(runtime: &Runtime, whom: &str) -> Result<RunHandle<String>, StartError> {
    let start = runtime.start(REMIND, &format!("remind/{whom}"), whom.to_owned());
    start.on_conflict(OnConflict::TerminateRunning).await
}
// ANCHOR_END: replace

// ANCHOR: delayed
/// Reminds somebody in a week.
async fn remind_later(runtime: &Runtime, whom: &str) -> Result<RunHandle<String>, StartError> {
    let week = Duration::from_secs(7 * 86_400);
    let start = runtime.start(REMIND, &format!("remind/{whom}"), whom.to_owned());
    start.delayed_by(week).await
}
// ANCHOR_END: delayed

// ANCHOR: retried
/// Imports a file that may come late: three tries, a minute and two minutes apart.
async fn import_late(runtime: &Runtime, day: &str) -> Result<RunHandle<u64>, StartError> {
    let retry = Retry::exponential()
        .attempts(3)
        .first_pause(Duration::from_secs(60))
        .pause_max(Duration::from_secs(600));
    let start = runtime.start(IMPORT, &format!("import/{day}"), 0);
    start.retried(retry).await
}
// ANCHOR_END: retried

// ANCHOR: bounded
/// Asks a question, and waits a day for the answer.
async fn ask_for_a_day(runtime: &Runtime, whom: &str) -> Result<RunHandle<String>, StartError> {
    let day = Duration::from_secs(86_400);
    let start = runtime.start(REMIND, &format!("ask/{whom}"), whom.to_owned());
    start.run_timeout(day).await
}
// ANCHOR_END: bounded

async fn play(runtime: &Runtime) -> Result<(), Box<dyn std::error::Error>> {
    import_once(runtime, "monday", 0).await?;
    import_once(runtime, "monday", 12).await?;
    import_once(runtime, "monday", 12).await?;

    let first = remind_anew(runtime, "ada").await?;
    let second = remind_anew(runtime, "ada").await?;
    println!("the first: {}", first.result().await.is_err());
    second.signal(ANSWERED, "yes".into()).await?;
    println!("the second: {}", second.result().await?);

    let host = runtime.host();
    let asked_at = host.now();
    let later = remind_later(runtime, "bob").await?;
    let status = later.describe().await?.status;
    println!("delayed: {}", status == InstanceStatus::Delayed);
    // Kept for the code, which has not begun.
    later.signal(ANSWERED, "in good time".into()).await?;
    println!("{}", later.result().await?);
    let days = host.now().saturating_since(asked_at).as_secs() / 86_400;
    println!("after {days} days");

    let late = import_late(runtime, "tuesday").await?;
    if let Err(error) = late.result().await {
        println!("tuesday: {error}");
    }
    let last = late.describe().await?;
    println!("in try {:?}", last.run_try.map(|tried| tried.number));

    let asked = ask_for_a_day(runtime, "eve").await?;
    if let Err(error) = asked.result().await {
        println!("eve: {error}");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A world whose time the program moves.
    let world = SimHost::new(SimConfig::seeded(1));
    let script = async {
        let runtime = Runtime::volatile()
            .host(world.host())
            .register(IMPORT, import)
            .register(REMIND, remind)
            .start()
            .await?;
        play(&runtime).await?;
        runtime.shutdown().await?;
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    world.block_on(script)?
}
