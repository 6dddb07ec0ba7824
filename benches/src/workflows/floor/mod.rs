//! The floor: the least program that does the durable work of one-step runs. Bars are ratios to it, since
//! rates move with the machine and the ratio says what the rest of millrun costs.
//!
//! ```text
//!   client ──start(number)──► inbox ──► shard (one thread) ──frames──► open segment
//!     ▲  ▲                      ▲         │                                │ lingers, seals
//!     │  └─ oneshot: started ───┼─────────┤                                ▼
//!     └──── oneshot: result ────┼─────────┘                     writer (one thread): redb, one
//!                               └──────────── durable segment ◄─────── commit, one sync
//! ```
//!
//! **The same work.** Each run has the four events of a run of `bench-workflows`' one-step workflow, in two
//! turns. Their bytes are taken from a run that the runtime itself has made just before; only the run, the
//! time, the id and the number differ. Each frame has its checksum. They stand in the same table of the same
//! file, cut into rows by the journal's own code; the file is kept zeroed ahead by the journal's own part,
//! and commits linger as the journal's own do. The start is acknowledged when the first turn is durable, the
//! step is then taken, and the result is acknowledged when the second turn is durable. The journal opens the
//! file and finds the runs in it (a test shows that). Clients are those of the suite: tasks in a closed loop on
//! the same number of workers.
//!
//! **Left out** is everything else: no serde and no user code (a result is the number plus one), no table of
//! ids, heads, epochs or instances, so a second start with the same id is not noticed; no timers, activities,
//! retries, deadlines, queries or supervision; no queue between shard and step; no bound on what is waiting
//! but the number of clients; nothing is listed, settled, retained or dropped in the file, and its loss is not
//! looked for. In memory, the frames have no checksums (the journal in memory has none either), and those of
//! the latest [`KEPT_RUNS`] runs are kept.

mod log;
mod shard;
mod template;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use millrun_core::Host;
use tokio::sync::oneshot;

use self::log::{Kept, Log, OpenLog, Writer};
use self::shard::{Inbox, Request, Shard};
use self::template::Template;
use crate::BenchError;
use crate::runs::Store;

/// Of how many finished runs the floor in memory keeps the frames: as many as the runtime in memory retains.
const KEPT_RUNS: usize = 100_000;

/// The threads of the floor.
pub(super) struct Floor {
    door: Door,
    shard: JoinHandle<()>,
    writer: Option<JoinHandle<Result<(), BenchError>>>,
}

/// Where clients start runs. A cheap clone.
#[derive(Clone)]
pub(super) struct Door(Arc<Inbox>);

impl Floor {
    /// Opens the floor of a durable or a volatile store, with its files in `folder`. The runtime makes its
    /// one run there first.
    pub(super) async fn open(store: Store, folder: &Path, host: &Arc<dyn Host>) -> Result<Self, BenchError> {
        let is_durable = store == Store::Durable;
        let template = Template::learned(&folder.join("template.redb"), is_durable, host).await?;
        let inbox = Arc::new(Inbox::default());
        let (log, writer) = if is_durable {
            let open = Arc::new(OpenLog::default());
            let writer = Writer::open(&folder.join("store.redb"), host, &open, &inbox)?;
            let writer = spawned("floor-writer", move || writer.run())?;
            (Log::Disk(open), Some(writer))
        } else {
            (Log::Memory(Kept::default()), None)
        };
        let shard = Shard::new(template, log, Arc::clone(&inbox));
        let shard = spawned("floor-shard", move || shard.run())?;
        Ok(Self {
            door: Door(inbox),
            shard,
            writer,
        })
    }

    pub(super) fn door(&self) -> Door {
        self.door.clone()
    }

    /// Ends both threads, after what is queued.
    pub(super) fn close(self) -> Result<(), BenchError> {
        self.door.0.close();
        let panicked = |_| BenchError::failed("floor", "a thread of it panicked");
        self.shard.join().map_err(panicked)?;
        self.writer
            .map_or(Ok(()), |writer| writer.join().map_err(panicked)?)
    }
}

impl Door {
    /// Starts a run, waits for its result, and refuses another one than is expected.
    pub(super) async fn run_once(self, number: u64) -> Result<(), BenchError> {
        let number = u32::try_from(number)
            .ok()
            .and_then(template::numbered)
            .ok_or_else(|| BenchError::failed("floor", format!("run {number} has too many digits")))?;
        let (started, is_started) = oneshot::channel();
        let (ended, result) = oneshot::channel();
        self.0.push(Request {
            number,
            started,
            ended,
        });
        let gone = |_| BenchError::failed("floor", "it ended before the run");
        is_started.await.map_err(gone)?;
        let result = result.await.map_err(gone)?;
        if result == number + 1 {
            return Ok(());
        }
        Err(BenchError::Wrong {
            contestant: "floor".into(),
            what: format!("run {number} gave {result}"),
        })
    }
}

fn spawned<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, BenchError> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(run).map_err(BenchError::Runtime)
}
