//! The workflows of the demo, and what their steps take and give.
//!
//! ```text
//!   TREE ──► LIST ──────────► list file, chunks
//!     ├────► RUN_CHUNK 0 ───► CHUNK ──► NAMES ──► DIGEST, DIGEST, … (a bounded number at once)
//!     ├────► RUN_CHUNK 1 ───► CHUNK ──► …              (a bounded number of chunks at once)
//!     └────► WRITE_MANIFEST ► manifest
//! ```
//!
//! A history grows with what its run does, so a large tree is spread over many runs: one for
//! each chunk of the list. The tree's run starts them through an activity, which asks for the
//! chunk by its id. Asking twice, after a crash, is asking for the same run.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use millrun::{Activity, CallError, Retry, TypedError, Workflow, WorkflowContext, WorkflowError};
use serde::{Deserialize, Serialize};

use super::listing::{ChunkRange, Listing};
use super::tree::Survey;
use crate::digest::{Digest, DigestError, FileDigest};
use crate::path_bytes::PathBytes;

/// How many chunks of one tree are under way at once.
const CHUNKS_AT_ONCE: usize = 8;
/// How many digests of one chunk are asked for at once; how many files are really read at once
/// is the limit of the task queue.
const DIGESTS_AT_ONCE: usize = 64;
/// How many files without a digest a tree's result names; further ones are only counted.
const SKIPPED_NAMED_MAX: usize = 100;
/// Longer than any file or chunk takes: a slow disk is not a failure.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 3_600);
/// To wait for a run is never given up; each interruption of the program costs one attempt.
const UNTIRING: Retry = Retry::exponential().attempts(u32::MAX);

/// Files of our own are written again for a quarter of a minute: a disk that is full for longer needs a
/// person, who is told of each attempt.
const WRITING: Retry = Retry::exponential()
    .first_pause(Duration::from_secs(1))
    .attempts(5);

pub(crate) const TREE: Workflow<TreeOrder, TreeResult> = Workflow::named("demo.tree");
pub(crate) const CHUNK: Workflow<ChunkOrder, ChunkResult> = Workflow::named("demo.chunk");

pub(crate) const LIST: Activity<TreeOrder, Listing> = Activity::named("demo.list");
/// Runs on a queue of its own: while it waits for a chunk, it must not take the place of the
/// files the chunk waits for.
pub(crate) const RUN_CHUNK: Activity<ChunkOrder, ChunkTotals> =
    Activity::named("demo.run-chunk").on_queue("chunks");
pub(crate) const WRITE_MANIFEST: Activity<ManifestOrder, ()> = Activity::named("demo.write-manifest");
/// Removes the list file.
pub(crate) const FORGET_LIST: Activity<PathBytes, ()> = Activity::named("demo.forget-list");
pub(crate) const NAMES: Activity<ChunkOrder, Vec<PathBytes>> = Activity::named("demo.names");
pub(crate) const DIGEST: Activity<PathBytes, FileDigest, DigestError> = Activity::named("demo.digest");

/// What to checksum, and where everything lies. All paths are absolute but the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeOrder {
    pub(crate) root: PathBytes,
    pub(crate) store: PathBytes,
    pub(crate) manifest: PathBytes,
    /// The list of names, a file that lives as long as the run.
    pub(crate) list: PathBytes,
    /// What stands before each name in the manifest: the directory as the user wrote it.
    pub(crate) shown_as: PathBytes,
}

/// One chunk of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChunkOrder {
    pub(crate) root: PathBytes,
    pub(crate) list: PathBytes,
    pub(crate) index: u32,
    pub(crate) range: ChunkRange,
    /// How many files the chunks before it have, and how many the tree has.
    pub(crate) files_before: u64,
    pub(crate) files_in_tree: u64,
}

/// What became of each file of a chunk, in the order of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChunkResult {
    pub(crate) files: Vec<FileResult>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileResult {
    Digested(FileDigest),
    Skipped { reason: String },
}

/// A chunk's result, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChunkTotals {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) skipped: Vec<Skipped>,
}

/// A file that was listed and has no digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Skipped {
    pub(crate) path: PathBytes,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ManifestOrder {
    pub(crate) tree: TreeOrder,
    pub(crate) chunks: Vec<ChunkRange>,
}

/// How the work on a tree ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeResult {
    pub(crate) survey: Survey,
    pub(crate) chunks: u64,
    /// Files with a digest, and the bytes that went into it.
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) skipped: u64,
    /// The first of them.
    pub(crate) skipped_named: Vec<Skipped>,
}

impl TypedError for DigestError {
    fn is_retryable(&self) -> bool {
        self.may_pass()
    }
}

/// The run of a whole tree.
pub(crate) async fn tree(cx: WorkflowContext, order: TreeOrder) -> Result<TreeResult, WorkflowError> {
    let list = order.list.clone();
    let result = checksum(&cx, order).await;
    // Shielded: the list goes away also when the run is asked to cancel.
    cx.shielded().call(FORGET_LIST, list).await?;
    result
}

/// Everything that needs the list.
async fn checksum(cx: &WorkflowContext, order: TreeOrder) -> Result<TreeResult, WorkflowError> {
    let listing = cx.call(LIST, order.clone());
    let Listing { survey, chunks } = listing.retry(WRITING).start_to_close(PATIENCE).await?;
    let mut totals = stream::iter(chunk_orders(&order, survey.files, &chunks))
        .map(|chunk| cx.call(RUN_CHUNK, chunk).retry(UNTIRING).start_to_close(PATIENCE))
        .buffered(CHUNKS_AT_ONCE);
    let mut result = TreeResult {
        chunks: chunks.len() as u64,
        survey,
        ..TreeResult::default()
    };
    while let Some(chunk) = totals.try_next().await? {
        result.add(chunk);
    }
    drop(totals);
    cx.call(WRITE_MANIFEST, ManifestOrder { tree: order, chunks })
        .retry(WRITING)
        .start_to_close(PATIENCE)
        .await?;
    Ok(result)
}

fn chunk_orders(order: &TreeOrder, files_in_tree: u64, chunks: &[ChunkRange]) -> Vec<ChunkOrder> {
    let mut files_before = 0;
    let chunk_order = |(index, range): (u32, &ChunkRange)| {
        let chunk = ChunkOrder {
            root: order.root.clone(),
            list: order.list.clone(),
            index,
            range: *range,
            files_before,
            files_in_tree,
        };
        files_before += u64::from(range.files);
        chunk
    };
    (0..).zip(chunks).map(chunk_order).collect()
}

/// The run of one chunk.
pub(crate) async fn chunk(cx: WorkflowContext, order: ChunkOrder) -> Result<ChunkResult, WorkflowError> {
    let root = order.root.clone();
    let names = cx.call(NAMES, order).start_to_close(PATIENCE).await?;
    let patient = Retry::exponential().attempts(5);
    let files = stream::iter(names)
        .map(|name| {
            cx.call(DIGEST, root.join(&name))
                .retry(patient)
                .start_to_close(PATIENCE)
        })
        .buffered(DIGESTS_AT_ONCE)
        .map(|digest| match digest {
            Ok(digest) => Ok(FileResult::Digested(digest)),
            Err(CallError::Failed(error)) => Ok(FileResult::Skipped {
                reason: error.to_string(),
            }),
            Err(error) => Err(error),
        })
        .try_collect()
        .await?;
    Ok(ChunkResult { files })
}

impl TreeResult {
    /// Whether anything that was found has no digest.
    pub(crate) fn is_partial(&self) -> bool {
        self.skipped > 0 || self.survey.unreadable > 0
    }

    fn add(&mut self, chunk: ChunkTotals) {
        self.files += chunk.files;
        self.bytes += chunk.bytes;
        self.skipped += chunk.skipped.len() as u64;
        let room = SKIPPED_NAMED_MAX - self.skipped_named.len();
        self.skipped_named.extend(chunk.skipped.into_iter().take(room));
    }
}

impl ChunkResult {
    /// Adds up what became of the files of these names.
    pub(crate) fn totals(&self, names: &[PathBytes]) -> ChunkTotals {
        let mut totals = ChunkTotals::default();
        for (file, name) in self.files.iter().zip(names) {
            match file {
                FileResult::Digested(found) => {
                    totals.files += 1;
                    totals.bytes += found.bytes;
                }
                FileResult::Skipped { reason } => {
                    totals.skipped.push(Skipped {
                        path: name.clone(),
                        reason: reason.clone(),
                    });
                }
            }
        }
        totals
    }

    /// The digests, with the names they belong to.
    pub(crate) fn digests<'a>(
        &'a self,
        names: &'a [PathBytes],
    ) -> impl Iterator<Item = (&'a Digest, &'a PathBytes)> {
        self.files
            .iter()
            .zip(names)
            .filter_map(|(file, name)| match file {
                FileResult::Digested(found) => Some((&found.digest, name)),
                FileResult::Skipped { .. } => None,
            })
    }
}
