//! Ctrl-C: the first asks for a graceful end, the second ends the process.

use std::io;
use std::time::Duration;

use millrun::operating::ShutdownReport;
use millrun::{RuntimeConfig, StopCause};
use tokio::signal::unix::{SignalKind, signal};

use crate::outcome::Outcome;
use crate::output::note;

/// Waits for the first Ctrl-C or the first request to terminate.
///
/// From its completion on, a second one ends the process at once. That is safe at any moment:
/// what the runtime acknowledged is in the store.
///
/// # Errors
/// When the system does not let us listen.
pub(crate) async fn requested() -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(i32::from(Outcome::Interrupted.code()));
    });
    Ok(())
}

/// How long an end takes beyond what activities may: for the shards, the disk, and threads that are slow.
const STOP_BEYOND: Duration = Duration::from_secs(50);

/// Sets how many seconds activities have to end in.
pub(crate) fn allow(config: &mut RuntimeConfig, seconds: u16) {
    config.shutdown_grace = Duration::from_secs(seconds.into());
    config.shutdown_wait_max = config.shutdown_grace + STOP_BEYOND;
}

/// Tells how the end went that was asked for. Whatever it was, nothing acknowledged is lost.
pub(crate) fn report(stopped: &Result<ShutdownReport, StopCause>) {
    report_cut(stopped);
    note("interrupted; the same command goes on where this one stopped");
}

/// Tells what an end has cut short.
pub(crate) fn report_cut(stopped: &Result<ShutdownReport, StopCause>) {
    match stopped {
        Ok(report) => {
            if report.activities_cut > 0 {
                note(format_args!(
                    "{} activities were cut short and will run again",
                    report.activities_cut
                ));
            }
            for left in &report.left_behind {
                note(format_args!("{} did not end in time", left.part));
            }
        }
        Err(cause) => note(format_args!(
            "the stop was cut short: {}",
            crate::with_sources(cause)
        )),
    }
}
