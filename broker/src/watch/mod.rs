//! Observing a broker: events off the fast path, the steps of each envelope, envelopes that are given up, waits and their
//! cycles, and the topology.

pub(crate) mod dead_letter;
pub(crate) mod monitor;
pub(crate) mod tap;
pub(crate) mod topology;
pub(crate) mod wait;
