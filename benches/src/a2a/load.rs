//! What is sent, and the proof that it arrived.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::BenchError;

/// How long one sample may take before the contestant counts as stuck.
const SAMPLE_LIMIT: Duration = Duration::from_secs(60);
/// The first bytes of each payload hold the producer (2) and its message's number (6).
const STAMP_BYTES: usize = 8;

/// One sample's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Messages in all, shared evenly among the producers.
    pub messages: u64,
    /// The size of each payload, at least 8.
    pub payload_bytes: usize,
    /// How many actors send.
    pub producers: usize,
    /// Message `i` of a producer goes to topic `i % topics`.
    pub topics: usize,
    /// How many actors listen to each topic.
    pub subscribers: usize,
}

impl Load {
    /// One producer, one topic, one consumer.
    #[must_use]
    pub const fn pair(messages: u64, payload_bytes: usize) -> Self {
        Self {
            messages,
            payload_bytes,
            producers: 1,
            topics: 1,
            subscribers: 1,
        }
    }

    /// How many messages consumers receive in all.
    #[must_use]
    pub const fn deliveries(&self) -> u64 {
        self.messages * self.subscribers as u64
    }

    /// Prepares one sample: a feed per producer, a ledger per subscriber (those of topic 0 first,
    /// then those of topic 1 and so on), and the end to wait for.
    #[must_use]
    pub fn race(&self) -> Race {
        let started = Arc::new(OnceLock::new());
        let (ended, ends) = mpsc::unbounded_channel();
        let each = self.messages / self.producers as u64;
        let feeds = (0..self.producers)
            .map(|producer| Feed {
                stamp: (producer as u64) << 48,
                next: 0,
                messages: each,
                payload_bytes: self.payload_bytes.max(STAMP_BYTES),
                started: Arc::clone(&started),
            })
            .collect();
        let ledgers: Vec<_> = (0..self.topics * self.subscribers)
            .map(|place| {
                let first = (place / self.subscribers) as u64;
                let stride = self.topics as u64;
                MessageCheck {
                    next: vec![first; self.producers],
                    stride,
                    missing: self.producers as u64 * each.saturating_sub(first).div_ceil(stride),
                    payload_bytes: self.payload_bytes.max(STAMP_BYTES),
                    ended: Some(ended.clone()),
                }
            })
            .collect();
        let ledger_count = ledgers.len();
        Race {
            feeds,
            ledgers,
            finish: Finish {
                started,
                ends,
                ledgers: ledger_count,
            },
        }
    }
}

/// One sample, ready to run.
#[derive(Debug)]
pub struct Race {
    /// One per producer.
    pub feeds: Vec<Feed>,
    /// One per subscriber, by topic.
    pub ledgers: Vec<MessageCheck>,
    /// Resolves when every ledger is complete.
    pub finish: Finish,
}

/// Makes one producer's messages. The first call starts the clock.
#[derive(Debug)]
pub struct Feed {
    stamp: u64,
    next: u64,
    messages: u64,
    payload_bytes: usize,
    started: Arc<OnceLock<Instant>>,
}

impl Feed {
    /// The next payload, freshly allocated; `None` after the last.
    #[inline]
    pub fn next_payload(&mut self) -> Option<Vec<u8>> {
        if self.next == self.messages {
            return None;
        }
        if self.next == 0 {
            self.started.get_or_init(Instant::now);
        }
        let mut payload = vec![0x6d; self.payload_bytes];
        payload[..STAMP_BYTES].copy_from_slice(&(self.stamp | self.next).to_le_bytes());
        self.next += 1;
        Some(payload)
    }
}

/// Addresses used in turn: message `i` of a producer goes to number `i % len`.
#[derive(Debug)]
pub struct Turns<T> {
    addresses: Vec<T>,
    next: usize,
}

impl<T> Turns<T> {
    /// Starts with the first of `addresses`.
    ///
    /// # Panics
    /// Later, in [`Turns::next_turn`], if there are none.
    #[must_use]
    pub fn new(addresses: Vec<T>) -> Self {
        Self { addresses, next: 0 }
    }

    /// Whose turn it is.
    #[inline]
    pub fn next_turn(&mut self) -> &mut T {
        let turn = self.next;
        self.next = if turn + 1 == self.addresses.len() {
            0
        } else {
            turn + 1
        };
        &mut self.addresses[turn]
    }
}

/// Checks one subscriber's messages: each producer's in order, whole, none missing.
#[derive(Debug)]
pub struct MessageCheck {
    /// Per producer, the number of the next message.
    next: Vec<u64>,
    stride: u64,
    missing: u64,
    payload_bytes: usize,
    ended: Option<mpsc::UnboundedSender<Result<Instant, String>>>,
}

impl MessageCheck {
    /// Enters a payload. The last one stops this ledger's clock; a wrong one ends the sample.
    #[inline]
    pub fn receive(&mut self, payload: &[u8]) {
        let stamp = payload
            .first_chunk()
            .map_or(u64::MAX, |stamp| u64::from_le_bytes(*stamp));
        let (producer, number) = ((stamp >> 48) as usize, stamp & 0xffff_ffff_ffff);
        match self.next.get_mut(producer) {
            Some(next) if *next == number && payload.len() == self.payload_bytes => *next += self.stride,
            expected => {
                let expected = expected.map(|next| *next);
                return self.end(Err(format!(
                    "message {number} of producer {producer} with {} bytes, expected {expected:?} with {}",
                    payload.len(),
                    self.payload_bytes
                )));
            }
        }
        self.missing -= 1;
        if self.missing == 0 {
            self.end(Ok(Instant::now()));
        }
    }

    /// Whether everything has arrived, or something wrong.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.ended.is_none()
    }

    #[cold]
    fn end(&mut self, end: Result<Instant, String>) {
        if let Some(ended) = self.ended.take() {
            // Nobody listens only when another ledger has already failed the sample.
            ended.send(end).ok();
        }
        self.missing = u64::MAX;
    }
}

/// The end of a sample.
#[derive(Debug)]
pub struct Finish {
    started: Arc<OnceLock<Instant>>,
    ends: mpsc::UnboundedReceiver<Result<Instant, String>>,
    ledgers: usize,
}

impl Finish {
    /// Waits for all ledgers; gives the time from the first message made to the last received.
    ///
    /// # Errors
    /// When a ledger met a wrong message, when they all went away, or after a minute.
    pub async fn elapsed(mut self, contestant: &str) -> Result<Duration, BenchError> {
        let wrong = |what: String| BenchError::Wrong {
            contestant: contestant.to_owned(),
            what,
        };
        let all_ended = async {
            let mut last = None;
            for _ in 0..self.ledgers {
                match self.ends.recv().await {
                    Some(Ok(end)) => last = last.max(Some(end)),
                    Some(Err(what)) => return Err(wrong(what)),
                    None => return Err(wrong("the consumers went away before the last message".into())),
                }
            }
            Ok(last)
        };
        let last = tokio::time::timeout(SAMPLE_LIMIT, all_ended)
            .await
            .map_err(|_| BenchError::Stuck {
                contestant: contestant.to_owned(),
                limit: SAMPLE_LIMIT,
            })??;
        match (self.started.get(), last) {
            (Some(started), Some(last)) => Ok(last.duration_since(*started)),
            _ => Err(wrong("nothing was sent".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends everything by hand, through `change`, and gives what the sample came to.
    async fn run(load: Load, change: impl Fn(&mut Vec<Vec<u8>>)) -> Result<Duration, BenchError> {
        let Race {
            feeds,
            mut ledgers,
            finish,
        } = load.race();
        for mut feed in feeds {
            let mut payloads: Vec<_> = std::iter::from_fn(|| feed.next_payload()).collect();
            change(&mut payloads);
            for (number, payload) in payloads.iter().enumerate() {
                let topic = number % load.topics;
                for ledger in &mut ledgers[topic * load.subscribers..][..load.subscribers] {
                    ledger.receive(payload);
                }
            }
        }
        drop(ledgers);
        finish.elapsed("by hand").await
    }

    #[tokio::test]
    async fn every_shape_is_complete_when_each_message_came_once_in_order() {
        let shapes = [
            Load::pair(100, 32),
            Load {
                producers: 4,
                ..Load::pair(100, 32)
            },
            Load {
                topics: 7,
                ..Load::pair(100, 32)
            },
            Load {
                subscribers: 8,
                ..Load::pair(100, 8)
            },
        ];
        for load in shapes {
            run(load, |_| ()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_lost_a_doubled_and_a_cut_message_are_noticed() {
        let changes: [fn(&mut Vec<Vec<u8>>); 4] = [
            |payloads| drop(payloads.remove(10)),
            |payloads| drop(payloads.pop()),
            |payloads| payloads.insert(5, payloads[4].clone()),
            |payloads| payloads[3].truncate(9),
        ];
        for change in changes {
            let outcome = run(Load::pair(100, 32), change).await;
            assert!(matches!(outcome, Err(BenchError::Wrong { .. })), "{outcome:?}");
        }
    }
}
