//! What happened to one envelope, as data and as text.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use millrun_broker::{EnvelopeId, SubscriptionId, TopicName, Undeliverable};

/// One envelope and all that is known of its steps.
#[derive(Clone)]
#[non_exhaustive]
pub struct Flow {
    /// The envelope.
    pub id: EnvelopeId,
    /// The topic that it was published to; `None` if the broker has forgotten the topic since.
    pub topic: Option<TopicName>,
    /// The first envelope of its chain; itself, if it is that.
    pub correlation: EnvelopeId,
    /// The envelope during whose handling it was published.
    pub causation: Option<EnvelopeId>,
    /// The type of its payload.
    pub payload_type: &'static str,
    /// Its payload, if that type is [kept](crate::FlowRecorder::keep).
    pub payload: Option<Kept>,
    /// No subscription matched.
    pub unrouted: bool,
    /// What happened to it at each subscription that it reached, in that order.
    pub deliveries: Vec<Delivery>,
}

/// What happened to an envelope at one subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// Whose inbox.
    pub subscription: SubscriptionId,
    /// The subscription's name and filter, for readers.
    pub label: String,
    /// Its state there.
    pub fate: Fate,
    /// The handler's error of each failed attempt.
    pub failures: Vec<String>,
}

/// The state of an envelope at one subscription.
///
/// ```text
///   Waiting ─┬─► LeftTheLine
///            └─► Queued ─┬─► AtWork ─┬─► Handled
///   Refused              │           ├─► Taken
///                        ├─► Taken   └─► Queued (the service was cut off)
///                        └─► GivenUp
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// Its publisher waits for room in the inbox.
    Waiting,
    /// Its publisher waited for room, and gave up or got in at another member of the queue group.
    LeftTheLine,
    /// The inbox was full, and the publisher got an error.
    Refused,
    /// It is in the inbox, or in the hand of a consumer.
    Queued,
    /// It is being handled, or waits for its next attempt.
    AtWork,
    /// A consumer took it and came back for more, or reported that the handling is over.
    Taken,
    /// A service's handler succeeded.
    Handled,
    /// It was given up.
    GivenUp(Undeliverable),
}

impl Fate {
    /// Whether the inbox took the envelope and did not lose it unhandled.
    #[must_use]
    pub const fn is_reached(self) -> bool {
        match self {
            Self::Queued | Self::AtWork | Self::Taken | Self::Handled => true,
            // It got there, and its handler saw it.
            Self::GivenUp(Undeliverable::Failed) => true,
            Self::Waiting | Self::LeftTheLine | Self::Refused | Self::GivenUp(_) => false,
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "its publisher waits for room",
            Self::LeftTheLine => "its publisher waited for room and left the line",
            Self::Refused => "refused: the inbox was full",
            Self::Queued => "delivered, not taken yet",
            Self::AtWork => "being handled",
            Self::Taken => "taken",
            Self::Handled => "handled",
            Self::GivenUp(reason) => return write!(f, "given up: {reason:?}"),
        })
    }
}

/// A copy of a payload.
#[derive(Clone)]
pub struct Kept {
    pub(super) value: Arc<dyn Any + Send + Sync>,
    pub(super) show: fn(&dyn Any) -> String,
}

impl Kept {
    /// The payload, if it is a `T`.
    #[must_use]
    pub fn downcast_ref<T: 'static>(&self) -> Option<&T> {
        self.value.downcast_ref()
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&(self.show)(&*self.value))
    }
}

impl Flow {
    /// Its payload, if it is a `T` and that type is kept.
    #[must_use]
    pub fn payload<T: 'static>(&self) -> Option<&T> {
        self.payload.as_ref()?.downcast_ref()
    }

    /// What happened to it at this subscription; `None` if it was never offered there.
    #[must_use]
    pub fn at(&self, subscription: SubscriptionId) -> Option<&Delivery> {
        self.deliveries
            .iter()
            .find(|delivery| delivery.subscription == subscription)
    }

    /// Topic and payload in one line.
    pub(super) fn title(&self) -> String {
        let topic = self
            .topic
            .as_ref()
            .map_or("a forgotten topic", |topic| topic.as_str());
        match &self.payload {
            Some(payload) => format!("{topic} {payload:?}"),
            None => format!("{topic} ({})", self.payload_type),
        }
    }
}

impl fmt::Display for Flow {
    /// A line for the envelope, and one for each subscription that it met.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.title())?;
        if let Some(cause) = self.causation {
            write!(f, ", caused by {cause}")?;
        }
        if self.unrouted {
            f.write_str("\n  nobody was subscribed")?;
        }
        for delivery in &self.deliveries {
            write!(f, "\n  {delivery}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.label, self.fate)?;
        for (attempt, cause) in self.failures.iter().enumerate() {
            write!(f, "\n    attempt {}: {cause}", attempt + 1)?;
        }
        Ok(())
    }
}
