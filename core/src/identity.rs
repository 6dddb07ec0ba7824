//! Who and where: instances, runs, partitions, and positions in histories and streams.

use std::fmt;
use std::str::FromStr;

use smol_str::SmolStr;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Timestamp;

/// A fixed part of the space of instance ids. Ownership, epochs and fencing are per partition.
///
/// A store has [`Partition::COUNT`] of them for ever; which shard hosts a partition is decided
/// anew each time a runtime starts and is never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u16);

impl Partition {
    /// How many partitions a store has.
    pub const COUNT: u16 = 1_024;
    /// Part of the file format: changing it would send every stored id elsewhere.
    const SEED: u64 = 0x6d69_6c6c_7275_6e31;

    /// The partition of an instance id: xxh3-64 with a fixed seed, which is stable across
    /// versions and machines.
    #[must_use]
    pub fn of(instance_id: &[u8]) -> Self {
        let bucket = xxh3_64_with_seed(instance_id, Self::SEED) % u64::from(Self::COUNT);
        Self(u16::try_from(bucket).expect("a remainder by a u16 fits a u16"))
    }

    /// The partition with this index; `None` from [`Partition::COUNT`] on.
    #[must_use]
    pub const fn from_index(index: u16) -> Option<Self> {
        if index < Self::COUNT {
            Some(Self(index))
        } else {
            None
        }
    }

    /// A number below [`Partition::COUNT`].
    #[must_use]
    pub const fn index(self) -> u16 {
        self.0
    }
}

/// The id a user gives an instance: 1 to 255 bytes of UTF-8. A cheap clone; up to 23 bytes are held in
/// place, so that threads that pass it on share nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(SmolStr);

impl InstanceId {
    /// The longest id, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// Checks and wraps an id.
    ///
    /// # Errors
    /// When it is empty or longer than [`InstanceId::BYTES_MAX`] bytes.
    pub fn new(id: &str) -> Result<Self, InstanceIdError> {
        match id.len() {
            0 => Err(InstanceIdError::Empty),
            1..=Self::BYTES_MAX => Ok(Self(SmolStr::new(id))),
            bytes => Err(InstanceIdError::TooLong { bytes }),
        }
    }

    /// The id as the user wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The partition this id belongs to.
    #[must_use]
    pub fn partition(&self) -> Partition {
        Partition::of(self.0.as_bytes())
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for InstanceId {
    type Err = InstanceIdError;

    fn from_str(id: &str) -> Result<Self, Self::Err> {
        Self::new(id)
    }
}

/// Why a string is not an instance id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstanceIdError {
    /// The id has no characters.
    Empty,
    /// The id is longer than [`InstanceId::BYTES_MAX`].
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
}

impl fmt::Display for InstanceIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("an instance id must not be empty"),
            Self::TooLong { bytes } => {
                write!(
                    f,
                    "an instance id has at most {} bytes, this one has {bytes}",
                    InstanceId::BYTES_MAX
                )
            }
        }
    }
}

impl std::error::Error for InstanceIdError {}

/// One execution of an instance. 128 bits: partition (16), start in milliseconds (48), and a
/// number that is unique among the runs started then (64).
///
/// The partition is part of it, so that a result or a timer finds its shard without the
/// instance's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u128);

impl RunId {
    /// Composes a run id. `unique` must not repeat within one partition and millisecond.
    #[must_use]
    pub const fn new(partition: Partition, started: Timestamp, unique: u64) -> Self {
        let millis = started.as_millis() & 0xffff_ffff_ffff;
        Self((partition.0 as u128) << 112 | (millis as u128) << 64 | unique as u128)
    }

    /// The run id with these bits; `None` if they name no partition.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Option<Self> {
        let partition = bits >> 112;
        if partition < Partition::COUNT as u128 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// All 128 bits.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// When the run began, in whole milliseconds.
    #[must_use]
    pub const fn started(self) -> Timestamp {
        let millis = (self.0 >> 64) & 0xffff_ffff_ffff;
        Timestamp::from_micros((millis as u64).saturating_mul(1_000))
    }

    /// The partition the run's instance id belongs to.
    #[must_use]
    pub const fn partition(self) -> Partition {
        Partition((self.0 >> 112) as u16)
    }
}

impl fmt::Display for RunId {
    /// 32 lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

macro_rules! position {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Before the first.
            pub const ZERO: Self = Self(0);

            /// Wraps a number.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The one after this.
            ///
            /// # Panics
            /// At 2^64, which no store reaches.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.checked_add(1).expect("fewer than 2^64 in one store"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

position! {
    /// The place of an event in the history of its run, or of a record in its topic: 1 for the first, without gaps.
    Sequence
}
position! {
    /// A position in a stream of commits or envelopes.
    Offset
}
position! {
    /// The growing number that makes a late owner of a partition harmless (a fencing token).
    Epoch
}

impl Epoch {
    /// The epoch of the `takeover`-th taking of a partition within the `opening`-th opening of its
    /// store, counted from one; the 0th is that of the opening itself.
    #[must_use]
    pub const fn of(opening: u32, takeover: u32) -> Self {
        Self((opening as u64) << 32 | takeover as u64)
    }

    /// How often the store had been opened.
    #[must_use]
    pub const fn opening(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// How often partitions had been taken within that opening.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    pub const fn takeover(self) -> u32 {
        self.0 as u32
    }

    /// By how much an owner with this epoch comes after the one with an `earlier` epoch: more than
    /// any other that came between them. Zero for itself, and at most `u32::MAX`.
    ///
    /// A store counts each taking within an opening but the first as an opening of its own, so that
    /// those of a later opening come after all of them.
    /// Where several owners have a store open at a time, one may take a partition after a later one has opened the store. If
    /// that takes the partition back, its epoch continues that of the former owner.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        match self.opening().saturating_sub(earlier.opening()) {
            0 => self.takeover().saturating_sub(earlier.takeover()),
            openings => openings.saturating_add(self.takeover().saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_comes_after_another_by_more_than_any_that_came_between_them() {
        // Two takings of the first opening: the second counts as an opening of its own.
        let owners = [
            Epoch::of(1, 1),
            Epoch::of(1, 2),
            Epoch::of(3, 1),
            Epoch::of(3, 2),
            Epoch::of(5, 1),
        ];
        for (at, first) in owners.iter().enumerate() {
            assert_eq!(first.since(*first), 0);
            let distances: Vec<_> = owners[at..].iter().map(|owner| owner.since(*first)).collect();
            assert!(
                distances.is_sorted_by(|one, other| one < other),
                "{first:?}: {distances:?}"
            );
        }
        assert_eq!(Epoch::of(u32::MAX, u32::MAX).since(Epoch::of(0, 1)), u32::MAX);
        assert_eq!(Epoch::of(1, 1).since(Epoch::of(2, 1)), 0);
    }

    #[test]
    fn an_id_is_checked_when_it_is_made() {
        assert_eq!(InstanceId::new("").unwrap_err(), InstanceIdError::Empty);
        assert_eq!(
            InstanceId::new(&"x".repeat(256)).unwrap_err(),
            InstanceIdError::TooLong { bytes: 256 }
        );
        assert_eq!(InstanceId::new(&"x".repeat(255)).unwrap().as_str().len(), 255);
    }

    #[test]
    fn the_partition_of_an_id_never_changes() {
        // Golden values: stored ids depend on them.
        assert_eq!(Partition::of(b"order-42").index(), 694);
        assert_eq!(Partition::of(b"").index(), 870);
    }

    #[test]
    fn an_epoch_grows_with_openings_and_takeovers() {
        let epoch = Epoch::of(3, 7);
        assert_eq!((epoch.opening(), epoch.takeover()), (3, 7));
        assert!(epoch < Epoch::of(3, 8) && Epoch::of(3, u32::MAX) < Epoch::of(4, 0));
    }

    #[test]
    fn a_run_id_carries_its_partition_through_its_bits() {
        let partition = Partition::from_index(1_023).unwrap();
        let run = RunId::new(partition, Timestamp::from_micros(u64::MAX), u64::MAX);
        assert_eq!(run.partition(), partition);
        let started = Timestamp::from_micros(1_700_000_000_123_456);
        let run_then = RunId::new(partition, started, 7);
        assert_eq!(run_then.started().as_micros(), 1_700_000_000_123_000);
        assert_eq!(RunId::from_bits(run.bits()), Some(run));
        assert_eq!(RunId::from_bits(u128::MAX), None);
        assert_eq!(Partition::from_index(1_024), None);
    }
}
