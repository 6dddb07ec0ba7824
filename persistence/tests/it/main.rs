//! Tests of the journals through their public face.
#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

mod ages;
mod append;
mod archived;
mod contract;
mod crash;
mod durability;
mod files;
mod folding;
mod fuzz;
mod gather;
mod golden;
mod host;
mod long;
mod retention;
mod salvage;
mod settling;
mod topics;
mod transfer;
mod trimming;
mod upkeep;
