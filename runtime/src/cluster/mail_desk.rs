//! Mail between nodes, as the parts of a runtime see it: what is posted, and what is in hand.
//!
//! ```text
//!   shard ── router ── post ──► journal ──► store ──► unread ──► MailPart ──► door of a shard
//!                                             ▲                                   │ in hand, under an epoch
//!                                             └── the mail goes, in one flush ◄───┘ with what it led to
//! ```
//!
//! Invariants: mail that is in hand is not read again, unless its partition has another epoch by now: then the shard that had
//! it has dropped it, or will. What is in hand is bounded; the rest waits in the store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use millrun_core::{Bell, Epoch, Offset, Partition};
use millrun_persistence::{Journal, MailAddress, NodeMail, OutgoingMail};

use crate::mail::PartitionMessage;
use crate::ownership::claims::OwnedTable;
use crate::wire;

/// How much mail is in hand at most: so many pieces, of so many bytes and one more.
const IN_HAND_LEN_MAX: usize = 4_096;
const IN_HAND_BYTES_MAX: usize = 64 << 20;

/// The mail of this node.
pub(crate) struct MailDesk {
    journal: Arc<dyn Journal>,
    owned: OwnedTable,
    /// Of the part that reads.
    bell: Bell,
    in_hand: Mutex<InHand>,
    set_aside: AtomicU64,
}

impl fmt::Debug for MailDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailDesk").finish_non_exhaustive()
    }
}

/// Mail that was read and is not known to have gone.
#[derive(Debug, Default)]
struct InHand {
    mail: BTreeMap<u64, MailInHand>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct MailInHand {
    /// The partition that it is for, and the epoch under which that was owned; `None` if it is for this node.
    owned: Option<(Partition, Epoch)>,
    bytes: usize,
    /// It has gone when this is durable.
    gone_at: Option<Offset>,
}

impl MailDesk {
    /// The desk of a journal over a store that has mail.
    pub(crate) fn of(journal: &Arc<dyn Journal>, owned: &OwnedTable) -> Option<Arc<Self>> {
        let bell = Bell::new();
        journal.nodes()?.mail()?.watch(bell.clone());
        Some(Arc::new(Self {
            journal: Arc::clone(journal),
            owned: owned.clone(),
            bell,
            in_hand: Mutex::default(),
            set_aside: AtomicU64::new(0),
        }))
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn store(&self) -> Option<&dyn NodeMail> {
        self.journal.nodes()?.mail()
    }

    /// How much mail was set aside since the runtime has started.
    pub(crate) fn set_aside_len(&self) -> u64 {
        self.set_aside.load(Ordering::Relaxed)
    }

    /// Whether a partition is owned here: what is for it needs no mail.
    #[inline]
    pub(crate) fn is_here(&self, partition: Partition) -> bool {
        self.owned.has(partition)
    }

    /// Posts a message to whoever owns a partition.
    pub(crate) fn post(&self, to: Partition, message: &PartitionMessage) {
        self.post_to(MailAddress::Partition(to), message);
    }

    /// Posts a message to all other nodes.
    pub(crate) fn post_to_others(&self, message: &PartitionMessage) {
        self.post_to(MailAddress::OtherNodes, message);
    }

    fn post_to(&self, to: MailAddress, message: &PartitionMessage) {
        let body = match wire::encode(message) {
            Ok(body) => Bytes::from(body),
            // Only what is said about all calls of a shard grows so long; its children stay as they are.
            Err(error) => return tracing::error!(%error, "a message to another node cannot be sent"),
        };
        if let Some(store) = self.store() {
            store.post(OutgoingMail { to, body });
        }
    }

    fn lock(&self) -> MutexGuard<'_, InHand> {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is owned, with the epochs.
    pub(crate) fn owned(&self) -> Vec<(Partition, Epoch)> {
        let owned = self.owned.owned();
        owned
            .filter_map(|partition| Some((partition, self.owned.epoch(partition)?)))
            .collect()
    }

    /// Lets go of what has gone, and of what has another owner by now. Gives the numbers of what is in hand, and how many pieces
    /// and bytes more may be.
    pub(crate) fn settle(&self) -> (Vec<u64>, usize, usize) {
        let watermark = self.journal.high_watermark();
        let mut in_hand = self.lock();
        in_hand.mail.retain(|_, mail| {
            let is_here = |(partition, epoch)| self.owned.is_owned_under(partition, epoch);
            mail.gone_at.is_none_or(|offset| offset > watermark) && mail.owned.is_none_or(is_here)
        });
        in_hand.bytes = in_hand.mail.values().map(|mail| mail.bytes).sum();
        (
            in_hand.mail.keys().copied().collect(),
            IN_HAND_LEN_MAX.saturating_sub(in_hand.mail.len()),
            IN_HAND_BYTES_MAX.saturating_sub(in_hand.bytes),
        )
    }

    /// This was read, and is given to a shard.
    pub(crate) fn take(&self, number: u64, owned: (Partition, Epoch), bytes: usize) {
        let mail = MailInHand {
            owned: Some(owned),
            bytes,
            gone_at: None,
        };
        self.lock().mail.insert(number, mail);
    }

    /// This was handled with the batch of this offset.
    pub(crate) fn handled(&self, numbers: &[u64], offset: Offset) {
        let mut in_hand = self.lock();
        for number in numbers {
            if let Some(mail) = in_hand.mail.get_mut(number) {
                mail.gone_at = Some(offset);
            }
        }
    }

    /// This was told to all shards, which ask again for what they might miss of it.
    pub(crate) fn told(&self, numbers: &[u64]) {
        let Some(store) = self.store() else { return };
        store.discard(numbers);
        self.keep_until_gone(numbers);
    }

    /// Nobody here can read this.
    pub(crate) fn put_aside(&self, numbers: &[u64]) {
        let Some(store) = self.store() else { return };
        self.set_aside.fetch_add(numbers.len() as u64, Ordering::Relaxed);
        store.set_aside(numbers);
        self.keep_until_gone(numbers);
    }

    fn keep_until_gone(&self, numbers: &[u64]) {
        // Of a flush that is not begun yet.
        let gone_at = Some(self.journal.confirm(Offset::ZERO));
        let mail = MailInHand {
            owned: None,
            bytes: 0,
            gone_at,
        };
        self.lock()
            .mail
            .extend(numbers.iter().map(|number| (*number, mail)));
    }
}
