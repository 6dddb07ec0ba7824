//! What the demo's activities do. They share a desk: the runtime, which some of them ask for
//! other runs, and the progress that is shown.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrun::{
    ActivityContext, ActivityError, ResultError, RunId, Runtime, StartError, TypedError, WorkflowError,
};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

use super::listing::{self, ListError, Listing};
use super::manifest::{ManifestWriter, partial_path};
use super::progress::Progress;
use super::tree::LeftOut;
use super::workflows::{CHUNK, ChunkOrder, ChunkResult, ChunkTotals, ManifestOrder, TreeOrder};
use crate::digest::{DigestError, FileDigest, digest_file};
use crate::path_bytes::PathBytes;

/// How many chunks of lines wait for the disk while the manifest is written.
const MANIFEST_QUEUE_LEN: usize = 4;

/// A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct Desk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    hours: watch::Sender<Hours>,
    progress: Progress,
}

/// Whether the desk can be asked for other runs.
#[derive(Debug)]
enum Hours {
    /// Not yet: activities that go on from an earlier process may run a moment before the
    /// runtime has been handed over.
    Opening,
    Open(Runtime),
    /// No longer: the program stops.
    Closed,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared {
            hours: watch::Sender::new(Hours::Opening),
            progress: Progress::new(),
        }))
    }

    /// Lets the activities that need the runtime begin.
    pub(crate) fn open(&self, runtime: Runtime) {
        self.0.hours.send_replace(Hours::Open(runtime));
    }

    /// Ends the activities that wait for other runs, and lets go of the runtime. The next process
    /// asks them again.
    pub(crate) fn close(&self) {
        self.0.hours.send_replace(Hours::Closed);
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.0.progress
    }

    /// The list is taken again if it could not be written, and each time that is told.
    pub(crate) async fn list(self, _: ActivityContext, order: TreeOrder) -> Result<Listing, ActivityError> {
        let listed = off_thread(move || {
            let manifest = order.manifest.as_path();
            let left_out = LeftOut::default()
                .family(order.store.as_path())
                .file(manifest)
                .file(&partial_path(manifest));
            listing::write(order.root.as_path(), &left_out, order.list.as_path())
        });
        let listed = listed.await?.map_err(list_failed);
        listed.inspect_err(|error| self.0.progress.tell(error.message()))
    }

    pub(crate) async fn run_chunk(
        self,
        cx: ActivityContext,
        order: ChunkOrder,
    ) -> Result<ChunkTotals, ActivityError> {
        let tree = cx.run_id();
        self.0
            .progress
            .begin_chunk(tree, order.files_before, order.files_in_tree);
        let id = chunk_id(tree, order.index);
        let run = self
            .runtime()
            .await?
            .start(CHUNK, &id, order.clone())
            .await
            .map_err(start_failed)?;
        let mut hours = self.0.hours.subscribe();
        let result = tokio::select! {
            result = run.result() => result.map_err(chunk_failed)?,
            _ = hours.wait_for(|hours| matches!(hours, Hours::Closed)) => return Err(closed()),
        };
        self.0.progress.end_chunk(&id, u64::from(order.range.files));
        let names = names_of(&order.list, order.range).await?;
        Ok(result.totals(&names))
    }

    pub(crate) async fn names(
        self,
        _: ActivityContext,
        order: ChunkOrder,
    ) -> Result<Vec<PathBytes>, ActivityError> {
        names_of(&order.list, order.range).await
    }

    pub(crate) async fn digest(
        self,
        cx: ActivityContext,
        path: PathBytes,
    ) -> Result<FileDigest, DigestError> {
        // Dropped with this future, if the attempt is given up: the thread then ends early.
        let interest = Interest::default();
        let is_stopped = Arc::clone(&interest.0);
        let read = path.clone();
        let reading =
            spawn_blocking(move || digest_file(read.as_path(), || is_stopped.load(Ordering::Relaxed)));
        let digest = reading
            .await
            .map_err(|error| DigestError::Io(error.to_string()))?
            .inspect_err(|error| {
                if *error == DigestError::Changed {
                    self.0.progress.note_changed(&path);
                }
            })?;
        self.0.progress.count_file(cx.instance_id().as_str());
        Ok(digest)
    }

    /// Writes the manifest. An attempt that fails is told: the disk may be full, and only a person can help.
    pub(crate) async fn write_manifest(
        self,
        cx: ActivityContext,
        order: ManifestOrder,
    ) -> Result<(), ActivityError> {
        let (place, attempt) = (order.tree.manifest.clone(), cx.attempt());
        self.write_lines(cx, order).await.map_err(|error| {
            let named = format!("the manifest {place} cannot be written: {}", error.message());
            self.0.progress.tell(&format!("attempt {attempt}: {named}"));
            if error.is_retryable() {
                ActivityError::retryable(named)
            } else {
                ActivityError::fatal(named)
            }
        })
    }

    /// Fetches the chunks' results in order and hands them to one thread that writes.
    async fn write_lines(&self, cx: ActivityContext, order: ManifestOrder) -> Result<(), ActivityError> {
        let ManifestOrder { tree, chunks } = order;
        let (lines, mut waiting) = mpsc::channel::<(ChunkResult, Vec<PathBytes>)>(MANIFEST_QUEUE_LEN);
        let (place, shown_as) = (tree.manifest.clone(), tree.shown_as.clone());
        let writing = spawn_blocking(move || -> io::Result<ManifestWriter> {
            let mut manifest = ManifestWriter::create(place.as_path())?;
            while let Some((result, names)) = waiting.blocking_recv() {
                for (digest, name) in result.digests(&names) {
                    manifest.add(digest, shown_as.join(name).as_bytes())?;
                }
            }
            Ok(manifest)
        });
        let runtime = self.runtime().await?;
        for (index, range) in (0..).zip(chunks) {
            let run = runtime.attach(CHUNK, &chunk_id(cx.run_id(), index))?;
            let result = run.result().await.map_err(chunk_failed)?;
            let names = names_of(&tree.list, range).await?;
            if lines.send((result, names)).await.is_err() {
                break; // The writer has failed, and says why below.
            }
        }
        drop(lines);
        let manifest = writing.await?.map_err(write_failed)?;
        off_thread(move || manifest.finish()).await?.map_err(write_failed)
    }

    pub(crate) async fn forget_list(self, _: ActivityContext, list: PathBytes) -> Result<(), ActivityError> {
        match off_thread(move || std::fs::remove_file(list.as_path())).await? {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn runtime(&self) -> Result<Runtime, ActivityError> {
        let mut hours = self.0.hours.subscribe();
        let hours = hours.wait_for(|hours| !matches!(hours, Hours::Opening)).await?;
        match &*hours {
            Hours::Open(runtime) => Ok(runtime.clone()),
            Hours::Opening | Hours::Closed => Err(closed()),
        }
    }
}

fn closed() -> ActivityError {
    ActivityError::retryable("the program was stopped")
}

/// The id of a chunk's instance: a tree that is done again has other chunks.
fn chunk_id(tree: RunId, index: u32) -> String {
    format!("{tree}/{index}")
}

/// Reads names off the async threads.
async fn names_of(list: &PathBytes, range: listing::ChunkRange) -> Result<Vec<PathBytes>, ActivityError> {
    let list = list.clone();
    off_thread(move || listing::read(list.as_path(), range))
        .await?
        .map_err(list_failed)
}

fn list_failed(error: ListError) -> ActivityError {
    if error.may_pass() {
        error.into()
    } else {
        ActivityError::fatal(ActivityError::from(error).message())
    }
}

/// A disk that is full may have room later; a folder that is not there, or may not be written to, needs a
/// person.
fn write_failed(error: io::Error) -> ActivityError {
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem => ActivityError::fatal(error.to_string()),
        _ => error.into(),
    }
}

fn start_failed(error: StartError) -> ActivityError {
    if error.is_retryable() {
        error.into()
    } else {
        ActivityError::fatal(ActivityError::from(error).message())
    }
}

/// A run that has failed will not succeed later; one that was not reached may.
fn chunk_failed(error: ResultError<WorkflowError>) -> ActivityError {
    match error {
        ResultError::Run(_) => error.into(),
        _ => ActivityError::fatal(ActivityError::from(error).message()),
    }
}

/// Runs what blocks on a thread where that is allowed. Its panic is this attempt's failure.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ActivityError> {
    Ok(spawn_blocking(work).await?)
}

/// Held by a caller that waits for the work; its drop says that the caller has gone.
#[derive(Debug, Default)]
struct Interest(Arc<AtomicBool>);

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
