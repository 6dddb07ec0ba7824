//! Parameters of a request: `after=12&limit=100`.

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::problem::Problem;

/// How much a page has if the request does not say.
const LIMIT: usize = 100;
/// The most that it may say.
const LIMIT_MAX: usize = 1_000;

/// Which page is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageQuery {
    /// Behind what the page begins; decoded.
    pub(crate) after: Option<String>,
    pub(crate) limit: usize,
}

impl PageQuery {
    /// Reads a query.
    pub(crate) fn parse(query: &str) -> Result<Self, Problem> {
        let (mut after, mut limit) = (None, None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let place = match name {
                "after" => &mut after,
                "limit" => &mut limit,
                _ => return Err(wrong(name, "there is no such parameter; after and limit are")),
            };
            if place.replace(decoded(name, value)?).is_some() {
                return Err(wrong(name, "it stands there twice"));
            }
        }
        let limit = match limit {
            None => LIMIT,
            Some(limit) => {
                let limit = number("limit", &limit)?;
                let limit = usize::try_from(limit).ok();
                let limit = limit.filter(|limit| (1..=LIMIT_MAX).contains(limit));
                limit.ok_or_else(|| wrong("limit", "from 1 to 1000"))?
            }
        };
        Ok(Self { after, limit })
    }

    /// The number behind which the page begins; 0 if the request does not say.
    pub(crate) fn after_number(&self) -> Result<u64, Problem> {
        self.after
            .as_deref()
            .map_or(Ok(0), |after| number("after", after))
    }
}

/// The link to the page behind this one.
pub(crate) fn next_page(after: &str, limit: usize) -> String {
    format!("?after={}&limit={limit}", encoded(after))
}

/// A text as it stands in a path or a query.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn decoded(name: &str, value: &str) -> Result<String, Problem> {
    // As forms and scripts write a space.
    let value = value.replace('+', " ");
    let text = percent_decode_str(&value).decode_utf8();
    let text = text.map_err(|_| wrong(name, "it is no UTF-8"))?;
    Ok(text.into_owned())
}

fn number(name: &str, text: &str) -> Result<u64, Problem> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<u64>().ok().filter(|_| is_digits);
    number.ok_or_else(|| wrong(name, "a whole number below 2^64 is expected"))
}

fn wrong(name: &str, what: &str) -> Problem {
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
    fn a_link_is_read_back() {
        for after in ["a", "a b&c=d", "ü/%+?#", "", "18446744073709551615"] {
            let link = next_page(after, 7);
            let page = PageQuery::parse(link.strip_prefix('?').unwrap()).unwrap();
            assert_eq!((page.after.as_deref(), page.limit), (Some(after), 7), "{link}");
        }
    }
}
