//! Handles to children, with a crash at each point.

use std::error::Error;

use millrun::{Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{Fault, World};

const PARENT: Workflow<(), u64> = Workflow::named("parent");
const CHILD: Workflow<(), u64> = Workflow::named("child");
const DIGIT: Signal<u64> = Signal::named("digit");
const STOP: Signal<()> = Signal::named("stop");

/// Hears two digits, and waits until it is cancelled.
async fn child(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    let first = cx.receive(DIGIT).await?;
    let second = cx.receive(DIGIT).await?;
    let cancelled = cx.cancelled().await;
    assert_eq!(cancelled.reason(), Some("enough"));
    Ok(first * 10 + second)
}

async fn parent(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    let child = cx.child(CHILD, "child", ()).start()?;
    child.signal(DIGIT, 1).await?;
    child.signal(DIGIT, 2).await?;
    cx.receive(STOP).await?;
    child.cancel("enough");
    Ok(child.await?)
}

fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(PARENT, parent)
        .register(CHILD, child)
        .configure(|config| config.shards_len = 2)
}

async fn asked(runtime: &Runtime) -> Result<u64, Box<dyn Error>> {
    let run = runtime.start(PARENT, "parent", ()).await?;
    run.signal_as(STOP, "stop", ()).await?;
    Ok(run.result().await?)
}

/// Crashes of the process that both runs are in, and of the shard of either.
#[test]
fn a_child_with_a_handle_is_signalled_once_and_cancelled_wherever_the_process_dies() {
    let world = World::new(registered);
    let scenario = |world: &World| {
        let end = world.live(async |runtime| {
            loop {
                // What a shard that fails had taken is asked for again.
                if let Ok(end) = asked(&runtime).await {
                    break end;
                }
            }
        });
        assert_eq!(end, 12);
        assert_eq!(world.signals(DIGIT).len(), 2);
    };
    let tried = world.crash_everywhere(scenario);
    assert!(tried.commits >= 4, "{tried:?}");
    world.crash_at_each_step(scenario);
    for shard in ["shard 0", "shard 1"] {
        world.fault_everywhere(&Fault::KillPart(shard.to_owned()), scenario);
    }
}
