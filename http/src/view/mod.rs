//! The runtime's data as JSON. The shapes belong to this crate: they do not change when a description of the runtime changes.

mod bulk;
mod described;
mod event;
mod found;
mod json;
mod lists;
mod past;
mod record;
mod schedule;
mod store;
mod trace;
mod why;

pub(crate) use bulk::{bulk, bulk_started, bulk_would_reach, bulks};
pub(crate) use described::{described_at, description, park_reason};
pub(crate) use event::{history, recorded};
pub(crate) use found::{change, counts, found};
pub(crate) use json::{Json, list, object};
pub(crate) use lists::{catalogue, finished, instances, output_streams, parts, stats, versions};
pub(crate) use past::past;
pub(crate) use record::{durable_topic, record, unreadable_record};
pub(crate) use schedule::{schedule_told, schedules};
pub(crate) use store::{copied, store_told, verified};
pub(crate) use trace::{TraceShown, trace};
pub(crate) use why::why;
