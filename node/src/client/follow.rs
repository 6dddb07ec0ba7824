//! Streams of server-sent events.

use std::error::Error;

use axum::body::Bytes;
use http_body_util::BodyExt as _;

use super::error::ClientError;
use super::options::Tail;
use super::place::client;
use super::raw::Raw;
use super::wire::{Ask, broken};
use super::{run_of, show};
use crate::outcome::Outcome;
use crate::output::{note, tell};

/// The most that one event may have.
const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Prints the events of a run until it ends, or the messages of a topic.
pub(super) async fn tail(options: Tail) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&options.at).await?;
    let (operation, value) = match (options.topic, options.run, &options.id) {
        (Some(topic), ..) => ("tail", topic),
        (_, Some(run), _) => ("events", run),
        (.., id) => (
            "events",
            run_of(&client, id.as_deref().unwrap_or_default()).await?,
        ),
    };
    let shown = if operation == "tail" {
        show::message
    } else {
        show::event
    };
    let after = options.after.map(|after| ("after", after));
    let limit = options.limit.map(|limit| ("limit", limit.to_string()));
    let ask = Ask {
        operation,
        value: &value,
        query: after.into_iter().chain(limit).collect(),
        ..Ask::default()
    };
    let mut body = client.stream(ask).await?;
    let mut events = Events::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        events.take(frame.into_data().unwrap_or_default())?;
        while let Some(event) = events.next()? {
            match &*event.kind {
                "" if options.jsonl => tell(&event.data)?,
                "" => tell(shown(&Raw::parse(&event.data)?))?,
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
struct SentEvent {
    kind: String,
    data: String,
}

/// What has come of a stream, and is no whole event yet.
#[derive(Debug, Default)]
struct Events {
    bytes: Vec<u8>,
}

impl Events {
    fn take(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.bytes.extend_from_slice(&bytes);
        if self.bytes.len() > EVENT_BYTES_MAX {
            return Err(ClientError::TooLarge(EVENT_BYTES_MAX));
        }
        Ok(())
    }

    /// The next event that is whole; comments are passed over.
    fn next(&mut self) -> Result<Option<SentEvent>, ClientError> {
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
