//! The task that takes spans from the feed and gives them to an OpenTelemetry exporter.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use millrun_core::{Host, TaskHandle};
use millrun_workflow::RunSpans;
use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::sync::oneshot;

use super::TracedEnds;
use super::feed::{SpanFeed, SpanFeedConfig, SpanFeedTaken};
use super::otel::{scope, span_data};
use crate::Runtime;
use crate::shared::ShardShared;

/// The program's name for an exporter, and the bounds of an [export of spans](Runtime::export_spans).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanExportConfig {
    /// The name under which collectors list the program: the attribute `service.name` of its resource.
    pub service_name: String,
    /// The bounds of the feed from which the spans come.
    pub feed: SpanFeedConfig,
    /// How many spans are collected before they are exported, 512 by default. Runs are not divided: the run that reaches the
    /// bound is exported with all its spans. If no run waits, fewer spans are exported.
    pub batch_len_max: usize,
    /// How long an export may take, 30 s by default. Exporters have bounds of their own; this is for one that hangs. At the
    /// bound the batch is dropped, and its runs count as lost.
    pub export_wait_max: Duration,
}

impl SpanExportConfig {
    /// The defaults, for a program of this name.
    #[must_use]
    pub fn new(service_name: impl Into<String>) -> Self {
        Self {
            service_name: service_name.into(),
            feed: SpanFeedConfig::default(),
            batch_len_max: 512,
            export_wait_max: Duration::from_secs(30),
        }
    }
}

/// An export of spans, see [`Runtime::export_spans`]. Dropping it ends the export: the waiting runs are not exported, and
/// count as lost.
#[must_use = "dropping it ends the export"]
pub struct SpanExport {
    task: TaskHandle,
    shared: Arc<ShardShared>,
    is_finishing: Arc<AtomicBool>,
    ended: oneshot::Receiver<()>,
}

impl fmt::Debug for SpanExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanExport").finish_non_exhaustive()
    }
}

impl Drop for SpanExport {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SpanExport {
    /// Exports the runs that have ended by now, and ends the export; call it before [`Runtime::shutdown`]. It gives up at the
    /// first batch that the collector does not accept within [`export_wait_max`](SpanExportConfig::export_wait_max): the runs
    /// that wait then count as lost.
    ///
    /// # Cancel safety
    /// Dropping the future ends the export.
    pub async fn finish(mut self) {
        self.is_finishing.store(true, Ordering::Relaxed);
        self.shared.traced_ends.news().notify_waiters();
        // An error means that the task has ended, which is what this waits for.
        drop((&mut self.ended).await);
    }
}

impl Runtime {
    /// Gives the spans of ending traced runs to an OpenTelemetry exporter, in a task of the runtime's host: see
    /// [`spans`](Self::spans). The exporter gets a resource with the name of the program.
    ///
    /// A slow or missing collector delays nothing: batches that it does not accept are dropped, and so are runs that wait
    /// beyond [`queue_len_max`](SpanFeedConfig::queue_len_max); both are counted
    /// ([`RuntimeStats::traced_runs_lost`](crate::operating::RuntimeStats::traced_runs_lost)). If a run is exported twice, it
    /// has the same ids both times. The export keeps the runtime alive as a handle does.
    ///
    /// ```
    /// # use millrun::operating::SpanExportConfig;
    /// # use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// # use opentelemetry_sdk::error::OTelSdkResult;
    /// # use opentelemetry_sdk::trace::SpanData;
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// /// In a program this is the exporter of `opentelemetry-otlp`, say.
    /// #[derive(Debug)]
    /// struct Printed;
    ///
    /// impl opentelemetry_sdk::trace::SpanExporter for Printed {
    ///     async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
    ///         batch.iter().for_each(|span| println!("{}", span.name));
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// let export = runtime.export_spans(Printed, SpanExportConfig::new("shop"))?;
    /// let caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse()?;
    /// runtime.start(DOUBLE, "d", 21).traced(caller).await?.result().await?;
    /// export.finish().await;
    /// assert_eq!(runtime.stats().traced_runs_told, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a feed of spans is open already.
    pub fn export_spans<E: SpanExporter + 'static>(
        &self,
        mut exporter: E,
        config: SpanExportConfig,
    ) -> Result<SpanExport, SpanFeedTaken> {
        let feed = self.spans(config.feed.clone())?;
        let resource = Resource::builder_empty().with_service_name(config.service_name.clone());
        exporter.set_resource(&resource.build());
        let shared = Arc::clone(&self.inner().shared);
        let is_finishing = Arc::new(AtomicBool::new(false));
        let (done, ended) = oneshot::channel::<()>();
        let exporting = Exporting {
            exporter,
            config,
            shared: Arc::clone(&shared),
            is_finishing: Arc::clone(&is_finishing),
            is_failing: false,
        };
        let work = async move {
            // Dropped when the work has ended, which `finish` waits for.
            let _done = done;
            exporting.work(feed).await;
        };
        let task = shared.host.spawn("span export", Box::pin(work));
        Ok(SpanExport {
            task,
            shared,
            is_finishing,
            ended,
        })
    }
}

/// The task of an export.
struct Exporting<E> {
    exporter: E,
    config: SpanExportConfig,
    shared: Arc<ShardShared>,
    is_finishing: Arc<AtomicBool>,
    /// Whether the last batch was not accepted.
    is_failing: bool,
}

impl<E: SpanExporter> Exporting<E> {
    /// Exports until the runtime stops, or until the export has to end and everything is exported or a batch is not accepted.
    async fn work(mut self, mut feed: SpanFeed) {
        let (scope, shared) = (scope(), Arc::clone(&self.shared));
        let mut batch = SpanBatch::new(&shared.traced_ends);
        loop {
            // A batch that has runs does not wait for more.
            let may_wait = batch.runs_len == 0;
            let is_over = || !may_wait || self.is_finishing.load(Ordering::Relaxed);
            match feed.next_unless(usize::MAX, is_over).await {
                Ok(Some(runs)) => {
                    batch.push(&runs, &scope);
                    if batch.spans.len() < self.config.batch_len_max {
                        continue;
                    }
                }
                Ok(None) if may_wait => break,
                Ok(None) => {}
                Err(_) => break,
            }
            self.export(&mut batch).await;
            if self.is_failing && self.is_finishing.load(Ordering::Relaxed) {
                break;
            }
        }
        drop((batch, feed));
        if let Err(error) = self.exporter.shutdown() {
            tracing::debug!(%error, "the exporter of spans did not end as it should");
        }
    }

    async fn export(&mut self, batch: &mut SpanBatch<'_>) {
        let host: &dyn Host = self.shared.host.as_ref();
        let deadline = host.sleep_until(host.now() + self.config.export_wait_max);
        let spans = std::mem::take(&mut batch.spans);
        let exported = match select(pin!(self.exporter.export(spans)), deadline).await {
            Either::Left((exported, _)) => exported.map_err(|error| error.to_string()),
            Either::Right(((), _)) => Err("it did not answer".to_owned()),
        };
        batch.count(exported.is_ok());
        let was_failing = std::mem::replace(&mut self.is_failing, exported.is_err());
        match exported {
            Ok(()) if was_failing => tracing::info!("spans are exported again"),
            Err(error) if !was_failing => tracing::warn!(
                error,
                "spans are not exported: those of runs that end are lost, and counted"
            ),
            Ok(()) | Err(_) => {}
        }
    }
}

/// Whole runs being exported. If the export ends first, they count as lost.
struct SpanBatch<'a> {
    spans: Vec<SpanData>,
    runs_len: usize,
    ends: &'a TracedEnds,
}

impl<'a> SpanBatch<'a> {
    fn new(ends: &'a TracedEnds) -> Self {
        Self {
            spans: Vec::new(),
            runs_len: 0,
            ends,
        }
    }

    fn push(&mut self, runs: &[RunSpans], scope: &InstrumentationScope) {
        self.runs_len += runs.len();
        self.spans
            .extend(runs.iter().flat_map(|run| span_data(run, scope)));
    }

    /// Counts the runs as passed on or lost, and empties the batch.
    fn count(&mut self, were_told: bool) {
        match (std::mem::take(&mut self.runs_len), were_told) {
            (len, true) => self.ends.note_told(len),
            (len, false) => self.ends.note_lost(len),
        }
    }
}

impl Drop for SpanBatch<'_> {
    fn drop(&mut self) {
        self.count(false);
    }
}
