//! How a runtime ends: why it did and who is told, and the polite way within one bound.

pub(crate) mod shutdown;
pub(crate) mod stop;
