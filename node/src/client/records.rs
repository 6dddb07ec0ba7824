//! The records of a durable topic: those that are there, and with `--follow` those that come.
//!
//! ```text
//!   --from ──► pages of records, until the limit ──► table, lines
//!          └─► with --follow a tail ──► a line for each, as it becomes durable
//! ```

use std::error::Error;

use http_body_util::BodyExt as _;

use super::error::ClientError;
use super::follow::Events;
use super::moment::Moment;
use super::options::Records;
use super::place::client;
use super::raw::Raw;
use super::time::date_and_time;
use super::wire::{Ask, Client, broken};
use super::{PAGE, next_after, write_list};
use crate::outcome::Outcome;
use crate::output::{note, tell};
use crate::table::{Table, on_one_line};

/// How many records are shown if the command line does not say, where none are followed.
const LIMIT: u64 = 100;

/// Shows records of a topic.
pub(super) async fn records(options: Records) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&options.at).await?;
    let from = options.from.as_deref().map(place).unwrap_or_default();
    if options.follow {
        return follow(&client, &options, &from).await;
    }
    let shown = collected(&client, &options, &from).await?;
    write_list(&shown, options.form, table)?;
    if shown.1
        && let Some(last) = shown.0.last()
    {
        let token = last.text_of("token");
        note(format_args!("the next: --from {token}"));
    }
    Ok(Outcome::Complete)
}

/// A place as the API has it: a moment becomes microseconds, and all else is its own matter.
fn place(from: &str) -> String {
    match from.parse::<Moment>() {
        Ok(Moment(micros)) => micros.to_string(),
        Err(_) => from.to_owned(),
    }
}

/// The records that are there and wanted, up to the limit, and whether there are more.
async fn collected(client: &Client, options: &Records, from: &str) -> Result<(Vec<Raw>, bool), ClientError> {
    let limit = options.limit.unwrap_or(LIMIT);
    let mut place = (!from.is_empty()).then(|| ("from", from.to_owned()));
    let mut records = Vec::new();
    loop {
        // Of those that are filtered here, the program does not know how many are wanted.
        let left = limit.saturating_sub(records.len() as u64).min(PAGE);
        let page_len = if options.key.is_some() { PAGE } else { left.max(1) };
        let ask = Ask {
            operation: "records",
            value: &options.topic,
            query: [("limit", page_len.to_string())]
                .into_iter()
                .chain(place)
                .collect(),
            ..Ask::default()
        };
        let page = Raw::parse(&client.ask(ask).await?)?;
        for gap in page.list_of("gaps") {
            note(missing(&gap));
        }
        let wanted = page.list_of("records").into_iter();
        for record in wanted.filter(|record| is_wanted(record, options)) {
            if records.len() as u64 >= limit {
                return Ok((records, true));
            }
            records.push(record);
        }
        match next_after(&page)? {
            Some(_) if records.len() as u64 >= limit => return Ok((records, true)),
            Some(after) => place = Some(("after", after)),
            None => return Ok((records, false)),
        }
    }
}

fn is_wanted(record: &Raw, options: &Records) -> bool {
    let wanted = options.key.as_ref();
    wanted.is_none_or(|key| record.get("key").is_some_and(|it| it.text() == *key))
}

/// What is said of records that are missing.
fn missing(gap: &Raw) -> String {
    let [lost, after, why] = ["lost", "after", "why"].map(|name| gap.text_of(name));
    format!("{lost} records behind {after} are missing: {why}")
}

/// Prints records as they come, until the limit, Ctrl-C or the end of the program.
async fn follow(client: &Client, options: &Records, from: &str) -> Result<Outcome, Box<dyn Error>> {
    // A topic that is not durable has no records, which a page of them tells.
    let first = Ask {
        operation: "records",
        value: &options.topic,
        query: vec![("from", "now".to_owned()), ("limit", "1".to_owned())],
        ..Ask::default()
    };
    client.ask(first).await?;
    let from = if from.is_empty() { "beginning" } else { from };
    let mut query = vec![("from", from.to_owned())];
    if options.key.is_none() {
        query.extend(options.limit.map(|limit| ("limit", limit.to_string())));
    }
    let ask = Ask {
        operation: "tail",
        value: &options.topic,
        query,
        ..Ask::default()
    };
    let mut body = client.stream(ask).await?;
    let (mut events, mut left, mut last) = (Events::default(), options.limit, None);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ended(&broken(&error).to_string(), last.as_deref()))?;
        events.take(frame.into_data().unwrap_or_default())?;
        while let Some(event) = events.next()? {
            let data = Raw::parse(&event.data)?;
            match &*event.kind {
                "" => {
                    last = Some(data.text_of("token"));
                    if !is_wanted(&data, options) {
                        continue;
                    }
                    match options.form.json || options.form.jsonl {
                        true => tell(&event.data)?,
                        false => tell(line(&data))?,
                    }
                    left = left.map(|left| left.saturating_sub(1));
                    if left == Some(0) {
                        return Ok(Outcome::Complete);
                    }
                }
                "end" => return Ok(Outcome::Complete),
                "gap" => note(missing(&data)),
                "problem" => return Err(ended(&data.text_of("title"), last.as_deref()).into()),
                kind => note(format_args!("{kind}: {}", event.data)),
            }
        }
    }
    Err(ended("its connection was closed", last.as_deref()).into())
}

/// A stream of records has ended before it was to; it goes on behind the last one that was seen.
fn ended(why: &str, last: Option<&str>) -> ClientError {
    let goes_on = last.map(|token| format!("\ntry: --from {token}, which goes on behind the last record"));
    ClientError::Answer(format!(
        "the stream has ended: {why}{}",
        goes_on.unwrap_or_default()
    ))
}

fn row(record: &Raw) -> [String; 5] {
    let at = record.number_of("at_us").map_or_else(String::new, date_and_time);
    let [sequence, key, token, payload] =
        ["sequence", "key", "token", "payload"].map(|name| record.text_of(name));
    [sequence, at, key, token, payload]
}

fn table(records: &[Raw]) -> String {
    let mut table = Table::of(["record", "at (UTC)", "key", "token", "payload"]);
    for record in records {
        table.row(row(record));
    }
    table.to_string()
}

/// One record, as it comes.
fn line(record: &Raw) -> String {
    let [sequence, at, key, token, payload] = row(record);
    on_one_line(&format!("{sequence:>6}  {at}  {key}  {token}  {payload}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_becomes_a_number_and_all_else_is_left_as_it_is() {
        for (from, expected) in [
            ("1970-01-02", "86400000000"),
            ("beginning", "beginning"),
            ("now", "now"),
            ("last:20", "last:20"),
            ("AQAAAAAAAAAHAAAAAQAAAAAAAAAD", "AQAAAAAAAAAHAAAAAQAAAAAAAAAD"),
        ] {
            assert_eq!(place(from), expected);
        }
        let hour_ago: u64 = place("1h").parse().unwrap();
        assert!(hour_ago > 1_600_000_000_000_000, "{hour_ago}");
    }

    #[test]
    fn a_record_is_one_line_whatever_stands_in_it() {
        let record = serde_json::json!({
            "sequence": 7, "at_us": 0, "key": "a\nb", "token": "AQ", "payload": {"value": {"cents": 5}},
        });
        let record = Raw::parse(&record.to_string()).unwrap();
        assert_eq!(
            line(&record),
            "     7  1970-01-01 00:00:00.000  a\\nb  AQ  {\"cents\":5}"
        );
    }
}
