//! Requests to the runtime, and its answers in the supervisor's words.

use std::error::Error;
use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use millrun::operating::{InstanceDescription, KillError, ParkReason};
use millrun::topics::DurablePublishError;
use millrun::workflow::{PromiseToken, Unanswered};
use millrun::{
    CommandError, InputRefused as RunRefused, OnConflict, QueryError, ResultError, RunError, RunHandle,
    Runtime, StartError, StartWithSignalError, UpdateError,
};
use tokio::sync::oneshot;

use super::Seams;
use super::letters::PostOffice;
use super::opening::Fence;
use super::reports;
use crate::programs::{
    CHANGE, Input, Kind, LETTERS, Letter, NOTE, ProgramResult, SHOW, SHOW_TILL, TILL, TURN,
};
use crate::wire::{Answer, Ask, Described, Refusal, Report, Request, Stats};

/// What answers requests.
pub(super) struct Server {
    runtime: Runtime,
    fence: Fence,
    post: Arc<PostOffice>,
    seams: Seams,
}

impl Server {
    pub(super) fn new(runtime: Runtime, fence: Fence, post: Arc<PostOffice>, seams: Seams) -> Self {
        Self {
            runtime,
            fence,
            post,
            seams,
        }
    }

    /// Answers one request, or drops the future that would have, when the request says so.
    pub(super) async fn serve(&self, request: Request) {
        let answer = match request.drop_after_us {
            None => self.answer(request.ask).await,
            Some(0) => {
                let mut answer = Box::pin(self.answer(request.ask));
                match futures_util::poll!(&mut answer) {
                    std::task::Poll::Ready(answer) => answer,
                    std::task::Poll::Pending => Answer::Dropped,
                }
            }
            Some(after) => {
                let patience = Duration::from_micros(after);
                let answer = tokio::time::timeout(patience, self.answer(request.ask)).await;
                answer.unwrap_or(Answer::Dropped)
            }
        };
        reports::tell(&Report::Answer {
            number: request.number,
            answer,
        });
    }

    async fn answer(&self, ask: Ask) -> Answer {
        match ask {
            Ask::Start { kind, id, len } => self.start(kind, id, len).await,
            Ask::SignalWithStart { kind, id, note } => {
                let input = input(&id, 0);
                let started = self
                    .runtime
                    .start(kind.workflow(), &id, input)
                    .on_conflict(OnConflict::Attach)
                    .with_signal(NOTE, note)
                    .await;
                match started {
                    Ok(handle) => started_as(&handle),
                    Err(StartWithSignalError::Start(error)) => not_started(&error),
                    Err(StartWithSignalError::Signal(error)) => not_done(&error),
                    Err(error) => wrong(&error),
                }
            }
            Ask::Note { kind, id, note } => done(self.handle(kind, &id).signal(NOTE, note).await),
            Ask::Change {
                kind: Kind::Till,
                id,
                request,
                change,
            } => {
                let till = self.runtime.entity(TILL, key_of(&id));
                match till.call(TURN, change).request(request).await {
                    Ok(value) => Answer::Changed { value },
                    Err(CommandError::Start(error)) => not_started(&error),
                    Err(CommandError::Run(error)) => not_done(&error),
                    Err(error) => wrong(&error),
                }
            }
            Ask::Show { kind: Kind::Till, id } => {
                match self.runtime.entity(TILL, key_of(&id)).read(SHOW_TILL, ()).await {
                    Ok(shown) => Answer::Shown(shown),
                    Err(QueryError::Run(error)) => not_done(&error),
                    Err(error) => wrong(&error),
                }
            }
            Ask::Change {
                kind,
                id,
                request,
                change,
            } => match self.handle(kind, &id).update_as(CHANGE, &request, change).await {
                Ok(value) => Answer::Changed { value },
                Err(UpdateError::Parked(reason)) => parked(&reason),
                Err(UpdateError::Run(error)) => not_done(&error),
                Err(error) => wrong(&error),
            },
            Ask::Show { kind, id } => match self.handle(kind, &id).query(SHOW, ()).await {
                Ok(shown) => Answer::Shown(shown),
                Err(QueryError::Run(error)) => not_done(&error),
                Err(QueryError::Unanswered(Unanswered::Parked(reason))) => Answer::Parked {
                    is_paused: reason.contains("paused"),
                    reason,
                },
                Err(error) => wrong(&error),
            },
            Ask::Result { kind, id } => match self.handle(kind, &id).result().await {
                Ok(outcome) => Answer::Ended(outcome),
                Err(ResultError::Cancelled(_)) => Answer::Cancelled,
                Err(ResultError::Terminated { reason }) => Answer::Terminated { reason },
                Err(ResultError::Parked(reason)) => parked(&reason),
                Err(ResultError::Run(error)) => not_done(&error),
                Err(error) => wrong(&error),
            },
            Ask::Describe { kind, id } => match self.handle(kind, &id).describe().await {
                Ok(description) => Answer::Described(described(&description)),
                Err(error) => not_done(&error),
            },
            Ask::Cancel { kind, id } => done(self.handle(kind, &id).cancel("chaos").await),
            Ask::Terminate { kind, id } => done(self.handle(kind, &id).terminate("chaos").await),
            Ask::Pause { kind, id } => done(self.handle(kind, &id).pause("chaos").await),
            Ask::Resume { kind, id } => done(self.handle(kind, &id).resume().await),
            Ask::Settle { token, value, .. } => match token.parse::<PromiseToken>() {
                Ok(token) => done(self.runtime.keep_promise(token, value).await),
                Err(error) => wrong(&error),
            },
            Ask::Publish { id, value } => self.publish(id, value).await,
            Ask::Fence => {
                let (reply, answer) = oneshot::channel();
                match (self.fence.send(reply).await, answer.await) {
                    (Ok(()), Ok(())) => Answer::Done,
                    _ => Answer::Wrong {
                        message: "the subscription has ended".into(),
                    },
                }
            }
            Ask::Kill { part } => match self.runtime.kill(&part) {
                Ok(()) => Answer::Done,
                Err(error @ KillError::NotRunning { .. }) => Answer::Refused {
                    why: Refusal::Part,
                    message: error.to_string(),
                },
                Err(error) => wrong(&error),
            },
            Ask::MoveClock { by_ms } => self.seam(self.seams.clock.as_ref(), |clock| clock.shift(by_ms)),
            Ask::Disk { trouble } => self.seam(self.seams.disk.as_ref(), |disk| disk.trouble(trouble)),
            Ask::Stats => self.stats().await,
            Ask::List => self.list().await,
            Ask::Shutdown => Answer::Wrong {
                message: "a shutdown is the main task's".into(),
            },
        }
    }

    #[expect(clippy::unused_self, reason = "it reads as one of the server's answers")]
    fn seam<T>(&self, seam: Option<&std::sync::Arc<T>>, change: impl FnOnce(&T)) -> Answer {
        match seam {
            Some(seam) => {
                change(seam);
                Answer::Done
            }
            None => Answer::Wrong {
                message: "the worker was started without this seam".into(),
            },
        }
    }

    async fn publish(&self, id: String, value: u64) -> Answer {
        let topic = match self.runtime.durable_topic(LETTERS) {
            Ok(topic) => topic,
            Err(error) => return wrong(&error),
        };
        let letter = Letter { to: id, value };
        let name = format!("{}/{value}", letter.to);
        match topic.publish(&letter).key(&letter.to).id(&name).await {
            Ok(published) => Answer::Published {
                sequence: published.sequence().get(),
            },
            Err(error @ DurablePublishError::Stopped(_)) => unknown(&error),
            Err(error) => wrong(&error),
        }
    }

    async fn start(&self, kind: Kind, id: String, len: u32) -> Answer {
        match self.runtime.start(kind.workflow(), &id, input(&id, len)).await {
            Ok(handle) => started_as(&handle),
            Err(error) => not_started(&error),
        }
    }

    fn handle(&self, kind: Kind, id: &str) -> RunHandle<ProgramResult> {
        let handle = self.runtime.attach(kind.workflow(), id);
        handle.expect("the supervisor's ids are instance ids")
    }

    async fn list(&self) -> Answer {
        match self.runtime.list(None, 1_000_000).await {
            Ok(listed) => Answer::Listed {
                ids: listed
                    .iter()
                    .map(|summary| summary.id.to_string())
                    .filter(|id| TILL.key_of(id).is_none())
                    .collect(),
            },
            Err(error) => not_done(&error),
        }
    }

    async fn stats(&self) -> Answer {
        let entities = match self.runtime.list(None, 1_000_000).await {
            Ok(listed) => listed
                .iter()
                .filter(|summary| TILL.key_of(summary.id.as_str()).is_some())
                .count(),
            Err(error) => return not_done(&error),
        };
        let stats = self.runtime.stats();
        let parts = self.runtime.parts();
        Answer::Stats(Stats {
            live: stats.live,
            entities: entities as u64,
            hot: stats.hot,
            parked: stats.parked,
            attempts_running: stats.attempts_running,
            letters_behind: self.post.behind(),
            parts_down: parts
                .iter()
                .filter(|part| !part.is_running)
                .map(|part| part.name.clone())
                .collect(),
            replay_differences: stats.replay_differences,
            restarts: parts.iter().map(|part| u64::from(part.restarts)).sum(),
        })
    }
}

/// The key of the till with this id.
fn key_of(id: &str) -> &str {
    TILL.key_of(id).unwrap_or_default()
}

fn input(id: &str, len: u32) -> Input {
    Input {
        id: id.into(),
        len,
        ..Input::default()
    }
}

fn started_as<O, E>(handle: &RunHandle<O, E>) -> Answer {
    let run = handle.run_id().map_or_else(String::new, |run| run.to_string());
    Answer::Started { run }
}

fn done(outcome: Result<(), RunError>) -> Answer {
    match outcome {
        Ok(()) => Answer::Done,
        Err(error) => not_done(&error),
    }
}

fn parked(reason: &ParkReason) -> Answer {
    Answer::Parked {
        reason: reason.to_string(),
        is_paused: matches!(reason, ParkReason::Paused { .. }),
    }
}

fn not_started(error: &StartError) -> Answer {
    match error {
        StartError::Stopped(_) => unknown(error),
        error => wrong(error),
    }
}

fn not_done(error: &RunError) -> Answer {
    let why = match error {
        RunError::Stopped(_) => return unknown(error),
        RunError::NotFound => Refusal::NotFound,
        RunError::Expired => Refusal::Expired,
        RunError::Finished => Refusal::Finished,
        RunError::OtherWorkflow { .. } => Refusal::OtherWorkflow,
        RunError::Refused(RunRefused::Stale) => Refusal::Stale,
        RunError::Refused(_) => Refusal::Other,
        error => return wrong(error),
    };
    Answer::Refused {
        why,
        message: with_sources(error),
    }
}

fn unknown(error: &(impl Error + 'static)) -> Answer {
    Answer::Unknown {
        message: with_sources(error),
    }
}

fn wrong(error: &(impl Display + Debug)) -> Answer {
    Answer::Wrong {
        message: format!("{error} ({error:?})"),
    }
}

fn described(description: &InstanceDescription) -> Described {
    let parked = description.parked.as_ref().or(description.will_park.as_ref());
    Described {
        run: description.run.to_string(),
        status: format!("{:?}", description.status),
        parked: parked.map(ToString::to_string),
        is_paused: matches!(parked, Some(ParkReason::Paused { .. })),
        sequence: description.sequence.get(),
        pending: format!("{:?}, awaits {:?}", description.pending, description.awaited),
    }
}

/// An error's message followed by those of its sources.
pub(super) fn with_sources(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(this) = source {
        message.push_str(": ");
        message.push_str(&this.to_string());
        source = this.source();
    }
    message
}
