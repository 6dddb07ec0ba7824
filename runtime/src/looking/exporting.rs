//! Exports one history as a file, for a test that replays it with later code.

use millrun_core::RunId;
use millrun_workflow::ExportedHistory;

use crate::{RunError, RunHandle, Runtime, UntypedHandle};

impl Runtime {
    /// The whole history of a run, live or finished and retained, as it is durable now, in a file format that later releases
    /// read, too: lines of JSON. The run is not woken.
    ///
    /// A test [replays](https://docs.rs/millrun-testkit) such files with the code that is about to be deployed, and
    /// [`ExportedHistory::redacted`] hides what no test needs.
    ///
    /// The whole history is read at once, so [`history_bytes_max`](crate::store::JournalConfig::history_bytes_max) bounds the
    /// memory that this takes.
    ///
    /// ```
    /// use millrun::history::ExportedHistory;
    /// # use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// let run = runtime.start(DOUBLE, "d", 21).await?;
    /// run.result().await?;
    /// let text = run.export_history().await?.to_string();
    /// assert_eq!(text.lines().count(), 3); // a header, Started and Completed
    /// assert_eq!(text.parse::<ExportedHistory>()?.workflow(), "double");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As of [`history`](Self::history), and [`RunError::Read`] when the history is longer than may be read at once.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn export_history(&self, run: RunId) -> Result<Box<ExportedHistory>, RunError> {
        let viewer = &self.inner().shared.reader;
        self.inner().view(viewer.exported(run)).await
    }
}

impl<O, E> RunHandle<O, E> {
    /// [Exports](Runtime::export_history) the history of the handle's run, or else of the latest run of its id.
    ///
    /// # Errors
    /// See there.
    pub async fn export_history(&self) -> Result<Box<ExportedHistory>, RunError> {
        let run = match self.run_id() {
            Some(run) => run,
            None => self.describe().await?.run,
        };
        let inner = self.inner();
        inner.view(inner.shared.reader.exported(run)).await
    }
}

impl UntypedHandle {
    /// As [`RunHandle::export_history`].
    ///
    /// # Errors
    /// See there.
    pub async fn export_history(&self) -> Result<Box<ExportedHistory>, RunError> {
        self.handle().export_history().await
    }
}
