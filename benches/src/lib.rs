//! Shared parts of the benchmark programs.
