//! Where the answer to a request goes: to a caller in this process, or by mail to one of another node.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use millrun_core::{Epoch, Partition};
use tokio::sync::oneshot;

use super::request::Changed;
use crate::RunError;
use crate::cluster::mail_desk::MailDesk;
use crate::wire::calls::AnswerToNode;

/// A caller in this process.
pub(crate) type CallerReply<T, E = RunError> = oneshot::Sender<Result<T, E>>;

/// Where an answer goes. Sent only when everything it depends on is durable.
pub(crate) enum Reply<T, E = RunError> {
    Caller(CallerReply<T, E>),
    /// The answer is mailed with the sweep that gives it.
    Node(Box<AskedBy>),
}

impl<T, E> Reply<T, E> {
    /// Sends the answer to a caller of this process; that it has gone is no error. A caller of another node has it by mail.
    pub(crate) fn send(self, answer: Result<T, E>) {
        if let Self::Caller(caller) = self {
            drop(caller.send(answer));
        }
    }

    /// Whether it is known that nobody waits for the answer any more.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::Caller(caller) if caller.is_closed())
    }

    /// Who waits, if that is somebody of another node.
    pub(crate) fn asked_by(&self) -> Option<&AskedBy> {
        match self {
            Self::Caller(_) => None,
            Self::Node(asked) => Some(asked),
        }
    }
}

impl<T, E> From<CallerReply<T, E>> for Reply<T, E> {
    fn from(caller: CallerReply<T, E>) -> Self {
        Self::Caller(caller)
    }
}

impl<T, E> fmt::Debug for Reply<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// A caller of another node, who has asked by mail. Dropped without an answer, the mail is read again, or the caller told to ask
/// again.
pub(crate) struct AskedBy {
    desk: Arc<MailDesk>,
    /// The number of the node, and of the question there.
    pub(crate) node: u64,
    pub(crate) question: u64,
    /// The mail, which goes with the answer, and the partition that it was for; `None` if it went when it was read, because
    /// asking twice does no harm.
    pub(crate) mail: Option<Arc<MailInHands>>,
    is_answered: AtomicBool,
}

/// Mail that goes with its answer, or with the last of its answers.
#[derive(Debug)]
pub(crate) struct MailInHands {
    pub(crate) number: u64,
    /// The partition that it is for, and the epoch under which that was owned when it was read.
    pub(crate) owned: (Partition, Epoch),
    /// How many answers are still to come.
    answers: AtomicUsize,
}

impl MailInHands {
    pub(crate) fn new(number: u64, owned: (Partition, Epoch), answers: usize) -> Arc<Self> {
        Arc::new(Self {
            number,
            owned,
            answers: AtomicUsize::new(answers),
        })
    }

    /// How many answers are still to come.
    pub(crate) fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }

    /// One of its answers comes, or never will; whether that was the last.
    fn end_answer(&self) -> bool {
        self.answers.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

impl AskedBy {
    pub(crate) fn new(
        desk: Arc<MailDesk>,
        (node, question): (u64, u64),
        mail: Option<Arc<MailInHands>>,
    ) -> Self {
        Self {
            desk,
            node,
            question,
            mail,
            is_answered: AtomicBool::new(false),
        }
    }

    /// The answer was queued with its sweep. Gives the number of the mail that goes with it, if some does.
    pub(crate) fn note_answered(&self) -> Option<u64> {
        self.is_answered.store(true, Ordering::Relaxed);
        let mail = self.mail.as_ref()?;
        mail.end_answer().then_some(mail.number)
    }

    /// The caller watches the run: it is told when that goes on.
    pub(crate) fn watch(&self, changed: Changed) {
        let (desk, asker) = (Arc::clone(&self.desk), (self.node, self.question));
        self.desk.spawn(async move {
            // A shard that fails tells nobody, and its watchers look again.
            drop(changed.await);
            desk.post_answer(asker, AnswerToNode::Changed);
        });
    }
}

impl Drop for AskedBy {
    fn drop(&mut self) {
        if *self.is_answered.get_mut() {
            return;
        }
        let asker = (self.node, self.question);
        match &self.mail {
            None => self.desk.post_answer(asker, AnswerToNode::AskAgain),
            Some(mail) if mail.end_answer() => self.desk.give_back(mail.number, mail.owned),
            // The other answer says what has become of it.
            Some(_) => self.desk.post_answer(asker, AnswerToNode::Dropped),
        }
    }
}
