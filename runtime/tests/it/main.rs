//! The runtime from outside, as its users meet it.

mod support;
mod workflows;
