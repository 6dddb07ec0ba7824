//! How long records of topics stay.

use std::time::Duration;

use millrun_core::Timestamp;

/// Until when a record of a topic stays: the bound that is reached first ends it, the earliest record first.
///
/// Records go in the rows in which they were written, which have 128 KiB or one record that is larger: so up to a row more
/// than the bounds say stays. A journal drops what is due as it writes, a share with each commit, and exactly in an
/// [upkeep](crate::Journal::upkeep).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicRetention {
    /// Age since the record was appended. Default 7 days. Which time a store believes is said at
    /// [`Retention::age_max`](crate::Retention::age_max).
    pub age_max: Duration,
    /// Bytes of the topic's records, 20 to 36 for each and its body. Default 1 GiB.
    pub bytes_max: u64,
    /// Number of the topic's records. Default 10,000,000.
    pub len_max: u64,
    /// Records that not every reader has read stay beyond the bounds above, as long as the records behind them have fewer bytes
    /// than this; then the earliest are dropped all the same. Readers are those that the journal
    /// [is told of](crate::TopicStreams::note_reader). Default zero: no record is held back.
    pub unread_bytes_max: u64,
}

impl TopicRetention {
    /// What a store in memory can well afford: 16 MiB. Otherwise as by default.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            bytes_max: 16 << 20,
            ..Self::default()
        }
    }

    /// Keeps everything, for ever.
    #[must_use]
    pub fn unbounded() -> Self {
        Self {
            age_max: Duration::MAX,
            bytes_max: u64::MAX,
            len_max: u64::MAX,
            unread_bytes_max: 0,
        }
    }

    /// Whether the earliest records of a topic are dropped at the time `now`: those that were written together, of which the
    /// last was appended at `appended`, when behind them there are `len` records of `bytes` in all. `is_read` says that every
    /// reader has read them.
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
