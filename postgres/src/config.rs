//! Bounds of a journal on PostgreSQL.

use std::time::Duration;

use millrun_persistence::{JournalConfig, StoreError};

use crate::shared::POSTED_BYTES_MAX;

/// Bounds of a [`PostgresJournal`](crate::PostgresJournal), checked when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresConfig {
    /// The bounds that every journal has.
    pub journal: JournalConfig,
    /// The number of connections that read, each with a thread of its own. Further reads wait for these. Default 2.
    pub readers: usize,
    /// How long a flush waits for a server that does not answer, restarts, or is full, until the journal fails with
    /// [`FailureKind::Io`](millrun_persistence::FailureKind::Io). Reads wait as long. Default 600 s; zero: no wait.
    pub server_wait_max: Duration,
    /// How long one statement may take until its connection counts as lost and another is opened; the server gives the
    /// statement up then. A flush that waits for a synchronous standby takes as long as the standby is away. The limit does
    /// not hold for what an opening and a recovery read of whole tables. Default 30 s.
    pub answer_wait_max: Duration,
    /// How long an opening waits for a former process to release the store: the server may notice late that the process is
    /// gone. Default 10 s; zero: no wait.
    pub open_wait_max: Duration,
    /// How long a node with nothing to write waits until it writes an empty flush, by which other nodes know that it lives.
    /// It must be well below the lease of the runtimes. Default 1 s. No effect for a process that has the store to itself.
    pub beat_every: Duration,
    /// How long a node may write nothing until others take it for dead. With a lease, a node writes at least five times
    /// within it, and gives up a statement that has taken twice as long, whatever [`beat_every`](Self::beat_every) and
    /// [`answer_wait_max`](Self::answer_wait_max) are: an answer that is lost in an outage must not keep the node silent for
    /// so long that the others, once they are back, take it for dead. Default `None`; the runtime passes its own lease to a
    /// journal that it opens by a URL. No effect for a process that has the store to itself.
    pub lease: Option<Duration>,
}

/// How many times a node writes at least within its lease.
const BEATS_OF_LEASE: u32 = 5;

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            journal: JournalConfig::default(),
            readers: 2,
            server_wait_max: Duration::from_secs(600),
            answer_wait_max: Duration::from_secs(30),
            open_wait_max: Duration::from_secs(10),
            beat_every: Duration::from_secs(1),
            lease: None,
        }
    }
}

impl From<JournalConfig> for PostgresConfig {
    fn from(journal: JournalConfig) -> Self {
        Self {
            journal,
            ..Self::default()
        }
    }
}

impl PostgresConfig {
    /// The largest number of connections that read.
    pub(crate) const READERS_MAX: usize = 64;

    /// The longest lease.
    const LEASE_MAX: Duration = Duration::from_secs(24 * 3_600);

    /// A flush is one message, and the server accepts no larger one.
    const FLUSH_BYTES_MAX: usize = 1 << 30;
    /// The largest piece of mail.
    const MAIL_BYTES_MAX: usize = 64 << 20;
    /// The size of a flush's entry beside its payload, at most: numbers, and the id of an instance.
    const ENTRY_BYTES: usize = 256;

    /// Adjusts the bounds of a node to its lease.
    pub(crate) fn of_node(mut self) -> Self {
        if let Some(lease) = self.lease {
            self.beat_every = self.beat_every.min(lease / BEATS_OF_LEASE);
            self.answer_wait_max = self.answer_wait_max.min(lease * 2);
        }
        self
    }

    /// Checks that the bounds are valid and fit each other.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.journal.check()?;
        let invalid = |field, problem: &str| {
            let problem = problem.to_owned();
            Err(StoreError::Config { field, problem })
        };
        if !(1..=Self::READERS_MAX).contains(&self.readers) {
            return invalid("readers", "must be from 1 to 64");
        }
        let journal = &self.journal;
        let parts = [
            journal.batch_bytes_max,
            journal.turn_bytes_max,
            journal.snapshot_bytes_max,
            journal.batch_len_max.saturating_mul(Self::ENTRY_BYTES),
            POSTED_BYTES_MAX,
            Self::MAIL_BYTES_MAX,
        ];
        if parts.into_iter().fold(0, usize::saturating_add) >= Self::FLUSH_BYTES_MAX {
            return invalid(
                "batch_bytes_max",
                "with turn_bytes_max, snapshot_bytes_max, 256 bytes for each of batch_len_max and 80 MiB of mail it must be \
                 less than 1 GiB, the largest message that PostgreSQL takes",
            );
        }
        if self.beat_every < Duration::from_millis(10) {
            return invalid("beat_every", "must be 10 ms or longer");
        }
        if self
            .lease
            .is_some_and(|lease| !(Duration::from_millis(50)..=Self::LEASE_MAX).contains(&lease))
        {
            return invalid("lease", "must be 50 ms to a day");
        }
        if self.answer_wait_max < Duration::from_millis(100) {
            return invalid("answer_wait_max", "must be 100 ms or longer");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_writes_five_times_in_its_lease_and_waits_for_no_answer_for_long_beyond_it() {
        let mut config = PostgresConfig::default();
        assert_eq!(config.clone().of_node(), config);
        config.lease = Some(Duration::from_secs(2));
        let bounds = config.clone().of_node();
        let seconds = (
            bounds.beat_every.as_secs_f64(),
            bounds.answer_wait_max.as_secs_f64(),
        );
        assert_eq!(seconds, (0.4, 4.0));
        // Bounds that are shorter than the lease requires stay.
        config.lease = Some(Duration::from_secs(3_600));
        let bounds = config.clone().of_node();
        assert_eq!(bounds, config);
        config.lease = Some(Duration::MAX);
        assert!(matches!(
            config.check(),
            Err(StoreError::Config { field: "lease", .. })
        ));
    }

    #[test]
    fn a_flush_fits_into_one_message() {
        let refused = |change: fn(&mut JournalConfig)| {
            let mut config = PostgresConfig::default();
            config.check().unwrap();
            change(&mut config.journal);
            matches!(
                config.check(),
                Err(StoreError::Config {
                    field: "batch_bytes_max",
                    ..
                })
            )
        };
        assert!(refused(|journal| journal.batch_bytes_max = 1 << 30));
        assert!(refused(|journal| journal.turn_bytes_max = 1 << 30));
        assert!(refused(|journal| journal.snapshot_bytes_max = usize::MAX));
        assert!(refused(|journal| journal.batch_len_max = 1 << 22));
        assert!(!refused(|journal| journal.batch_bytes_max = 512 << 20));
    }
}
