//! A long step that says how far it is: when an attempt fails, the next one goes on there.
//!
//! And an error that no attempt can help: it ends the step at once, as a value of its own type.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use millrun::{
    Activity, ActivityContext, CallError, Retry, Runtime, TypedError, Workflow, WorkflowContext,
    WorkflowError,
};
use serde::{Deserialize, Serialize};

const IMPORT: Activity<Vec<String>, u64, ImportError> = Activity::named("import");
const NIGHTLY: Workflow<Vec<String>, u64> = Workflow::named("nightly");

#[derive(Debug, Serialize, Deserialize)]
enum ImportError {
    /// The other side hung up: the next attempt may get further.
    HungUp,
    /// A row is no number, and will not become one.
    BadRow(usize),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HungUp => f.write_str("the other side hung up"),
            Self::BadRow(row) => write!(f, "row {row} is no number"),
        }
    }
}

impl TypedError for ImportError {
    fn is_retryable(&self) -> bool {
        matches!(self, Self::HungUp)
    }
}

/// Adds up the rows. Each attempt gets through three of them.
async fn import(cx: ActivityContext, rows: Vec<String>) -> Result<u64, ImportError> {
    // What the attempt before said last: the row, and the sum up to it.
    let (done, mut sum) = cx.details().and_then(Result::ok).unwrap_or((0, 0));
    println!("attempt {} begins at row {done}", cx.attempt());
    for (row, text) in rows.iter().enumerate().skip(done) {
        if row == done + 3 {
            return Err(ImportError::HungUp);
        }
        sum += text.parse::<u64>().map_err(|_| ImportError::BadRow(row))?;
        if cx.heartbeat(&(row + 1, sum)).is_err() {
            // Nobody waits for this attempt any more.
            break;
        }
    }
    Ok(sum)
}

async fn nightly(cx: WorkflowContext, rows: Vec<String>) -> Result<u64, WorkflowError> {
    let patiently = Retry::exponential()
        .first_pause(Duration::from_millis(10))
        .attempts(10);
    let import = cx.call(IMPORT, rows).retry(patiently);
    // An attempt that says nothing for a minute is stopped, and made again.
    match import.heartbeat(Duration::from_secs(60)).await {
        Ok(sum) => Ok(sum),
        Err(CallError::Failed(ImportError::BadRow(row))) => {
            Err(WorkflowError::failed(format!("please look at row {row}")))
        }
        Err(error) => Err(error.into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let builder = Runtime::volatile().register(IMPORT, import);
    let runtime = builder.register(NIGHTLY, nightly).start().await?;
    for (id, rows) in [("monday", "1 2 3 4 5 6 7"), ("tuesday", "1 two 3")] {
        let rows = rows.split(' ').map(String::from).collect();
        match runtime.start(NIGHTLY, id, rows).await?.result().await {
            Ok(sum) => println!("{id}: {sum}"),
            Err(error) => println!("{id}: {error}"),
        }
    }
    runtime.shutdown().await?;
    Ok(())
}
