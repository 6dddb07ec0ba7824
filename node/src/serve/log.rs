//! The log, on standard error.

use std::io;

use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{fmt, registry};

use super::settings::{LogFilter, LogForm};

/// Begins to log: for people, or a line of JSON for each event.
///
/// # Errors
/// When something logs already.
pub(super) fn begin(form: LogForm, LogFilter(filter): LogFilter) -> Result<(), TryInitError> {
    let lines = fmt::layer().with_writer(io::stderr);
    match form {
        LogForm::Pretty => {
            let colours = io::IsTerminal::is_terminal(&io::stderr());
            registry()
                .with(lines.with_ansi(colours).with_filter(filter))
                .try_init()
        }
        LogForm::Json => registry().with(lines.json().with_filter(filter)).try_init(),
    }
}
