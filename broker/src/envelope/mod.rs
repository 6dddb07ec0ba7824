//! Envelopes: a small header and a payload that the broker never looks into.
//!
//! An envelope is made once per publish, behind an [`Arc`], and fan-out clones the pointer. The header is kept small on
//! purpose: for messages of usual sizes, its allocation and its way through the caches are most of the cost. For the same
//! reason an envelope that was only [lent](crate::Receiver::recv_ref) to its only reader returns to the publisher, empty, and
//! carries the next payload. Fields that few envelopes have (key, trace, expiry) are in a separate box, and a topic is a
//! number that [`Broker::topic_name`](crate::Broker::topic_name) turns into its name, because counting references to a shared
//! name costs more than a push; see `header`.

mod header;
mod scope;

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use millrun_core::{Cause, Timestamp, TraceContext};

use header::Extras;
pub use header::Headers;
pub(crate) use header::Mark;
pub(crate) use scope::Scope;

use crate::id::{EnvelopeId, TopicId};

/// A message on its way: header and payload. Behind an [`Arc`] wherever it can be shared.
pub struct Envelope<T> {
    id: EnvelopeId,
    correlation: EnvelopeId,
    causation: Option<EnvelopeId>,
    time: Timestamp,
    topic: TopicId,
    weight: u32,
    extras: Option<Box<Extras>>,
    /// `None` only between the last reader of one payload and the next publish.
    payload: Option<T>,
}

impl<T> Envelope<T> {
    /// `weigh` returns how many bytes a payload holds outside of itself.
    #[inline]
    pub(crate) fn new(mark: Mark, headers: Headers, weigh: fn(&T) -> usize, payload: T) -> Self {
        Self {
            id: mark.id,
            correlation: headers.lineage.map_or(mark.id, |lineage| lineage.correlation),
            causation: headers.lineage.map(|lineage| lineage.causation),
            time: mark.time,
            topic: mark.topic,
            weight: Self::weigh(weigh, &payload),
            extras: headers.extras,
            payload: Some(payload),
        }
    }

    #[inline]
    fn weigh(weigh: fn(&T) -> usize, payload: &T) -> u32 {
        u32::try_from(size_of::<Self>() + weigh(payload)).unwrap_or(u32::MAX)
    }

    /// Turns it into another envelope, in place: the payload is moved once, from the caller's registers.
    // On the path of each envelope whose box is reused, where a call would be measurable.
    #[inline(always)]
    pub(crate) fn fill(&mut self, mark: Mark, headers: Headers, weigh: fn(&T) -> usize, payload: T) {
        let payload = self.payload.insert(payload);
        self.weight = Self::weigh(weigh, payload);
        self.id = mark.id;
        self.correlation = headers.lineage.map_or(mark.id, |lineage| lineage.correlation);
        self.causation = headers.lineage.map(|lineage| lineage.causation);
        self.time = mark.time;
        self.topic = mark.topic;
        self.extras = headers.extras;
    }

    /// Drops its contents, so that its memory can be reused.
    #[inline]
    pub(crate) fn empty(&mut self) {
        self.payload = None;
        self.extras = None;
    }

    /// This envelope's own id.
    #[must_use]
    pub const fn id(&self) -> EnvelopeId {
        self.id
    }

    /// The id that all consequences of one first envelope share; its own id for that one.
    #[must_use]
    pub const fn correlation(&self) -> EnvelopeId {
        self.correlation
    }

    /// The envelope during whose handling this one was published.
    #[must_use]
    pub const fn causation(&self) -> Option<EnvelopeId> {
        self.causation
    }

    /// The topic it was published to.
    #[must_use]
    pub const fn topic(&self) -> TopicId {
        self.topic
    }

    /// When it was published, by the broker's coarse clock.
    #[must_use]
    pub const fn time(&self) -> Timestamp {
        self.time
    }

    /// What it is about, if the publisher said so.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.extras.as_ref()?.key.as_deref()
    }

    /// The publisher's place in a distributed trace.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        self.extras.as_ref()?.trace
    }

    /// The time from which on it is not handed out any more.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        self.extras.as_ref()?.expires
    }

    /// The run and its operation that published the envelope, if one did: that run's history shows what led to it.
    #[must_use]
    pub fn run_cause(&self) -> Option<Cause> {
        self.extras.as_ref()?.run
    }

    /// How many bytes it holds: header, payload, and what the topic's weighing function adds. At most 4 GiB are reported.
    #[must_use]
    pub const fn weight(&self) -> usize {
        self.weight as usize
    }

    /// The weight as a mailbox counts it.
    #[inline]
    pub(crate) const fn mailbox_weight(&self) -> u32 {
        self.weight
    }

    /// What it carries.
    #[must_use]
    pub const fn payload(&self) -> &T {
        self.payload
            .as_ref()
            .expect("an envelope is emptied only when nobody can read it any more")
    }

    /// The payload, if nobody else holds this envelope; else the envelope comes back.
    ///
    /// # Errors
    /// The same `Arc`, when other subscribers still hold it. Subscribers that share it in a bundle hold it until they have
    /// finished with the whole bundle.
    pub fn into_payload(self: Arc<Self>) -> Result<T, Arc<Self>> {
        Arc::try_unwrap(self).map(|envelope| {
            envelope
                .payload
                .expect("an envelope is emptied only when nobody can read it any more")
        })
    }
}

impl<T> fmt::Debug for Envelope<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("id", &self.id)
            .field("correlation", &self.correlation)
            .field("causation", &self.causation)
            .field("topic", &self.topic)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

pub(crate) mod sealed {
    pub trait Sealed {}

    /// Allows only this crate to call a method.
    #[derive(Clone, Copy, Debug)]
    pub struct Key(pub(crate) ());

    impl<T> Sealed for super::Envelope<T> {}
}

/// An envelope whose payload may be of any type, for subscriptions that take all of them.
pub trait AnyEnvelope: sealed::Sealed + Send + Sync + 'static {
    /// See [`Envelope::id`].
    fn id(&self) -> EnvelopeId;
    /// See [`Envelope::correlation`].
    fn correlation(&self) -> EnvelopeId;
    /// See [`Envelope::causation`].
    fn causation(&self) -> Option<EnvelopeId>;
    /// See [`Envelope::topic`].
    fn topic(&self) -> TopicId;
    /// See [`Envelope::time`].
    fn time(&self) -> Timestamp;
    /// See [`Envelope::key`].
    fn key(&self) -> Option<&str>;
    /// See [`Envelope::trace`].
    fn trace(&self) -> Option<TraceContext>;
    /// See [`Envelope::expires`].
    fn expires(&self) -> Option<Timestamp>;
    /// See [`Envelope::run_cause`].
    fn run_cause(&self) -> Option<Cause>;
    /// See [`Envelope::weight`].
    fn weight(&self) -> usize;
    /// The name of the payload's type, for people.
    fn payload_type(&self) -> &'static str;
    /// The payload, to be downcast.
    fn any_payload(&self) -> &dyn Any;
    /// The envelope, to be downcast.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    /// The envelope without its type.
    fn into_dyn(self: Arc<Self>) -> Arc<dyn AnyEnvelope>;
    /// The envelope without its type, borrowed.
    fn as_dyn(&self) -> &dyn AnyEnvelope;
    /// Drops its contents, so that its memory can be reused.
    #[doc(hidden)]
    fn empty(&mut self, key: sealed::Key);
    /// Drops its contents, unless they are plain memory, which can wait. Returns how many bytes wait.
    #[doc(hidden)]
    fn let_go(&mut self, key: sealed::Key) -> u32;
}

impl<T: Send + Sync + 'static> AnyEnvelope for Envelope<T> {
    fn id(&self) -> EnvelopeId {
        self.id
    }

    fn correlation(&self) -> EnvelopeId {
        self.correlation
    }

    fn causation(&self) -> Option<EnvelopeId> {
        self.causation
    }

    fn topic(&self) -> TopicId {
        self.topic
    }

    fn time(&self) -> Timestamp {
        self.time
    }

    fn key(&self) -> Option<&str> {
        Self::key(self)
    }

    fn trace(&self) -> Option<TraceContext> {
        Self::trace(self)
    }

    fn expires(&self) -> Option<Timestamp> {
        Self::expires(self)
    }

    fn run_cause(&self) -> Option<Cause> {
        Self::run_cause(self)
    }

    fn weight(&self) -> usize {
        self.weight as usize
    }

    fn payload_type(&self) -> &'static str {
        type_name::<T>()
    }

    fn any_payload(&self) -> &dyn Any {
        self.payload()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn into_dyn(self: Arc<Self>) -> Arc<dyn AnyEnvelope> {
        self
    }

    fn as_dyn(&self) -> &dyn AnyEnvelope {
        self
    }

    #[inline]
    fn empty(&mut self, _key: sealed::Key) {
        Self::empty(self);
    }

    #[inline]
    fn let_go(&mut self, _key: sealed::Key) -> u32 {
        if !is_plain_memory::<T>() {
            Self::empty(self);
            return 0;
        }
        // Not written if there is nothing to drop: the publisher's core still has the cache line.
        if self.extras.is_some() {
            self.extras = None;
        }
        self.weight
    }
}

impl dyn AnyEnvelope {
    /// The envelope with its type, if `T` is what it carries.
    ///
    /// # Errors
    /// The same `Arc`, when it carries something else.
    pub fn downcast<T: Send + Sync + 'static>(self: Arc<Self>) -> Result<Arc<Envelope<T>>, Arc<Self>> {
        if self.any_payload().type_id() != TypeId::of::<T>() {
            return Err(self);
        }
        Ok(self
            .into_any()
            .downcast()
            .expect("the payload's type was compared"))
    }
}

impl fmt::Debug for dyn AnyEnvelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("id", &self.id())
            .field("topic", &self.topic())
            .field("payload", &self.payload_type())
            .finish_non_exhaustive()
    }
}

/// Whether dropping a `T` only frees its own memory, so that nobody can tell when it happens. Known for a few types; any
/// other payload is dropped at once.
#[inline]
fn is_plain_memory<T: 'static>() -> bool {
    let this = TypeId::of::<T>();
    this == TypeId::of::<Vec<u8>>() || this == TypeId::of::<String>() || this == TypeId::of::<Box<[u8]>>()
}

/// The bytes that a payload of a well-known type holds; zero for all other types, for which a topic can be given its own
/// function.
pub(crate) fn bytes_held<T: 'static>(payload: &T) -> usize {
    let payload: &dyn Any = payload;
    if let Some(bytes) = payload.downcast_ref::<Vec<u8>>() {
        bytes.capacity()
    } else if let Some(bytes) = payload.downcast_ref::<Bytes>() {
        bytes.len()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.capacity()
    } else if let Some(text) = payload.downcast_ref::<Arc<str>>() {
        text.len()
    } else if let Some(bytes) = payload.downcast_ref::<Arc<[u8]>>() {
        bytes.len()
    } else if let Some(bytes) = payload.downcast_ref::<Box<[u8]>>() {
        bytes.len()
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope<T: 'static>(id: u64, headers: Headers, payload: T) -> Envelope<T> {
        let mark = Mark {
            id: EnvelopeId::from_bits(id).unwrap(),
            topic: TopicId(1),
            time: Timestamp::EPOCH,
        };
        Envelope::new(mark, headers, bytes_held, payload)
    }

    #[test]
    fn a_consequence_names_its_cause_and_keeps_the_correlation() {
        let first = envelope(1, Headers::new(), ());
        let second = envelope(2, Headers::new().caused_by(&first), ());
        let third = envelope(3, Headers::new().caused_by(&second), ());
        assert_eq!((first.correlation(), first.causation()), (first.id(), None));
        assert_eq!(
            (third.correlation(), third.causation()),
            (first.id(), Some(second.id()))
        );
    }

    #[test]
    fn what_a_run_publishes_names_the_run_beside_the_envelope_that_caused_it() {
        let run = millrun_core::RunId::new(millrun_core::Partition::of(b"r"), Timestamp::EPOCH, 1);
        let cause = Cause { run, operation: 4 };
        let first = envelope(1, Headers::new().caused_by_run(cause), ());
        let second = envelope(2, Headers::new().caused_by(&first), ());
        assert_eq!((first.run_cause(), first.causation()), (Some(cause), None));
        assert_eq!((second.run_cause(), second.causation()), (None, Some(first.id())));
    }

    #[test]
    fn the_header_of_bytes_fits_the_small_bins_of_an_allocator() {
        // With the two counters of the Arc it must stay below 120 bytes, where glibc's fast bins end.
        assert_eq!(size_of::<Envelope<Vec<u8>>>(), 72);
        assert_eq!(envelope(1, Headers::new(), vec![0_u8; 100]).weight(), 72 + 100);
    }

    #[test]
    fn only_plain_memory_may_wait_to_be_dropped() {
        fn waiting<T: Send + Sync + 'static>(payload: T) -> Option<u32> {
            let mut envelope = envelope(1, Headers::new().key("key"), payload);
            let weight = envelope.let_go(sealed::Key(()));
            assert!(envelope.extras.is_none());
            assert_eq!(envelope.payload.is_some(), weight == envelope.weight);
            (weight != 0).then_some(weight)
        }
        assert_eq!(waiting(vec![0_u8; 100]), Some(72 + 100));
        assert!(waiting(String::from("text")).is_some());
        assert!(waiting(Box::<[u8]>::from([1])).is_some());
        // Their drop may have visible effects.
        assert_eq!(waiting(Bytes::from_static(b"bytes")), None);
        assert_eq!(waiting(Arc::<str>::from("shared")), None);
        assert_eq!(waiting(vec![vec![0_u8; 100]]), None);
    }

    #[test]
    fn any_envelope_finds_its_type_again() {
        let any: Arc<dyn AnyEnvelope> = Arc::new(envelope(1, Headers::new(), 7_u32));
        let any = any.downcast::<u64>().unwrap_err();
        assert_eq!(any.downcast::<u32>().unwrap().payload(), &7);
    }
}
