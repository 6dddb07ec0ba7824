//! Bounds and modes that every journal has.

use std::time::Duration;

use millrun_core::Timestamp;

use crate::batch::TURN_BYTES_MAX_DEFAULT;
use crate::error::StoreError;

/// Bounds and modes that every journal has, checked once when it is opened. The settings for the file of a
/// [`RedbJournal`](crate::RedbJournal) are in [`StoreConfig`](crate::StoreConfig).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalConfig {
    /// Bytes that may wait for the next commit. When reached, [`enqueue`](crate::Journal::enqueue) returns `Full`. The commit
    /// under way may hold as much again. Default 8 MiB.
    pub batch_bytes_max: usize,
    /// Turns that may wait for the next commit. When reached, `enqueue` returns `Full`. Default 65,536.
    pub batch_len_max: usize,
    /// The largest turn, frames included, in bytes. A larger one is refused. Default 16 MiB.
    pub turn_bytes_max: usize,
    /// What an acknowledged turn survives. Default [`Durability::Durable`].
    pub durability: Durability,
    /// Bytes of snapshots that may wait for the next commit, and the largest snapshot. When reached,
    /// [`put_snapshot`](crate::Journal::put_snapshot) refuses. Default 8 MiB.
    pub snapshot_bytes_max: usize,
    /// The largest history that [`history`](crate::Reads::history) reads at once, in bytes; a
    /// larger one is read in [pages](crate::Reads::history_page). Default 1 GiB.
    pub history_bytes_max: u64,
    /// How long finished runs stay readable.
    pub retention: Retention,
    /// How many topics may have records, topics of earlier openings included: about 500 bytes of memory each. When reached,
    /// [`declare`](crate::TopicStreams::declare) refuses further topics. Default 10,000.
    pub topics_len_max: usize,
    /// How many ids of topic records are remembered, the latest of all topics together: a record with a remembered id is not
    /// appended again. About 130 bytes of memory each. Default 100,000; zero remembers none.
    pub topic_ids_len_max: usize,
    /// Bytes of the latest durable records of all topics that stay in memory, so that a reader that follows a topic reads no
    /// disk. Each chunk counts 128 bytes on top. Default 16 MiB.
    pub topic_latest_bytes_max: usize,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            batch_bytes_max: 8 << 20,
            batch_len_max: 65_536,
            turn_bytes_max: TURN_BYTES_MAX_DEFAULT,
            durability: Durability::Durable,
            snapshot_bytes_max: 8 << 20,
            history_bytes_max: 1 << 30,
            retention: Retention::default(),
            topics_len_max: 10_000,
            topic_ids_len_max: 100_000,
            topic_latest_bytes_max: 16 << 20,
        }
    }
}

impl JournalConfig {
    /// Checks the bounds against each other; a journal calls this when it is opened.
    ///
    /// # Errors
    /// [`StoreError::Config`] names the first field whose value makes no sense.
    pub fn check(&self) -> Result<(), StoreError> {
        let positive = [
            ("batch_bytes_max", self.batch_bytes_max),
            ("batch_len_max", self.batch_len_max),
            ("turn_bytes_max", self.turn_bytes_max),
        ];
        for (field, value) in positive {
            if value == 0 {
                return Err(StoreError::Config {
                    field,
                    problem: "must not be zero".to_owned(),
                });
            }
        }
        if u32::try_from(self.turn_bytes_max).is_err() {
            let problem = "must be less than 4 GiB".to_owned();
            return Err(StoreError::Config {
                field: "turn_bytes_max",
                problem,
            });
        }
        match self.durability {
            Durability::Eventual { window } if window.is_zero() => Err(StoreError::Config {
                field: "durability",
                problem: "needs a window longer than zero; use Durable for none".to_owned(),
            }),
            Durability::Durable | Durability::Eventual { .. } | Durability::Volatile => Ok(()),
        }
    }
}

/// What an acknowledged turn survives. In every mode, a store opened after a crash has a prefix of what was enqueued, in
/// whole turns.
///
/// As long as the process lives, no mode loses anything: histories, and finished runs by their id, can be read as soon as
/// they are acknowledged. Where the acknowledgement comes before the commit, lists and searches of finished runs, retention,
/// snapshots, backups and counts change only with the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Everything: a turn is acknowledged when it has been synced to the disk.
    #[default]
    Durable,
    /// A crash of the process or the machine loses at most what was acknowledged in the last `window` and during the commit
    /// under way: the store is synced that often.
    Eventual {
        /// The longest time between two syncs while there is something to sync.
        window: Duration,
    },
    /// No promise: a crash may lose everything since the store was opened. A [`close`](crate::Journal::close) that succeeds
    /// keeps all that was queued before it.
    Volatile,
}

/// How long a finished run stays readable. The first bound that is exceeded drops runs, the earliest closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Age since the run closed. Default 72 hours.
    ///
    /// A store does not trust every clock. Its own present time advances with the times of the turns that close runs, but by
    /// no more than [`age_step_max`](Self::age_step_max) at each opening, and from then on at most twice as fast as the
    /// host's monotonic clock. So a clock that is 30 days ahead during one opening expires only runs that come within that
    /// step of the limit. After a pause of 30 days, ages are right again within 30 days of being open; the other bounds hold
    /// all the time. A run that closes while the clock is behind, or further ahead than is trusted, counts as closed at the
    /// trusted time, and [`FinishedRun::closed_at`](crate::FinishedRun) shows that time. A store that was created while the
    /// clock was ahead expires no run by age until that time has come. A journal in memory trusts the times of its turns.
    pub age_max: Duration,
    /// By how much the ages of finished runs may grow at each opening of the store, beyond the time for which it is open.
    /// [`Duration::MAX`] trusts every clock. Default 6 hours.
    pub age_step_max: Duration,
    /// Number of finished runs; each costs about five bytes of memory. Default 2,000,000.
    pub len_max: usize,
    /// Bytes of their records. Default 1 GiB.
    pub bytes_max: u64,
    /// How many dropped runs are remembered by name, so that a read of one gives
    /// [`ReadError::Expired`](crate::ReadError::Expired) and not `UnknownRun`. Default 10,000.
    pub expired_len_max: usize,
}

impl Retention {
    /// Bounds that a store in memory can afford: 100,000 finished runs, of 64 MiB in all. Otherwise the defaults.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            len_max: 100_000,
            bytes_max: 64 << 20,
            ..Self::default()
        }
    }

    /// Whether the earliest closed of `len` finished runs, of `bytes` in all, is kept at the time `now`. A journal drops the
    /// earliest run until this holds; it decides itself which time it trusts (see [`age_step_max`](Self::age_step_max)).
    #[must_use]
    pub fn retains(&self, now: Timestamp, closed_at: Timestamp, len: u64, bytes: u64) -> bool {
        len <= self.len_max as u64
            && bytes <= self.bytes_max
            && now.saturating_since(closed_at) <= self.age_max
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            age_max: Duration::from_secs(72 * 3_600),
            age_step_max: Duration::from_secs(6 * 3_600),
            len_max: 2_000_000,
            bytes_max: 1 << 30,
            expired_len_max: 10_000,
        }
    }
}
