//! Several nodes over one store: who lives, and who owns what.
//!
//! ```text
//!   nodes (part) ── beats, looks ──► SharedStore of the journal
//!      │  ▲                              │
//!      │  └── what is seen ◄─────────────┘
//!      ├── machine.rs decides: dead, claim, give back      shares.rs: which partitions
//!      └── claims through the ownership of this runtime
//! ```
//!
//! Nothing here is needed for safety: a node that is wrong about another is stopped by the fence of the store.

#![allow(dead_code, reason = "the part that drives it comes next")]

pub(crate) mod machine;
pub(crate) mod shares;
