//! The runtime from outside, as its users meet it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests are users: they spawn and wait as users do"
)]

mod activities;
mod actors;
mod asking;
mod at_event;
mod awaiting;
mod beginnings;
mod bulk;
mod bulk_by_filter;
mod catalogue;
mod causes;
mod changed_values;
mod changes;
mod child_handles;
mod clocks;
mod closed_store;
mod codecs;
mod crashes;
mod damaged;
mod delayed_starts;
mod deployment;
mod describing;
mod durable_streams;
mod durable_topics;
mod durations;
mod elsewhere;
mod ending;
mod entities;
mod family;
mod file_taken;
mod finding;
#[cfg(target_os = "linux")]
mod full_disk;
mod fuzz;
mod glances;
mod handles;
mod heartbeats;
mod history;
mod id_policies;
mod kill;
mod lifecycle;
mod limits;
mod lives;
mod logged;
mod mistakes;
mod moving;
mod named_queues;
mod named_topics;
mod operating;
mod outside;
mod parking;
mod preflight;
mod pressure;
#[cfg(feature = "process")]
mod processes;
mod programs;
mod quick;
mod reading;
mod refusals;
mod relaxed;
mod reset_reads;
mod resetting;
mod run_retries;
mod run_timeouts;
mod salvaged;
mod schedules;
mod signal_requests;
mod signalling;
mod start_updating;
mod starting;
mod stateful;
mod streams;
mod supervision;
mod support;
mod tapped;
mod threads;
mod traces;
mod trimming;
mod unrecordable;
mod upkeep;
mod versions;
mod walks;
mod why;
mod workflows;
mod world;
mod wrong_types;
