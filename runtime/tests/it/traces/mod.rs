//! Distributed traces: where runs stand in them, what they hand on, and the spans that are made of their histories.

mod context;
#[cfg(feature = "otel")]
mod export;
mod spans;
