//! Crashes, disk errors and damage: nothing acknowledged is ever lost, and damage is never silent.

mod corruption;
pub(crate) mod disk;
mod io_errors;
mod power_cut;
mod workload;
