//! How long records of topics are kept.

use std::time::Duration;

use millrun_core::Timestamp;

/// How long a record of a topic is kept. The first bound that is exceeded drops records, the earliest first.
///
/// Records are dropped in the rows in which they were written, which have 128 KiB or one record that is larger: so up to one
/// row more than the bounds say is kept. A journal drops what is due as it writes, a share with each commit, and exactly in
/// an [upkeep](crate::Journal::upkeep).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicRetention {
    /// Age since the record was appended. Default 7 days. Which time a store trusts is described at
    /// [`Retention::age_max`](crate::Retention::age_max).
    pub age_max: Duration,
    /// Bytes of the topic's records, 20 to 36 for each and its body. Default 1 GiB.
    pub bytes_max: u64,
    /// Number of the topic's records. Default 10,000,000.
    pub len_max: u64,
    /// Records that some reader has not read are kept beyond the bounds above, as long as the records after them have fewer
    /// bytes than this; then the earliest are dropped anyway. Readers are those that the journal [is told
    /// of](crate::TopicStreams::note_reader). Default zero: no record is held back.
    pub unread_bytes_max: u64,
}

impl TopicRetention {
    /// Bounds that a store in memory can afford: 16 MiB. Otherwise the defaults.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            bytes_max: 16 << 20,
            ..Self::default()
        }
    }

    /// Keeps everything, forever.
    #[must_use]
    pub fn unbounded() -> Self {
        Self {
            age_max: Duration::MAX,
            bytes_max: u64::MAX,
            len_max: u64::MAX,
            unread_bytes_max: 0,
        }
    }

    /// Whether the earliest records of a topic are dropped at the time `now`: records that were written together, the last of
    /// them at `appended`, when `len` records of `bytes` bytes come after them. `is_read` says that every reader has read
    /// them.
    pub(crate) fn drops(
        &self,
        now: Timestamp,
        appended: Timestamp,
        (len, bytes): (u64, u64),
        is_read: bool,
    ) -> bool {
        let is_over =
            len >= self.len_max || bytes >= self.bytes_max || now.saturating_since(appended) > self.age_max;
        is_over && (is_read || bytes >= self.unread_bytes_max)
    }
}

impl Default for TopicRetention {
    fn default() -> Self {
        Self {
            age_max: Duration::from_secs(7 * 24 * 3_600),
            bytes_max: 1 << 30,
            len_max: 10_000_000,
            unread_bytes_max: 0,
        }
    }
}
