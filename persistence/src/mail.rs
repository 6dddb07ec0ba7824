//! Mail between the nodes of a shared store: what one process has for another goes through the store.
//!
//! ```text
//!   node a: batch, with a step ──► one flush: its turns, and the mail ──► rows of the store ──► unread: node b
//!   node b: what the mail led to, with a step that names it ──► one flush: those turns, and the mail is gone
//! ```
//!
//! Invariants: mail is in the store from the flush that posts it to the flush that handles it. So whichever node dies, one flush
//! handles the mail together with what it led to, or the mail waits for the next owner of its partition. Mail of one
//! node is read in the order in which it was posted.
//!
//! Left out: what mail says. The journal never opens it.

use std::fmt;

use bytes::Bytes;
use millrun_core::{Bell, Epoch, Partition, RunId};

use crate::batch::Batch;
use crate::error::ReadError;

/// Whom mail is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MailAddress {
    /// The node that owns this partition when the mail is read.
    Partition(Partition),
    /// The node with this [number](crate::NodeKey::number). If that has left, or was declared dead, there is no such mail.
    Node(u64),
    /// All nodes that there are when it becomes durable, but the one that posts it.
    OtherNodes,
}

/// Mail that is posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingMail {
    /// Whom it is for.
    pub to: MailAddress,
    /// What it says.
    pub body: Bytes,
}

/// Mail that is to be handled by this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadMail {
    /// Its number in the store. Mail of one node has growing numbers.
    pub number: u64,
    /// The partition that it is for; `None` if it is for this node.
    pub partition: Option<Partition>,
    /// What it says.
    pub body: Bytes,
}

/// Mail that a batch has handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandledMail {
    /// The number of the mail.
    pub number: u64,
    /// The partition that it was for, and the epoch under which that is owned: under another one the mail stays.
    pub owned: Option<(Partition, Epoch)>,
}

/// What becomes of mail with a batch: it becomes durable with the turns of the batch, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailStep {
    /// Nothing of it is done if a turn of this run in the batch is refused.
    pub with: Option<RunId>,
    /// Mail that has been handled, and goes. If it cannot, nothing is posted either.
    pub handled: Option<HandledMail>,
    /// Mail that is posted.
    pub post: Option<OutgoingMail>,
}

impl Batch {
    /// Adds what becomes of mail with the batch. Only a journal with [`NodeMail`] does any of it, and an appender passes it over.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use millrun_core::Partition;
    /// use millrun_persistence::{Batch, MailAddress, MailStep, OutgoingMail};
    ///
    /// let mut batch = Batch::new();
    /// let mail = OutgoingMail {
    ///     to: MailAddress::Partition(Partition::of(b"order-42")),
    ///     body: Bytes::from_static(b"shipped"),
    /// };
    /// batch.mail(MailStep { with: None, handled: None, post: Some(mail) });
    /// assert_eq!(batch.mail_steps().len(), 1);
    /// ```
    pub fn mail(&mut self, step: MailStep) {
        self.mail.push(step);
    }

    /// Takes out what becomes of mail with it.
    pub fn clear_mail(&mut self) {
        self.mail.clear();
    }

    /// What becomes of mail with it, in order: what a journal takes.
    #[must_use]
    pub fn mail_steps(&self) -> &[MailStep] {
        &self.mail
    }
}

/// The mail of a [shared store](crate::SharedStore), as one of its nodes sees it.
pub trait NodeMail: Send + Sync {
    /// Posts mail with one of the next flushes, in the order of the calls. Never waits, and is never refused: what is queued of
    /// it keeps batches out as turns do.
    fn post(&self, mail: OutgoingMail);

    /// Mail that this node has handled, outside of a batch: it goes with one of the next flushes.
    fn discard(&self, numbers: &[u64]);

    /// Keeps mail that nobody here can read, and that nobody is shown any more, with one of the next flushes.
    fn set_aside(&self, numbers: &[u64]);

    /// Durable mail for this node and for those of these partitions that it owns, but for mail of these numbers, in the order of
    /// the numbers: as much as has `bytes_max` bytes, one at least if there is any, and `len_max` at most. May wait for the store.
    ///
    /// # Errors
    /// When the store could not be read.
    fn unread(
        &self,
        partitions: &[Partition],
        except: &[u64],
        len_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<UnreadMail>, ReadError>;

    /// The latest durable epochs of these partitions, also of those that other nodes own. May wait for the store.
    ///
    /// # Errors
    /// When the store could not be read.
    fn epochs(&self, partitions: &[Partition]) -> Result<Vec<(Partition, Epoch)>, ReadError>;

    /// Rings `bell` when another node says that it has posted something. A ring may be lost: look from time to time as well.
    fn watch(&self, bell: Bell);
}

impl fmt::Debug for dyn NodeMail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeMail").finish_non_exhaustive()
    }
}
