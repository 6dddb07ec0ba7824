//! Histories as lines of JSON, version 1: for archives, exports and imports.
//!
//! ```text
//!   {"format":"millrun histories","version":1,"all_closed":true}
//!   {"run":"03af…","sequence":1,"time_us":1700000000000000,"kind":1,"id":"order-42","body":"aGVsbG8="}
//!   {"run":"03af…","sequence":2,"time_us":1700000000000009,"kind":7,"closes":true,"body":""}
//! ```
//!
//! The first line says whether every run in the file has finished, as in archives: one that does not
//! end there was cut off. Then one line per record; the records of a run follow one another, in order. `run` has 32 hexadecimal
//! digits, `time_us` is in microseconds since the Unix epoch, `id` stands in the first record of a run,
//! `closes` in the last one of a run that has finished. `kind` and `body` (base64, RFC 4648, section 4)
//! are the writer's. If the first record of a run has another `sequence` than 1, the run is trimmed before it, and
//! `kept` (base64) stands in the place of the records before; a release that does not know trimmed runs refuses
//! the line. A last line without its end is what a crash has left of it, and is ignored.

use millrun_core::{RunId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use crate::record::{Record, Trimmed};

const FORMAT: &str = "millrun histories";
const VERSION: u32 = 1;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    version: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    all_closed: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    run: String,
    sequence: u64,
    time_us: u64,
    kind: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    closes: bool,
    body: String,
}

/// One record, as a line says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineRecord {
    pub(crate) run: RunId,
    pub(crate) id: Option<String>,
    /// What stands in the place of the records before it.
    pub(crate) kept: Option<Vec<u8>>,
    pub(crate) record: Record,
}

/// The first line of a file.
pub(crate) fn put_header(out: &mut Vec<u8>, all_closed: bool) {
    let header = Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        all_closed,
    };
    put_json(out, &header);
}

/// Whether a first line says that all runs in the file have finished.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_header(line: &[u8]) -> Result<bool, String> {
    let header: Header =
        serde_json::from_slice(line).map_err(|error| format!("not a file of histories: {error}"))?;
    if header.format != FORMAT {
        Err(format!("not a file of histories, but of {}", header.format))
    } else if header.version == VERSION {
        Ok(header.all_closed)
    } else {
        Err(format!(
            "version {} is read by a later release only",
            header.version
        ))
    }
}

/// The line of a record; with the id, and what the run was trimmed of, for the first of its run.
pub(crate) fn put(out: &mut Vec<u8>, run: RunId, first: Option<(&str, Option<&Trimmed>)>, record: &Record) {
    let kept = first.and_then(|(_, trimmed)| trimmed);
    let line = Line {
        run: format!("{:032x}", run.bits()),
        sequence: record.sequence.get(),
        time_us: record.time.as_micros(),
        kind: record.kind,
        id: first.map(|(id, _)| id.to_owned()),
        kept: kept.map(|trimmed| base64(&trimmed.kept)),
        closes: record.closes,
        body: base64(&record.body),
    };
    put_json(out, &line);
}

/// # Errors
/// What is wrong with the line.
pub(crate) fn read(line: &[u8]) -> Result<LineRecord, String> {
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let run = u128::from_str_radix(&line.run, 16)
        .ok()
        .and_then(RunId::from_bits)
        .ok_or_else(|| format!("{} is no run", line.run))?;
    let body = from_base64(&line.body).ok_or("the body is not base64")?;
    let kept = line
        .kept
        .map(|kept| from_base64(&kept).ok_or("what is kept is not base64"));
    if kept.is_some() && line.id.is_none() {
        return Err("what is kept stands in the first line of a run, beside the id".to_owned());
    }
    Ok(LineRecord {
        run,
        id: line.id,
        kept: kept.transpose()?,
        record: Record {
            sequence: Sequence::new(line.sequence),
            kind: line.kind,
            time: Timestamp::from_micros(line.time_us),
            closes: line.closes,
            body: body.into(),
        },
    })
}

fn put_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(&mut *out, value).expect("plain values can always be written to memory");
    out.push(b'\n');
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            if digit <= chunk.len() {
                let index = usize::try_from((bits >> (18 - 6 * digit)) & 63).expect("six bits");
                text.push(char::from(DIGITS[index]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text
        .strip_suffix(b"==")
        .or_else(|| text.strip_suffix(b"="))
        .unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in digits.chunks(4) {
        let mut bits = 0_u32;
        for index in 0..4 {
            let digit = match chunk.get(index) {
                Some(b'A'..=b'Z') => chunk[index] - b'A',
                Some(b'a'..=b'z') => chunk[index] - b'a' + 26,
                Some(b'0'..=b'9') => chunk[index] - b'0' + 52,
                Some(b'+') => 62,
                Some(b'/') => 63,
                Some(_) => return None,
                None => 0,
            };
            bits = bits << 6 | u32::from(digit);
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrun_core::Partition;

    fn record(body: &[u8]) -> LineRecord {
        let partition = Partition::from_index(9).unwrap();
        LineRecord {
            run: RunId::new(partition, Timestamp::from_micros(3_000_000), 77),
            id: Some("order \"42\"\n".to_owned()),
            kept: body.len().is_multiple_of(3).then(|| body.to_vec()),
            record: Record {
                sequence: Sequence::new(1),
                kind: 200,
                time: Timestamp::from_micros(5),
                closes: body.len() % 2 == 1,
                body: bytes::Bytes::copy_from_slice(body),
            },
        }
    }

    #[test]
    fn a_line_reads_back_whatever_is_in_it() {
        for len in 0..40_u8 {
            let body: Vec<u8> = (0..len).map(|byte| byte.wrapping_mul(89)).collect();
            let given = record(&body);
            let mut line = Vec::new();
            let kept = given.kept.clone().map(bytes::Bytes::from);
            let trimmed = kept.map(|kept| Trimmed::new(given.record.sequence, kept));
            let first = given.id.as_deref().map(|id| (id, trimmed.as_ref()));
            put(&mut line, given.run, first, &given.record);
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(read(&line), Ok(given));
        }
    }

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(from_base64(text), Some(bytes.as_bytes().to_vec()));
        }
        for text in ["a", "ab=", "a*bc", "====", "a=bc"] {
            let decoded = from_base64(text);
            assert!(decoded.is_none_or(|bytes| bytes.is_empty()), "{text}");
        }
    }

    #[test]
    fn what_is_no_line_is_an_error() {
        for line in ["", "{}", "[1]", "{\"run\":\"zz\",\"sequence\":1}", "null"] {
            assert!(read(line.as_bytes()).is_err(), "{line}");
            assert!(read_header(line.as_bytes()).is_err(), "{line}");
        }
        assert!(read_header(b"{\"format\":\"millrun histories\",\"version\":2}").is_err());
        for all_closed in [true, false] {
            let mut header = Vec::new();
            put_header(&mut header, all_closed);
            assert_eq!(read_header(&header), Ok(all_closed));
        }
    }
}
