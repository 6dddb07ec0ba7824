//! A record of a durable topic as bytes: the publisher's texts, and the payload.
//!
//! ```text
//!   version │ which │ key │ correlation │ content type │ cause        │ trace            │ record       │ payload
//!   1       │ bits  │ u16 + text, each               │ run 16, op 4 │ 16 + 8 + flags 1 │ 8 + 4 + 8    │ the rest
//! ```
//!
//! Numbers are little-endian. Between `which` and the payload are only the parts whose bits are set. Any bytes give a record
//! or an error.

use bytes::Bytes;
use millrun_core::{Cause, RunId, Sequence, SpanId, TraceContext, TraceId};
use millrun_persistence::TopicNumber;
use millrun_workflow::RECORD_TEXT_BYTES_MAX;

use super::token::RecordToken;

const VERSION: u8 = 1;

/// The most bytes before the payload.
pub(crate) const HEADER_BYTES_MAX: usize = 2 + 3 * (2 + RECORD_TEXT_BYTES_MAX) + 20 + 25 + RECORD_BYTES;

/// Store, topic and sequence of a record.
const RECORD_BYTES: usize = 8 + 4 + 8;

const KEY: u8 = 1;
const CORRELATION: u8 = 1 << 1;
const CONTENT_TYPE: u8 = 1 << 2;
const CAUSE: u8 = 1 << 3;
const TRACE: u8 = 1 << 4;
const RECORD: u8 = 1 << 5;
const KNOWN: u8 = KEY | CORRELATION | CONTENT_TYPE | CAUSE | TRACE | RECORD;

/// The header of a record: everything beside its payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredHeader<S = Box<str>> {
    pub(crate) key: Option<S>,
    pub(crate) correlation: Option<S>,
    pub(crate) content_type: Option<S>,
    pub(crate) cause: Option<Cause>,
    pub(crate) trace: Option<TraceContext>,
    /// The record that it was made from: one that is buried here, or sent back.
    pub(crate) record: Option<RecordToken>,
}

/// Why bytes are not a record of a durable topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoredRecordError {
    #[error("it has no bytes")]
    Empty,
    #[error("its format has version {0}, this program knows version {VERSION}")]
    Version(u8),
    #[error("it says something that this program does not know: bits {0:#010b}")]
    Unknown(u8),
    #[error("it ends within what is said before its payload")]
    Short,
    #[error("a text before its payload has {bytes} bytes, at most {RECORD_TEXT_BYTES_MAX} are allowed")]
    TextTooLong { bytes: usize },
    #[error("a text before its payload is not UTF-8")]
    Text,
    #[error("the run that caused it is none")]
    Cause,
    #[error("its place in a distributed trace is none")]
    Trace,
}

impl<S: AsRef<str>> StoredHeader<S> {
    /// The bytes before the payload. Each text has at most [`RECORD_TEXT_BYTES_MAX`] bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_before(&[])
    }

    /// The same, followed by the payload.
    pub(crate) fn encode_before(&self, payload: &[u8]) -> Vec<u8> {
        let texts = [&self.key, &self.correlation, &self.content_type];
        let len: usize = texts
            .iter()
            .copied()
            .flatten()
            .map(|text| 2 + text.as_ref().len())
            .sum();
        let mut bytes = Vec::with_capacity(2 + len + 20 + 25 + payload.len());
        let mut which = 0;
        for (text, bit) in texts.iter().zip([KEY, CORRELATION, CONTENT_TYPE]) {
            which |= if text.is_some() { bit } else { 0 };
        }
        which |= if self.cause.is_some() { CAUSE } else { 0 };
        which |= if self.trace.is_some() { TRACE } else { 0 };
        which |= if self.record.is_some() { RECORD } else { 0 };
        bytes.extend([VERSION, which]);
        for text in texts.into_iter().flatten() {
            let text = text.as_ref().as_bytes();
            let len = u16::try_from(text.len()).expect("texts of a record are checked before");
            bytes.extend(len.to_le_bytes());
            bytes.extend(text);
        }
        if let Some(Cause { run, operation }) = self.cause {
            bytes.extend(run.bits().to_le_bytes());
            bytes.extend(operation.to_le_bytes());
        }
        if let Some(trace) = &self.trace {
            bytes.extend(trace.trace_id().bits().to_le_bytes());
            bytes.extend(trace.span_id().bits().to_le_bytes());
            bytes.push(trace.flags());
        }
        if let Some(record) = self.record {
            bytes.extend(record.store().to_le_bytes());
            bytes.extend(record.topic().get().to_le_bytes());
            bytes.extend(record.sequence().get().to_le_bytes());
        }
        bytes.extend_from_slice(payload);
        bytes
    }
}

impl<'a> StoredHeader<&'a str> {
    /// Reads the header from a record's bytes, without copying, and returns the bytes of the payload.
    pub(crate) fn read(body: &'a [u8]) -> Result<(Self, &'a [u8]), StoredRecordError> {
        let mut left = UnreadHeader(body);
        let version = left.array::<1>().map_err(|_| StoredRecordError::Empty)?[0];
        if version != VERSION {
            return Err(StoredRecordError::Version(version));
        }
        let which = left.array::<1>()?[0];
        if which & !KNOWN != 0 {
            return Err(StoredRecordError::Unknown(which & !KNOWN));
        }
        let has = |bit: u8| which & bit != 0;
        let mut text = |bit| has(bit).then(|| left.text()).transpose();
        let (key, correlation, content_type) = (text(KEY)?, text(CORRELATION)?, text(CONTENT_TYPE)?);
        let cause = has(CAUSE).then(|| left.cause()).transpose()?;
        let trace = has(TRACE).then(|| left.trace()).transpose()?;
        let record = has(RECORD).then(|| left.record()).transpose()?;
        let header = Self {
            key,
            correlation,
            content_type,
            cause,
            trace,
            record,
        };
        Ok((header, left.0))
    }
}

impl StoredHeader {
    /// Decodes the header, and returns the payload, which shares the memory of `body`.
    pub(crate) fn decode(body: &Bytes) -> Result<(Self, Bytes), StoredRecordError> {
        let (header, payload) = StoredHeader::read(body)?;
        let payload = body.slice(body.len() - payload.len()..);
        let header = Self {
            key: header.key.map(Into::into),
            correlation: header.correlation.map(Into::into),
            content_type: header.content_type.map(Into::into),
            cause: header.cause,
            trace: header.trace,
            record: header.record,
        };
        Ok((header, payload))
    }
}

/// The rest of a header.
struct UnreadHeader<'a>(&'a [u8]);

impl<'a> UnreadHeader<'a> {
    fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], StoredRecordError> {
        let (array, left) = self.0.split_first_chunk().ok_or(StoredRecordError::Short)?;
        self.0 = left;
        Ok(*array)
    }

    fn text(&mut self) -> Result<&'a str, StoredRecordError> {
        let bytes = usize::from(u16::from_le_bytes(self.array()?));
        if bytes > RECORD_TEXT_BYTES_MAX {
            return Err(StoredRecordError::TextTooLong { bytes });
        }
        let (text, left) = self.0.split_at_checked(bytes).ok_or(StoredRecordError::Short)?;
        self.0 = left;
        std::str::from_utf8(text).map_err(|_| StoredRecordError::Text)
    }

    fn cause(&mut self) -> Result<Cause, StoredRecordError> {
        let run = RunId::from_bits(u128::from_le_bytes(self.array()?)).ok_or(StoredRecordError::Cause)?;
        let operation = u32::from_le_bytes(self.array()?);
        Ok(Cause { run, operation })
    }

    fn record(&mut self) -> Result<RecordToken, StoredRecordError> {
        let store = u64::from_le_bytes(self.array()?);
        let topic = TopicNumber::new(u32::from_le_bytes(self.array()?));
        let sequence = Sequence::new(u64::from_le_bytes(self.array()?));
        Ok(RecordToken::new(store, topic, sequence))
    }

    fn trace(&mut self) -> Result<TraceContext, StoredRecordError> {
        let trace = TraceId::from_bits(u128::from_le_bytes(self.array()?));
        let span = SpanId::from_bits(u64::from_le_bytes(self.array()?));
        let [flags] = self.array()?;
        let (trace, span) = trace.zip(span).ok_or(StoredRecordError::Trace)?;
        let context = TraceContext::new(trace, span, flags);
        // Unknown flags would be lost.
        if context.flags() == flags {
            Ok(context)
        } else {
            Err(StoredRecordError::Trace)
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, Timestamp};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Option<Box<str>>> {
        option::of(".{0,40}".prop_map(Box::from))
    }

    fn cause() -> impl Strategy<Value = Cause> {
        let partition = (0..Partition::COUNT).prop_map(|index| Partition::from_index(index).unwrap());
        (partition, any::<u64>(), any::<u32>()).prop_map(|(partition, unique, operation)| Cause {
            run: RunId::new(partition, Timestamp::EPOCH, unique),
            operation,
        })
    }

    fn header() -> impl Strategy<Value = StoredHeader> {
        let trace = cause().prop_map(|cause| TraceContext::beginning_with(cause.run).at_operation(cause));
        let record = (any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(store, topic, sequence)| {
            RecordToken::new(store, TopicNumber::new(topic), Sequence::new(sequence))
        });
        let parts = (
            text(),
            text(),
            text(),
            option::of(cause()),
            option::of(trace),
            option::of(record),
        );
        parts.prop_map(
            |(key, correlation, content_type, cause, trace, record)| StoredHeader {
                key,
                correlation,
                content_type,
                cause,
                trace,
                record,
            },
        )
    }

    fn bytes_of(header: &StoredHeader, payload: &[u8]) -> Bytes {
        let bytes = header.encode_before(payload);
        assert!(bytes.len() <= HEADER_BYTES_MAX + payload.len());
        bytes.into()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(header in header(), payload in vec(any::<u8>(), 0..40)) {
            let bytes = bytes_of(&header, &payload);
            prop_assert_eq!(StoredHeader::decode(&bytes), Ok((header, payload.into())));
        }

        #[test]
        fn any_bytes_come_to_a_record_that_is_written_alike_or_to_an_error(
            header in header(),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = bytes_of(&header, b"payload").to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            let bytes = Bytes::from(bytes);
            if let Ok((header, payload)) = StoredHeader::decode(&bytes) {
                prop_assert_eq!(bytes_of(&header, &payload), bytes);
            }
        }
    }

    #[test]
    fn each_kind_of_damage_has_its_error() {
        let long = u16::try_from(RECORD_TEXT_BYTES_MAX + 1).unwrap().to_le_bytes();
        let no_run = [&[1, CAUSE][..], &[0xff; 20]].concat();
        for (bytes, expected) in [
            (&[][..], StoredRecordError::Empty),
            (&[2, 0], StoredRecordError::Version(2)),
            (&[1], StoredRecordError::Short),
            (&[1, 0b1110_0000], StoredRecordError::Unknown(0b1100_0000)),
            (&[1, RECORD, 1, 2], StoredRecordError::Short),
            (&[1, KEY, 3, 0, b'a'], StoredRecordError::Short),
            (&[1, KEY, 1, 0, 0xff], StoredRecordError::Text),
            (
                &[1, KEY, long[0], long[1]],
                StoredRecordError::TextTooLong {
                    bytes: RECORD_TEXT_BYTES_MAX + 1,
                },
            ),
            (&no_run, StoredRecordError::Cause),
            (&[&[1, TRACE][..], &[0; 25]].concat(), StoredRecordError::Trace),
        ] {
            assert_eq!(
                StoredHeader::decode(&Bytes::copy_from_slice(bytes)),
                Err(expected),
                "{bytes:?}"
            );
        }
    }
}
