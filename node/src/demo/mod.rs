//! The demo: a manifest of every file below a directory, made by durable workflows.
//!
//! ```text
//!   command line ──► places ──► one run of TREE, by id ──► manifest, summary
//!                                 ▲ the same command finds the same run again
//! ```
//!
//! What is done where: [`workflows`] says what is to be done in which order, [`desk`] does it,
//! [`tree`], [`listing`] and [`manifest`] know files.

mod desk;
mod listing;
mod manifest;
mod places;
mod progress;
mod summary;
mod tree;
mod workflows;

use std::error::Error;
use std::time::Instant;

use millrun::operating::StartupReport;
use millrun::{OnConflict, OpenError, Runtime};

use crate::cli::Demo;
use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::{shown, tell};
use desk::Desk;
use places::Places;
use progress::Progress;
use summary::Summary;
use workflows::{CHUNK, DIGEST, FORGET_LIST, LIST, NAMES, RUN_CHUNK, TREE, TreeResult, WRITE_MANIFEST};

/// Checksums a tree, or goes on with what an earlier process left.
///
/// # Errors
/// When a place cannot be used, the store cannot be opened, or the work fails for good.
pub(crate) async fn run(options: Demo) -> Result<Outcome, Box<dyn Error>> {
    let begun = Instant::now();
    let places = Places::of(&options)?;
    let desk = Desk::new();
    let runtime = open(&places, &options, &desk).await?;
    desk.open(runtime.clone());
    announce(desk.progress(), runtime.startup_report());
    let result = tokio::select! {
        result = checksum(&runtime, &places, desk.progress()) => Some(result),
        interrupted = interrupt::requested() => {
            interrupted?;
            None
        }
    };
    desk.progress().clear();
    desk.close();
    let stats = runtime.stats();
    let stopped = runtime.shutdown().await;
    let Some(result) = result else {
        interrupt::report(&stopped);
        return Ok(Outcome::Interrupted);
    };
    stopped?;
    let result = result?;
    tell(Summary {
        result: &result,
        stats: &stats,
        changed: desk.progress().changed(),
        time: begun.elapsed(),
        places: &places,
    })?;
    tell(format_args!(
        "check it with: sha256sum -c --quiet {}",
        shown(&options.manifest)
    ))?;
    Ok(if result.is_partial() {
        Outcome::Partial
    } else {
        Outcome::Complete
    })
}

/// Tells what was found in the store.
fn announce(progress: &Progress, report: &StartupReport) {
    if report.live > 0 {
        progress.tell(&format!(
            "going on with {} unfinished workflows of this store",
            report.live
        ));
    }
    for (run, damage) in &report.damaged {
        let run = run.map_or_else(|| "a run".to_owned(), |run| format!("run {run}"));
        progress.tell(&format!("left out {run}, whose history is damaged: {damage}"));
    }
}

/// The run of this id goes on if it is alive. If it has ended, the tree is done again.
async fn checksum(
    runtime: &Runtime,
    places: &Places,
    progress: &Progress,
) -> Result<TreeResult, Box<dyn Error>> {
    let run = runtime
        .start(TREE, &places.id(), places.order())
        .on_conflict(OnConflict::RestartFinished)
        .await?;
    progress.tell(&format!("checksumming {} as {}", shown(&places.root), run.id()));
    Ok(run.result().await?)
}

async fn open(places: &Places, options: &Demo, desk: &Desk) -> Result<Runtime, OpenError> {
    Runtime::open(&places.store)
        .configure(|config| {
            config.activities_running_max = options.files_at_once.into();
            interrupt::allow(config, options.stop_within);
        })
        .register(TREE, workflows::tree)
        .register(CHUNK, workflows::chunk)
        .register_with(desk.clone(), LIST, Desk::list)
        .register_with(desk.clone(), RUN_CHUNK, Desk::run_chunk)
        .register_with(desk.clone(), NAMES, Desk::names)
        .register_with(desk.clone(), DIGEST, Desk::digest)
        .register_with(desk.clone(), WRITE_MANIFEST, Desk::write_manifest)
        .register_with(desk.clone(), FORGET_LIST, Desk::forget_list)
        .start()
        .await
}
