//! Crashes, disk errors and damage: nothing acknowledged is ever lost, and damage is never silent.

#[cfg(unix)]
mod claims;
mod corruption;
mod damage;
pub(crate) mod disk;
#[cfg(unix)]
mod full_disk;
mod io_errors;
#[cfg(unix)]
mod kill;
mod power_cut;
mod published;
#[cfg(unix)]
mod taken;
mod workload;
