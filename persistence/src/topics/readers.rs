//! How far the readers of a topic have read that keep their places in the journal.

use std::collections::BTreeMap;

use millrun_core::Sequence;

use super::TopicNumber;

/// The readers for which retention keeps records of a topic, by the topics in which they keep their places.
///
/// The places are in memory only. After an opening a journal knows no reader, so every record counts as unread until the
/// runtime has noted all readers.
#[derive(Debug, Default)]
pub(crate) struct TopicReaders {
    are_all_noted: bool,
    places: BTreeMap<TopicNumber, u64>,
}

impl TopicReaders {
    /// All records up to this one have been read by every reader.
    pub(crate) fn read_through(&self) -> u64 {
        if !self.are_all_noted {
            return 0;
        }
        self.places.values().copied().min().unwrap_or(u64::MAX)
    }

    /// Notes how far a reader has read. This never goes back.
    pub(crate) fn note(&mut self, reader: TopicNumber, through: Sequence) {
        let place = self.places.entry(reader).or_default();
        *place = through.get().max(*place);
    }

    /// All existing readers have been noted.
    pub(crate) fn all_are_noted(&mut self) {
        self.are_all_noted = true;
    }

    /// These topics are deleted, and so are the readers that keep their places there.
    pub(crate) fn forget(&mut self, deleted: &[TopicNumber]) {
        if !self.places.is_empty() {
            self.places.retain(|reader, _| !deleted.contains(reader));
        }
    }
}
