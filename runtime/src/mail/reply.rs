//! Where the answer to a request goes: to a caller in this process, alone or among other answers, or by mail to a caller of
//! another node.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrun_core::{Epoch, Partition};
use tokio::sync::oneshot;

use super::gathered::GatheredReply;
use super::request::Changed;
use crate::RunError;
use crate::cluster::mail_desk::MailDesk;
use crate::wire::calls::AnswerToNode;

/// A caller in this process.
pub(crate) type CallerReply<T, E = RunError> = oneshot::Sender<Result<T, E>>;

/// Where an answer goes. It is sent only when everything that it depends on is durable.
pub(crate) enum Reply<T, E = RunError> {
    Caller(CallerReply<T, E>),
    /// A caller of this process that gathers the answers to many requests.
    Gathered(GatheredReply<T, E>),
    /// The answer is mailed in the commit of the sweep that gives it.
    Node(Box<AskedBy>),
}

impl<T, E> Reply<T, E> {
    /// Sends the answer to a caller of this process; it is no error if the caller has gone. A caller of another node gets it
    /// by mail.
    pub(crate) fn send(self, answer: Result<T, E>) {
        match self {
            Self::Caller(caller) => drop(caller.send(answer)),
            Self::Gathered(gathered) => gathered.send(answer),
            Self::Node(_) => {}
        }
    }

    /// Whether it is known that no caller waits for the answer any more.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Caller(caller) => caller.is_closed(),
            Self::Gathered(gathered) => gathered.is_closed(),
            Self::Node(_) => false,
        }
    }

    /// The caller of another node, if it is one.
    pub(crate) fn asked_by(&self) -> Option<&AskedBy> {
        match self {
            Self::Caller(_) | Self::Gathered(_) => None,
            Self::Node(asked) => Some(asked),
        }
    }
}

/// Makes the replies for a request that came by mail.
pub(crate) trait Replies {
    /// The reply for the question with this number.
    fn of<T, E>(&self, question: u64) -> Reply<T, E>;
}

/// Replies to a caller of another node.
pub(crate) struct RepliesToNode {
    pub(crate) desk: Arc<MailDesk>,
    /// The number of that node.
    pub(crate) node: u64,
    /// The partition that the request is for, with the epoch under which it was owned when the mail was read.
    pub(crate) owned: (Partition, Epoch),
    /// The mail, unless it is already removed from the store.
    pub(crate) mail: Option<Arc<MailToAnswer>>,
}

impl Replies for RepliesToNode {
    fn of<T, E>(&self, question: u64) -> Reply<T, E> {
        Reply::Node(Box::new(AskedBy {
            desk: Arc::clone(&self.desk),
            node: self.node,
            question,
            owned: self.owned,
            mail: self.mail.clone(),
            is_answered: AtomicBool::new(false),
        }))
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

/// A caller of another node, which has asked by mail. If this is dropped without an answer, the mail is read again, or the
/// caller is told to ask again.
pub(crate) struct AskedBy {
    desk: Arc<MailDesk>,
    /// The number of the node, and the number of the question on that node.
    pub(crate) node: u64,
    pub(crate) question: u64,
    /// The partition, with the epoch under which it was owned when the mail was read.
    owned: (Partition, Epoch),
    /// The mail, which is removed together with the answer; `None` if it was removed when it was read, because asking twice
    /// does no harm.
    pub(crate) mail: Option<Arc<MailToAnswer>>,
    is_answered: AtomicBool,
}

/// Mail that is removed together with its answers: with the last of them, or with the answer to a start if the question
/// beside it may be repeated.
#[derive(Debug)]
pub(crate) struct MailToAnswer {
    pub(crate) number: u64,
    /// The partition that the mail is for, with the epoch under which it was owned when the mail was read.
    pub(crate) owned: (Partition, Epoch),
    /// The question whose answer removes the mail, even if another answer is still to come.
    enough: Option<u64>,
    state: Mutex<MailAnswers>,
}

#[derive(Debug)]
struct MailAnswers {
    /// The number of outstanding answers.
    left: usize,
    /// Whether an answer that was queued removes the mail.
    has_gone: bool,
    /// The questions that get no answer.
    dropped: Vec<u64>,
}

/// What happens with a question that was dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DroppedQuestion {
    /// Its mail is read again.
    ReadAgain,
    /// Its mail is removed: the caller is told to ask again.
    AskAgain,
    /// The answer to the other question of the mail covers it.
    ToldWithOther,
}

impl MailToAnswer {
    pub(crate) fn new(
        number: u64,
        owned: (Partition, Epoch),
        answers: usize,
        enough: Option<u64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            owned,
            enough,
            state: Mutex::new(MailAnswers {
                left: answers,
                has_gone: false,
                dropped: Vec::new(),
            }),
        })
    }

    /// Whether the answer to this question, the `in_sweep`th to the mail in the present sweep, removes the mail.
    fn goes_with(&self, question: u64, in_sweep: usize) -> bool {
        let state = self.state();
        !state.has_gone && (self.enough == Some(question) || in_sweep >= state.left)
    }

    /// Notes that an answer was queued with its sweep. Returns whether it removes the mail.
    fn note_answered(&self, question: u64) -> bool {
        let mut state = self.state();
        state.left = state.left.saturating_sub(1);
        let goes = !state.has_gone && (self.enough == Some(question) || state.left == 0);
        state.has_gone |= goes;
        goes
    }

    /// Notes that a question was dropped without an answer.
    fn note_dropped(&self, question: u64) -> DroppedQuestion {
        let mut state = self.state();
        if state.has_gone {
            return DroppedQuestion::AskAgain;
        }
        state.left = state.left.saturating_sub(1);
        if state.left == 0 {
            return DroppedQuestion::ReadAgain;
        }
        state.dropped.push(question);
        DroppedQuestion::ToldWithOther
    }

    /// The other questions of the mail that get no answer; their callers are told together with the answer that removes the
    /// mail.
    pub(crate) fn dropped(&self) -> Vec<u64> {
        self.state().dropped.clone()
    }

    fn state(&self) -> MutexGuard<'_, MailAnswers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AskedBy {
    /// Whether this answer, the `in_sweep`th to its mail in the present sweep, removes the mail.
    pub(crate) fn is_last(&self, in_sweep: usize) -> bool {
        let mail = self.mail.as_ref();
        mail.is_some_and(|mail| mail.goes_with(self.question, in_sweep))
    }

    /// Notes that the answer was queued with its sweep. Returns the number of the mail that it removes, if any.
    pub(crate) fn note_answered(&self) -> Option<u64> {
        self.is_answered.store(true, Ordering::Relaxed);
        let mail = self.mail.as_ref()?;
        mail.note_answered(self.question).then_some(mail.number)
    }

    /// The caller watches the run: it is answered when the run makes progress.
    pub(crate) fn watch(&self, changed: Changed) {
        self.is_answered.store(true, Ordering::Relaxed);
        let (desk, asker) = (Arc::clone(&self.desk), (self.node, self.question));
        self.desk.spawn(async move {
            // A shard that fails drops its watchers, which look again.
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
        let dropped = self
            .mail
            .as_ref()
            .map(|mail| (mail.note_dropped(self.question), mail));
        match dropped {
            None | Some((DroppedQuestion::AskAgain, _)) => {
                let asker = (self.node, self.question);
                let answer = match self.desk.is_owned_under(self.owned) {
                    true => AnswerToNode::AskAgain,
                    false => AnswerToNode::Moved,
                };
                self.desk.post_answer(asker, answer);
            }
            Some((DroppedQuestion::ReadAgain, mail)) => self.desk.give_back(mail.number, mail.owned),
            Some((DroppedQuestion::ToldWithOther, _)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 5;
    const BESIDE: u64 = 6;

    /// The mail of a start that brings an update, which may be repeated, or a signal, which may not.
    fn mail(brings_update: bool) -> Arc<MailToAnswer> {
        let owned = (Partition::from_index(3).unwrap(), Epoch::new(1));
        MailToAnswer::new(1, owned, 2, brings_update.then_some(START))
    }

    #[test]
    fn mail_goes_with_the_last_of_its_answers() {
        let mail = mail(false);
        assert!(!mail.goes_with(START, 1));
        assert!(mail.goes_with(BESIDE, 2));
        assert!(!mail.note_answered(START));
        assert!(mail.goes_with(BESIDE, 1));
        assert!(mail.note_answered(BESIDE));
        assert!(mail.dropped().is_empty());
    }

    #[test]
    fn mail_of_which_nothing_is_answered_is_read_again_and_nobody_is_told() {
        let mail = mail(false);
        assert_eq!(mail.note_dropped(START), DroppedQuestion::ToldWithOther);
        assert_eq!(mail.note_dropped(BESIDE), DroppedQuestion::ReadAgain);
    }

    #[test]
    fn who_gets_no_answer_is_told_with_the_other() {
        for brings_update in [false, true] {
            let mail = mail(brings_update);
            assert_eq!(mail.note_dropped(START), DroppedQuestion::ToldWithOther);
            assert!(mail.goes_with(BESIDE, 1));
            assert!(mail.note_answered(BESIDE));
            assert_eq!(mail.dropped(), [START]);
        }
    }

    #[test]
    fn mail_goes_with_the_start_and_an_update_that_is_lost_behind_it_is_asked_for_again() {
        let mail = mail(true);
        assert!(mail.goes_with(START, 1));
        assert!(mail.note_answered(START));
        assert!(!mail.goes_with(BESIDE, 1));
        assert_eq!(mail.note_dropped(BESIDE), DroppedQuestion::AskAgain);
        let mail = self::mail(true);
        // Both answers in one sweep, in either order.
        assert!(!mail.goes_with(BESIDE, 1));
        assert!(mail.goes_with(START, 2));
        assert!(!mail.note_answered(BESIDE));
        assert!(mail.note_answered(START));
    }
}
