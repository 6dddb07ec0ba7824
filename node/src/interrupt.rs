//! Ctrl-C: the first asks for a graceful end, the second ends the process.

use std::io;

use millrun::{ShutdownReport, StopCause};
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

/// Tells how the end went that was asked for. Whatever it was, nothing acknowledged is lost.
pub(crate) fn report(stopped: &Result<ShutdownReport, StopCause>) {
    match stopped {
        Ok(report) if report.activities_cut == 0 => {}
        Ok(report) => note(format_args!(
            "{} activities were cut short and will run again",
            report.activities_cut
        )),
        Err(cause) => note(format_args!(
            "the stop was cut short: {}",
            crate::with_sources(cause)
        )),
    }
    note("interrupted; the same command goes on where this one stopped");
}
