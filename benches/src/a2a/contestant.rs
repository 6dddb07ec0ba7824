//! Who takes part.

use std::time::Duration;

use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

use super::Load;
use crate::BenchError;

/// Whether a producer knows who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It publishes to a topic, and a broker routes.
    Brokered,
    /// It sends to an address that it holds.
    Direct,
    /// No actors at all: what the bare parts can do.
    Reference,
}

/// Who a contestant is and what its figure means.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Identity {
    /// The library.
    pub framework: &'static str,
    /// Which of its ways to send.
    pub mode: &'static str,
    /// Brokered or direct.
    pub kind: Kind,
    /// What its queues hold at most, and what happens then.
    pub queue: &'static str,
    /// How many messages may be under way from one producer.
    pub in_flight: &'static str,
}

impl Identity {
    /// Library and way to send, as the tables name it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.framework, self.mode)
    }
}

/// The async runtime that a sample runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Flavor {
    /// Everything on one thread.
    CurrentThread,
    /// Two worker threads.
    MultiThread,
}

impl Flavor {
    /// Both.
    pub const ALL: [Self; 2] = [Self::CurrentThread, Self::MultiThread];

    /// As the tables name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CurrentThread => "current thread",
            Self::MultiThread => "two workers",
        }
    }

    /// A new tokio runtime of this kind.
    ///
    /// # Errors
    /// When the operating system refuses it.
    pub fn runtime(self) -> Result<Runtime, BenchError> {
        match self {
            Self::CurrentThread => Builder::new_current_thread().enable_all().build(),
            Self::MultiThread => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        }
        .map_err(BenchError::Runtime)
    }
}

/// One way to bring messages from producers to consumers.
pub trait Contestant {
    /// Who this is.
    fn identity(&self) -> Identity;

    /// Runs one sample and gives its time, as [`Finish::elapsed`](super::Finish::elapsed) took it.
    ///
    /// The contestant makes its actors from [`Load::race`], one per feed and one per ledger, and
    /// stops them before it returns.
    ///
    /// # Errors
    /// When something was lost, or its library refused.
    fn run(&self, flavor: Flavor, load: Load) -> Result<Duration, BenchError>;
}
