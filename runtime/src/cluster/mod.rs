//! Several nodes over one store: which of them live, and which partitions each owns.
//!
//! ```text
//!   beats (beats.rs) ── beats ──► SharedStore of the journal
//!   nodes (part.rs) ──── looks ──►   │
//!      │  ▲                          │
//!      │  └── what is seen ◄─────────┘
//!      ├── machine.rs decides: dead, claim, give back      shares.rs: which partitions; pace.rs: what was refused;
//!      │                                                   handover.rs: what is drained first, by draining.rs
//!      └── claims through the ownership of this runtime
//!   mail (mail_part.rs) ── reads ──► NodeMail of the journal ◄── posts, and what was handled ── shards (mail_desk.rs)
//! ```
//!
//! Safety does not rest on any of this: a node that is wrong about another is stopped by the fence of the store.

pub(crate) mod beats;
pub(crate) mod draining;
pub(crate) mod handover;
pub(crate) mod machine;
pub(crate) mod mail_desk;
pub(crate) mod mail_part;
pub(crate) mod pace;
pub(crate) mod part;
pub(crate) mod shared;
pub(crate) mod shares;
pub(crate) mod view;
