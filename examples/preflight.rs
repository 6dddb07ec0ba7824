//! The code of the next release tried on the runs of this one, before it is deployed:
//!
//! ```text
//! preflight app.redb                              begins an order that waits, as production does
//! preflight app.redb --next --preflight           what the next release would make of it: exit code 1
//! preflight app.redb --preflight                  and this one: exit code 0
//! ```

use std::error::Error;
use std::process::ExitCode;

use millrun::{
    Activity, ActivityContext, ActivityError, Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext,
    WorkflowError,
};

const CHARGE: Activity<u64, u64> = Activity::named("charge");
const CONFIRMED: Signal<()> = Signal::named("confirmed");
const ORDER: Workflow<u64, u64> = Workflow::named("order");

async fn charge(_cx: ActivityContext, cents: u64) -> Result<u64, ActivityError> {
    Ok(cents)
}

async fn order(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    let charged = cx.call(CHARGE, cents).await?;
    cx.receive(CONFIRMED).await?;
    Ok(charged)
}

/// It asks before it charges, and nobody thought of the orders that are charged already.
async fn next_order(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    cx.receive(CONFIRMED).await?;
    Ok(cx.call(CHARGE, cents).await?)
}

fn app(store: &str, is_next: bool) -> RuntimeBuilder {
    let builder = Runtime::open(store).register(CHARGE, charge);
    match is_next {
        false => builder.register(ORDER, order),
        true => builder.register(ORDER, next_order),
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_asked = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let store = arguments
        .first()
        .ok_or("usage: preflight STORE [--next] [--preflight]")?;
    let app = app(store, is_asked("--next"));
    if is_asked("--preflight") {
        let report = app.preflight().await?;
        print!("{report}");
        return Ok(match report.is_fit() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        });
    }
    let runtime = app.start().await?;
    let run = runtime.start(ORDER, "order-1", 1_999).await?;
    run.until_described(|run| run.awaits(CONFIRMED.name())).await?;
    println!("order-1 waits to be confirmed");
    runtime.shutdown().await?;
    Ok(ExitCode::SUCCESS)
}
