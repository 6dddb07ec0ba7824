//! An in-process topic broker: typed topics, bounded subscriptions, backpressure.
//!
//! ```
//! use millrun_broker::{Broker, BrokerConfig, SubscriptionConfig};
//! # use std::task::{Context, Poll, Waker};
//! # fn block_on<F: Future>(future: F) -> F::Output {
//! #     let mut future = std::pin::pin!(future);
//! #     loop {
//! #         if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
//! #             return output;
//! #         }
//! #     }
//! # }
//! # block_on(async {
//! let broker = Broker::without_host(BrokerConfig::default());
//! let inbox = broker.subscribe::<String>("orders.*.placed", SubscriptionConfig::default())?;
//! let mut orders = broker.topic::<String>("orders.eu.placed")?.publisher();
//!
//! orders.publish("order-42".to_owned()).await?;
//!
//! let envelope = inbox.into_receiver().recv().await.expect("the subscription is open");
//! assert_eq!(envelope.payload(), "order-42");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod broker;
mod name;
mod topic;

mod envelope;
mod handling;
mod header;
mod inbox;
mod publisher;
mod receiver;
mod service;
mod subscription;

mod offer;
mod outcome;
mod publish;
mod route;
mod stage;
mod table;
mod trie;

mod ask;
mod cause;
mod dead_letter;
mod delivery;
mod monitor;
mod topology;
mod wait;

#[cfg(feature = "ractor")]
pub mod actor;
mod clock;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod hub;
pub mod mailbox;
mod sync;
mod tally;
mod tap;
#[cfg(feature = "tokio")]
mod tokio_host;

pub use ask::{AskError, Request};
pub use broker::{Broker, BrokerConfig, SubscribeError, TopicError};
pub use dead_letter::{DEAD_LETTERS, DeadLetter, Undeliverable};
pub use delivery::Batch;
pub use envelope::{AnyEnvelope, Envelope};
pub use handling::Handling;
pub use header::{EnvelopeId, Headers, TopicId, TraceContext};
pub use inbox::Inbox;
pub use monitor::BrokerEvent;
pub use name::{Filter, NameError, TopicName};
pub use outcome::{PublishBatchError, PublishError, Published, Refused};
pub use publish::{Publish, PublishBatch, PublishWithin};
pub use publisher::Publisher;
pub use receiver::Receiver;
pub use service::{FailurePolicy, LastResort, ServeError, Service, ServiceConfig, ServiceEnd};
pub use subscription::{
    GroupChoice, GroupConfig, Overflow, SubscriptionConfig, SubscriptionId, SubscriptionStats,
};
pub use tap::{AlreadyTapped, FlowEvent, InboxProbe, Tap};
#[cfg(feature = "tokio")]
pub use tokio_host::{NoHost, tokio_host};
pub use topic::{TopicConfig, TopicHandle};
pub use topology::{SubscriptionInfo, TopicInfo, Topology};
pub use wait::LongWait;

pub use millrun_core::{Bell, Cause, Host, Timestamp};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
