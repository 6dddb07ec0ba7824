//! Histories as lines of JSON, version 1: for archives, exports and imports.
//!
//! ```text
//!   {"format":"millrun histories","version":1,"all_closed":true}
//!   {"run":"03af…","sequence":1,"time_us":1700000000000000,"kind":1,"id":"order-42","body":"aGVsbG8="}
//!   {"run":"03af…","sequence":2,"time_us":1700000000000009,"kind":7,"closes":true,"body":""}
//! ```
//!
//! The first line says whether every run in the file has finished, as in archives: a run without an end was cut off. Then one
//! line per record; the records of a run are consecutive and in order. `run` has 32 hexadecimal digits, `time_us` is in
//! microseconds since the Unix epoch, `id` is in the first record of a run, `closes` in the last one of a finished run. The
//! writer decides what `kind` and `body` (base64, RFC 4648, section 4) mean. If the first record of a run has another
//! `sequence` than 1, the run is trimmed before it, and `kept` (base64) replaces the earlier records; a release that does not
//! know trimmed runs refuses the line. A last line without a line end is what a crash has left of it, and is ignored.

use millrun_core::{RunId, Sequence, Timestamp, base64};
use serde::{Deserialize, Serialize};

use crate::record::{Record, Trimmed};

const FORMAT: &str = "millrun histories";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineHeader {
    format: String,
    version: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    all_closed: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonLine {
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

/// One record, from its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineRecord {
    pub(crate) run: RunId,
    pub(crate) id: Option<String>,
    /// What replaces the records before it.
    pub(crate) kept: Option<Vec<u8>>,
    pub(crate) record: Record,
}

/// The first line of a file.
pub(crate) fn put_header(out: &mut Vec<u8>, all_closed: bool) {
    let header = LineHeader {
        format: FORMAT.to_owned(),
        version: VERSION,
        all_closed,
    };
    put_json(out, &header);
}

/// Whether the first line says that all runs in the file have finished.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_header(line: &[u8]) -> Result<bool, String> {
    let header: LineHeader =
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
    let line = JsonLine {
        run: format!("{:032x}", run.bits()),
        sequence: record.sequence.get(),
        time_us: record.time.as_micros(),
        kind: record.kind,
        id: first.map(|(id, _)| id.to_owned()),
        kept: kept.map(|trimmed| base64::encode(&trimmed.kept)),
        closes: record.closes,
        body: base64::encode(&record.body),
    };
    put_json(out, &line);
}

/// # Errors
/// What is wrong with the line.
pub(crate) fn read(line: &[u8]) -> Result<LineRecord, String> {
    let line: JsonLine = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let run = u128::from_str_radix(&line.run, 16)
        .ok()
        .and_then(RunId::from_bits)
        .ok_or_else(|| format!("{} is no run", line.run))?;
    let body = base64::decode(&line.body).ok_or("the body is not base64")?;
    let kept = line
        .kept
        .map(|kept| base64::decode(&kept).ok_or("what is kept is not base64"));
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
