//! Parameters of a request: `after=12&limit=100`.

use std::time::Duration;

use axum::http::HeaderMap;
use millrun::Timestamp;
use millrun::operating::{RunCursor, RunCursorError, RunSearch, RunStatus, TimeRange};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::problem::Problem;

/// The length of a page by default.
const LIMIT: usize = 100;
/// The largest length of a page.
const LIMIT_MAX: usize = 1_000;

/// The longest time that a request may wait.
const WAIT_MS_MAX: u64 = 60_000;

/// The page that is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageQuery {
    /// The decoded cursor behind which the page begins.
    pub(crate) after: Option<String>,
    pub(crate) limit: usize,
}

impl PageQuery {
    /// Reads a query.
    pub(crate) fn parse(query: &str) -> Result<Self, Problem> {
        let [after, limit] = parameters(query, ["after", "limit"])?;
        let limit = page_limit(limit)?;
        Ok(Self { after, limit })
    }

    /// The number behind which the page begins; 0 by default.
    pub(crate) fn after_number(&self) -> Result<u64, Problem> {
        self.after
            .as_deref()
            .map_or(Ok(0), |after| number("after", after))
    }
}

/// The runs that are searched for, and the page of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FindQuery {
    pub(crate) filter: RunSearch,
    /// The cursor behind which the page begins.
    pub(crate) after: Option<RunCursor>,
    pub(crate) limit: usize,
}

impl FindQuery {
    /// Reads a query.
    pub(crate) fn parse(query: &str) -> Result<Self, Problem> {
        let [
            workflow,
            status,
            id_prefix,
            started_from,
            started_until,
            ended_from,
            ended_until,
            after,
            limit,
        ] = parameters(
            query,
            [
                "workflow",
                "status",
                "id_prefix",
                "started_from_us",
                "started_until_us",
                "ended_from_us",
                "ended_until_us",
                "after",
                "limit",
            ],
        )?;
        let mut filter = RunSearch::new().id_prefix(id_prefix.unwrap_or_default());
        filter.workflow = workflow;
        for name in status.iter().flat_map(|status| status.split(',')) {
            filter = filter.status(status_of(name).map_err(|what| wrong("status", &what))?);
        }
        filter.started = times("started", started_from, started_until)?;
        filter.ended = times("ended", ended_from, ended_until)?;
        Ok(Self {
            filter,
            after: cursor(after)?,
            limit: page_limit(limit)?,
        })
    }
}

/// The entities that are asked for.
#[derive(Debug)]
pub(crate) struct EntitiesQuery {
    /// The prefix of their keys.
    pub(crate) prefix: String,
    pub(crate) after: Option<RunCursor>,
    pub(crate) limit: usize,
}

impl EntitiesQuery {
    pub(crate) fn parse(query: &str) -> Result<Self, Problem> {
        let [prefix, after, limit] = parameters(query, ["prefix", "after", "limit"])?;
        Ok(Self {
            prefix: prefix.unwrap_or_default(),
            after: cursor(after)?,
            limit: page_limit(limit)?,
        })
    }
}

/// The page of bulks or schedules that is asked for: its cursor, and its length.
pub(crate) fn own_page(query: &str) -> Result<(Option<RunCursor>, usize), Problem> {
    let PageQuery { after, limit } = PageQuery::parse(query)?;
    Ok((cursor(after)?, limit))
}

fn cursor(after: Option<String>) -> Result<Option<RunCursor>, Problem> {
    let after = after.map(|after| after.parse()).transpose();
    after.map_err(|error: RunCursorError| wrong("after", &error.to_string()))
}

/// The status with this name.
pub(crate) fn status_of(name: &str) -> Result<RunStatus, String> {
    RunStatus::of_name(name).ok_or_else(|| {
        let all: Vec<_> = RunStatus::ALL.iter().map(|status| status.name()).collect();
        format!("{name:?} is none of {}", all.join(", "))
    })
}

/// The times of a range: from one on, before another.
fn times(name: &str, from: Option<String>, until: Option<String>) -> Result<TimeRange, Problem> {
    let mut times = TimeRange::default();
    if let Some(from) = from {
        times.from = Timestamp::from_micros(number(&format!("{name}_from_us"), &from)?);
    }
    if let Some(until) = until {
        times.until = Timestamp::from_micros(number(&format!("{name}_until_us"), &until)?);
    }
    Ok(times)
}

/// The same query for the next page.
pub(crate) fn next_of(query: &str, after: &str) -> String {
    let kept = query.split('&');
    let mut kept: Vec<_> = kept
        .filter(|parameter| !parameter.is_empty() && !parameter.starts_with("after="))
        .map(str::to_owned)
        .collect();
    kept.push(format!("after={}", encoded(after)));
    format!("?{}", kept.join("&"))
}

/// The number of the event at which a run is looked at, if it is not looked at as it is now.
pub(crate) fn at_event(query: &str) -> Result<Option<u64>, Problem> {
    let [at] = parameters(query, ["at"])?;
    at.map(|at| number("at", &at)).transpose()
}

/// The time after which samples are asked for, in microseconds; 0 by default.
pub(crate) fn past_after(query: &str) -> Result<u64, Problem> {
    let [after] = parameters(query, ["after"])?;
    after.map_or(Ok(0), |after| number("after", &after))
}

/// Where a stream begins, and how long it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StreamQuery {
    /// The id behind which the stream begins.
    pub(crate) after: Option<String>,
    /// The number of events that the client wants.
    pub(crate) limit: u64,
    /// Whether the client has had a part of the stream and resumes it.
    pub(crate) is_resumed: bool,
}

impl StreamQuery {
    /// Reads a query, and the header by which a client resumes; a browser sends the header along with the same query.
    pub(crate) fn parse(query: &str, headers: &HeaderMap) -> Result<Self, Problem> {
        let [after, limit] = parameters(query, ["after", "limit"])?;
        let limit = stream_limit(limit)?;
        let last = last_event_id(headers)?;
        Ok(Self {
            is_resumed: last.is_some(),
            after: last.map(str::to_owned).or(after),
            limit,
        })
    }

    /// The number behind which the stream begins; 0 by default.
    pub(crate) fn after_number(&self) -> Result<u64, Problem> {
        self.after
            .as_deref()
            .map_or(Ok(0), |after| number("after", after))
    }
}

/// The number of messages of a stream; unlimited by default.
pub(crate) fn stream_limit(limit: Option<String>) -> Result<u64, Problem> {
    let limit = limit.map_or(Ok(u64::MAX), |limit| number("limit", &limit))?;
    match limit {
        0 => Err(wrong("limit", "at least 1")),
        limit => Ok(limit),
    }
}

/// The id of the last message that a client has seen, from the header with which it resumes.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let last = headers.get("last-event-id").map(|last| last.to_str());
    last.transpose()
        .map_err(|_| wrong("last-event-id", "it is no text"))
}

/// How long a request may wait: `wait_ms`, zero by default.
pub(crate) fn wait(query: &str) -> Result<Duration, Problem> {
    wait_or(query, 0)
}

/// As [`wait`], with another default.
pub(crate) fn wait_or(query: &str, default_ms: u64) -> Result<Duration, Problem> {
    let [wait_ms] = parameters(query, ["wait_ms"])?;
    let wait_ms = wait_ms.map_or(Ok(default_ms), |wait_ms| number("wait_ms", &wait_ms))?;
    if wait_ms > WAIT_MS_MAX {
        return Err(wrong("wait_ms", "from 0 to 60000"));
    }
    Ok(Duration::from_millis(wait_ms))
}

/// The decoded values of these parameters. Other parameters, and repeated ones, are an error.
pub(crate) fn parameters<const N: usize>(
    query: &str,
    names: [&str; N],
) -> Result<[Option<String>; N], Problem> {
    let mut values = [const { None }; N];
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let Some(place) = names.iter().position(|known| *known == name) else {
            let known = names.join(", ");
            return Err(wrong(
                name,
                &format!("there is no such parameter; there are: {known}"),
            ));
        };
        if values[place].replace(decoded(name, value)?).is_some() {
            return Err(wrong(name, "it stands there twice"));
        }
    }
    Ok(values)
}

/// The length of a page.
pub(crate) fn page_limit(limit: Option<String>) -> Result<usize, Problem> {
    let Some(limit) = limit else {
        return Ok(LIMIT);
    };
    let limit = usize::try_from(number("limit", &limit)?).ok();
    let limit = limit.filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| wrong("limit", "from 1 to 1000"))
}

/// The link to the page behind this one.
pub(crate) fn next_page(after: &str, limit: usize) -> String {
    format!("?after={}&limit={limit}", encoded(after))
}

/// A text, encoded for a path or a query.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn decoded(name: &str, value: &str) -> Result<String, Problem> {
    // Forms and scripts write a space as a plus.
    let value = value.replace('+', " ");
    let text = percent_decode_str(&value).decode_utf8();
    let text = text.map_err(|_| wrong(name, "it is no UTF-8"))?;
    Ok(text.into_owned())
}

/// The value of a parameter that is a whole number.
pub(crate) fn number(name: &str, text: &str) -> Result<u64, Problem> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<u64>().ok().filter(|_| is_digits);
    number.ok_or_else(|| wrong(name, "a whole number below 2^64 is expected"))
}

/// The problem for an invalid parameter.
pub(crate) fn wrong(name: &str, what: &str) -> Problem {
    Problem::new("invalid-query", format!("{name}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_or_refused_as_a_whole() {
        for (query, after, limit) in [
            ("", 0, 100),
            ("after=7", 7, 100),
            ("limit=1000&after=18446744073709551615", u64::MAX, 1_000),
            ("&limit=1&", 0, 1),
            ("after=%37", 7, 100),
        ] {
            let page = PageQuery::parse(query).unwrap();
            assert_eq!(
                (page.after_number().unwrap(), page.limit),
                (after, limit),
                "{query}"
            );
        }
        for query in [
            "after",
            "after=",
            "after=-1",
            "after=%2B1",
            "after=+1",
            "after=18446744073709551616",
            "after=%FF",
            "limit=0",
            "limit=1001",
            "limit=",
            "after=1&after=1",
            "before=1",
        ] {
            let page = PageQuery::parse(query).and_then(|page| page.after_number());
            assert!(page.is_err(), "{query}");
        }
    }

    #[test]
    fn what_is_looked_for_is_read_and_its_next_page_is_of_the_same() {
        let query = "workflow=a%20b&status=failed,parked&id_prefix=o&started_from_us=5&limit=7";
        let found = FindQuery::parse(query).unwrap();
        assert_eq!(found.filter.workflow.as_deref(), Some("a b"));
        assert_eq!(found.filter.statuses, [RunStatus::Failed, RunStatus::Parked]);
        assert_eq!(found.filter.started.from, Timestamp::from_micros(5));
        assert_eq!((found.filter.ended, found.limit), (TimeRange::default(), 7));
        let next = next_of(&format!("after=f&{query}"), "f");
        let next = FindQuery::parse(next.strip_prefix('?').unwrap()).unwrap();
        assert_eq!((&next.filter, next.limit), (&found.filter, found.limit));
        assert!(next.after.is_some());
        for wrong in [
            "status=",
            "status=failed,",
            "status=busy",
            "after=x",
            "started_from_us=x",
            "limit=0",
        ] {
            assert!(FindQuery::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_stream_begins_where_the_client_has_been_last() {
        let mut headers = HeaderMap::new();
        let query = StreamQuery::parse("after=3&limit=2", &headers).unwrap();
        assert_eq!(
            (query.after_number().unwrap(), query.limit, query.is_resumed),
            (3, 2, false)
        );
        headers.insert("last-event-id", "7".parse().unwrap());
        let query = StreamQuery::parse("after=3", &headers).unwrap();
        assert_eq!(
            (query.after_number().unwrap(), query.limit, query.is_resumed),
            (7, u64::MAX, true)
        );
        for wrong in ["limit=0", "limit=x", "wait_ms=1"] {
            assert!(StreamQuery::parse(wrong, &headers).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wait_is_read_or_refused() {
        for (query, wait_ms) in [("", 7), ("wait_ms=0", 0), ("wait_ms=60000", 60_000)] {
            assert_eq!(
                wait_or(query, 7).unwrap(),
                Duration::from_millis(wait_ms),
                "{query}"
            );
        }
        for query in [
            "wait_ms",
            "wait_ms=60001",
            "wait_ms=-1",
            "wait_ms=1&wait_ms=1",
            "wait=1",
        ] {
            assert!(wait_or(query, 7).is_err(), "{query}");
        }
    }

    #[test]
    fn a_link_is_read_back() {
        for after in ["a", "a b&c=d", "ü/%+?#", "", "18446744073709551615"] {
            let link = next_page(after, 7);
            let page = PageQuery::parse(link.strip_prefix('?').unwrap()).unwrap();
            assert_eq!((page.after.as_deref(), page.limit), (Some(after), 7), "{link}");
        }
    }
}
