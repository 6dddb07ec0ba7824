//! What joins runs and the topics of the broker: publishes of runs on their way out, and triggers on their way in.

pub(crate) mod publisher;
pub(crate) mod trigger;

pub(crate) mod handed;
