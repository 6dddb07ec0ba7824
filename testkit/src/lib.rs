//! Test tools for millrun and for programs built on it. Each part is a feature.
//!
//! | feature | what it brings |
//! |---------|----------------|
//! | `sim` (default) | [`SimHost`]: a seeded world of one thread, with a clock that the test moves |
//!
//! ```
//! use std::time::Duration;
//! use millrun_testkit::{SimConfig, SimHost};
//!
//! let world = SimHost::new(SimConfig::seeded(7));
//! let host = world.host();
//! let before = host.now();
//! // A year of virtual time takes no time at all.
//! world.block_on(host.sleep_until(before + Duration::from_secs(31_536_000))).unwrap();
//! assert_eq!(host.now().saturating_since(before), Duration::from_secs(31_536_000));
//! ```

#[cfg(feature = "sim")]
mod sim;

#[cfg(feature = "sim")]
pub use sim::{Action, Outcome, SimConfig, SimHost, Step, Stuck, Trace};
