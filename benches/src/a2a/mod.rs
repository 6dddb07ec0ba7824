//! Actor to actor: messages per second from a producer through a topic to its consumers.
//!
//! ```text
//!   producer ──► topic ──► consumer      pair:      1 producer, 1 topic, 1 consumer
//!   producer ──► topic ─┬► consumer      fan-out:   1 producer, 1 topic, 8 or 64 consumers
//!                       └► consumer
//! ```
//!
//! Every contestant is driven by the same [`Feed`], which makes a fresh `Vec<u8>` for each
//! message, and checked by the same [`Ledger`], which accepts each message once, in order and
//! whole. Time runs from the first message made to the last one received; actors are started
//! before and stopped after it.
//!
//! What is compared differs in kind, and every table says so: *brokered* contestants route by
//! topic and their producers do not know who listens, *direct* ones send to an address they hold;
//! some queues have a bound, some do not.

mod contest;
mod contestant;
mod load;
mod rows;

mod actix;
mod channel;
mod kameo;
mod maiko;
mod millrun;
mod ractor;

pub use contest::{Contest, Effort};
pub use contestant::{Contestant, Flavor, Identity, Kind};
pub use load::{Feed, Finish, Ledger, Load, Race};
pub use rows::{Row, tables};
