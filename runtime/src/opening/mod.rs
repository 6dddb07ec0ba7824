//! From a path to a running runtime.
//!
//! ```text
//!   builder ── what is registered (registry), settings ──► assembly ──► parts, in their tree
//!                                                             ▲
//!   store: the replay actor opens the journal ── recovery ────┘ what was alive
//! ```

pub(crate) mod builder;
pub(crate) mod closed_store;
pub(crate) mod registry;

pub(crate) mod assembly;
pub(crate) mod own_store;
pub(crate) mod place;
pub(crate) mod recovery;
pub(crate) mod store;
