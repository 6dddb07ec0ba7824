//! Crashes, disk errors and damage: nothing acknowledged is ever lost, and damage is never silent.

mod corruption;
mod disk;
mod io_errors;
mod power_cut;
mod workload;
