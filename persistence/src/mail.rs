//! Mail between the nodes of a shared store: messages from one process to another, carried by the store.
//!
//! ```text
//!   node a: batch, with a step ──► one flush: its turns, and the mail ──► rows of the store ──► unread: node b
//!   node b: what the mail led to, with a step that names it ──► one flush: those turns, and the mail is gone
//! ```
//!
//! Invariants: mail is in the store from the flush that posts it to the flush that handles it. So whichever node dies, either
//! one flush has handled the mail together with its effects, or the mail waits for the next owner of its partition. The mail
//! of one node is read in the order in which it was posted.
//!
//! Left out: the contents of mail. The journal never decodes them.

use std::fmt;

use bytes::Bytes;
use millrun_core::{Bell, Epoch, Partition, RunId};

use crate::batch::Batch;
use crate::error::ReadError;

/// The addressee of mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MailAddress {
    /// The node that owns this partition when the mail is read.
    Partition(Partition),
    /// The node with this [number](crate::NodeKey::number). If it has left or was declared dead, the mail is dropped.
    Node(u64),
    /// All nodes that exist when the mail becomes durable, except the one that posts it.
    OtherNodes,
}

/// Mail to be posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingMail {
    /// Its addressee.
    pub to: MailAddress,
    /// Its contents.
    pub body: Bytes,
}

/// Mail that this node has to handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadMail {
    /// Its number in the store. The numbers of one node's mail grow.
    pub number: u64,
    /// The partition that it is addressed to; `None` if it is addressed to this node.
    pub partition: Option<Partition>,
    /// Its contents.
    pub body: Bytes,
}

/// Mail that a batch has handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandledMail {
    /// The number of the mail.
    pub number: u64,
    /// The partition that it was addressed to, and the epoch of its owner: if the epoch is stale, the mail stays.
    pub owned: Option<(Partition, Epoch)>,
}

/// What a batch does to mail: it becomes durable with the turns of the batch, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailStep {
    /// If a turn of this run in the batch is refused, the step is skipped.
    pub with: Option<RunId>,
    /// Mail that has been handled and is removed. If that is not possible, nothing is posted either.
    pub handled: Option<HandledMail>,
    /// Mail to be posted, in order: all of it or none.
    pub posts: Vec<OutgoingMail>,
}

impl Batch {
    /// Adds a mail step to the batch. Only a journal with [`NodeMail`] performs it; an appender ignores it.
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
    /// batch.mail(MailStep { with: None, handled: None, posts: vec![mail] });
    /// assert_eq!(batch.mail_steps().len(), 1);
    /// ```
    pub fn mail(&mut self, step: MailStep) {
        self.mail.push(step);
    }

    /// Removes the batch's mail steps.
    pub fn clear_mail(&mut self) {
        self.mail.clear();
    }

    /// The batch's mail steps, in order: what a journal takes.
    #[must_use]
    pub fn mail_steps(&self) -> &[MailStep] {
        &self.mail
    }
}

/// The mail of a [shared store](crate::SharedStore), as one of its nodes sees it.
pub trait NodeMail: Send + Sync {
    /// Posts mail with one of the next flushes, in the order of the calls. Never waits, and is never refused: queued mail
    /// fills the journal's buffer as turns do.
    fn post(&self, mail: OutgoingMail);

    /// Removes mail that this node has handled, outside of a batch, with one of the next flushes.
    fn discard(&self, numbers: &[u64]);

    /// Keeps mail that this node cannot decode but shows it to no reader any more, with one of the next flushes.
    fn set_aside(&self, numbers: &[u64]);

    /// Durable mail for this node and for those of these partitions that it owns, without the mail of these numbers, in the
    /// order of the numbers: at most `bytes_max` bytes, but at least one if there is any, and at most `len_max`. May wait for
    /// the store.
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

    /// Rings `bell` when another node says that it has posted something. A ring may be lost, so also look from time to time.
    fn watch(&self, bell: Bell);
}

impl fmt::Debug for dyn NodeMail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeMail").finish_non_exhaustive()
    }
}
