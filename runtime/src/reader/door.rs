//! The requests to the readers, and their door.

use millrun_core::{Bell, RunId, Sequence, Timestamp};
use millrun_persistence::{ReadError, TopicNumber, TopicPage};
use millrun_workflow::{ExportedHistory, Name, Payload, RunSpans, SpanBounds};
use tokio::sync::oneshot;

use super::LaneId;
use super::finding::{FoundFinished, ListedFinished};
use super::lanes::Lanes;
use crate::looking::at_event::DescribedAt;
use crate::looking::find::RunSearch;
use crate::looking::pages::HistoryPage;
use crate::looking::trace::TraceBeginning;
use crate::mail::{
    AskFinished, FinishedReads, Load, OnDisk, Question, RunSignal, Standing, Target, UpdateAnswer,
    UpdateRefused,
};
use crate::operating::InstanceDescription;
use crate::{QueryError, RunError};

/// Something to be read.
#[derive(Debug)]
pub(super) enum ReadRequest {
    /// Whether an ended run has recorded this signal. The answer goes to the run that sent it.
    FindSignal(RunId, Box<RunSignal>),
    /// The history of a run that is woken, for the run's shard.
    Load(Load),
    /// The same for a history that is too large to be read together with others.
    LoadAlone(Load),
    /// How a finished run ended.
    Outcome(Target, oneshot::Sender<Result<Standing, RunError>>),
    /// Whether a finished run belongs to an instance that began as this workflow.
    CheckWorkflow(RunId, Name, oneshot::Sender<Result<(), RunError>>),
    /// The latest finished run of an id, for the shard that asks.
    Finished(AskFinished),
    /// Replays a finished run, to check that its code still does the same.
    Check(RunId),
    /// The description of a finished run.
    Describe(Target, oneshot::Sender<Result<InstanceDescription, RunError>>),
    /// The description of a live run that stays on disk.
    DescribeOnDisk(OnDisk, oneshot::Sender<Result<InstanceDescription, RunError>>),
    /// What there was to say about a run behind an event of its history.
    DescribeAt(
        RunId,
        Sequence,
        oneshot::Sender<Result<Box<DescribedAt>, RunError>>,
    ),
    /// A question to the state that a run had there.
    QueryAt(
        RunId,
        Sequence,
        Question,
        oneshot::Sender<Result<Payload, QueryError>>,
    ),
    /// A query of the final state of a finished run, which is replayed without effects.
    Query(Target, Question, oneshot::Sender<Result<Payload, QueryError>>),
    /// The answer of a finished run to an update.
    Update(
        Target,
        String,
        oneshot::Sender<Result<UpdateAnswer, UpdateRefused>>,
    ),
    /// Whether a finished run has recorded a signal with this request name.
    Signal(Target, Box<str>, oneshot::Sender<Result<(), RunError>>),
    /// A page of a history: the events after a sequence number, up to a number of events.
    History(
        RunId,
        Sequence,
        usize,
        oneshot::Sender<Result<HistoryPage, RunError>>,
    ),
    /// How a run began and ended.
    TraceBeginning(RunId, oneshot::Sender<Result<Box<TraceBeginning>, RunError>>),
    /// A whole history, to be exported.
    Export(RunId, oneshot::Sender<Result<Box<ExportedHistory>, RunError>>),
    /// The spans of an ended run, within these bounds, made of at most this number of events.
    Spans(
        Box<(RunId, SpanBounds, usize)>,
        oneshot::Sender<Result<Option<RunSpans>, RunError>>,
    ),
    /// Finished runs that match a search and ended before the given run, up to a number of them.
    Find(
        RunSearch,
        Option<RunId>,
        usize,
        oneshot::Sender<Result<FoundFinished, RunError>>,
    ),
    /// The records of a topic after a given one, up to about a number of bytes.
    TopicPage(
        TopicNumber,
        Sequence,
        usize,
        oneshot::Sender<Result<TopicPage, ReadError>>,
    ),
    /// The record of a topic behind which those stand that were appended at a time or later.
    TopicAtTime(
        TopicNumber,
        Timestamp,
        oneshot::Sender<Result<Sequence, ReadError>>,
    ),
    /// Finished runs after the given one, up to a number of them.
    ListFinished(
        Option<RunId>,
        usize,
        oneshot::Sender<Result<ListedFinished, RunError>>,
    ),
}

impl ReadRequest {
    /// Whether the request is mostly small, and can be read together with others of its kind.
    pub(super) fn goes_together(&self) -> bool {
        match self {
            Self::Load(load) => load.to_reset.is_none(),
            Self::Finished(ask) => ask.reads == FinishedReads::Run,
            _ => false,
        }
    }
}

/// The door of the readers. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct ReaderDoor {
    /// Requests of runs and clients.
    lanes: Lanes<ReadRequest>,
    /// Requests of observers, which delay only each other.
    views: Lanes<ReadRequest>,
}

impl ReaderDoor {
    /// A door to `lanes_len` lanes, and to the lane of observers.
    pub(crate) fn new(lanes_len: usize) -> Self {
        Self {
            lanes: Lanes::new(lanes_len),
            views: Lanes::new(1),
        }
    }

    /// The bell of the lane's part.
    pub(crate) fn bell(&self, lane: LaneId) -> &Bell {
        let (lanes, index) = self.lanes_of(lane);
        lanes.bell(index)
    }

    /// The group of lanes that a lane belongs to, and its index there.
    pub(super) fn lanes_of(&self, lane: LaneId) -> (&Lanes<ReadRequest>, usize) {
        match lane {
            LaneId::Reader(index) => (&self.lanes, index),
            LaneId::Viewer => (&self.views, 0),
        }
    }

    /// Asks for a history. The shard bounds how many are under way.
    pub(crate) fn load(&self, load: Load) {
        // Refused only when the runtime has stopped.
        drop(self.lanes.requests().push_reserved(ReadRequest::Load(load)));
    }

    /// Asks for the latest finished run of an id; the shard bounds how many it asks about.
    pub(crate) fn find_finished(&self, ask: AskFinished) {
        // Refused only when the runtime has stopped.
        drop(self.lanes.requests().push_reserved(ReadRequest::Finished(ask)));
    }

    /// Asks whether an ended run has recorded this signal. The answer goes to the run that sent it.
    pub(crate) fn find_signal(&self, finished: RunId, signal: Box<RunSignal>) {
        // The sender's operation has reserved the place. Refused only when the runtime has stopped.
        let request = ReadRequest::FindSignal(finished, signal);
        drop(self.lanes.requests().push_reserved(request));
    }

    /// Has a finished run replayed and compared; skipped when the readers are behind.
    pub(crate) fn check(&self, run: RunId) {
        drop(self.lanes.requests().try_push(ReadRequest::Check(run)));
    }

    /// Asks how a finished run ended; waits for room. `None` if the runtime has stopped.
    pub(crate) async fn outcome(&self, target: Target) -> Option<Result<Standing, RunError>> {
        self.ask(|reply| ReadRequest::Outcome(target, reply)).await
    }

    /// Asks whether a finished run belongs to an instance that began as this workflow; as [`outcome`](Self::outcome).
    pub(crate) async fn check_workflow(&self, run: RunId, workflow: Name) -> Option<Result<(), RunError>> {
        self.ask(|reply| ReadRequest::CheckWorkflow(run, workflow, reply))
            .await
    }

    /// Asks the observers' lane for the description of a finished run; waits for room. `None` if the runtime has stopped.
    pub(crate) async fn describe(&self, target: Target) -> Option<Result<InstanceDescription, RunError>> {
        self.view(|reply| ReadRequest::Describe(target, reply)).await
    }

    /// Asks for the description of a live run that stays on disk; as [`describe`](Self::describe).
    pub(crate) async fn describe_on_disk(
        &self,
        on_disk: OnDisk,
    ) -> Option<Result<InstanceDescription, RunError>> {
        self.view(|reply| ReadRequest::DescribeOnDisk(on_disk, reply))
            .await
    }

    /// Queries the state of a finished run; as [`outcome`](Self::outcome).
    pub(crate) async fn query(
        &self,
        target: Target,
        question: Question,
    ) -> Option<Result<Payload, QueryError>> {
        self.ask(|reply| ReadRequest::Query(target, question, reply))
            .await
    }

    /// Asks for the answer of a finished run to an update; as [`outcome`](Self::outcome).
    pub(crate) async fn update(
        &self,
        target: Target,
        request: String,
    ) -> Option<Result<UpdateAnswer, UpdateRefused>> {
        self.ask(|reply| ReadRequest::Update(target, request, reply))
            .await
    }

    /// Asks whether a finished run has recorded a signal with this request name; the error [finished](RunError::Finished)
    /// says that it has not. As [`outcome`](Self::outcome).
    pub(crate) async fn signal(&self, target: Target, request: Box<str>) -> Option<Result<(), RunError>> {
        self.ask(|reply| ReadRequest::Signal(target, request, reply))
            .await
    }

    /// Asks for a page of a history; as [`describe`](Self::describe).
    pub(crate) async fn history(
        &self,
        run: RunId,
        after: Sequence,
        len_max: usize,
    ) -> Option<Result<HistoryPage, RunError>> {
        self.view(|reply| ReadRequest::History(run, after, len_max, reply))
            .await
    }

    /// Asks for a whole history; as [`describe`](Self::describe).
    pub(crate) async fn exported(&self, run: RunId) -> Option<Result<Box<ExportedHistory>, RunError>> {
        self.view(|reply| ReadRequest::Export(run, reply)).await
    }

    /// Asks for the description of a run as it was behind an event; as [`describe`](Self::describe).
    pub(crate) async fn describe_at(
        &self,
        run: RunId,
        to: Sequence,
    ) -> Option<Result<Box<DescribedAt>, RunError>> {
        self.view(|reply| ReadRequest::DescribeAt(run, to, reply)).await
    }

    /// Asks the state that a run had behind an event; as [`describe`](Self::describe).
    pub(crate) async fn query_at(
        &self,
        run: RunId,
        to: Sequence,
        question: Question,
    ) -> Option<Result<Payload, QueryError>> {
        self.view(|reply| ReadRequest::QueryAt(run, to, question, reply))
            .await
    }

    /// Asks how a run began and ended; as [`describe`](Self::describe).
    pub(crate) async fn trace_beginning(&self, run: RunId) -> Option<Result<Box<TraceBeginning>, RunError>> {
        self.view(|reply| ReadRequest::TraceBeginning(run, reply)).await
    }

    /// Asks for the spans of an ended run; `None` if the run is not traced. As [`describe`](Self::describe).
    pub(crate) async fn spans(
        &self,
        run: RunId,
        bounds: SpanBounds,
        events_len_max: usize,
    ) -> Option<Result<Option<RunSpans>, RunError>> {
        let wanted = Box::new((run, bounds, events_len_max));
        self.view(|reply| ReadRequest::Spans(wanted, reply)).await
    }

    /// Asks for finished runs that match a search, the latest ended first; as [`describe`](Self::describe).
    pub(crate) async fn find(
        &self,
        filter: RunSearch,
        before: Option<RunId>,
        len_max: usize,
    ) -> Option<Result<FoundFinished, RunError>> {
        self.view(|reply| ReadRequest::Find(filter, before, len_max, reply))
            .await
    }

    /// Asks for finished runs, the earliest ended first; as [`describe`](Self::describe).
    pub(crate) async fn list_finished(
        &self,
        after: Option<RunId>,
        len_max: usize,
    ) -> Option<Result<ListedFinished, RunError>> {
        self.view(|reply| ReadRequest::ListFinished(after, len_max, reply))
            .await
    }

    /// Asks for records of a topic on disk, and returns the channel for the answer; waits for room. `None` if the runtime has
    /// stopped.
    pub(crate) async fn ask_topic_page(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
    ) -> Option<oneshot::Receiver<Result<TopicPage, ReadError>>> {
        let (reply, answer) = oneshot::channel();
        let request = ReadRequest::TopicPage(topic, after, bytes_max, reply);
        self.lanes.requests().push(request).await.ok()?;
        Some(answer)
    }

    /// The same for observers; as [`describe`](Self::describe).
    pub(crate) async fn view_topic_page(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
    ) -> Option<Result<TopicPage, ReadError>> {
        self.view(|reply| ReadRequest::TopicPage(topic, after, bytes_max, reply))
            .await
    }

    /// As [`ask_topic_page`](Self::ask_topic_page), if there is room at once.
    pub(crate) fn ask_topic_page_if_room(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
    ) -> Option<oneshot::Receiver<Result<TopicPage, ReadError>>> {
        let (reply, answer) = oneshot::channel();
        let request = ReadRequest::TopicPage(topic, after, bytes_max, reply);
        self.lanes.requests().try_push(request).ok()?;
        Some(answer)
    }

    /// Asks for the record of a topic behind which those stand that were appended at a time or later; as
    /// [`outcome`](Self::outcome).
    pub(crate) async fn topic_at_time(
        &self,
        topic: TopicNumber,
        time: Timestamp,
    ) -> Option<Result<Sequence, ReadError>> {
        self.ask(|reply| ReadRequest::TopicAtTime(topic, time, reply))
            .await
    }

    /// The same for observers.
    pub(crate) async fn view_topic_at_time(
        &self,
        topic: TopicNumber,
        time: Timestamp,
    ) -> Option<Result<Sequence, ReadError>> {
        self.view(|reply| ReadRequest::TopicAtTime(topic, time, reply))
            .await
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> ReadRequest) -> Option<T> {
        ask_at(&self.lanes, request).await
    }

    async fn view<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> ReadRequest) -> Option<T> {
        ask_at(&self.views, request).await
    }

    pub(crate) fn close(&self) {
        self.lanes.close();
        self.views.close();
    }
}

async fn ask_at<T>(
    lanes: &Lanes<ReadRequest>,
    request: impl FnOnce(oneshot::Sender<T>) -> ReadRequest,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    lanes.requests().push(request(reply)).await.ok()?;
    answer.await.ok()
}
