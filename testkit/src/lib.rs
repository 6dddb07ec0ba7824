//! Test tools for millrun and for programs built on it. Each part is a feature.
//!
//! | feature | what it brings |
//! |---------|----------------|
//! | `sim` (default) | [`SimHost`]: a seeded world of one thread, with a clock that the test moves |
//! | `world` | [`World`]: a program's own registry in such a world, with mocked activities, and a crash wherever one may come |
//! | `broker` | [`FlowRecorder`]: what flows through a broker, and when it has settled |
//! | `replay` | [`replay`](replay()): exported histories as tests of the code of today |
//! | `postgres` | [`PostgresServer`]: a server of PostgreSQL that ends with the test, where one is installed |
//! | `mutation` | [`fuzz`]: mutations of known bytes, for decoders that must survive anything |
//!
//! # A world of its own
//!
//! ```
//! use std::time::Duration;
//! use millrun_testkit::{SimConfig, SimHost};
//!
//! let world = SimHost::new(SimConfig::seeded(7));
//! let host = world.host();
//! let before = host.now();
//! // A year of virtual time takes no time at all.
//! world.block_on(host.sleep_until(before + Duration::from_secs(31_536_000))).unwrap();
//! assert_eq!(host.now().saturating_since(before), Duration::from_secs(31_536_000));
//! ```
#![cfg_attr(
    all(feature = "broker", feature = "sim"),
    doc = r#"
# Flows through a broker

A [`FlowRecorder`] sees every step of every envelope, waits until nothing moves any more, without
sleeping, and has assertions that say what did happen.

```
use std::sync::atomic::{AtomicBool, Ordering};
use millrun_broker::{Broker, BrokerConfig, ServiceConfig, SubscriptionConfig};
use millrun_testkit::{FlowRecorder, SimConfig, SimHost};

#[derive(Clone, Debug, PartialEq)]
struct Order(u32);

#[derive(Clone, Debug, PartialEq)]
struct Payment(u32);

# fn main() -> Result<(), Box<dyn std::error::Error>> {
let world = SimHost::new(SimConfig::seeded(7));
let broker = Broker::new(BrokerConfig::default(), world.host());
let flows = FlowRecorder::attach(&broker)?.keep::<Order>().keep::<Payment>();

// The program: billing takes a payment for each order, and fails once.
let named = |name: &str| SubscriptionConfig { name: name.to_owned(), ..Default::default() };
let payments = broker.topic::<Payment>("payments.taken")?;
let fails = AtomicBool::new(true);
let orders = broker.subscribe::<Order>("orders.>", named("billing"))?;
let _billing = orders.serve(ServiceConfig::default(), move |order| {
    let (payments, fails) = (payments.clone(), fails.swap(false, Ordering::Relaxed));
    async move {
        if fails {
            return Err("the bank is closed".to_owned());
        }
        let payment = Payment(order.payload().0);
        payments.publish(payment).await.map(drop).map_err(|error| error.to_string())
    }
})?;
let receipts = broker.subscribe::<Payment>("payments.*", named("receipts"))?;
flows.set_aside(receipts.id()); // nobody empties it but this test

// The test: time jumps over the pause before the second attempt.
let order = world.block_on(broker.topic("orders.eu.placed")?.publish(Order(42)))??;
flows.settle_in(&world)?;

flows.assert_handled(order.id, "billing");
flows.assert_chain(order.id, &["orders.*.placed", "payments.taken"]);
assert_eq!(flows.payloads::<Payment>("payments.>"), [Payment(42)]);
assert_eq!(flows.flow_of(order.id).unwrap().deliveries[0].failures, ["the bank is closed"]);
println!("{}", flows.chain_of(order.id).unwrap());
# Ok(())
# }
```

On tokio it is `flows.settle().await`. An assertion that fails prints what is known:

```text
envelope 00000000000003e8 did not reach "audit"
what is known of it:
00000000000003e8 orders.eu.placed Order(42)
  "billing" (subscription-1, orders.>): handled
    attempt 1: the bank is closed
"audit" (subscription-3, orders.us.*) had no part in it: its filter orders.us.* does not select orders.eu.placed
```
"#
)]
// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "broker")]
mod flows;
#[cfg(feature = "mutation")]
mod mutation;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "replay")]
mod replay;
#[cfg(feature = "sim")]
mod sim;
#[cfg(feature = "world")]
mod world;

#[cfg(feature = "broker")]
pub use flows::{Chain, Delivery, Fate, Flow, FlowConfig, FlowRecorder, Kept, Link, Subscriber, Unsettled};

#[cfg(feature = "mutation")]
pub use mutation::{FuzzTarget, corpus, fuzz};
#[cfg(feature = "postgres")]
pub use postgres::PostgresServer;
#[cfg(feature = "replay")]
pub use replay::{
    HISTORY_FILE_BYTES_MAX, HISTORY_FILES_LEN_MAX, ReplayRefused, ReplayReport, ReplayedFile, replay,
    replay_with,
};
#[cfg(feature = "sim")]
pub use sim::{Action, SimConfig, SimHost, SimStop, Step, Stuck, Trace};
#[cfg(feature = "world")]
pub use world::{AttemptSeen, Fault, FaultsTried, Mock, World, WorldConfig};

/// How an application is tested is a test.
#[cfg(all(doctest, feature = "world"))]
#[doc = include_str!("../../docs/testing.md")]
struct TestingExamples;

/// The README's example is a test.
#[cfg(all(doctest, feature = "sim"))]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
