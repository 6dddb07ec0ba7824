//! Finds out why a run makes no progress: from its description, the pools, the topics and its latest events.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;

use millrun_broker::{Overflow, Topology};
use millrun_core::{RunId, Sequence};
use millrun_workflow::{ActivityFailure, Awaited, Event, OperationId};

use super::{ActivityWait, AttemptStanding, FullInbox, Wait, WaitsFor, Why};
use crate::RunError;
use crate::inner::Inner;
use crate::looking::describe::{InstanceDescription, InstanceStatus, PendingDescription};
use crate::mail::{Target, Wake};

/// How many runs are described at most; documented at [`Why`].
const RUNS_MAX: usize = 64;

/// How many waits of a run are listed at most; documented at [`Why`].
const WAITS_MAX: usize = 256;

/// How many of a run's latest events are searched for the errors of its activities; documented at [`Why`].
const EVENTS_MAX: u64 = 4_096;

/// How many of these are read at a time.
const STRETCH_LEN: u64 = 256;

type Errors = BTreeMap<OperationId, ActivityFailure>;

impl Inner {
    /// Why a run does not go on.
    pub(crate) async fn why(&self, target: Target, wake: Wake) -> Result<Why, RunError> {
        let mut runs_left = RUNS_MAX;
        self.why_within(target, wake, &mut runs_left).await
    }

    /// As [`why`](Self::why), describing at most this number of runs.
    fn why_within<'a>(
        &'a self,
        target: Target,
        wake: Wake,
        runs_left: &'a mut usize,
    ) -> Pin<Box<dyn Future<Output = Result<Why, RunError>> + Send + 'a>> {
        Box::pin(async move {
            *runs_left = runs_left.saturating_sub(1);
            let mut run = self.describe(target, wake).await?;
            if run.status == InstanceStatus::Parked && run.parked.is_none() {
                // Only its code can say what is wrong with it.
                run = self.describe(Target::Run(run.run), Wake::First).await?;
            }
            let mut waits = match run.status {
                InstanceStatus::Finished => Vec::new(),
                InstanceStatus::NotRegistered => vec![one(&run, WaitsFor::Registration)],
                InstanceStatus::Parked => vec![one(
                    &run,
                    WaitsFor::Parked {
                        reason: run.parked.clone(),
                        resumes_at: run.resumes_at,
                    },
                )],
                InstanceStatus::Delayed => vec![one(
                    &run,
                    WaitsFor::StartTime {
                        at: run.resumes_at.unwrap_or(run.last_at),
                        run_try: run.run_try,
                    },
                )],
                InstanceStatus::Running => self.waits_of(&run).await,
            };
            let waiting_len = run.pending.len() + run.awaited.len();
            let more_len = match run.status {
                InstanceStatus::Running => waiting_len.saturating_sub(WAITS_MAX),
                _ => 0,
            };
            for wait in &mut waits {
                if let WaitsFor::Child { why, .. } = &mut wait.what {
                    *why = self.why_of_child(&run, wait.operation, wake, runs_left).await?;
                }
            }
            let InstanceDescription {
                id,
                run,
                workflow,
                status,
                last_at,
                ..
            } = run;
            Ok(Why {
                asked_at: self.shared.host.now(),
                id,
                run,
                workflow,
                status,
                last_at,
                waits,
                more_len,
            })
        })
    }

    /// Why a child makes no progress, if it has begun and the limit allows one more.
    async fn why_of_child(
        &self,
        parent: &InstanceDescription,
        call: Option<OperationId>,
        wake: Wake,
        runs_left: &mut usize,
    ) -> Result<Option<Box<Why>>, RunError> {
        let child = parent.pending.iter().find_map(|pending| match pending {
            PendingDescription::Child { operation, run, .. } if Some(*operation) == call => *run,
            _ => None,
        });
        let Some(child) = child.filter(|_| *runs_left > 0) else {
            return Ok(None);
        };
        match self.why_within(Target::Run(child), wake, runs_left).await {
            Ok(why) => Ok(Some(Box::new(why))),
            // Its end is on the way.
            Err(RunError::NotFound | RunError::Finished | RunError::Expired) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The waits of a run whose code runs.
    async fn waits_of(&self, run: &InstanceDescription) -> Vec<Wait> {
        let errors = self.last_errors(run).await;
        let publishes = |pending: &PendingDescription| matches!(pending, PendingDescription::Publish { .. });
        let topology = run.pending.iter().any(publishes).then(|| self.broker.topology());
        let pending = run.pending.iter();
        let pending = pending.map(|pending| self.wait_for(run, pending, &errors, topology.as_ref()));
        let beside = run.awaited.iter().filter_map(wait_beside);
        // Waits for people's input are few, and come before what may be thousands.
        let mut waits: Vec<_> = beside.chain(pending).take(WAITS_MAX).collect();
        if let Some(reason) = &run.will_park {
            let reason = Some(reason.clone());
            waits.insert(0, one(run, WaitsFor::Foreign { reason }));
        } else if waits.is_empty() {
            waits.push(one(
                run,
                match run.is_in_memory {
                    true => WaitsFor::Foreign { reason: None },
                    false => WaitsFor::Asleep,
                },
            ));
        }
        waits
    }

    fn wait_for(
        &self,
        run: &InstanceDescription,
        pending: &PendingDescription,
        errors: &Errors,
        topology: Option<&Topology>,
    ) -> Wait {
        let (operation, since, what) = match pending {
            PendingDescription::Activity { operation, since, .. } => {
                let what = self.activity_wait(run.run, pending, errors.get(operation));
                (*operation, *since, what)
            }
            PendingDescription::Child {
                operation,
                since,
                workflow,
                id,
                ..
            } => {
                let (workflow, id, why) = (workflow.clone(), id.clone(), None);
                (*operation, *since, WaitsFor::Child { workflow, id, why })
            }
            PendingDescription::Publish {
                operation,
                since,
                topic,
                is_registered,
                ..
            } => {
                let what = WaitsFor::Publish {
                    topic: topic.clone(),
                    is_registered: *is_registered,
                    full: topology.map_or_else(Vec::new, |topology| full_inboxes(topology, topic)),
                };
                (*operation, *since, what)
            }
            PendingDescription::Receive {
                operation,
                since,
                topic,
                filter,
                is_registered,
                ..
            } => {
                let what = WaitsFor::Record {
                    topic: topic.clone(),
                    filter: filter.clone(),
                    is_registered: *is_registered,
                };
                (*operation, *since, what)
            }
            PendingDescription::Signal {
                operation,
                since,
                workflow,
                id,
                name,
            } => {
                let (workflow, id, name) = (workflow.clone(), id.clone(), name.clone());
                (*operation, *since, WaitsFor::Delivery { workflow, id, name })
            }
            PendingDescription::Promise { operation, since } => (*operation, *since, WaitsFor::Promise),
            PendingDescription::Timer {
                operation,
                since,
                deadline,
            } => {
                let deadline = *deadline;
                (*operation, *since, WaitsFor::Timer { deadline })
            }
        };
        Wait {
            operation: Some(operation),
            since: Some(since),
            at: run.line_of(operation),
            what,
        }
    }

    /// The state of an activity's call.
    fn activity_wait(
        &self,
        run: RunId,
        pending: &PendingDescription,
        last_error: Option<&ActivityFailure>,
    ) -> WaitsFor {
        let PendingDescription::Activity {
            operation,
            activity,
            queue,
            attempt,
            failures,
            attempts_max,
            retry_at,
            close_at,
            heartbeat,
            is_registered,
            ..
        } = pending
        else {
            unreachable!("the caller has found an activity");
        };
        let key = (run, *operation);
        let pool = self.shared.pool(queue);
        let view = pool.and_then(|pool| pool.view(key));
        let (mut attempt, mut heartbeat) = (*attempt, heartbeat.clone());
        let standing = match (view, retry_at) {
            (Some(view), _) => {
                attempt = view.number;
                heartbeat = view.heartbeat.or(heartbeat);
                AttemptStanding::Running {
                    since: view.began_at,
                    close_at: view.close_at,
                    heartbeat_by: view.heartbeat_by,
                }
            }
            (None, _) if !is_registered => AttemptStanding::NotRegistered,
            (None, Some(until)) if *until > self.shared.host.now() => {
                AttemptStanding::BackingOff { until: *until }
            }
            (None, _) if self.shared.is_read_only => AttemptStanding::NotOpen,
            (None, _) => {
                let queues = &self.shared.queues;
                let of_queue = queues
                    .number_of(queue)
                    .and_then(|number| queues.all().get(number));
                let (queued_len, queue_len_max) = of_queue.map_or((0, 0), |queue| queue.len_and_max());
                AttemptStanding::Queued {
                    queued_len,
                    queue_len_max,
                    running_len: pool.map_or(0, |pool| pool.running_len()),
                    running_max: self.shared.config.running_max_of(queue),
                    start_by: pool.and_then(|pool| pool.start_by(key)),
                }
            }
        };
        WaitsFor::Activity(ActivityWait {
            activity: activity.clone(),
            queue: queue.clone(),
            attempt,
            failures: *failures,
            attempts_max: *attempts_max,
            standing,
            last_error: last_error.cloned(),
            heartbeat,
            close_at: *close_at,
        })
    }

    /// The last errors of a run's activities, from its latest events.
    async fn last_errors(&self, run: &InstanceDescription) -> Errors {
        let failed = run.pending.iter().filter_map(|pending| match pending {
            PendingDescription::Activity {
                operation, failures, ..
            } if *failures > 0 => Some(*operation),
            _ => None,
        });
        let mut wanted: BTreeSet<OperationId> = failed.collect();
        let mut errors = Errors::new();
        let head = run.sequence.get();
        let mut end = head;
        while !wanted.is_empty() && end > 0 && head - end < EVENTS_MAX {
            let begin = end.saturating_sub(STRETCH_LEN);
            let found = self.errors_between(run.run, begin, end, &wanted).await;
            wanted.retain(|operation| !found.contains_key(operation));
            errors.extend(found);
            end = begin;
        }
        errors
    }

    /// The last errors of these calls in the events behind `begin` up to `end`; those that can be read.
    async fn errors_between(
        &self,
        run: RunId,
        mut begin: u64,
        end: u64,
        wanted: &BTreeSet<OperationId>,
    ) -> Errors {
        let mut found = Errors::new();
        while begin < end {
            let len_max = usize::try_from(end - begin).unwrap_or(usize::MAX);
            let viewer = &self.shared.reader;
            let page = self
                .view(viewer.history(run, Sequence::new(begin), len_max))
                .await;
            let Some((page, last)) = page.ok().and_then(|page| {
                let last = page.events.last()?.sequence.get();
                Some((page, last))
            }) else {
                return found;
            };
            for recorded in page.events {
                if let Event::AttemptFailed {
                    operation, failure, ..
                } = recorded.event
                    && recorded.sequence.get() <= end
                    && wanted.contains(&operation)
                {
                    found.insert(operation, failure);
                }
            }
            begin = last;
        }
        found
    }
}

/// The subscriptions of a topic that make its publishers wait.
fn full_inboxes(topology: &Topology, topic: &str) -> Vec<FullInbox> {
    let Some(topic) = topology.topics.iter().find(|one| one.name.as_str() == topic) else {
        return Vec::new();
    };
    let of_topic = topology.subscriptions.iter().filter(|one| {
        let queued = one.inbox.queued + one.inbox.in_hand;
        topic.subscriptions.contains(&one.id) && one.overflow == Overflow::Block && queued >= one.capacity
    });
    let full = of_topic.map(|one| FullInbox {
        subscription: match one.name.is_empty() {
            true => one.filter.as_str().to_owned(),
            false => one.name.clone(),
        },
        queued: one.inbox.queued + one.inbox.in_hand,
        capacity: one.capacity,
    });
    full.collect()
}

/// A wait that is of the run as a whole.
fn one(run: &InstanceDescription, what: WaitsFor) -> Wait {
    Wait {
        operation: None,
        since: Some(run.parked_since.unwrap_or(run.last_at)),
        at: None,
        what,
    }
}

/// The code's waits that are no operations.
fn wait_beside(awaited: &Awaited) -> Option<Wait> {
    let (since, at, what) = match awaited {
        Awaited::Signal { name, since, at } => (since, at, WaitsFor::Signal { name: name.clone() }),
        Awaited::Condition { since, at } => (since, at, WaitsFor::Condition),
        Awaited::CancelRequest { since, at } => (since, at, WaitsFor::CancelRequest),
        // The engine has no other; its enum may grow.
        _ => return None,
    };
    Some(Wait {
        operation: None,
        since: Some(*since),
        at: Some(*at),
        what,
    })
}
