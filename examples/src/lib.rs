//! Shared parts of the examples.
