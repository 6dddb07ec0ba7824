//! Where something stands in a distributed trace, and the spans that a run has there.
//!
//! ```text
//!   traceparent of a caller ─► TraceContext ─► first event of a run ─► its span, and one for each operation
//!                              trace, span,                            ids made of the run and the operation
//!                              flags
//! ```
//!
//! Invariant: the id of a span follows from the run and the operation alone. A replay, a crash or another process
//! gives the same one, so that what is exported twice is the same span twice.
//!
//! Left out: `tracestate`, the other header of the W3C recommendation, which carries what vendors tell each other.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};
use std::str::FromStr;

use crate::{Cause, RunId, Sequence};

/// The id that all spans of one trace share. As text it has 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(NonZeroU128);

impl TraceId {
    /// The id with these bits; `None` if all are zero, which names no trace.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Option<Self> {
        match NonZeroU128::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// All 128 bits.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0.get()
    }

    /// The id of a trace that begins with a run: the bits of the run's own id, so that one is found by the other.
    #[must_use]
    pub const fn of_run(run: RunId) -> Self {
        match NonZeroU128::new(run.bits()) {
            Some(bits) => Self(bits),
            // Of the first partition, at the epoch, with the number 0: no clock and no dice give it.
            None => Self(NonZeroU128::MIN),
        }
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

/// The id of a span within its trace. As text it has 16 lower-case hexadecimal digits.
///
/// ```
/// use millrun_core::{Cause, Partition, RunId, SpanId, Timestamp};
///
/// let run = RunId::new(Partition::of(b"order-42"), Timestamp::EPOCH, 7);
/// let payment = Cause { run, operation: 3 };
/// assert_eq!(SpanId::of_operation(payment), SpanId::of_operation(payment));
/// assert_ne!(SpanId::of_operation(payment), SpanId::of_run(run));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(NonZeroU64);

/// What a span is of, in the bits that its id is made of.
const RUN: u64 = 1 << 56;
const OPERATION: u64 = 2 << 56;
const UPDATE: u64 = 3 << 56;

impl SpanId {
    /// The id with these bits; `None` if all are zero, which names no span.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// All 64 bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.get()
    }

    /// The span of a run.
    #[must_use]
    pub const fn of_run(run: RunId) -> Self {
        Self::of(run, RUN)
    }

    /// The span of an operation of a run: of all attempts of an activity, since an attempt that a crash cut off
    /// stands in no history, and what it has called needs a parent that is exported.
    #[must_use]
    pub const fn of_operation(cause: Cause) -> Self {
        Self::of(cause.run, OPERATION | cause.operation as u64)
    }

    /// The span of an update of a run, which is let in by the event with this number.
    #[must_use]
    pub const fn of_update(run: RunId, accepted: Sequence) -> Self {
        Self::of(run, UPDATE | (accepted.get() & (RUN - 1)))
    }

    const fn of(run: RunId, what: u64) -> Self {
        let [a, b, c, d, e, f, g, h, low @ ..] = run.bits().to_be_bytes();
        let high = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let mixed = mix(mix(mix(0, high), u64::from_be_bytes(low)), what);
        match NonZeroU64::new(mixed) {
            Some(bits) => Self(bits),
            None => Self(NonZeroU64::MAX),
        }
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014) over what was
/// mixed before and the next word. What it gives is exported, and so it never changes.
const fn mix(before: u64, word: u64) -> u64 {
    let z = (before ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

/// A place in a distributed trace, as the W3C header `traceparent` tells it: the trace, a span in it, and flags.
///
/// As text it is the value of that header, which it is also read from:
///
/// ```
/// use millrun_core::TraceContext;
///
/// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let trace: TraceContext = header.parse()?;
/// assert_eq!(trace.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// assert!(trace.is_sampled());
/// assert_eq!(trace.to_string(), header);
/// # Ok::<(), millrun_core::TraceContextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace: TraceId,
    span: SpanId,
    flags: u8,
}

/// The trace is recorded.
const SAMPLED: u8 = 1;

/// The flags that version `00` of the header has; the others must be zero.
const FLAGS: u8 = 0b11;

/// How long a header of version `00` is.
const HEADER_LEN: usize = 55;

impl TraceContext {
    /// A place in a trace. Of the flags, bit 0 says that the trace is recorded ("sampled"), bit 1 that its id is
    /// random; others are dropped, as the recommendation has it.
    #[must_use]
    pub const fn new(trace: TraceId, span: SpanId, flags: u8) -> Self {
        let flags = flags & FLAGS;
        Self { trace, span, flags }
    }

    /// The place of a run whose trace begins with it, and is recorded: it has the run's own span.
    #[must_use]
    pub const fn beginning_with(run: RunId) -> Self {
        Self::new(TraceId::of_run(run), SpanId::of_run(run), SAMPLED)
    }

    /// The trace.
    #[must_use]
    pub const fn trace_id(&self) -> TraceId {
        self.trace
    }

    /// The span: that of the caller, for one who is called.
    #[must_use]
    pub const fn span_id(&self) -> SpanId {
        self.span
    }

    /// The flags: bit 0 says "sampled", bit 1 that the id of the trace is random.
    #[must_use]
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether the caller has the trace recorded.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The same trace, at the span of an operation: what the operation hands to those whom it calls.
    #[must_use]
    pub const fn at_operation(self, cause: Cause) -> Self {
        Self::new(self.trace, SpanId::of_operation(cause), self.flags)
    }
}

impl fmt::Display for TraceContext {
    /// The value of a `traceparent` header of version `00`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// A text that is no `traceparent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContextError;

impl fmt::Display for TraceContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is no traceparent header")
    }
}

impl std::error::Error for TraceContextError {}

impl FromStr for TraceContext {
    type Err = TraceContextError;

    /// Reads a header as the recommendation asks for: a version that is not known yet may have more behind the flags,
    /// and of its flags those are taken that are known.
    fn from_str(header: &str) -> Result<Self, TraceContextError> {
        let (known, more) = header
            .as_bytes()
            .split_at_checked(HEADER_LEN)
            .ok_or(TraceContextError)?;
        let [v1, v2, b'-', rest @ ..] = known else {
            return Err(TraceContextError);
        };
        let is_whole = match [v1, v2] {
            [b'0', b'0'] => more.is_empty(),
            [b'f', b'f'] => false,
            _ => more.first().is_none_or(|next| *next == b'-'),
        };
        let (trace, rest) = rest.split_at(32);
        let [b'-', rest @ ..] = rest else {
            return Err(TraceContextError);
        };
        let (span, rest) = rest.split_at(16);
        let [b'-', flags @ ..] = rest else {
            return Err(TraceContextError);
        };
        let version = number(&[*v1, *v2]);
        let trace = number(trace).and_then(TraceId::from_bits);
        let span = number(span).and_then(|span| SpanId::from_bits(u64::try_from(span).ok()?));
        let flags = number(flags).and_then(|flags| u8::try_from(flags).ok());
        match (version, trace, span, flags) {
            (Some(_), Some(trace), Some(span), Some(flags)) if is_whole => Ok(Self::new(trace, span, flags)),
            _ => Err(TraceContextError),
        }
    }
}

/// The number that these lower-case hexadecimal digits are, up to 32.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Partition, Timestamp};

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_header_of_a_version_to_come_is_read_as_far_as_it_is_known() {
        let check = |header: &str, expected: Option<&str>| {
            let read = header.parse::<TraceContext>().ok();
            assert_eq!(
                read.map(|trace| trace.to_string()).as_deref(),
                expected,
                "{header:?}"
            );
        };
        let [recorded, not, random] = ["01", "00", "03"].map(|flags| format!("00-{TRACE}-{SPAN}-{flags}"));
        check(&recorded, Some(&recorded));
        check(&not, Some(&not));
        check(&random, Some(&random));
        check(&format!("00-{TRACE}-{SPAN}-ff"), Some(&random));
        check(&format!("cc-{TRACE}-{SPAN}-01"), Some(&recorded));
        check(&format!("cc-{TRACE}-{SPAN}-09-what"), Some(&recorded));
    }

    #[test]
    fn what_is_written_is_read_back() {
        for number in 0..10_000_u64 {
            let [high, low, span] = [1, 2, 3].map(|what| mix(number, what));
            let trace = TraceId::from_bits(u128::from(high) << 64 | u128::from(low));
            let (trace, span) = trace.zip(SpanId::from_bits(span)).expect("chance gives no zero");
            let context = TraceContext::new(trace, span, span.bits().to_be_bytes()[0]);
            assert_eq!(context.to_string().parse(), Ok(context));
        }
    }

    #[test]
    fn a_text_that_is_no_header_is_an_error() {
        let zero = "0".repeat(32);
        for header in [
            String::new(),
            "00".into(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-01-what"),
            format!("00-{TRACE}-{SPAN}-01 "),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("cc-{TRACE}-{SPAN}-01.what"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0g-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{zero}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zero[..16]),
            format!("00-{TRACE}-{SPAN}-0x"),
            format!("00_{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}_{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}_01"),
            format!("00-{}ü-{SPAN}-01", &TRACE[..30]),
            "ü".repeat(28),
        ] {
            assert_eq!(
                header.parse::<TraceContext>(),
                Err(TraceContextError),
                "{header:?}"
            );
        }
    }

    /// They are in the collectors of those who use millrun: a run that is exported again has them.
    #[test]
    fn the_ids_of_spans_never_change() {
        let run = RunId::new(
            Partition::of(b"order-42"),
            Timestamp::from_micros(1_700_000_000_123_456),
            7,
        );
        let cause = |operation| Cause { run, operation };
        let ids = [
            SpanId::of_run(run),
            SpanId::of_operation(cause(0)),
            SpanId::of_operation(cause(1)),
            SpanId::of_update(run, Sequence::new(1)),
        ];
        let expected = [
            "d4c39f3ba4547109",
            "ce78b22574491893",
            "7b648e1da872f96a",
            "0132deb7b3a2cde8",
        ];
        assert_eq!(ids.map(|id| id.to_string()), expected);
        assert_eq!(TraceId::of_run(run).to_string(), run.to_string());
        let nothing = RunId::from_bits(0).expect("it is of the first partition");
        assert_eq!(TraceId::of_run(nothing).bits(), 1);
    }
}
