//! `millrun import`: a new store of the histories that an export or an archive has written.
//!
//! The work is done on a thread of its own; Ctrl-C ends the process. What stands at the new store's place then is
//! no store.

use std::error::Error;
use std::time::Duration;

use millrun::host::{HostConfig, TokioHost};
use millrun::store::{RedbConfig, import};

use crate::cli::Import;
use crate::outcome::Outcome;
use crate::output::{self, shown};

/// How long the threads that wrote the new store may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Makes the store.
///
/// # Errors
/// When there is a store already, the histories are none, or the system refuses.
pub(crate) async fn run(options: Import) -> Result<Outcome, Box<dyn Error>> {
    let owner = TokioHost::spawn(HostConfig::default()).await?;
    let host = owner.host();
    let to = options.to.clone();
    let work = move || import(&options.from, &options.to, &RedbConfig::default(), &*host);
    let imported = tokio::task::spawn_blocking(work).await;
    owner.shutdown(END_WITHIN).await.ok();
    let imported = imported??;
    output::tell(format_args!(
        "{} runs of {} records are in {}",
        imported.runs,
        imported.records,
        shown(&to)
    ))?;
    if imported.cut_off > 0 {
        output::note(format_args!(
            "{} runs are left out: the rest of them stands in the next file of the archive, or in the store",
            imported.cut_off
        ));
        return Ok(Outcome::Partial);
    }
    Ok(Outcome::Complete)
}
