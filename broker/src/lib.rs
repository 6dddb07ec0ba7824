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
mod topic;

mod inbox;
mod subscription;

mod delivery;
pub mod mailbox;
mod stage;

mod envelope;
mod id;
mod name;

mod hub;
mod watch;

#[cfg(feature = "ractor")]
pub mod actor;
mod clock;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod sync;
#[cfg(feature = "tokio")]
mod tokio_host;

pub use broker::{Broker, BrokerConfig, SubscribeError, TopicError, TopicInUse};
pub use envelope::{AnyEnvelope, Envelope, Headers};
pub use id::{EnvelopeId, SubscriptionId, TopicId};
pub use inbox::{Envelopes, Handling, Inbox, Receiver};
pub use inbox::{FailurePolicy, LastResort, ServeError, Service, ServiceConfig, ServiceEnd};
pub use name::{Filter, NameError, TopicName};
pub use subscription::{GroupChoice, GroupConfig, Overflow, SubscriptionConfig, SubscriptionStats};
#[cfg(feature = "tokio")]
pub use tokio_host::{NoHost, tokio_host};
pub use topic::{AskError, Request, TopicConfig, TopicHandle};
pub use topic::{Publish, PublishBatch, PublishWithin, Publisher};
pub use topic::{PublishBatchError, PublishError, Published, RefusedEnvelope};
pub use watch::dead_letter::{DEAD_LETTERS, DeadLetter, Undeliverable};
pub use watch::monitor::{BrokerEvent, LongWait};
pub use watch::tap::{AlreadyTapped, FlowEvent, InboxProbe, Tap};
pub use watch::topology::{SubscriptionInfo, TopicInfo, Topology};

pub use millrun_core::{Bell, Cause, Host, SpanId, Timestamp, TraceContext, TraceId};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
