//! A server's process, as the one that asks it holds it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::connection::asking;
use super::server::ServerKind;
use crate::{BenchError, resident_bytes_of};

/// Ends with it.
#[derive(Debug)]
pub(super) struct Served {
    process: Child,
    pub(super) address: SocketAddr,
}

impl Served {
    pub(super) fn start(kind: ServerKind, folder: &Path, threads: usize) -> Result<Self, BenchError> {
        let name = match kind {
            ServerKind::Hello => "hello",
            ServerKind::Millrun => "millrun",
            ServerKind::Traced => "traced",
        };
        let mut process = Command::new(std::env::current_exe().map_err(asking)?)
            .args(["--serve", name, "--threads", &threads.to_string(), "--out"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(asking)?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(asking)?;
        }
        let Ok(address) = line.trim().parse() else {
            process.kill().ok();
            process.wait().ok();
            return Err(asking("it ended before it had an address"));
        };
        Ok(Self { process, address })
    }

    /// Ends it; an error if it found something wrong, which it has told.
    pub(super) fn end(mut self) -> Result<(), BenchError> {
        drop(self.process.stdin.take());
        let ended = self.process.wait().map_err(asking)?;
        match ended.success() {
            true => Ok(()),
            false => Err(asking(format!("the server has ended: {ended}"))),
        }
    }

    /// Its resident memory; an error where the system does not tell.
    pub(super) fn resident_bytes(&self) -> Result<f64, BenchError> {
        let bytes = resident_bytes_of(self.process.id());
        Ok(bytes.ok_or_else(|| asking("the system does not tell its memory"))? as f64)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.process.stdin.take());
        self.process.wait().ok();
    }
}
