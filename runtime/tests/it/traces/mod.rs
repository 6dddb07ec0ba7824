//! Distributed traces: where runs stand in them, and what they hand on.

mod context;
