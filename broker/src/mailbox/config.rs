//! The bounds of a mailbox, and its counters.

/// How much a [`Mailbox`](super::Mailbox) holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxConfig {
    /// The most values queued and in hand. Default 256.
    pub capacity: usize,
    /// The most bytes that the values hold, as the weighing function returns them; without one this does not apply. Values
    /// that an inbox shares with others count until the whole bundle is finished: at most a quarter of this, or a single
    /// heavier value. Payloads of plain bytes that return to their publisher are counted in the mailbox; the reader's hand
    /// may hold an eighth of this in addition. Empty envelopes that wait for reuse are not counted. Default 16 MiB.
    pub bytes_max: usize,
}

impl MailboxConfig {
    /// The default of [`MailboxConfig::capacity`].
    pub const CAPACITY: usize = 256;
    /// The default of [`MailboxConfig::bytes_max`].
    pub const BYTES_MAX: usize = 16 << 20;

    pub(super) fn check(&self) -> Result<(), MailboxConfigError> {
        if self.capacity == 0 {
            return Err(MailboxConfigError::NoCapacity);
        }
        if self.bytes_max == 0 {
            return Err(MailboxConfigError::NoBytes);
        }
        Ok(())
    }
}

impl Default for MailboxConfig {
    fn default() -> Self {
        Self {
            capacity: Self::CAPACITY,
            bytes_max: Self::BYTES_MAX,
        }
    }
}

/// Why a mailbox cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MailboxConfigError {
    /// [`MailboxConfig::capacity`] is zero: nothing could ever be pushed.
    #[error("the capacity of a mailbox must be at least 1")]
    NoCapacity,
    /// [`MailboxConfig::bytes_max`] is zero.
    #[error("the byte bound of a mailbox must be at least 1")]
    NoBytes,
}

/// Counters of a mailbox since it was made.
///
/// `pushed + pushed_reserved = taken + queued + in_hand + displaced + discarded`, except that `displaced` also counts values
/// that were refused because values in hand filled the mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MailboxStats {
    /// Values pushed, not counting reserved ones.
    pub pushed: u64,
    /// Values pushed with a reserved place.
    pub pushed_reserved: u64,
    /// Values handed out to the consumer.
    pub taken: u64,
    /// Values refused because the mailbox was full.
    pub refused: u64,
    /// Values removed or turned away to make room for newer ones.
    pub displaced: u64,
    /// Values removed by closing.
    pub discarded: u64,
    /// How often a pusher had to wait for room.
    pub waits: u64,
    /// Values in the queue now.
    pub queued: usize,
    /// Values taken but not handed out yet.
    pub in_hand: usize,
    /// Whether a consumer has a hand out: it may still handle its last value, until it takes more or drops the hand.
    pub hand_out: bool,
    /// Pushers that wait for room now.
    pub waiting: usize,
    /// The longest the queue has been.
    pub len_max: usize,
}
