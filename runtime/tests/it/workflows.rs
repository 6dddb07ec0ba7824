//! The path of one workflow.

use crate::support::{QUADRUPLE, Store};

#[tokio::test]
async fn a_workflow_runs_to_its_result() {
    let store = Store::new();
    let runtime = store.open().start().await.unwrap();
    let run = runtime.start(QUADRUPLE, "q-1", 5).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 20);
    runtime.shutdown().await.unwrap();
}
