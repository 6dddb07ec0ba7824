use millrun::host::{HostConfig, TokioHost};
use millrun_core::InstanceId;
use millrun_persistence::{Journal, JournalConfig, Reads, RedbJournal};

use super::template::{instance_id, numbered, recorded};
use super::*;

/// Runs as many as there are clients, and then as many again.
const CLIENTS: u64 = 64;

async fn run_twice(floor: &Floor) {
    for first in [0, CLIENTS] {
        let clients: Vec<_> = (first..first + CLIENTS)
            .map(|number| tokio::spawn(floor.door().run_once(number)))
            .collect();
        for client in clients {
            client.await.unwrap().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_finds_the_bytes_of_the_runtime_in_the_file_of_the_floor() {
    let folder = tempfile::tempdir().unwrap();
    let owner = TokioHost::spawn(HostConfig::default()).await.unwrap();
    let host = owner.host();
    let floor = Floor::open(Store::Durable, folder.path(), &host).await.unwrap();
    run_twice(&floor).await;
    floor.close().unwrap();

    let path = folder.path().join("store.redb");
    let journal = RedbJournal::open(&path, JournalConfig::default(), Arc::clone(&host)).unwrap();
    let stats = journal.stats();
    assert_eq!((stats.live_runs, stats.finished_runs), (0, 2 * CLIENTS));
    assert_eq!(journal.verify().unwrap().damaged.len(), 0);
    for run in [0, 77, 127] {
        let number = numbered(run).unwrap();
        let id = InstanceId::new(std::str::from_utf8(&instance_id(number)).unwrap()).unwrap();
        let found = journal.finished(&id).unwrap().unwrap();
        let floors = journal.history(found.run).unwrap();
        assert_eq!(floors.id, id);
        let made = folder.path().join(format!("made-{run}.redb"));
        let (_, runtimes) = recorded(&made, number, &host).await.unwrap();
        assert_eq!(floors.records.len(), 4);
        for (floors, runtimes) in floors.records.iter().zip(&runtimes) {
            assert_eq!(
                (floors.sequence, floors.kind, floors.closes, &floors.body),
                (runtimes.sequence, runtimes.kind, runtimes.closes, &runtimes.body),
            );
        }
    }
    journal.close().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_floor_in_memory_gives_each_client_its_result() {
    let folder = tempfile::tempdir().unwrap();
    let owner = TokioHost::spawn(HostConfig::default()).await.unwrap();
    let floor = Floor::open(Store::Volatile, folder.path(), &owner.host())
        .await
        .unwrap();
    run_twice(&floor).await;
    floor.close().unwrap();
}

#[test]
fn a_number_that_would_be_longer_than_the_first_is_refused() {
    assert_eq!(numbered(0), Some(1_000_000));
    assert_eq!(numbered(8_999_998), Some(9_999_998));
    assert_eq!(numbered(8_999_999), None);
    assert_eq!(numbered(u32::MAX), None);
}
