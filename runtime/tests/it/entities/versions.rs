//! Entities of which an earlier version has stored events and a snapshot in a file.

use millrun::operating::InstanceStatus;
use millrun::{Entity, EntityCommand, EntityState, Payload, PayloadError, Query, Runtime, RuntimeBuilder};
use serde::{Deserialize, Serialize};

use crate::support::Store;

/// Counts cents.
#[derive(Debug, Serialize, Deserialize)]
struct Purse(u64);

impl EntityState for Purse {
    type Event = u64;

    fn begin(_key: &str) -> Self {
        Self(0)
    }

    fn apply(&mut self, cents: u64) {
        self.0 += cents;
    }
}

/// Counts in currencies: nothing that the version before it has stored decodes as one of its values.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Wallet(Vec<(String, u64)>);

impl EntityState for Wallet {
    type Event = (String, u64);

    const VERSION: u32 = 2;

    fn begin(_key: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, event: (String, u64)) {
        self.0.push(event);
    }

    fn upcast_event(version: u32, stored: &Payload) -> Result<(String, u64), PayloadError> {
        assert_eq!(version, 1);
        Ok(("EUR".into(), stored.decode()?))
    }

    fn upcast_state(version: u32, stored: &Payload) -> Result<Self, PayloadError> {
        assert_eq!(version, 1);
        let Purse(cents) = stored.decode()?;
        Ok(Self(vec![("EUR".into(), cents)]))
    }
}

const PURSE: Entity<Purse> = Entity::named("purse");
const PUT: EntityCommand<Purse, u64, u64> = EntityCommand::named("put");
const WALLET: Entity<Wallet> = Entity::named("purse");
const PUT_IN: EntityCommand<Wallet, (String, u64), ()> = EntityCommand::named("put");
const ALL: Query<Wallet, (), Vec<(String, u64)>> = Query::named("all");

fn purses(builder: RuntimeBuilder) -> RuntimeBuilder {
    let purse = PURSE.command(PUT, |purse, cents, cx| {
        cx.emit(cents);
        Ok(purse.0 + cents)
    });
    builder.entity(purse.snapshot_every(3))
}

fn wallets(builder: RuntimeBuilder) -> RuntimeBuilder {
    let wallet = WALLET.command(PUT_IN, |_, coins, cx| {
        cx.emit(coins);
        Ok(())
    });
    let wallet = wallet.query(ALL, |wallet, ()| wallet.0.clone());
    builder.entity(wallet.snapshot_every(3))
}

async fn all(runtime: &Runtime, key: &str) -> Vec<(String, u64)> {
    runtime.entity(WALLET, key).read(ALL, ()).await.unwrap()
}

#[tokio::test]
async fn what_an_earlier_version_stored_in_a_file_is_brought_up_to_date_once_and_not_read_by_it_again() {
    let store = Store::new();
    let runtime = purses(store.bare()).start().await.unwrap();
    // Only events, a snapshot with events behind it, and a snapshot alone.
    for (key, len) in [("new", 2), ("old", 4), ("whole", 3)] {
        for cents in 1..=len {
            runtime.entity(PURSE, key).call(PUT, cents).await.unwrap();
        }
    }
    runtime.shutdown().await.unwrap();

    let of = |currency: &str, cents: u64| (currency.to_owned(), cents);
    for _ in 0..2 {
        let runtime = wallets(store.bare()).start().await.unwrap();
        assert_eq!(all(&runtime, "new").await, [of("EUR", 1), of("EUR", 2)]);
        assert_eq!(all(&runtime, "whole").await, [of("EUR", 6)]);
        runtime.shutdown().await.unwrap();
    }
    let mut expected = vec![of("EUR", 6), of("EUR", 4)];
    for life in 0..4 {
        // Snapshots of this version take the place of that of the earlier one.
        let runtime = wallets(store.bare()).start().await.unwrap();
        assert_eq!(all(&runtime, "old").await, expected, "life {life}");
        let coins = of("CHF", life);
        runtime
            .entity(WALLET, "old")
            .call(PUT_IN, coins.clone())
            .await
            .unwrap();
        expected.push(coins);
        assert_eq!(all(&runtime, "old").await, expected);
        runtime.shutdown().await.unwrap();
    }

    let runtime = purses(store.bare()).start().await.unwrap();
    assert_eq!(runtime.entity(PURSE, "new").call(PUT, 10).await.unwrap(), 13);
    let refused = runtime.entity(PURSE, "old").call(PUT, 1).await;
    assert!(refused.is_err(), "{refused:?}");
    let runs = runtime.list(None, 10).await.unwrap();
    let old = runs.iter().find(|run| run.id.as_str() == "purse/old").unwrap();
    assert_eq!(old.status, InstanceStatus::Parked);
    runtime.shutdown().await.unwrap();
    let runtime = wallets(store.bare()).start().await.unwrap();
    assert_eq!(all(&runtime, "old").await, expected, "nothing is lost");
    assert_eq!(
        all(&runtime, "new").await,
        [of("EUR", 13)],
        "the snapshot of the earlier one"
    );
    runtime.shutdown().await.unwrap();
}
