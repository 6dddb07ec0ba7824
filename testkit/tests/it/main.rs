//! The test tools, tested.

#![expect(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

mod flows;
mod replaying;
mod settle;
mod sim;
mod world;
mod worlds;
