//! Events as bytes: one module per version of the format, read for ever.

mod v1;

pub(crate) use v1::{Bearing, KeptParts, Noted, bearing, decode_kept, encode_kept};
pub use v1::{decode, encode, kind, kind_of_outcome, may_park, outcome_of_kind};
