//! Orders as lines of JSON: one object a line, from a file or standard input.
//!
//! A line that is not an order does not end the program: it is reported with its number, and the next one is read. Lines are
//! bounded, so that a file without line ends cannot fill the memory.

use std::io::{self, BufRead};

use millrun::InstanceId;
use serde::{Deserialize, Serialize};

/// How long a line may be, in bytes, its end not counted.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;
/// How many items one order may have.
const ITEMS_LEN_MAX: usize = 100;
/// The most one order may cost, in cents: far below where sums could overflow.
const PRICE_CENTS_MAX: u64 = 100_000_000;

/// What a customer sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// Names the instance: the same id is the same checkout, however often it is sent.
    pub(crate) id: String,
    pub(crate) customer: String,
    pub(crate) items: Vec<Item>,
    #[serde(default)]
    pub(crate) card: Card,
    #[serde(default)]
    pub(crate) address: Address,
    /// Large orders wait for a person's approval; this is what that person will say, if anything.
    #[serde(default)]
    pub(crate) approval: Option<Approval>,
}

/// Some pieces of one article.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item {
    pub(crate) article: String,
    pub(crate) pieces: u32,
    /// Of one piece.
    pub(crate) price_cents: u64,
}

/// How the customer's card behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Card {
    #[default]
    Valid,
    /// The provider is busy at the first two attempts.
    Busy,
    /// The provider says no, for good.
    Declined,
}

/// Where the parcel goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Address {
    #[default]
    Known,
    /// The courier gives the parcel back.
    Unknown,
}

/// The answer to a large order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Approval {
    Granted,
    Refused,
}

impl Order {
    /// What it costs. Within [`PRICE_CENTS_MAX`] for an order that was checked.
    pub(crate) fn price_cents(&self) -> u64 {
        let price = |item: &Item| item.price_cents.saturating_mul(u64::from(item.pieces));
        self.items.iter().map(price).fold(0, u64::saturating_add)
    }

    fn check(&self) -> Result<(), OrderError> {
        InstanceId::new(&self.id)?;
        match self.items.len() {
            0 => return Err(OrderError::NoItems),
            1..=ITEMS_LEN_MAX => {}
            len => return Err(OrderError::TooManyItems { len }),
        }
        if self.items.iter().any(|item| item.pieces == 0) {
            return Err(OrderError::NoPieces);
        }
        if self.price_cents() > PRICE_CENTS_MAX {
            return Err(OrderError::TooExpensive);
        }
        Ok(())
    }
}

/// Why a line is not an order.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    #[error("not an order: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the id cannot be used: {0}")]
    Id(#[from] millrun::InstanceIdError),
    #[error("an order needs at least one item")]
    NoItems,
    #[error("an order has at most {ITEMS_LEN_MAX} items, this one has {len}")]
    TooManyItems { len: usize },
    #[error("an item needs at least one piece")]
    NoPieces,
    #[error("an order costs at most {PRICE_CENTS_MAX} cents")]
    TooExpensive,
}

/// A line of input: its number, counted from 1, and what it held.
pub(crate) type NumberedOrder = (u64, Result<Order, OrderError>);

/// Reads orders line by line. Empty lines are skipped. Blocks.
#[derive(Debug)]
pub(crate) struct Orders<R> {
    input: R,
    line: u64,
}

impl<R: BufRead> Orders<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, line: 0 }
    }

    /// The next line that is not empty; `None` at the end.
    ///
    /// # Errors
    /// When the input itself fails. Do not read on then.
    pub(crate) fn next_order(&mut self) -> io::Result<Option<NumberedOrder>> {
        loop {
            let Some(line) = next_line(&mut self.input)? else {
                return Ok(None);
            };
            self.line += 1;
            let order = match line {
                Line::TooLong => Err(OrderError::LineTooLong),
                Line::Whole(bytes) if bytes.trim_ascii().is_empty() => continue,
                Line::Whole(bytes) => parse(&bytes),
            };
            return Ok(Some((self.line, order)));
        }
    }
}

fn parse(line: &[u8]) -> Result<Order, OrderError> {
    let order: Order = serde_json::from_slice(line)?;
    order.check()?;
    Ok(order)
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// The next line without its end; the part of a line beyond the limit is skipped.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let (mut is_begun, mut is_too_long) = (false, false);
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            break;
        }
        is_begun = true;
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        is_too_long |= line.len() + part.len() > LINE_BYTES_MAX;
        if !is_too_long {
            line.extend_from_slice(part);
        }
        let used = end.map_or(available.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            break;
        }
    }
    Ok(is_begun.then_some(if is_too_long {
        Line::TooLong
    } else {
        Line::Whole(line)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line that is not empty: its number, and the order's id or the error.
    fn read(input: &[u8]) -> Vec<(u64, Result<String, String>)> {
        // A small buffer, so that lines span several reads.
        let mut orders = Orders::new(io::BufReader::with_capacity(7, input));
        let mut lines = Vec::new();
        while let Some((line, order)) = orders.next_order().unwrap() {
            lines.push((
                line,
                order.map(|order| order.id).map_err(|error| error.to_string()),
            ));
        }
        lines
    }

    fn order(id: &str) -> String {
        format!(
            r#"{{"id":"{id}","customer":"ada","items":[{{"article":"tea","pieces":2,"price_cents":450}}]}}"#
        )
    }

    #[test]
    fn lines_are_numbered_and_empty_ones_passed_over() {
        let input = format!("{}\n\n  \r\n{}", order("a"), order("b"));
        assert_eq!(read(input.as_bytes()), [(1, Ok("a".into())), (4, Ok("b".into()))]);
    }

    #[test]
    fn a_bad_line_is_reported_and_the_next_one_read() {
        let input = format!("{{\"id\":\n{}\n\u{0}\n{}\n", order("a"), order("b"));
        let lines = read(input.as_bytes());
        assert_eq!(lines[1], (2, Ok("a".into())));
        assert!(
            lines[0].1.as_ref().unwrap_err().starts_with("not an order: EOF"),
            "{lines:?}"
        );
        assert!(lines[2].1.is_err());
        assert_eq!(lines[3], (4, Ok("b".into())));
    }

    #[test]
    fn an_endless_line_is_dropped_without_being_held() {
        let mut input = vec![b'x'; LINE_BYTES_MAX * 3];
        input.push(b'\n');
        input.extend_from_slice(order("a").as_bytes());
        let lines = read(&input);
        assert_eq!(lines[0], (1, Err(OrderError::LineTooLong.to_string())));
        assert_eq!(lines[1], (2, Ok("a".into())));
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_read() {
        let mut line = order("a");
        line.push_str(&" ".repeat(LINE_BYTES_MAX - line.len()));
        assert_eq!(read(line.as_bytes()), [(1, Ok("a".into()))]);
    }

    #[test]
    fn orders_that_make_no_sense_are_refused() {
        let changed = |from: &str, to: &str| order("a").replace(from, to);
        for (line, reason) in [
            (order(""), "the id cannot be used"),
            (order(&"x".repeat(256)), "the id cannot be used"),
            (
                changed("\"pieces\":2", "\"pieces\":0"),
                "an item needs at least one piece",
            ),
            (
                changed("\"price_cents\":450", "\"price_cents\":18446744073709551615"),
                "an order costs at most",
            ),
            (
                changed("\"price_cents\":450", "\"price_cents\":-1"),
                "not an order",
            ),
            (
                changed("\"customer\"", "\"costumer\""),
                "not an order: unknown field `costumer`",
            ),
        ] {
            let lines = read(line.as_bytes());
            assert!(
                lines[0].1.as_ref().unwrap_err().starts_with(reason),
                "{line}: {lines:?}"
            );
        }
    }

    #[test]
    fn the_example_file_is_read_without_errors() {
        let example = include_bytes!("../../../examples/data/orders.ndjson");
        let lines = read(example);
        assert!(lines.len() >= 6);
        assert!(lines.iter().all(|(_, order)| order.is_ok()), "{lines:?}");
    }
}
