//! Runs many envelopes through a broker whose subscriptions come and go, and checks that none is
//! lost without being counted and that memory stays where it is.
//!
//! ```text
//! cargo run --release -p millrun-broker --example soak [envelopes, default 100000000]
//! cargo run --release -p millrun-broker --example soak -- --quick    # a million, for a look
//! ```
//!
//! Each round publishes to many topics, some with slow and full inboxes of every policy, takes from
//! some, and replaces a subscription. At the end of each tenth it prints the rate and the resident
//! memory; it exits with a failure if the books do not balance or memory has grown.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Instant;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{
    Broker, BrokerConfig, Envelope, Inbox, Overflow, Publisher, SubscriptionConfig, Undeliverable,
};

const TOPICS: usize = 64;
const SUBSCRIPTIONS: usize = 32;
const ROUND: u64 = 1_000;
/// What the resident memory may have grown by since the end of the first tenth, in KiB.
const GROWTH_MAX: u64 = 8 << 10;

/// Small numbers that only look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % sides as u64).expect("smaller than sides")
    }
}

#[derive(Default)]
struct Books {
    published: u64,
    delivered: u64,
    refused: u64,
    handed_out: u64,
}

struct Soak {
    broker: Broker,
    publishers: Vec<Publisher<Vec<u8>>>,
    inboxes: VecDeque<Inbox<Envelope<Vec<u8>>>>,
    dice: Dice,
    books: Books,
}

impl Soak {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let broker = Broker::without_host(BrokerConfig::default());
        let publishers = (0..TOPICS)
            .map(|topic| {
                Ok(broker
                    .topic(&format!("soak.{}.{}", topic % 8, topic / 8))?
                    .publisher())
            })
            .collect::<Result<_, millrun_broker::TopicError>>()?;
        let books = Books::default();
        let mut soak = Self {
            broker,
            publishers,
            inboxes: VecDeque::new(),
            dice: Dice(42),
            books,
        };
        for _ in 0..SUBSCRIPTIONS {
            soak.subscribe()?;
        }
        Ok(soak)
    }

    fn subscribe(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let filter = match self.dice.roll(4) {
            // Enough inboxes want the same that they share it.
            0 => "soak.0.0".to_owned(),
            1 => format!("soak.{}.{}", self.dice.roll(8), self.dice.roll(8)),
            2 => format!("soak.{}.>", self.dice.roll(8)),
            _ => format!("soak.*.{}", self.dice.roll(8)),
        };
        let policies = [
            Overflow::Block,
            Overflow::Fail,
            Overflow::DropNewest,
            Overflow::DropOldest,
        ];
        let config = SubscriptionConfig {
            inbox: MailboxConfig {
                capacity: 1 + self.dice.roll(256),
                bytes_max: 1 << 20,
            },
            overflow: match filter.as_str() {
                "soak.0.0" => Overflow::Block,
                _ => policies[self.dice.roll(policies.len())],
            },
            ..SubscriptionConfig::default()
        };
        self.inboxes.push_back(self.broker.subscribe(&filter, config)?);
        Ok(())
    }

    fn round(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        for _ in 0..ROUND {
            // The topic that many share gets every fourth.
            let topic = if self.dice.roll(4) == 0 {
                0
            } else {
                self.dice.roll(TOPICS)
            };
            let payload = vec![0x6d; self.dice.roll(512)];
            self.books.published += 1;
            match self.publishers[topic].try_publish(payload) {
                Ok(published) => self.books.delivered += published.delivered as u64,
                Err(error) => {
                    let refused = error.into_refused();
                    self.books.delivered += refused.delivered() as u64;
                    self.books.refused += refused.by().len() as u64;
                }
            }
        }
        for inbox in &self.inboxes {
            // Most of the hand is handled, the rest goes back.
            let handled = self.dice.roll(256);
            let mut batch = inbox.take();
            self.books.handed_out += if self.dice.roll(2) == 0 {
                batch.by_ref().take(handled).count() as u64
            } else {
                (0..handled).map_while(|_| batch.next_ref().map(drop)).count() as u64
            };
        }
        self.inboxes.pop_front();
        self.subscribe()
    }

    /// Whether all that was delivered was handed out, is queued, was displaced or discarded.
    fn is_balanced(&self) -> bool {
        let queued: u64 = self.inboxes.iter().map(|inbox| inbox.len() as u64).sum();
        let gone = self.broker.given_up(Undeliverable::Discarded)
            + self.broker.given_up(Undeliverable::DroppedOldest);
        self.books.delivered == self.books.handed_out + queued + gone
    }
}

/// The resident memory in KiB, where the system tells it.
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let envelopes: u64 = match std::env::args().nth(1).as_deref() {
        None => 100_000_000,
        Some("--quick") => 1_000_000,
        Some(count) => count
            .parse()
            .map_err(|_| format!("{count:?} is neither a number of envelopes nor --quick"))?,
    };
    let mut soak = Soak::new()?;
    let tenth = (envelopes / 10).max(ROUND);
    let mut first_kib = None;
    let mut sound = true;
    for part in 1..=10 {
        #[expect(clippy::disallowed_methods, reason = "a soak measures itself")]
        let started = Instant::now();
        while soak.books.published < part * tenth {
            soak.round()?;
        }
        let rate = tenth as f64 / started.elapsed().as_secs_f64() / 1e6;
        let kib = resident_kib();
        let first = *first_kib.get_or_insert(kib);
        let grown = kib.zip(first).map(|(now, first)| now.saturating_sub(first));
        sound &= soak.is_balanced() && grown.is_none_or(|grown| grown <= GROWTH_MAX);
        println!(
            "{:>12} published  {:>12} deliveries  {rate:.1} M/s  {} KiB resident  books {}",
            soak.books.published,
            soak.books.delivered,
            kib.map_or_else(|| "?".to_owned(), |kib| kib.to_string()),
            if soak.is_balanced() {
                "balanced"
            } else {
                "NOT BALANCED"
            }
        );
    }
    Ok(if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
