//! Partitions that move between two runtimes while both are published to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use millrun::store::{Journal, Partition};
use millrun::topics::{DurablePublishError, ReadFrom, SubscriptionLost, SubscriptionOpenError};
use millrun::{PublishTarget, ResultError, RunError, Runtime, Workflow, WorkflowContext, WorkflowError};

use super::{NUMBERS, all, memory};

const TELL: Workflow<u64, u64> = Workflow::named("tell");

async fn tell(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    for number in first..first + 5 {
        cx.publish(NUMBERS, number).await?;
        cx.sleep(std::time::Duration::from_millis(1)).await?;
    }
    Ok(first)
}

#[tokio::test]
async fn what_is_published_while_partitions_move_is_there_once_and_a_former_owner_takes_nothing() {
    let journal = memory();
    let open = |claimed: Option<Vec<Partition>>| {
        let builder = Runtime::volatile().journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let builder = builder.durable_topic(NUMBERS).register(TELL, tell);
        builder
            .configure(|config| config.claimed_at_open = claimed)
            .start()
    };
    let runtimes = [open(None).await.unwrap(), open(Some(Vec::new())).await.unwrap()];
    let all_partitions: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let topic = runtimes[1].durable_topic(NUMBERS).unwrap();
    let refused = topic.publish(&0).key("k").await.unwrap_err();
    assert!(
        matches!(refused, DurablePublishError::Moved { partition } if partition == Partition::of(b"k")),
        "{refused:?}"
    );
    let is_done = Arc::new(AtomicBool::new(false));
    let publishers = (0..20_u64).map(|publisher| {
        let runtimes = runtimes.clone();
        async move {
            for number in 0..20 {
                let (number, mut owner) = (1_000 + publisher * 100 + number, 0);
                let id = number.to_string();
                loop {
                    let topic = runtimes[owner].durable_topic(NUMBERS).unwrap();
                    match topic.publish(&number).key(&publisher.to_string()).id(&id).await {
                        Ok(_) => break,
                        Err(DurablePublishError::Moved { .. }) => owner = 1 - owner,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            }
        }
    });
    let runs = (0..10_u64).map(|run| {
        let runtimes = runtimes.clone();
        async move {
            let (id, mut owner) = (format!("run-{run}"), 0);
            loop {
                let started = runtimes[owner].start(TELL, &id, run * 10).await;
                let result = match started {
                    Ok(run) => run.result().await,
                    Err(_) => {
                        owner = 1 - owner;
                        continue;
                    }
                };
                match result {
                    Ok(_) => break,
                    Err(ResultError::Run(RunError::Moved { .. } | RunError::NotFound)) => owner = 1 - owner,
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
    });
    let moves = async {
        let mut taker = 1;
        while !is_done.load(Ordering::Relaxed) {
            runtimes[taker].partitions().take(&all_partitions).await.unwrap();
            taker = 1 - taker;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
    };
    let calls = async {
        futures_util::join!(join_all(publishers), join_all(runs));
        is_done.store(true, Ordering::Relaxed);
    };
    futures_util::join!(moves, calls);
    let topic = runtimes[0].durable_topic(NUMBERS).unwrap();
    let mut by_key: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for record in all(&topic, &runtimes[0], ReadFrom::Beginning).await {
        let record = record.unwrap();
        by_key
            .entry(record.key().unwrap().to_owned())
            .or_default()
            .push(record.into_payload());
    }
    let of_publisher = |publisher: u64| {
        let first = 1_000 + publisher * 100;
        (publisher.to_string(), (first..first + 20).collect())
    };
    let of_run = |run: u64| (format!("run-{run}"), (run * 10..run * 10 + 5).collect());
    let expected: BTreeMap<_, Vec<_>> = (0..20).map(of_publisher).chain((0..10).map(of_run)).collect();
    assert_eq!(by_key, expected);
}

#[tokio::test]
async fn what_a_later_owner_has_kept_of_a_subscription_stays_when_it_comes_back_to_the_former_one() {
    let journal = memory();
    let open = |claimed: Option<Vec<Partition>>| {
        let builder = Runtime::volatile().journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let builder = builder.durable_topic(NUMBERS);
        builder
            .configure(|config| config.claimed_at_open = claimed)
            .start()
    };
    let runtimes = [open(None).await.unwrap(), open(Some(Vec::new())).await.unwrap()];
    let topics = runtimes
        .each_ref()
        .map(|runtime| runtime.durable_topic(NUMBERS).unwrap());
    let kept_in =
        Partition::of(format!("millrun.subscription {}/billing", PublishTarget::name(&NUMBERS)).as_bytes());
    for number in 0..6 {
        topics[0].publish(&number).await.unwrap();
    }
    let refused = topics[1].subscribe("billing").await.unwrap_err();
    assert!(
        matches!(refused, SubscriptionOpenError::Lost(SubscriptionLost::Moved { partition }) if partition == kept_in),
        "{refused:?}"
    );
    let former = topics[0].subscribe("billing").await.unwrap();
    former.next().await.unwrap().ack().unwrap().await.unwrap();
    let in_its_hand = former.next().await.unwrap();

    runtimes[1].partitions().take(&[kept_in]).await.unwrap();
    let later = topics[1].subscribe("billing").await.unwrap();
    for number in 1..4 {
        let delivery = later.next().await.unwrap();
        assert_eq!(*delivery.payload(), number);
        delivery.ack().unwrap().await.unwrap();
    }

    runtimes[0].partitions().take(&[kept_in]).await.unwrap();
    let lost = in_its_hand.ack().unwrap().await.unwrap_err();
    assert!(matches!(lost, SubscriptionLost::Moved { .. }), "{lost:?}");
    let again = topics[0].subscribe("billing").await.unwrap();
    assert_eq!(*again.next().await.unwrap().payload(), 4);
}
