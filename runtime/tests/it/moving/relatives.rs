//! Runs of different partitions that wait for each other, while the partitions move between two runtimes. There is no
//! mail between these: a run is asked again when one of them owns both partitions.

use std::time::Duration;

use futures_util::future::join_all;
use millrun::operating::InstanceStatus;
use millrun::workflow::Either;
use millrun::{
    RunError, RuntimeBuilder, Signal, StartError, StopCause, Workflow, WorkflowContext, WorkflowError,
};

use super::{Told, World, asked, told};

const PARENT: Workflow<u64, u64> = Workflow::named("parent");
const CHILD: Workflow<u64, u64> = Workflow::named("child");
const ENDLESS: Workflow<u64, u64> = Workflow::named("endless");
const HUB: Workflow<u64, Vec<u64>> = Workflow::named("hub");
const TOLD: Signal<u64> = Signal::named("told");
const NEVER: Signal<u64> = Signal::named("never");

/// Doubles a number by a child, lets go of another one that never ends, and tells the hub.
async fn parent(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let doubled = cx.child(CHILD, format!("child-{number}"), number).await?;
    let endless = cx.child(ENDLESS, format!("endless-{number}"), number);
    match cx.race(endless, cx.sleep(Duration::from_millis(70))).await {
        Either::Left(_) => unreachable!("it ends when nobody waits for it"),
        Either::Right(slept) => slept?,
    }
    cx.signal_instance(HUB, "hub", TOLD, doubled).await?;
    Ok(doubled)
}

async fn child(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.sleep(Duration::from_millis(30)).await?;
    Ok(number * 2)
}

async fn endless(cx: WorkflowContext, _number: u64) -> Result<u64, WorkflowError> {
    Ok(cx.receive(NEVER).await?)
}

async fn hub(cx: WorkflowContext, len: u64) -> Result<Vec<u64>, WorkflowError> {
    let mut heard = Vec::new();
    while (heard.len() as u64) < len {
        heard.push(cx.receive(TOLD).await?);
    }
    Ok(heard)
}

impl World {
    async fn start<O>(&self, workflow: Workflow<u64, O>, id: &str, input: u64) {
        self.ask(async |runtime| match runtime.start(workflow, id, input).await {
            Ok(_) => Told::Answer(()),
            Err(StartError::Moved { .. } | StartError::Stopped(StopCause::Part { .. })) => Told::Moved,
            Err(error) => panic!("{error:?}"),
        })
        .await;
    }

    async fn result<O: serde::de::DeserializeOwned>(&self, workflow: Workflow<u64, O>, id: &str) -> O {
        self.ask(
            async |runtime| match runtime.attach(workflow, id).unwrap().result().await {
                Ok(result) => Told::Answer(result),
                Err(millrun::ResultError::Run(error)) => told(Err(error)),
                Err(error) => panic!("{error:?}"),
            },
        )
        .await
    }

    /// Waits until an instance has ended, or has never been.
    async fn no_longer_lives(&self, id: &str) {
        loop {
            let is_live = self
                .ask(
                    async |runtime| match runtime.attach(ENDLESS, id).unwrap().describe().await {
                        Ok(described) => Told::Answer(described.status != InstanceStatus::Finished),
                        Err(RunError::NotFound) => Told::Answer(false),
                        Err(error) => told(Err(error)),
                    },
                )
                .await;
            if !is_live {
                return;
            }
            self.host
                .sleep_until(self.host.now() + Duration::from_millis(20))
                .await;
        }
    }
}

/// What a run had asked of another one in a partition that was lost, or was told from there, was gone for good: parents
/// waited for ever, and children that nobody waited for lived on.
#[test]
fn runs_that_wait_for_each_other_come_together_again_wherever_their_partitions_move() {
    let code = |builder: RuntimeBuilder| {
        let builder = builder.register(PARENT, parent).register(CHILD, child);
        builder.register(ENDLESS, endless).register(HUB, hub)
    };
    for play in asked() {
        let parents = play.callers / 8;
        play.run(code, async |there: &World| {
            there.start(HUB, "hub", parents).await;
            let calls = (0..parents).map(async |number| {
                let id = format!("parent-{number}");
                there.start(PARENT, &id, number).await;
                assert_eq!(there.result(PARENT, &id).await, number * 2);
                there.no_longer_lives(&format!("endless-{number}")).await;
            });
            join_all(calls).await;
            let mut heard = there.result(HUB, "hub").await;
            heard.sort_unstable();
            let all: Vec<_> = (0..parents).map(|number| number * 2).collect();
            assert_eq!(heard, all, "each signal is taken once");
        });
    }
}
