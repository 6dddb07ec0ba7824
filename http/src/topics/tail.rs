//! A client that listens to a topic.
//!
//! A message's id consists of the life of the tail, which is the process's, and its number in that life.

use std::fmt;
use std::sync::Arc;

use axum::response::Response;
use millrun::{RunError, Runtime};
use tokio::sync::watch;

use super::Tail;
use super::ring::Ring;
use crate::Redaction;
use crate::problem::Problem;
use crate::query::{StreamQuery, wrong};
use crate::router::Served;
use crate::stream::{FRAMES_BYTES, Frames, Source, respond};
use crate::view::Json;

/// The stream of a topic: what is published from now on, or behind the last message that the client has seen.
pub(crate) fn tail(served: &Served, tail: &Arc<Tail>, query: StreamQuery) -> Result<Response, Problem> {
    let (runtime, place) = (&served.runtime, served.streams.take()?);
    if let Some(cause) = runtime.stop_cause() {
        return Err(RunError::Stopped(cause).into());
    }
    let seen = query.after.as_deref().map(MessageId::parse).transpose()?;
    let joined = tail.join(runtime);
    let (changed, last) = joined.map_err(|error| Problem::new("topic", error.to_string()))?;
    let source = TopicTail {
        runtime: runtime.clone(),
        tail: Arc::clone(tail),
        changed,
        last: match &seen {
            None => last,
            Some(seen) if seen.life == tail.life() => seen.number.min(last),
            // Everything in the ring is later than the other process's messages.
            Some(_) => tail.with_ring(Ring::begins_behind),
        },
        is_of_other_life: seen.is_some_and(|seen| seen.life != tail.life()),
        left: query.limit,
        redaction: served.redaction.clone(),
    };
    Ok(respond(runtime.host().clone(), place, source))
}

/// The id of a message of a tail.
#[derive(Debug, PartialEq, Eq)]
struct MessageId {
    life: u64,
    number: u64,
}

impl MessageId {
    fn parse(text: &str) -> Result<Self, Problem> {
        let parsed = text.split_once('-').and_then(|(life, number)| {
            let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let life = u64::from_str_radix(life, 16).ok().filter(|_| is_plain(life))?;
            let number = number.parse().ok().filter(|_| is_plain(number))?;
            Some(Self { life, number })
        });
        parsed.ok_or_else(|| wrong("after", "an id of a message of this stream is expected"))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.life, self.number)
    }
}

struct TopicTail {
    runtime: Runtime,
    tail: Arc<Tail>,
    changed: watch::Receiver<()>,
    /// The number of the last message that was sent, or counted as lost.
    last: u64,
    /// The client has seen messages of another process: how many it missed is unknown.
    is_of_other_life: bool,
    /// The number of messages that the client still wants.
    left: u64,
    redaction: Redaction,
}

impl Source for TopicTail {
    async fn next(mut self) -> (Frames, Option<Self>) {
        let mut frames = Frames::default();
        if std::mem::take(&mut self.is_of_other_life) {
            frames.gap(Json::Null);
        }
        loop {
            // Later changes are notified.
            self.changed.mark_unchanged();
            let len_max = usize::try_from(self.left).unwrap_or(usize::MAX);
            let messages = self
                .tail
                .with_ring(|ring| ring.after(self.last, len_max, FRAMES_BYTES));
            for (number, text) in messages {
                let lost = number - self.last - 1;
                if lost > 0 {
                    frames.gap(lost.into());
                }
                let life = self.tail.life();
                // All consoles share the ring, and each has its own redaction.
                let shown = self.redaction.applied_at(&["payload", "value"], &text);
                frames.message(&MessageId { life, number }, &shown);
                self.last = number;
                self.left -= 1;
            }
            if self.left == 0 {
                return (frames, None);
            }
            if frames.len() > 0 {
                return (frames, Some(self));
            }
            if self.changed.changed().await.is_err() {
                let problem = match self.runtime.stop_cause() {
                    Some(cause) => RunError::Stopped(cause).into(),
                    None => Problem::new("stopped", "the topic is not listened to any more").retryable(),
                };
                frames.problem(problem);
                return (frames, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_and_anything_else_is_refused() {
        for (life, number) in [(0, 0), (u64::MAX, u64::MAX), (7, 12)] {
            let id = MessageId { life, number };
            assert_eq!(MessageId::parse(&id.to_string()).unwrap(), id);
        }
        for text in ["", "7", "7-", "-7", "g-7", "7-a", "+7-7", "7-+7", "7-7-7"] {
            assert!(MessageId::parse(text).is_err(), "{text}");
        }
    }
}
