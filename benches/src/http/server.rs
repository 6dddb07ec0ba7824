//! The servers that are asked, each in a process of its own.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use axum::Router;
use axum::routing::get;
use millrun::operating::{RuntimeStats, SpanExportConfig};
use millrun::{Runtime, Topic};
use millrun_http::{Access, Console, ServeConfig};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::net::TcpListener;

use crate::scale::failed;
use crate::workflows::registered;
use crate::{BenchError, store_in, workers};

/// What is published for its tails.
pub(super) const TICKS: Topic<u64> = Topic::named("bench.ticks");
/// How many finished runs are kept, so that memory does not grow with the time under load.
pub(super) const RETAINED_LEN: usize = 100_000;

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ServerKind {
    /// axum's hello world, served as its documentation does.
    Hello,
    /// A durable runtime behind the routes, served by `millrun-http`.
    Millrun,
    /// The same, with an exporter that throws the spans of traced runs away.
    Traced,
}

/// Serves until standard input ends; the first line of standard output is the address.
///
/// # Errors
/// When the server cannot be started.
pub fn serve(kind: ServerKind, folder: &Path, threads: usize) -> Result<(), BenchError> {
    workers(threads)?.block_on(async {
        match kind {
            ServerKind::Hello => {
                let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
                println!("{}", listener.local_addr().map_err(failed)?);
                let app = Router::new().route("/", get(|| async { "Hello, World!" }));
                let serving = async { axum::serve(listener, app).await };
                tokio::select! {
                    served = serving => served.map_err(failed),
                    ended = end_of_input() => ended,
                }
            }
            ServerKind::Millrun | ServerKind::Traced => {
                let store = store_in(folder)?;
                let runtime = open(store.path()).await?;
                let export = (kind == ServerKind::Traced)
                    .then(|| runtime.export_spans(ThrownAway, SpanExportConfig::new("bench")))
                    .transpose()
                    .map_err(failed)?;
                let console = Console::new(&runtime, Access::operator())
                    .expose(TICKS)
                    .map_err(failed)?;
                let at = "127.0.0.1:0".parse().map_err(failed)?;
                let serving = console
                    .at_address(at, ServeConfig::default())
                    .await
                    .map_err(failed)?;
                println!("{}", serving.at().to_string().trim_start_matches("http://"));
                end_of_input().await?;
                serving.stop().await;
                if let Some(export) = export {
                    export.finish().await;
                    were_exported(&runtime.stats())?;
                }
                runtime.shutdown().await.map(drop).map_err(failed)
            }
        }
    })
}

/// A collector that costs nothing.
#[derive(Debug)]
struct ThrownAway;

impl SpanExporter for ThrownAway {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

/// A collector that takes everything has had each traced run, and there were some.
fn were_exported(stats: &RuntimeStats) -> Result<(), BenchError> {
    match (stats.traced_runs_told, stats.traced_runs_lost) {
        (1.., 0) => Ok(()),
        (told, lost) => Err(BenchError::Wrong {
            contestant: "millrun, traced".into(),
            what: format!("{told} traced runs were exported, and {lost} were lost"),
        }),
    }
}

/// A durable runtime with the workflows of the suite.
pub(super) async fn open(folder: &Path) -> Result<Runtime, BenchError> {
    registered(Runtime::open(folder.join("store.redb")))
        .configure(|config| config.journal.retention.len_max = RETAINED_LEN)
        .start()
        .await
        .map_err(failed)
}

async fn end_of_input() -> Result<(), BenchError> {
    io::stdout().flush().map_err(failed)?;
    let read = || io::stdin().read_to_end(&mut Vec::new());
    tokio::task::spawn_blocking(read)
        .await
        .map_err(failed)?
        .map_err(failed)?;
    Ok(())
}
