//! The stored input and state of a bulk.

use millrun_core::Timestamp;
use millrun_persistence::TimeRange;
use millrun_workflow::Payload;
use serde::{Deserialize, Serialize};

use super::{BulkAction, BulkDescription};
use crate::looking::changes::cut_to;
use crate::looking::find::{RunSearch, RunStatus};

/// How many instances are looked at together at most.
pub(super) const CHUNK_LEN_MAX: usize = 64;

/// How many bytes are kept of a failure's message, or of the reason in a description.
const TEXT_BYTES_MAX: usize = 512;

/// The input of a bulk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) action: StoredAction,
    pub(super) ids: Vec<String>,
    #[serde(default)]
    pub(super) search: Option<StoredSearch>,
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

/// A [`RunSearch`] as it is stored: statuses by name, times in microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredSearch {
    workflow: Option<String>,
    statuses: Vec<String>,
    id_prefix: String,
    started_us: (u64, u64),
    ended_us: (u64, u64),
}

/// The description of a bulk. It does not contain the value of a signal, which may be as large as a payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredDescription {
    action: String,
    about: Option<String>,
    ids_len: u64,
    search: Option<StoredSearch>,
    per_second: u32,
    sum: u64,
}

impl Order {
    pub(super) fn new(
        action: &BulkAction,
        ids: Vec<String>,
        search: Option<&RunSearch>,
        per_second: u32,
    ) -> Self {
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
            search: search.map(StoredSearch::of),
            per_second,
        }
    }

    /// How many instances are looked at together: those of a quarter of a second.
    pub(super) fn chunk_len(&self) -> usize {
        let quarter = usize::try_from(self.per_second / 4).unwrap_or(CHUNK_LEN_MAX);
        quarter.clamp(1, CHUNK_LEN_MAX)
    }

    pub(super) fn description(&self) -> StoredDescription {
        let about = match &self.action {
            StoredAction::Cancel { reason } | StoredAction::Terminate { reason } => Some(reason),
            StoredAction::Signal { name, .. } => Some(name),
            StoredAction::Resume | StoredAction::StartAgain => None,
        };
        StoredDescription {
            action: BulkAction::from(self.action.clone()).name().to_owned(),
            about: about.cloned().map(cut),
            ids_len: self.ids.len() as u64,
            search: self.search.clone(),
            per_second: self.per_second,
            sum: self.sum(),
        }
    }

    /// A hash of its content (FNV-1a of 64 bits): distinguishes it from another bulk under its name.
    fn sum(&self) -> u64 {
        // It was encoded when the bulk was started.
        let encoded = Payload::encode(self).ok();
        let bytes = encoded.iter().flat_map(|payload| payload.as_bytes());
        let next = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        bytes.fold(0xcbf2_9ce4_8422_2325, next)
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

impl StoredSearch {
    fn of(search: &RunSearch) -> Self {
        let times = |times: TimeRange| (times.from.as_micros(), times.until.as_micros());
        Self {
            workflow: search.workflow.clone(),
            statuses: search
                .statuses
                .iter()
                .map(|status| status.name().to_owned())
                .collect(),
            id_prefix: search.id_prefix.clone(),
            started_us: times(search.started),
            ended_us: times(search.ended),
        }
    }

    /// The search; `None` if it has a status that this version does not know: without that status it might find runs that
    /// were not meant.
    pub(super) fn search(&self) -> Option<RunSearch> {
        let times = |(from, until)| TimeRange {
            from: Timestamp::from_micros(from),
            until: Timestamp::from_micros(until),
        };
        let statuses: Option<Vec<_>> = self
            .statuses
            .iter()
            .map(|name| RunStatus::of_name(name))
            .collect();
        let mut search = RunSearch::new().id_prefix(self.id_prefix.as_str());
        search.workflow.clone_from(&self.workflow);
        search.statuses = statuses?;
        (search.started, search.ended) = (times(self.started_us), times(self.ended_us));
        Some(search)
    }
}

impl From<StoredDescription> for BulkDescription {
    fn from(stored: StoredDescription) -> Self {
        Self {
            action: stored.action,
            about: stored.about,
            ids_len: stored.ids_len,
            filter: stored.search.and_then(|search| search.search()),
            per_second: stored.per_second,
            sum: stored.sum,
        }
    }
}

/// The beginning of a text that is too long.
pub(super) fn cut(text: String) -> String {
    cut_to(text, TEXT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_back_as_it_was_or_not_at_all() {
        let times = TimeRange {
            from: Timestamp::from_micros(7),
            until: Timestamp::from_micros(9),
        };
        let search = RunSearch::new().workflow("order").id_prefix("o-").started(times);
        let search = RunStatus::ALL.into_iter().fold(search, RunSearch::status);
        let stored = StoredSearch::of(&search);
        assert_eq!(stored.search(), Some(search));
        assert_eq!(
            StoredSearch::of(&RunSearch::new()).search(),
            Some(RunSearch::new())
        );
        let later = StoredSearch {
            statuses: vec!["hibernating".into()],
            ..stored
        };
        assert_eq!(later.search(), None, "not all runs of any status");
    }
}
