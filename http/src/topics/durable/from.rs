//! Where in a durable topic a page or a tail begins.

use axum::http::HeaderMap;
use millrun::Timestamp;
use millrun::topics::{ReadFrom, RecordToken, RecordTokenError};

use crate::problem::Problem;
use crate::query::{last_event_id, page_limit, parameters, stream_limit, wrong};

/// Which records are asked for: from a place on, up to a number of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordsQuery<L> {
    /// The place from which they begin, if the request names one.
    pub(super) from: Option<ReadFrom>,
    pub(super) limit: L,
}

impl RecordsQuery<usize> {
    /// Reads the query of a page.
    pub(super) fn of_page(query: &str) -> Result<Self, Problem> {
        let [after, from, limit] = parameters(query, ["after", "from", "limit"])?;
        let (from, limit) = (place(after, from)?, page_limit(limit)?);
        Ok(Self { from, limit })
    }
}

impl RecordsQuery<u64> {
    /// Reads the query of a tail, and the header by which a client resumes, which takes precedence.
    pub(super) fn of_tail(query: &str, headers: &HeaderMap) -> Result<Self, Problem> {
        let [after, from, limit] = parameters(query, ["after", "from", "limit"])?;
        let (from, limit) = (place(after, from)?, stream_limit(limit)?);
        let last = last_event_id(headers)?.map(behind).transpose()?;
        Ok(Self {
            from: last.or(from),
            limit,
        })
    }
}

fn place(after: Option<String>, from: Option<String>) -> Result<Option<ReadFrom>, Problem> {
    match (after, from) {
        (Some(_), Some(_)) => Err(wrong("from", "it does not go with after")),
        (Some(after), None) => behind(&after).map(Some),
        (None, Some(from)) => begins(&from).map(Some),
        (None, None) => Ok(None),
    }
}

/// Behind the record with this token.
fn behind(token: &str) -> Result<ReadFrom, Problem> {
    // Forms and scripts write a space for a plus; a token may contain a plus that a client has not encoded.
    let token: Result<RecordToken, _> = token.replace(' ', "+").parse();
    let token = token.map_err(|error: RecordTokenError| Problem::new("record-token", error.to_string()))?;
    Ok(ReadFrom::After(token))
}

fn begins(from: &str) -> Result<ReadFrom, Problem> {
    let is_number = from.bytes().all(|byte| byte.is_ascii_digit());
    match (from, from.parse()) {
        ("beginning", _) => Ok(ReadFrom::Beginning),
        ("now", _) => Ok(ReadFrom::Now),
        _ if let Some(len) = last_of(from) => Ok(ReadFrom::Last(len)),
        (_, Ok(micros)) if is_number => Ok(ReadFrom::Time(Timestamp::from_micros(micros))),
        _ => behind(from).map_err(|_| {
            let detail = format!(
                "from is {from:?}: beginning, now, last:N, a time in microseconds since 1970, or a token of a record is expected"
            );
            Problem::new("record-token", detail)
        }),
    }
}

/// The number in `last:N`, for the last records of a topic.
fn last_of(from: &str) -> Option<u64> {
    let len = from.strip_prefix("last:")?;
    let is_number = len.bytes().all(|byte| byte.is_ascii_digit());
    len.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "AQAAAAAAAAAHAAAAAQAAAAAAAAAD";

    fn after(token: &str) -> Option<ReadFrom> {
        Some(ReadFrom::After(token.parse().unwrap()))
    }

    #[test]
    fn a_place_is_read_or_refused() {
        // Its bytes are chosen so that its text has a plus.
        let plus = "AQAAAAAAAA+/AAAAAQAAAAAAAAAD";
        let at = Timestamp::from_micros(7);
        for (query, from, limit) in [
            (String::new(), None, 100),
            ("from=beginning".to_owned(), Some(ReadFrom::Beginning), 100),
            ("from=now&limit=7".to_owned(), Some(ReadFrom::Now), 7),
            ("from=7".to_owned(), Some(ReadFrom::Time(at)), 100),
            ("from=last:20".to_owned(), Some(ReadFrom::Last(20)), 100),
            (format!("from={TOKEN}"), after(TOKEN), 100),
            (format!("after={TOKEN}"), after(TOKEN), 100),
            (format!("after={plus}"), after(plus), 100),
            (format!("after={}", plus.replace('+', "%2B")), after(plus), 100),
        ] {
            let read = RecordsQuery::of_page(&query).unwrap();
            assert_eq!((read.from, read.limit), (from, limit), "{query}");
        }
        for (query, code) in [
            ("after=", "record-token"),
            ("after=7", "record-token"),
            ("after=beginning", "record-token"),
            ("from=", "record-token"),
            ("from=yesterday", "record-token"),
            ("from=last:", "record-token"),
            ("from=last:%2B7", "record-token"),
            ("from=18446744073709551616", "record-token"),
            ("from=now&after=7", "invalid-query"),
            ("from=now&limit=0", "invalid-query"),
            ("limit=1001", "invalid-query"),
            ("wait_ms=1", "invalid-query"),
        ] {
            let refused = RecordsQuery::of_page(query).unwrap_err();
            assert_eq!(refused.code(), code, "{query}");
        }
    }

    #[test]
    fn a_tail_goes_on_behind_the_last_record_that_its_client_has_seen() {
        let mut headers = HeaderMap::new();
        let tail = RecordsQuery::of_tail("from=beginning", &headers).unwrap();
        assert_eq!((tail.from, tail.limit), (Some(ReadFrom::Beginning), u64::MAX));
        headers.insert("last-event-id", TOKEN.parse().unwrap());
        let tail = RecordsQuery::of_tail("from=beginning&limit=2000", &headers).unwrap();
        assert_eq!((tail.from, tail.limit), (after(TOKEN), 2_000));
        headers.insert("last-event-id", "0000000000000007-3".parse().unwrap());
        let refused = RecordsQuery::of_tail("", &headers).unwrap_err();
        assert_eq!(refused.code(), "record-token");
    }
}
