//! `millrun serve`: a store with the demo workflows, served over HTTP until the program is told to stop.
//!
//! ```text
//!   settings ──► log ──► runtime ──► console ──► address, socket
//!                           ▲                        │
//!                        sample              SIGTERM ▼
//!                                    not ready ─► drained ─► runtime shut down
//! ```

mod hooks;
mod log;
mod sample;
mod settings;

use std::error::Error;

use clap::Args;
use millrun::Runtime;
use millrun_http::{Access, Console, Redaction, ServedAt, Serving};

use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::{note, shown, tell};
use crate::table::Table;
pub(crate) use settings::ServeOptions;
use settings::Settings;

/// The command line of `config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigOptions {
    #[command(flatten)]
    pub(crate) serve: ServeOptions,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Tells each setting of `serve`, and where its value comes from.
///
/// # Errors
/// When a setting is wrong, or standard output cannot be written.
pub(crate) fn config(options: ConfigOptions) -> Result<Outcome, Box<dyn Error>> {
    let rows = Settings::read(options.serve)?.rows();
    if options.json {
        let all = rows.iter().map(|[name, value, origin]| {
            (
                name.clone(),
                serde_json::json!({ "value": value, "origin": origin }),
            )
        });
        tell(serde_json::Value::Object(all.collect()))?;
    } else {
        let mut table = Table::of(["setting", "value", "origin"]);
        for row in rows {
            table.row(row);
        }
        tell(table)?;
    }
    Ok(Outcome::Complete)
}

/// Serves a store until it is told to stop.
///
/// # Errors
/// When a setting is wrong, the store cannot be opened, an address cannot be listened on, or the runtime fails.
pub(crate) async fn run(options: ServeOptions) -> Result<Outcome, Box<dyn Error>> {
    let settings = Settings::read(options)?;
    log::begin(settings.log.value, settings.log_filter.value.clone())?;
    let runtime = sample::register(Runtime::open(&settings.store.value))
        .configure(|config| interrupt::allow(config, settings.stop_within_s.value))
        .start()
        .await?;
    let ended = begin(&runtime, &settings).await;
    // Everything acknowledged is in the store, whatever the result.
    let stopped = runtime.shutdown().await;
    ended?;
    interrupt::report_cut(&stopped);
    stopped?;
    note("stopped; the same command goes on where this one stopped");
    Ok(Outcome::Complete)
}

/// Serves the runtime, and has the orders of its topic started meanwhile.
async fn begin(runtime: &Runtime, settings: &Settings) -> Result<(), Box<dyn Error>> {
    let trigger = sample::trigger(runtime).await?;
    let servings = listen(runtime, settings).await?;
    serve(runtime, settings, servings).await?;
    drop(trigger);
    Ok(())
}

/// Listens at the address, and at the socket if that is wanted.
async fn listen(runtime: &Runtime, settings: &Settings) -> Result<Vec<Serving>, Box<dyn Error>> {
    let redaction = Redaction::of(&settings.redact.value.0)?;
    let console = Console::new(runtime, settings.access())
        .sites(settings.sites())
        .redact(redaction.clone())
        .keep_past();
    let console = sample::expose(console)?;
    let hooks = settings.hooks.value.iter();
    let console = hooks.fold(console, |console, hook| console.hook(hook.hook()));
    let mut servings = vec![
        console
            .at_address(settings.listen.value, settings.bounds())
            .await?,
    ];
    if settings.socket.value {
        // Only this user can connect there.
        let console = Console::new(runtime, Access::operator())
            .redact(redaction)
            .keep_past();
        let console = sample::expose(console)?;
        servings.push(console.at_socket(settings.bounds()).await?);
    }
    Ok(servings)
}

async fn serve(runtime: &Runtime, settings: &Settings, servings: Vec<Serving>) -> Result<(), Box<dyn Error>> {
    tell(format_args!("store   {}", shown(&settings.store.value)))?;
    for serving in &servings {
        tell(format_args!("serves  {}", serving.at()))?;
    }
    if let Some(address) = servings
        .iter()
        .find(|serving| matches!(serving.at(), ServedAt::Address(_)))
    {
        tell(format_args!("page    {}/console", address.at()))?;
    }
    tell(format_args!(
        "try     millrun list --store {}",
        shown(&settings.store.value)
    ))?;
    let sampled = async {
        if settings.sample.value {
            sample::start(runtime).await?;
        }
        std::future::pending::<Result<(), Box<dyn Error>>>().await
    };
    tokio::select! {
        interrupted = interrupt::requested() => interrupted?,
        failed = sampled => failed?,
        cause = runtime.stopped() => return Err(cause.into()),
    }
    tracing::info!("stopping");
    let stopped = servings.into_iter().map(Serving::stop);
    let cut: usize = futures_util::future::join_all(stopped)
        .await
        .iter()
        .map(|drained| drained.cut)
        .sum();
    if cut > 0 {
        note(format_args!("{cut} connections were cut off"));
    }
    Ok(())
}
