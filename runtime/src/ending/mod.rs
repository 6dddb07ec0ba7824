//! How a runtime ends: the cause, the callers that are told, and the graceful shutdown within one time limit.

pub(crate) mod shutdown;
pub(crate) mod stop;
