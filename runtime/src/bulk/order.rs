//! What a bulk is started with, as it is stored.

use millrun_workflow::Payload;
use serde::{Deserialize, Serialize};

use super::BulkAction;

/// How many ids are looked at together at most.
pub(super) const CHUNK_LEN_MAX: usize = 64;

/// The input of a bulk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) action: StoredAction,
    pub(super) ids: Vec<String>,
    pub(super) per_second: u32,
}

/// A [`BulkAction`] as it is stored: a payload is its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum StoredAction {
    Cancel { reason: String },
    Terminate { reason: String },
    Resume,
    Signal { name: String, value: Vec<u8> },
    StartAgain,
}

impl Order {
    pub(super) fn new(action: &BulkAction, ids: Vec<String>, per_second: u32) -> Self {
        let action = match action.clone() {
            BulkAction::Cancel { reason } => StoredAction::Cancel { reason },
            BulkAction::Terminate { reason } => StoredAction::Terminate { reason },
            BulkAction::Resume => StoredAction::Resume,
            BulkAction::Signal { name, value } => StoredAction::Signal {
                name,
                value: value.as_bytes().to_vec(),
            },
            BulkAction::StartAgain => StoredAction::StartAgain,
        };
        Self {
            action,
            ids,
            per_second,
        }
    }

    /// How many ids are looked at together: those of a quarter of a second.
    pub(super) fn chunk_len(&self) -> usize {
        let quarter = usize::try_from(self.per_second / 4).unwrap_or(CHUNK_LEN_MAX);
        quarter.clamp(1, CHUNK_LEN_MAX)
    }
}

impl From<StoredAction> for BulkAction {
    fn from(stored: StoredAction) -> Self {
        match stored {
            StoredAction::Cancel { reason } => Self::Cancel { reason },
            StoredAction::Terminate { reason } => Self::Terminate { reason },
            StoredAction::Resume => Self::Resume,
            StoredAction::Signal { name, value } => Self::Signal {
                name,
                value: Payload::from_bytes(value.into()),
            },
            StoredAction::StartAgain => Self::StartAgain,
        }
    }
}
