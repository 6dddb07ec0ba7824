//! Streams of server-sent events.

use std::error::Error;

use axum::body::Bytes;
use http_body_util::BodyExt as _;

use super::error::ClientError;
use super::options::{StreamOf, Tail};
use super::place::client;
use super::raw::Raw;
use super::wire::{Ask, Client, broken};
use super::{is_run, run_of, show};
use crate::outcome::Outcome;
use crate::output::{note, tell};
use crate::table::Table;

/// Prints what activities of a run send to an output stream, until the run ends; or lists its streams.
pub(super) async fn output(options: StreamOf) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&options.at).await?;
    let run = match is_run(&options.run) {
        true => options.run,
        false => run_of(&client, &options.run).await?,
    };
    let Some(name) = &options.name else {
        return list_streams(&client, &run, options.jsonl).await;
    };
    let after = options.after.map(|after| ("after", after));
    let limit = options.limit.map(|limit| ("limit", limit.to_string()));
    let ask = Ask {
        operation: "output",
        value: &run,
        second: name,
        query: after.into_iter().chain(limit).collect(),
        ..Ask::default()
    };
    print(&client, ask, |data| {
        match options.jsonl {
            true => tell(data)?,
            false => tell(show::chunk(&Raw::parse(data)?))?,
        }
        Ok(true)
    })
    .await
}

async fn list_streams(client: &Client, run: &str, jsonl: bool) -> Result<Outcome, Box<dyn Error>> {
    let ask = Ask {
        operation: "outputs",
        value: run,
        ..Ask::default()
    };
    let streams = Raw::parse(&client.ask(ask).await?)?.list_of("streams");
    if jsonl {
        for stream in &streams {
            tell(stream.json())?;
        }
        return Ok(Outcome::Complete);
    }
    let mut table = Table::of(["stream", "kept", "being sent"]);
    for stream in &streams {
        let is = |name| stream.text_of(name) == "true";
        table.row([
            stream.text_of("name"),
            if is("durable") { "durable" } else { "in memory" }.to_owned(),
            if is("sent_to") { "yes" } else { "no" }.to_owned(),
        ]);
    }
    tell(table)?;
    Ok(Outcome::Complete)
}

/// The most that one event may have.
const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Prints the events of a run until it ends, the messages of a topic, or the changes of the runs that are meant.
pub(super) async fn tail(options: Tail) -> Result<Outcome, Box<dyn Error>> {
    let is_of_one = options.topic.is_some() || options.run.is_some() || options.id.is_some();
    if is_of_one && !options.which.is_empty() {
        let why = "a filter is for what becomes of all runs\ntry: the filter alone, or an id, --run or --topic alone";
        return Err(ClientError::Usage(why.to_owned()).into());
    }
    let client = client(&options.at).await?;
    let (operation, value) = match (options.topic, options.run, &options.id) {
        (Some(topic), ..) => ("tail", topic),
        (_, Some(run), _) => ("events", run),
        (.., Some(id)) => ("events", run_of(&client, id).await?),
        (.., None) => ("changes", String::new()),
    };
    let shown = match operation {
        "tail" => show::message,
        "changes" => show::change,
        _ => show::event,
    };
    let is_filtered = operation == "changes" && !options.which.is_empty();
    let mut left = options.limit.filter(|_| is_filtered);
    let after = options.after.map(|after| ("after", after));
    // Of changes that are filtered here, the program does not know how many are wanted.
    let limit = options.limit.filter(|_| !is_filtered);
    let limit = limit.map(|limit| ("limit", limit.to_string()));
    let ask = Ask {
        operation,
        value: &value,
        query: after.into_iter().chain(limit).collect(),
        ..Ask::default()
    };
    print(&client, ask, |data| {
        let message = Raw::parse(data)?;
        if is_filtered && !options.which.has(&message) {
            return Ok(true);
        }
        match options.jsonl {
            true => tell(data)?,
            false => tell(shown(&message))?,
        }
        left = left.map(|left| left.saturating_sub(1));
        Ok(left != Some(0))
    })
    .await
}

/// Hands over the messages of a stream as they come, until that tells not to go on, or the stream has ended.
async fn print(
    client: &Client,
    ask: Ask<'_>,
    mut message: impl FnMut(&str) -> Result<bool, Box<dyn Error>>,
) -> Result<Outcome, Box<dyn Error>> {
    let mut body = client.stream(ask).await?;
    let mut events = Events::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        events.take(frame.into_data().unwrap_or_default())?;
        while let Some(event) = events.next()? {
            match &*event.kind {
                "" => {
                    if !message(&event.data)? {
                        return Ok(Outcome::Complete);
                    }
                }
                "end" => return Ok(Outcome::Complete),
                "problem" => {
                    let problem = Raw::parse(&event.data)?;
                    let why = problem.text_of("title");
                    return Err(ClientError::Answer(format!("the stream has ended: {why}")).into());
                }
                kind => note(format_args!("{kind}: {}", event.data)),
            }
        }
    }
    Ok(Outcome::Complete)
}

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SentEvent {
    pub(super) kind: String,
    pub(super) data: String,
}

/// What has come of a stream, and is no whole event yet.
#[derive(Debug, Default)]
pub(super) struct Events {
    bytes: Vec<u8>,
}

impl Events {
    pub(super) fn take(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.bytes.extend_from_slice(&bytes);
        if self.bytes.len() > EVENT_BYTES_MAX {
            return Err(ClientError::TooLarge(EVENT_BYTES_MAX));
        }
        Ok(())
    }

    /// The next event that is whole; comments are passed over.
    pub(super) fn next(&mut self) -> Result<Option<SentEvent>, ClientError> {
        while let Some(end) = self.bytes.windows(2).position(|two| two == b"\n\n") {
            let rest = self.bytes.split_off(end + 2);
            let block = std::mem::replace(&mut self.bytes, rest);
            let block = String::from_utf8(block);
            let block = block.map_err(|_| ClientError::Answer("an event is no UTF-8".to_owned()))?;
            let field = |name: &str| {
                let lines = block.lines().filter_map(|line| line.strip_prefix(name));
                let lines = lines.filter_map(|line| line.strip_prefix(": "));
                lines.collect::<Vec<_>>().join("\n")
            };
            let (kind, data) = (field("event"), field("data"));
            if !data.is_empty() {
                return Ok(Some(SentEvent { kind, data }));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_however_they_come() {
        let text = ":\n\nid: 1\ndata: {\"a\":1}\n\nevent: end\ndata: {\ndata: }\n\n:\n\n";
        for step in 1..=text.len() {
            let mut events = Events::default();
            let mut seen = Vec::new();
            for piece in text.as_bytes().chunks(step) {
                events.take(Bytes::copy_from_slice(piece)).unwrap();
                while let Some(event) = events.next().unwrap() {
                    seen.push((event.kind, event.data));
                }
            }
            let expected = [("", "{\"a\":1}"), ("end", "{\n}")];
            assert_eq!(
                seen,
                expected.map(|(kind, data)| (kind.to_owned(), data.to_owned()))
            );
        }
    }
}
