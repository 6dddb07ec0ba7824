//! A sample in a process of its own: its memory is measured.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::catching_up::catch_up;
use super::stuck::publish_beside;
use super::waiting::publish_beside_waiting;
use crate::BenchError;
use crate::http::Summary;
use crate::scale::failed;

/// What such a process says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Apart {
    /// Its rate and times.
    pub summary: Summary,
    /// Its memory, or by how much that grew.
    pub resident_bytes: u64,
}

/// What such a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// Reads a number of records from the beginning of the store that is in the folder of results.
    CatchUp,
    /// Publishes a number of records, which a reader reads.
    Publish,
    /// The same, beside a subscription that is stuck.
    PublishBesideStuck,
    /// Publishes beside a number of runs that wait for other keys.
    PublishBesideWaiting,
}

impl Subject {
    /// Measures it with `records` records, or runs that wait.
    ///
    /// # Errors
    /// When anything fails, or a record is lost, doubled or out of order.
    pub fn measure(self, records: u64, folder: &Path, threads: usize) -> Result<Apart, BenchError> {
        match self {
            Self::CatchUp => catch_up(folder, records, threads),
            Self::Publish => publish_beside(false, folder, records, threads),
            Self::PublishBesideStuck => publish_beside(true, folder, records, threads),
            Self::PublishBesideWaiting => publish_beside_waiting(folder, records, threads),
        }
    }

    /// Does it in a process of its own.
    pub(super) fn measure_apart(
        self,
        records: u64,
        folder: &Path,
        threads: usize,
    ) -> Result<Apart, BenchError> {
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        let value = self.to_possible_value();
        command
            .args(["--apart", value.as_ref().map_or("", |value| value.get_name())])
            .args(["--records", &records.to_string()])
            .args(["--threads", &threads.to_string(), "--out"])
            .arg(folder);
        let output = command.output().map_err(failed)?;
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout)?);
        }
        Err(failed(String::from_utf8_lossy(&output.stderr).trim()))
    }
}
