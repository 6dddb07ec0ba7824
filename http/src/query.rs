//! Parameters of a request: `after=12&limit=100`.

use crate::problem::Problem;

/// Events in a page if the request does not say.
const LIMIT: usize = 100;
/// The most that it may say.
const LIMIT_MAX: usize = 1_000;

/// Which page of a history is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageQuery {
    pub(crate) after: u64,
    pub(crate) limit: usize,
}

impl PageQuery {
    /// Reads a query. Values are decimal digits, so nothing is percent-encoded in one that is right.
    pub(crate) fn parse(query: &str) -> Result<Self, Problem> {
        let (mut after, mut limit) = (None, None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let wrong = |what: &str| Problem::new("invalid-query", format!("{name}: {what}"));
            let place = match name {
                "after" => &mut after,
                "limit" => &mut limit,
                _ => return Err(wrong("there is no such parameter; after and limit are")),
            };
            let is_digits = value.bytes().all(|byte| byte.is_ascii_digit());
            let number = value.parse::<u64>().ok().filter(|_| is_digits);
            let number = number.ok_or_else(|| wrong("a whole number below 2^64 is expected"))?;
            if place.replace(number).is_some() {
                return Err(wrong("it stands there twice"));
            }
        }
        let limit = match limit {
            None => LIMIT,
            Some(limit) => usize::try_from(limit)
                .ok()
                .filter(|limit| (1..=LIMIT_MAX).contains(limit))
                .ok_or_else(|| Problem::new("invalid-query", "limit: from 1 to 1000"))?,
        };
        let after = after.unwrap_or(0);
        Ok(Self { after, limit })
    }
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
        ] {
            assert_eq!(
                PageQuery::parse(query).unwrap(),
                PageQuery { after, limit },
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
            "limit=0",
            "limit=1001",
            "after=1&after=1",
            "before=1",
        ] {
            assert!(PageQuery::parse(query).is_err(), "{query}");
        }
    }
}
