//! `millrun salvage`: a new store of what is whole in a damaged one.
//!
//! The work is done on a thread of its own; Ctrl-C ends the process, and leaves nothing at the new store's
//! place.

use std::error::Error;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use millrun::host::{HostConfig, TokioHost};
use millrun::store::{SalvageOptions, SalvageProgress, salvage};

use crate::cli::Salvage;
use crate::outcome::Outcome;
use crate::output;

/// How long the threads that wrote the new store may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn run(options: Salvage) -> Result<Outcome, Box<dyn Error>> {
    let owner = TokioHost::spawn(HostConfig::default()).await?;
    let host = owner.host();
    let bar = bar()?;
    let shown = bar.clone();
    let work = move || {
        let mut show = |progress: SalvageProgress| {
            shown.set_message(if progress.is_writing { "writing" } else { "reading" });
            shown.set_length(progress.bytes_total);
            shown.set_position(progress.bytes_done);
        };
        salvage(
            &options.from,
            &options.to,
            &SalvageOptions::default(),
            &*host,
            &mut show,
        )
    };
    let report = tokio::task::spawn_blocking(work).await;
    bar.finish_and_clear();
    owner.shutdown(END_WITHIN).await.ok();
    let report = report??;
    output::tell(report.to_string().trim_end())?;
    Ok(if report.is_complete() {
        Outcome::Complete
    } else {
        Outcome::Partial
    })
}

/// Without a terminal nothing is drawn.
fn bar() -> Result<ProgressBar, Box<dyn Error>> {
    let style = "{spinner} {msg} {wide_bar} {bytes}/{total_bytes}, {eta} left";
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(style)?);
    bar.enable_steady_tick(Duration::from_millis(100));
    Ok(bar)
}
