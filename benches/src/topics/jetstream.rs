//! NATS JetStream beside the publishes: a program of its own, for its client is no dependency of ours.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::publishing::PUBLISHERS;
use super::records::BODY_BYTES;
use crate::BenchError;
use crate::http::Summary;
use crate::scale::failed;

/// Publishes for so long to a server that this program starts.
pub(super) fn publish_for(
    program: &Path,
    folder: &Path,
    lasts: Duration,
    threads: usize,
) -> Result<Summary, BenchError> {
    let output = Command::new(program)
        .arg("--out")
        .arg(folder)
        .args(["--milliseconds", &lasts.as_millis().to_string()])
        .args(["--publishers", &PUBLISHERS.to_string()])
        .args(["--body-bytes", &BODY_BYTES.to_string()])
        .args(["--threads", &threads.to_string()])
        .output()
        .map_err(failed)?;
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout)?);
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim()))
}
