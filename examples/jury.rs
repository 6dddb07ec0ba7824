//! A run with children: a juror each, taken in the order in which they vote. Three equal votes of
//! five decide, and jurors who have not voted by then are not waited for.
//!
//! The order is part of the history, so that a replay counts the same votes.

use std::error::Error;

use millrun::operating::PendingDescription;
use millrun::{ResultError, Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};

const VOTE: Signal<bool> = Signal::named("vote");
const JUROR: Workflow<String, (String, bool)> = Workflow::named("juror");
const JURY: Workflow<Vec<String>, (bool, Vec<String>)> = Workflow::named("jury");

async fn juror(cx: WorkflowContext, name: String) -> Result<(String, bool), WorkflowError> {
    let vote = cx.receive(VOTE).await?;
    Ok((name, vote))
}

async fn jury(cx: WorkflowContext, names: Vec<String>) -> Result<(bool, Vec<String>), WorkflowError> {
    let majority = names.len() / 2 + 1;
    let mut jurors = cx.join_set();
    for name in names {
        jurors.spawn(cx.child(JUROR, name.clone(), name));
    }
    let (mut yes, mut no) = (Vec::new(), Vec::new());
    while let Some(voted) = jurors.next().await {
        let (name, vote) = voted?;
        let side = if vote { &mut yes } else { &mut no };
        side.push(name);
        if side.len() == majority {
            // The set is dropped here, and the children that are left are cancelled with it.
            return Ok((vote, std::mem::take(side)));
        }
    }
    Err(WorkflowError::failed("nobody has a majority"))
}

pub(crate) fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.register(JUROR, juror).register(JURY, jury)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = registered(Runtime::volatile()).start().await?;
    let names = ["ada", "alan", "barbara", "edsger", "grace"]
        .map(String::from)
        .to_vec();
    let jury = runtime.start(JURY, "case-1", names).await?;
    // Its calls are durable by now, and each juror begins a moment later: before that nobody of that name
    // can be given a vote.
    let is_seated = |pending: &_| matches!(pending, PendingDescription::Child { run: Some(_), .. });
    jury.until_described(|jury| jury.pending.iter().all(is_seated))
        .await?;
    for (name, vote) in [("grace", true), ("alan", false), ("barbara", true), ("ada", true)] {
        let juror = runtime.attach(JUROR, name)?;
        juror.signal(VOTE, vote).await?;
        println!("{name} has voted {}", juror.result().await?.1);
    }
    let (verdict, by) = jury.result().await?;
    println!("the verdict is {verdict}, by {}", by.join(", "));
    match runtime.attach(JUROR, "edsger")?.result().await {
        Err(ResultError::Cancelled(_)) => println!("edsger need not vote"),
        other => println!("edsger: {other:?}"),
    }
    runtime.shutdown().await?;
    Ok(())
}
