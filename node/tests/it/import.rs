//! `millrun import`: a store of exported histories.

use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};

use crate::support::Folder;

const NUMBER: Workflow<u64, u64> = Workflow::named("number");

async fn number(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number)
}

async fn open(folder: &Folder, name: &str) -> Runtime {
    let builder = Runtime::open(folder.path(name)).register(NUMBER, number);
    builder.start().await.unwrap()
}

#[tokio::test]
async fn exported_histories_become_a_store_and_replace_none() {
    let folder = Folder::new();
    let first = open(&folder, "first.redb").await;
    let started = first.start(NUMBER, "n", 7).await.unwrap();
    assert_eq!(started.result().await.unwrap(), 7);
    let store = first.store().unwrap();
    store.export(folder.path("histories")).await.unwrap();
    drop((started, store));
    first.shutdown().await.unwrap();

    let told = folder.run(&["import", "histories", "second.redb"]).expect(0).out;
    assert!(told.starts_with("1 runs of "), "{told}");
    let second = open(&folder, "second.redb").await;
    assert_eq!(second.attach(NUMBER, "n").unwrap().result().await.unwrap(), 7);
    second.shutdown().await.unwrap();

    let again = folder.run(&["import", "histories", "second.redb"]).expect(1);
    assert!(again.err.contains("second.redb"), "{again:#?}");
    folder.write("nonsense", b"no history\n");
    folder.run(&["import", "nonsense", "third.redb"]).expect(1);
    assert!(!folder.names().contains(&"third.redb".to_owned()));
}
