//! Answers to callers, sent once they are durable.
//!
//! ```text
//!   durable ──► answers of a sweep ──► task of the workers ──► callers
//!   (shard)             ▲                       │
//!                       └──── emptied lists ◄───┘
//! ```
//!
//! Sending an answer wakes its caller's task. From the shard's thread that costs a lock of the scheduler and a cache line of
//! another core for each; from a worker it costs a place in the worker's own queue. So larger lists of answers go to a task
//! on the workers, and the shard goes on.
//!
//! Invariants: a durable answer is sent whatever becomes of the task, since dropping a list sends it. At most
//! [`QUEUE_LEN_MAX`] lists wait for the task; while it is behind, the shard sends further ones itself. So answers may
//! overtake each other; a caller that waits for one answer before its next question does not notice.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use millrun_core::{Epoch, Host, Partition, RunId, panic_message};
use millrun_workflow::Payload;
use tokio::sync::{mpsc, oneshot};

use crate::looking::describe::InstanceSummary;
use crate::mail::{
    AskedBy, Changed, CommandRefused, CommandReply, Described, FoundLive, Reply, Standing, StartedRun,
    UpdateAnswer, UpdateRefused, UpdateReply,
};
use crate::topics::durable::publish::{Appended, DurablePublishError};
use crate::wire::calls::AnswerToNode;
use crate::{QueryError, RunError, StartError};

/// Up to this many answers are sent on the shard's own thread; a hand-over to the task would cost as much, and take longer.
const DIRECT_LEN_MAX: usize = 4;

/// How many lists of answers wait for the task at most.
const QUEUE_LEN_MAX: usize = 256;

/// How many emptied lists are kept for reuse, and the largest capacity of a list that is kept.
const SPARE_LEN_MAX: usize = 16;
const SPARE_CAPACITY_MAX: usize = 1_024;

/// An answer, with the channel to its caller.
pub(in crate::shard) enum Response {
    Start(Reply<StartedRun, StartError>, Result<StartedRun, StartError>),
    Tell(Reply<()>, Result<(), RunError>),
    Standing(Reply<Standing>, Result<Standing, RunError>),
    Watched(Reply<Changed>, Result<Changed, RunError>),
    Changed(Vec<oneshot::Sender<()>>),
    Describe(Reply<Described>, Result<Described, RunError>),
    Query(Reply<Payload, QueryError>, Result<Payload, QueryError>),
    Update(UpdateReply, Result<UpdateAnswer, UpdateRefused>),
    Command(CommandReply, Result<Payload, CommandRefused>),
    List(Reply<Vec<InstanceSummary>>, Vec<InstanceSummary>),
    Find(Reply<FoundLive>, FoundLive),
    Append(
        Reply<Appended, DurablePublishError>,
        Result<Appended, DurablePublishError>,
    ),
}

impl Response {
    /// Sends the answer to its caller. It is no error if the caller has gone.
    pub(in crate::shard) fn send(self) {
        match self {
            Self::Start(reply, answer) => reply.send(answer),
            Self::Tell(reply, answer) => reply.send(answer),
            Self::Standing(reply, answer) => reply.send(answer),
            Self::Watched(reply, answer) => match (reply.asked_by(), answer) {
                (Some(asked), Ok(changed)) => asked.watch(changed),
                (_, answer) => reply.send(answer),
            },
            Self::Changed(watchers) => {
                for watcher in watchers {
                    watcher.send(()).ok();
                }
            }
            Self::Describe(reply, answer) => reply.send(answer),
            Self::Query(reply, answer) => reply.send(answer),
            Self::Update(reply, answer) => reply.send(answer),
            Self::Command(reply, answer) => reply.send(answer),
            Self::List(reply, answer) => reply.send(Ok(answer)),
            Self::Find(reply, answer) => reply.send(Ok(answer)),
            Self::Append(reply, answer) => reply.send(answer),
        }
    }
}

impl Response {
    /// The question of another node that this answers, if it does.
    pub(in crate::shard) fn asked_by(&self) -> Option<&AskedBy> {
        match self {
            Self::Start(reply, _) => reply.asked_by(),
            Self::Tell(reply, _) => reply.asked_by(),
            Self::Standing(reply, _) => reply.asked_by(),
            Self::Watched(reply, _) => reply.asked_by(),
            Self::Describe(reply, _) => reply.asked_by(),
            Self::Query(reply, _) => reply.asked_by(),
            Self::Update(reply, _) => reply.asked_by(),
            Self::Command(reply, _) => reply.asked_by(),
            // Other nodes do not ask these.
            Self::Changed(_) | Self::List(..) | Self::Find(..) | Self::Append(..) => None,
        }
    }

    /// Whether it confirms that a run is watched.
    pub(in crate::shard) fn is_watched(&self) -> bool {
        matches!(self, Self::Watched(_, Ok(_)))
    }

    /// The answer as mail for another node; `epoch` gives the epoch of a run's partition.
    pub(in crate::shard) fn mailed(&self, epoch: impl Fn(RunId) -> Epoch) -> Option<AnswerToNode> {
        Some(match self {
            Self::Start(_, answer) => AnswerToNode::start(answer),
            Self::Tell(_, answer) => AnswerToNode::tell(answer),
            Self::Standing(_, answer) => AnswerToNode::standing(answer),
            Self::Watched(_, answer) => AnswerToNode::watched(answer),
            Self::Describe(_, answer) => AnswerToNode::describe(answer, epoch),
            Self::Query(_, answer) => AnswerToNode::query(answer),
            Self::Update(_, answer) => AnswerToNode::update(answer),
            Self::Command(_, answer) => AnswerToNode::command(answer),
            Self::Changed(_) | Self::List(..) | Self::Find(..) | Self::Append(..) => return None,
        })
    }

    /// Turns the answer into the news that the partition has another owner.
    pub(in crate::shard) fn moved(self, partition: Partition) -> Self {
        let error = || RunError::Moved {
            partition,
            owner: None,
        };
        match self {
            Self::Start(reply, _) => Self::Start(
                reply,
                Err(StartError::Moved {
                    partition,
                    owner: None,
                }),
            ),
            Self::Tell(reply, _) => Self::Tell(reply, Err(error())),
            Self::Standing(reply, _) => Self::Standing(reply, Err(error())),
            Self::Watched(reply, _) => Self::Watched(reply, Err(error())),
            Self::Describe(reply, _) => Self::Describe(reply, Err(error())),
            Self::Query(reply, _) => Self::Query(reply, Err(error().into())),
            Self::Update(reply, _) => Self::Update(reply, Err(error().into())),
            Self::Command(reply, _) => Self::Command(reply, Err(error().into())),
            Self::Append(reply, _) => Self::Append(reply, Err(DurablePublishError::Moved { partition })),
            // Watchers are woken as usual; they ask again, and are then told of the loss.
            Self::Changed(watchers) => Self::Changed(watchers),
            // Searches concern all partitions.
            Self::List(reply, list) => Self::List(reply, list),
            Self::Find(reply, found) => Self::Find(reply, found),
        }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start(..) => "Start",
            Self::Tell(..) => "Tell",
            Self::Standing(..) => "Standing",
            Self::Watched(..) => "Watched",
            Self::Changed(_) => "Changed",
            Self::Describe(..) => "Describe",
            Self::Query(..) => "Query",
            Self::Update(..) => "Update",
            Self::Command(..) => "Command",
            Self::List(..) => "List",
            Self::Find(..) => "Find",
            Self::Append(..) => "Append",
        })
    }
}

/// Durable answers of a sweep, in order. Dropping them sends them.
#[derive(Debug)]
struct Responses(Vec<Response>);

impl Responses {
    /// Sends the answers, and returns the emptied list.
    fn send(mut self) -> Vec<Response> {
        send(&mut self.0);
        mem::take(&mut self.0)
    }
}

impl Drop for Responses {
    fn drop(&mut self) {
        send(&mut self.0);
    }
}

fn send(answers: &mut Vec<Response>) {
    for answer in answers.drain(..) {
        // Waking a task runs code of its executor, which may panic.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| answer.send())) {
            tracing::error!(panic = panic_message(panic), "waking a caller panicked");
        }
    }
}

/// Emptied lists for reuse.
type Spare = Arc<Mutex<Vec<Vec<Response>>>>;

/// Takes durable answers to the task that sends them. The task ends after the outbox is dropped and all are sent.
#[derive(Debug)]
pub(in crate::shard) struct Outbox {
    door: mpsc::Sender<Responses>,
    spare: Spare,
}

impl Outbox {
    pub(in crate::shard) fn new(host: &dyn Host) -> Self {
        let (outbox, task) = Self::with_task();
        host.spawn("answers", Box::pin(task));
        outbox
    }

    fn with_task() -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (door, mut lists) = mpsc::channel::<Responses>(QUEUE_LEN_MAX);
        let spare = Spare::default();
        let emptied = Arc::clone(&spare);
        let task = async move {
            while let Some(answers) = lists.recv().await {
                let list = answers.send();
                let mut emptied = emptied.lock().unwrap_or_else(PoisonError::into_inner);
                if emptied.len() < SPARE_LEN_MAX && list.capacity() <= SPARE_CAPACITY_MAX {
                    emptied.push(list);
                }
            }
        };
        (Self { door, spare }, task)
    }

    /// Sends durable answers, and leaves an empty list.
    pub(in crate::shard) fn send(&mut self, answers: &mut Vec<Response>) {
        if answers.len() <= DIRECT_LEN_MAX {
            return send(answers);
        }
        // `try_lock`: the shard must not wait for the task.
        let empty = self.spare.try_lock().ok().and_then(|mut spare| spare.pop());
        let answers = Responses(mem::replace(answers, empty.unwrap_or_default()));
        // If the queue is full, the list is dropped here, which sends the answers.
        drop(self.door.try_send(answers));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Wake, Waker};

    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    type Told = oneshot::Receiver<Result<(), RunError>>;

    /// Sends the first `len` answers together.
    fn send(outbox: &mut Outbox, len: usize) -> Vec<Told> {
        let (replies, waiting): (Vec<_>, _) = (0..len).map(|_| oneshot::channel()).unzip();
        let answers = replies
            .into_iter()
            .map(|reply| Response::Tell(Reply::from(reply), Ok(())));
        outbox.send(&mut answers.collect());
        waiting
    }

    fn are_told(waiting: &mut [Told]) -> bool {
        waiting
            .iter_mut()
            .all(|told| matches!(told.try_recv(), Ok(Ok(()))))
    }

    fn none_is_told(waiting: &mut [Told]) -> bool {
        waiting
            .iter_mut()
            .all(|told| matches!(told.try_recv(), Err(TryRecvError::Empty)))
    }

    #[tokio::test]
    async fn many_are_sent_by_the_task_and_few_without_it() {
        let (mut outbox, task) = Outbox::with_task();
        assert!(are_told(&mut send(&mut outbox, DIRECT_LEN_MAX)));
        let mut many = send(&mut outbox, DIRECT_LEN_MAX + 1);
        assert!(none_is_told(&mut many));
        drop(outbox);
        task.await;
        assert!(are_told(&mut many));
    }

    #[test]
    fn what_the_task_has_no_room_for_is_sent_without_it() {
        let (mut outbox, task) = Outbox::with_task();
        let mut queued: Vec<_> = (0..QUEUE_LEN_MAX).map(|_| send(&mut outbox, 10)).collect();
        assert!(queued.iter_mut().all(|list| none_is_told(list)));
        assert!(are_told(&mut send(&mut outbox, 10)));
        // The task ends before it has begun.
        drop(task);
        assert!(queued.iter_mut().all(|list| are_told(list)));
        assert!(are_told(&mut send(&mut outbox, 10)));
    }

    #[test]
    fn a_caller_whose_waker_panics_keeps_no_other_from_its_answer() {
        struct Panicking;

        impl Wake for Panicking {
            fn wake(self: Arc<Self>) {
                panic!("this executor is broken");
            }
        }

        let (mut outbox, _task) = Outbox::with_task();
        let (reply, mut told) = oneshot::channel();
        let waker = Waker::from(Arc::new(Panicking));
        assert!(
            Pin::new(&mut told)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        let (other, other_told) = oneshot::channel();
        outbox.send(&mut vec![
            Response::Tell(Reply::from(reply), Ok(())),
            Response::Tell(Reply::from(other), Ok(())),
        ]);
        assert!(are_told(&mut [other_told]));
    }
}
