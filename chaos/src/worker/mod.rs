//! The process that holds the runtime, does what it is asked, and is killed.
//!
//! ```text
//!   standard input ──► thread ──► a task for each request ──► runtime ──► store
//!                                            │
//!   standard output ◄── one write a line ◄───┴── activities, subscription, failed parts
//! ```
//!
//! Nothing is told before it has happened, and a step's mark is with the supervisor before the step
//! gives its value.

mod answers;
mod clock;
mod disk;
mod letters;
mod opening;
mod reports;

use std::error::Error;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use millrun::{Runtime, StopCause};
use tokio::sync::{mpsc, oneshot};

use crate::wire::{Answer, Ask, Report, Request};
use answers::Server;
use clock::ChaosClock;
use disk::ChaosDisk;
use letters::PostOffice;

/// How the supervisor starts a worker.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkerOptions {
    /// The store file.
    #[arg(long)]
    pub(crate) store: PathBuf,
    /// The number of this process in its round, from 1.
    #[arg(long)]
    pub(crate) life: u64,
    /// The seed of the faults that the process draws itself.
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) shards_len: usize,
    #[arg(long)]
    pub(crate) hot_len_max: usize,
    /// How many failures of a part in a minute the runtime puts up with.
    #[arg(long)]
    pub(crate) restarts_max: u32,
    /// By how much the clock of this process is off.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) clock_ms: Option<i64>,
    /// The store stands on a disk that can be troubled.
    #[arg(long)]
    pub(crate) own_disk: bool,
}

/// The faults that a worker is asked for.
#[derive(Debug, Default)]
struct Seams {
    clock: Option<Arc<ChaosClock>>,
    disk: Option<Arc<ChaosDisk>>,
}

/// Serves until it is told to shut down, or its standard input ends.
///
/// # Errors
/// When the store cannot be opened or closed.
pub(crate) async fn run(options: WorkerOptions) -> Result<(), Box<dyn Error>> {
    let opened = opening::open(&options).await?;
    let report = opened.runtime.startup_report();
    reports::tell(&Report::Open {
        live: report.live,
        is_repaired: report.is_repaired,
    });
    let mut requests = requests();
    let post = PostOffice::open(&opened.runtime);
    let server = Arc::new(Server::new(
        opened.runtime.clone(),
        opened.fence,
        post,
        opened.seams,
    ));
    let (stop, mut stopped) = oneshot::channel();
    let watching = tokio::spawn(watch(opened.runtime.stopped(), stop));
    let outcome = loop {
        let request = tokio::select! {
            request = requests.recv() => request,
            _ = &mut stopped => break Ok(()),
        };
        let Some(request) = request else { break Ok(()) };
        if request.ask == Ask::Shutdown {
            break shut_down(&opened.runtime, request.number).await;
        }
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.serve(request).await });
    };
    watching.abort();
    outcome
}

async fn shut_down(runtime: &Runtime, number: u64) -> Result<(), Box<dyn Error>> {
    let answer = match runtime.shutdown().await {
        Ok(_) => Answer::Done,
        Err(cause) => Answer::Wrong {
            message: answers::with_sources(&cause),
        },
    };
    reports::tell(&Report::Answer { number, answer });
    Ok(())
}

/// Requests as they are read. The thread ends with the standard input, or with the process.
fn requests() -> mpsc::Receiver<Request> {
    let (sender, receiver) = mpsc::channel(4_096);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            let request = serde_json::from_str(&line).expect("the supervisor writes requests");
            if sender.blocking_send(request).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Says that the runtime has stopped by itself, and why, and then ends the process: the next one opens the
/// store again.
async fn watch(stopped: impl Future<Output = StopCause>, stop: oneshot::Sender<()>) {
    let cause = stopped.await;
    if !matches!(cause, StopCause::Shutdown) {
        reports::tell(&Report::Stopped {
            cause: answers::with_sources(&cause),
        });
        // Only that the main task is gone can make it fail.
        stop.send(()).unwrap_or_default();
    }
}
