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

mod broker;
mod name;
mod topic;

mod envelope;
mod publish;
mod receiver;
mod route;
mod subscription;

mod clock;
mod hub;
mod trie;

pub mod mailbox;
#[cfg(feature = "ractor")]
pub mod ractor;
mod sync;

pub use broker::{Broker, BrokerConfig, SubscribeError, TopicError};
pub use envelope::{AnyEnvelope, Envelope, EnvelopeId, Headers, TopicId, TraceContext};
pub use name::{Filter, NameError, TopicName};
pub use publish::{Publish, PublishError, Published, Refused};
pub use receiver::Receiver;
pub use subscription::{GroupChoice, GroupConfig, Inbox, Overflow, SubscriptionConfig, SubscriptionId};
pub use topic::{Publisher, Topic, TopicConfig};
