//! What is said to those who asked, once it is durable.
//!
//! ```text
//!   durable ──► answers of a sweep ──► task of the workers ──► callers
//!   (shard)             ▲                       │
//!                       └──── emptied lists ◄───┘
//! ```
//!
//! Telling a caller wakes its task. From the shard's thread that is a lock of the scheduler's and a line
//! of another core's memory for each; from a worker it is a place in the worker's own queue. So many
//! answers travel there together, and the shard goes on.
//!
//! Invariants: an answer that was handed over is sent, whatever becomes of the task: dropping it sends it.
//! At most [`QUEUE_LEN_MAX`] lists wait for the task; while it is behind, the shard sends them itself.

use std::fmt;
use std::mem;

use millrun_core::Host;
use millrun_workflow::Payload;
use tokio::sync::mpsc;

use super::message::{Reply, Standing, StartedRun, UpdateAnswer, UpdateRefused, UpdateReply};
use crate::describe::{InstanceDescription, InstanceSummary};
use crate::{QueryError, RunError, StartError};

/// So few are sent where they are: handing them over would cost as much, and take longer.
const DIRECT_LEN_MAX: usize = 4;

/// So many lists of answers wait for the task at most: those of more sweeps than may be in flight at once.
const QUEUE_LEN_MAX: usize = 256;

/// So many emptied lists wait to be filled again.
const SPARE_LEN_MAX: usize = 16;

/// To one who asked.
pub(super) enum Answer {
    Start(Reply<StartedRun, StartError>, Result<StartedRun, StartError>),
    Tell(Reply<()>, Result<(), RunError>),
    Standing(Reply<Standing>, Result<Standing, RunError>),
    Describe(
        Reply<InstanceDescription>,
        Result<Box<InstanceDescription>, RunError>,
    ),
    Query(Reply<Payload, QueryError>, Result<Payload, QueryError>),
    Update(UpdateReply, Result<UpdateAnswer, UpdateRefused>),
    List(Reply<Vec<InstanceSummary>>, Vec<InstanceSummary>),
}

impl Answer {
    /// That nobody waits for it any more is no error.
    fn send(self) {
        match self {
            Self::Start(reply, answer) => drop(reply.send(answer)),
            Self::Tell(reply, answer) => drop(reply.send(answer)),
            Self::Standing(reply, answer) => drop(reply.send(answer)),
            Self::Describe(reply, answer) => drop(reply.send(answer.map(|description| *description))),
            Self::Query(reply, answer) => drop(reply.send(answer)),
            Self::Update(reply, answer) => drop(reply.send(answer)),
            Self::List(reply, answer) => drop(reply.send(Ok(answer))),
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start(..) => "Start",
            Self::Tell(..) => "Tell",
            Self::Standing(..) => "Standing",
            Self::Describe(..) => "Describe",
            Self::Query(..) => "Query",
            Self::Update(..) => "Update",
            Self::List(..) => "List",
        })
    }
}

/// Durable answers, in order. Dropping them sends them.
#[derive(Debug)]
struct Answers(Vec<Answer>);

impl Answers {
    /// Sends them, and gives the emptied list.
    fn send(mut self) -> Vec<Answer> {
        send(&mut self.0);
        mem::take(&mut self.0)
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        send(&mut self.0);
    }
}

fn send(answers: &mut Vec<Answer>) {
    answers.drain(..).for_each(Answer::send);
}

/// The way of durable answers out of a shard. Its task ends with it, when all are sent.
#[derive(Debug)]
pub(super) struct Outbox {
    door: mpsc::Sender<Answers>,
    spare: mpsc::Receiver<Vec<Answer>>,
}

impl Outbox {
    pub(super) fn new(host: &dyn Host) -> Self {
        let (outbox, task) = Self::with_task();
        host.spawn("answers", Box::pin(task));
        outbox
    }

    fn with_task() -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (door, mut lists) = mpsc::channel::<Answers>(QUEUE_LEN_MAX);
        let (emptied, spare) = mpsc::channel(SPARE_LEN_MAX);
        let task = async move {
            while let Some(answers) = lists.recv().await {
                // More than are wanted are let go of.
                drop(emptied.try_send(answers.send()));
            }
        };
        (Self { door, spare }, task)
    }

    /// Sends answers that are durable, and leaves an empty list.
    pub(super) fn send(&mut self, answers: &mut Vec<Answer>) {
        if answers.len() <= DIRECT_LEN_MAX {
            return send(answers);
        }
        let empty = self.spare.try_recv().unwrap_or_default();
        let answers = Answers(mem::replace(answers, empty));
        // What the task has no room for is sent here, by being dropped.
        drop(self.door.try_send(answers));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    type Told = oneshot::Receiver<Result<(), RunError>>;

    /// Sends so many answers at once.
    fn send(outbox: &mut Outbox, len: usize) -> Vec<Told> {
        let (replies, waiting): (Vec<_>, _) = (0..len).map(|_| oneshot::channel()).unzip();
        let answers = replies.into_iter().map(|reply| Answer::Tell(reply, Ok(())));
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
}
