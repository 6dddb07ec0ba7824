//! What is asked of the readers, and the door through which.

use millrun_core::{Bell, RunId, Sequence, Timestamp};
use millrun_persistence::{ReadError, TopicNumber, TopicPage};
use millrun_workflow::{ExportedHistory, Name, Payload, RunSpans, SpanBounds};
use tokio::sync::oneshot;

use super::LaneId;
use super::finding::{FoundFinished, ListedFinished};
use super::lanes::Lanes;
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
    /// Whether a run that has ended has recorded this signal; the answer goes to the run that sent it.
    FindSignal(RunId, Box<RunSignal>),
    /// The history of a run that is woken; it goes to the run's shard.
    Load(Load),
    /// The same of one that is too large to be read together with others.
    LoadAlone(Load),
    /// How a finished run ended.
    Outcome(Target, oneshot::Sender<Result<Standing, RunError>>),
    /// Whether a finished run is of an instance that began as this workflow.
    CheckWorkflow(RunId, Name, oneshot::Sender<Result<(), RunError>>),
    /// Which finished run of an id is the latest; the answer goes to the shard that asks.
    Finished(AskFinished),
    /// Replay a finished run, to see that its code still makes the same of it.
    Check(RunId),
    /// What there is to say about a finished run.
    Describe(Target, oneshot::Sender<Result<InstanceDescription, RunError>>),
    /// What the history of a live run tells, which stays on disk.
    DescribeOnDisk(OnDisk, oneshot::Sender<Result<InstanceDescription, RunError>>),
    /// A question to the state that a finished run ended with: it is replayed, without effects.
    Query(Target, Question, oneshot::Sender<Result<Payload, QueryError>>),
    /// What a finished run answered to an update.
    Update(
        Target,
        String,
        oneshot::Sender<Result<UpdateAnswer, UpdateRefused>>,
    ),
    /// Whether a finished run has recorded a signal under this request.
    Signal(Target, Box<str>, oneshot::Sender<Result<(), RunError>>),
    /// A page of a history: as many events behind this one.
    History(
        RunId,
        Sequence,
        usize,
        oneshot::Sender<Result<HistoryPage, RunError>>,
    ),
    /// How a run began and ended.
    TraceBeginning(RunId, oneshot::Sender<Result<Box<TraceBeginning>, RunError>>),
    /// All of a history, to be exported.
    Export(RunId, oneshot::Sender<Result<Box<ExportedHistory>, RunError>>),
    /// The spans of a run that has ended, within these bounds, made of at most this number of its events.
    Spans(
        Box<(RunId, SpanBounds, usize)>,
        oneshot::Sender<Result<Option<RunSpans>, RunError>>,
    ),
    /// So many of the finished runs that are looked for and ended before the one named.
    Find(
        RunSearch,
        Option<RunId>,
        usize,
        oneshot::Sender<Result<FoundFinished, RunError>>,
    ),
    /// The records of a topic behind one, of about so many bytes.
    TopicPage(
        TopicNumber,
        Sequence,
        usize,
        oneshot::Sender<Result<TopicPage, ReadError>>,
    ),
    /// Behind which record of a topic those stand that were appended at a time or later.
    TopicAtTime(
        TopicNumber,
        Timestamp,
        oneshot::Sender<Result<Sequence, ReadError>>,
    ),
    /// So many finished runs behind the one named.
    ListFinished(
        Option<RunId>,
        usize,
        oneshot::Sender<Result<ListedFinished, RunError>>,
    ),
}

impl ReadRequest {
    /// Whether it is small, mostly, and read together with others of the kind.
    pub(super) fn goes_together(&self) -> bool {
        match self {
            Self::Load(load) => !load.is_whole,
            Self::Finished(ask) => ask.reads == FinishedReads::Run,
            _ => false,
        }
    }
}

/// The door of the reader. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct ReaderDoor {
    /// What runs and clients wait for.
    lanes: Lanes<ReadRequest>,
    /// What is asked by observers: they hold up nobody but each other.
    views: Lanes<ReadRequest>,
}

impl ReaderDoor {
    /// A door to `lanes_len` lanes, and to the one of observers.
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

    /// The lanes of which this is one, and which of them it is.
    pub(super) fn lanes_of(&self, lane: LaneId) -> (&Lanes<ReadRequest>, usize) {
        match lane {
            LaneId::Reader(index) => (&self.lanes, index),
            LaneId::Viewer => (&self.views, 0),
        }
    }

    /// Asks for a history; the shard bounds how many are under way.
    pub(crate) fn load(&self, load: Load) {
        // Refused only when the runtime has stopped.
        drop(self.lanes.requests().push_reserved(ReadRequest::Load(load)));
    }

    /// Asks for the latest finished run of an id; the shard bounds how many it asks about.
    pub(crate) fn find_finished(&self, ask: AskFinished) {
        // Refused only when the runtime has stopped.
        drop(self.lanes.requests().push_reserved(ReadRequest::Finished(ask)));
    }

    /// Asks whether a run that has ended has recorded this signal; the answer goes to the run that sent it.
    pub(crate) fn find_signal(&self, finished: RunId, signal: Box<RunSignal>) {
        // The place is that of the operation. Refused only when the runtime has stopped.
        let request = ReadRequest::FindSignal(finished, signal);
        drop(self.lanes.requests().push_reserved(request));
    }

    /// Has a finished run replayed and compared; passed over when the reader is behind.
    pub(crate) fn check(&self, run: RunId) {
        drop(self.lanes.requests().try_push(ReadRequest::Check(run)));
    }

    /// Asks how a finished run ended; waits for room. `None` if the runtime has stopped.
    pub(crate) async fn outcome(&self, target: Target) -> Option<Result<Standing, RunError>> {
        self.ask(|reply| ReadRequest::Outcome(target, reply)).await
    }

    /// Asks whether a finished run is of an instance that began as this workflow; as
    /// [`outcome`](Self::outcome).
    pub(crate) async fn check_workflow(&self, run: RunId, workflow: Name) -> Option<Result<(), RunError>> {
        self.ask(|reply| ReadRequest::CheckWorkflow(run, workflow, reply))
            .await
    }

    /// Asks for the description of a finished run, beside what runs wait for; waits for room. `None` if the runtime
    /// has stopped.
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

    /// Asks the state of a finished run; as [`outcome`](Self::outcome).
    pub(crate) async fn query(
        &self,
        target: Target,
        question: Question,
    ) -> Option<Result<Payload, QueryError>> {
        self.ask(|reply| ReadRequest::Query(target, question, reply))
            .await
    }

    /// Asks what a finished run answered to an update; as [`outcome`](Self::outcome).
    pub(crate) async fn update(
        &self,
        target: Target,
        request: String,
    ) -> Option<Result<UpdateAnswer, UpdateRefused>> {
        self.ask(|reply| ReadRequest::Update(target, request, reply))
            .await
    }

    /// Asks whether a finished run has recorded a signal under this request, and is told that it has
    /// [finished](RunError::Finished) if not; as [`outcome`](Self::outcome).
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

    /// Asks for all of a history; as [`describe`](Self::describe).
    pub(crate) async fn exported(&self, run: RunId) -> Option<Result<Box<ExportedHistory>, RunError>> {
        self.view(|reply| ReadRequest::Export(run, reply)).await
    }

    /// Asks how a run began and ended; as [`describe`](Self::describe).
    pub(crate) async fn trace_beginning(&self, run: RunId) -> Option<Result<Box<TraceBeginning>, RunError>> {
        self.view(|reply| ReadRequest::TraceBeginning(run, reply)).await
    }

    /// Asks for the spans of a run that has ended, which are `None` if it is not traced; as
    /// [`describe`](Self::describe).
    pub(crate) async fn spans(
        &self,
        run: RunId,
        bounds: SpanBounds,
        events_len_max: usize,
    ) -> Option<Result<Option<RunSpans>, RunError>> {
        let wanted = Box::new((run, bounds, events_len_max));
        self.view(|reply| ReadRequest::Spans(wanted, reply)).await
    }

    /// Asks for finished runs that are looked for, the latest ended first; as [`describe`](Self::describe).
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

    /// Asks for records of a topic that stand on disk, and gives where the answer comes; waits for room. `None` if the
    /// runtime has stopped.
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

    /// Asks behind which record of a topic those stand that were appended at a time or later; as
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
