//! The runtime from outside, as its users meet it.

mod activities;
mod kill;
mod lifecycle;
mod parking;
mod pressure;
mod support;
mod workflows;
mod world;
