//! Several nodes over one store: who lives, and who owns what.
//!
//! ```text
//!   nodes (part.rs) ── beats, looks ──► SharedStore of the journal
//!      │  ▲                              │
//!      │  └── what is seen ◄─────────────┘
//!      ├── machine.rs decides: dead, claim, give back      shares.rs: which partitions
//!      └── claims through the ownership of this runtime
//! ```
//!
//! Nothing here is needed for safety: a node that is wrong about another is stopped by the fence of the store.

pub(crate) mod machine;
pub(crate) mod part;
pub(crate) mod shared;
pub(crate) mod shares;
pub(crate) mod view;
