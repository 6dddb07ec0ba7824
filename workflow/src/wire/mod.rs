//! Events as bytes: one module per version of the format, read for ever.

mod v1;

pub use v1::{decode, encode, kind};
