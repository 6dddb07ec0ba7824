//! Nodes that host nothing: clients of the others.

use millrun::{Runtime, StartError};

use super::{ADD, SUM, ids, joined, shares, until};
use crate::server::TestServer;

/// It registers no code and claims nothing, also where nobody else is left; what it has asked for waits for one who hosts.
#[tokio::test(flavor = "current_thread")]
async fn a_node_that_hosts_nothing_starts_and_reaches_runs_of_the_others() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let client = Runtime::open(format!("{url}&node=client")).hosts_instances(false);
    let client = client.start().await.unwrap();
    let a = joined(&url, "a").await;
    until(&client, |status| shares(status) == [1_024, 0]).await;
    let nodes = client.cluster().unwrap().nodes;
    assert_eq!((nodes[0].claims, nodes[1].claims), (true, false));
    for (number, id) in (0..).zip(ids(5)) {
        let run = client.start(SUM, &id, 1).await.unwrap();
        let other = client
            .start(millrun::Workflow::<u32, u32>::named("other"), &id, 1)
            .await;
        assert!(
            matches!(other, Err(StartError::OtherWorkflow { .. })),
            "{other:?}"
        );
        run.signal(ADD, number).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 2 * number);
        assert_eq!(run.describe().await.unwrap().workflow, "sum");
    }
    // Nobody hosts for a while, and the client does not begin to.
    let run = client.start(SUM, "left", 1).await.unwrap();
    a.shutdown().await.unwrap();
    until(&client, |status| {
        shares(status) == [0] && status.free_len == 1_024
    })
    .await;
    let (answered, b) = tokio::join!(run.signal(ADD, 7), async {
        client.cluster_looked().await;
        assert_eq!(client.cluster().unwrap().free_len, 1_024);
        joined(&url, "b").await
    });
    answered.unwrap();
    assert_eq!(run.result().await.unwrap(), 14);
    assert!(client.partitions().owned().is_empty());
    client.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}
