//! Actor to actor: messages per second from a producer through a topic to its consumers.
//!
//! ```text
//!   producer ──► topic ──► consumer      pair:      1 producer, 1 topic, 1 consumer
//!   producer ──► topic ─┬► consumer      fan-out:   1 producer, 1 topic, 8 or 64 consumers
//!                       └► consumer      topics:    1 producer, 64 or 1,024 topics in turn
//!   producer ─┐                          producers: 4 producers, 1 topic, 1 consumer
//!   producer ─┴► topic ──► consumer      latency:   there and back, one at a time
//!                                          stuck:     a pair beside a subscriber that never takes
//!                                          crowd:     one topic, and 10,000 with 10,000 filters
//! ```
//!
//! Every contestant is driven by the same [`Feed`], which makes a fresh `Vec<u8>` for each
//! message, and checked by the same [`MessageCheck`], which accepts each message once, in order and
//! whole. Time runs from the first message made to the last one received; actors are started
//! before and stopped after it.
//!
//! What is compared differs in kind, and every table says so: *brokered* contestants route by
//! topic and their producers do not know who listens, *direct* ones send to an address they hold;
//! some queues have a bound, some do not.

mod contest;
mod contestant;
mod load;
mod report;
mod rows;

mod actix;
mod channel;
mod crowd;
mod kameo;
mod kameo_pubsub;
mod maiko;
mod millrun;
mod ractor;
mod ractor_groups;
mod stuck;

mod round_trip;

pub use contest::{Contest, Effort, Group};
pub use contestant::{Contestant, Flavor, Identity, Kind};
pub use load::{Feed, Finish, Load, MessageCheck, Race, Turns};
pub use report::{charts, tables};
pub use round_trip::{Laps, Laptimes, RoundTrip, Stopwatch};
pub use rows::Row;
