//! The checkout: one durable workflow for each order, with signals, timers and compensation.
//!
//! ```text
//!   lines ──► a thread reads and checks ──► bounded queue ──► start, approve, wait ──► outcome
//! ```

mod book;
mod orders;
mod shop;
mod workflow;

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures_util::{StreamExt, stream};
use millrun::{OpenError, ResultError, RunError, Runtime, StartError, WorkflowError};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::cli::Checkout;
use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::{note, shown, tell};
use book::Book;
use orders::{NumberedOrder, Order, Orders};
use shop::Shop;
use workflow::{APPROVAL, CHARGE, CHECKOUT, Decision, REFUND, RELEASE, RESERVE, Request, SHIP};

/// How many lines are read ahead of the orders under way.
const LINES_AHEAD_MAX: usize = 16;

/// Checks out the orders of the input, and continues those that an earlier process has left.
///
/// # Errors
/// When the input, the store or the book cannot be opened or fail.
pub(crate) async fn run(options: Checkout) -> Result<Outcome, Box<dyn Error>> {
    let input = open_input(&options.orders)?;
    let book = Book::open(&options.book).map_err(|error| format!("{}: {error}", shown(&options.book)))?;
    let runtime = open(&options, Shop::new(book)).await?;
    let worked = tokio::select! {
        worked = work(&runtime, &options, input) => Some(worked),
        interrupted = interrupt::requested() => {
            interrupted?;
            None
        }
    };
    let stopped = runtime.shutdown().await;
    match worked {
        Some(counts) => {
            stopped?;
            let Counts {
                decided,
                failed,
                refused,
            } = counts?;
            tell(format_args!(
                "{decided} orders decided, {failed} failed, {refused} lines refused"
            ))?;
            tell(format_args!(
                "store {}, book {}",
                shown(&options.store),
                shown(&options.book)
            ))?;
            Ok(if failed + refused > 0 {
                Outcome::Partial
            } else {
                Outcome::Complete
            })
        }
        None => {
            interrupt::report(&stopped);
            Ok(Outcome::Interrupted)
        }
    }
}

async fn open(options: &Checkout, shop: Shop) -> Result<Runtime, OpenError> {
    Runtime::open(&options.store)
        .configure(|config| interrupt::allow(config, options.stop_within))
        .register(CHECKOUT, workflow::checkout)
        .register_with(shop.clone(), RESERVE, Shop::reserve)
        .register_with(shop.clone(), RELEASE, Shop::release)
        .register_with(shop.clone(), CHARGE, Shop::charge)
        .register_with(shop.clone(), REFUND, Shop::refund)
        .register_with(shop.clone(), SHIP, Shop::ship)
        .start()
        .await
}

/// The outcomes of the lines.
#[derive(Debug, Default)]
struct Counts {
    decided: u64,
    failed: u64,
    refused: u64,
}

/// Feeds the orders to the runtime, as many at once as the options say.
async fn work(
    runtime: &Runtime,
    options: &Checkout,
    input: Box<dyn BufRead + Send>,
) -> Result<Counts, Box<dyn Error>> {
    let (lines, waiting) = mpsc::channel(LINES_AHEAD_MAX);
    let reading = spawn_blocking(move || read(input, &lines));
    let decisions = stream::unfold(waiting, async |mut waiting| {
        waiting.recv().await.map(|line| (line, waiting))
    })
    .map(|(line, order)| async move {
        match order {
            Ok(order) => (
                line,
                Ok((order.id.clone(), check_out(runtime, options, order).await)),
            ),
            Err(error) => (line, Err(error)),
        }
    })
    .buffer_unordered(options.orders_at_once.into());
    let mut decisions = pin!(decisions);
    let mut counts = Counts::default();
    let name = shown(&options.orders);
    while let Some((line, decided)) = decisions.next().await {
        match decided {
            Ok((id, Ok(decision))) => {
                counts.decided += 1;
                tell(format_args!("{}: {decision}", id.escape_debug()))?;
            }
            Ok((_, Err(error))) if error.concerns_all() => return Err(error.into()),
            Ok((id, Err(error))) => {
                counts.failed += 1;
                note(format_args!(
                    "{name}:{line}: {}: {}",
                    id.escape_debug(),
                    crate::with_sources(&error)
                ));
            }
            Err(error) => {
                counts.refused += 1;
                note(format_args!("{name}:{line}: {error}"));
            }
        }
    }
    reading.await??;
    Ok(counts)
}

/// One order, from its start to its decision.
async fn check_out(runtime: &Runtime, options: &Checkout, order: Order) -> Result<Decision, CheckoutError> {
    let (id, approval) = (order.id.clone(), order.approval);
    let request = Request {
        order,
        approval_within_ms: options.approval_within,
    };
    let run = runtime.start(CHECKOUT, &id, request).await?;
    if let Some(approval) = approval {
        match run.signal(APPROVAL, approval).await {
            // It was decided before, or did not need the approval.
            Ok(()) | Err(RunError::Finished | RunError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(run.result().await?)
}

/// Why an order has no decision.
#[derive(Debug, thiserror::Error)]
enum CheckoutError {
    #[error("it was not started")]
    Start(#[from] StartError),
    #[error("its run was not reached")]
    Run(#[from] RunError),
    #[error("it was not decided")]
    Result(#[from] ResultError<WorkflowError>),
}

impl CheckoutError {
    /// Whether the error concerns all orders, so that trying the others is pointless.
    fn concerns_all(&self) -> bool {
        matches!(
            self,
            Self::Start(StartError::Stopped(_))
                | Self::Run(RunError::Stopped(_))
                | Self::Result(ResultError::Run(RunError::Stopped(_)))
        )
    }
}

fn open_input(path: &Path) -> Result<Box<dyn BufRead + Send>, InputError> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let refused = |source| InputError {
        path: path.to_path_buf(),
        source,
    };
    let file = File::open(path).map_err(refused)?;
    if file.metadata().map_err(refused)?.is_dir() {
        return Err(refused(io::ErrorKind::IsADirectory.into()));
    }
    Ok(Box::new(BufReader::new(file)))
}

#[derive(Debug, thiserror::Error)]
#[error("the orders in {} cannot be read", shown(path))]
struct InputError {
    path: PathBuf,
    source: io::Error,
}

/// Reads until the end, or until no order is wanted any more. Blocks.
fn read(input: Box<dyn BufRead + Send>, lines: &mpsc::Sender<NumberedOrder>) -> io::Result<()> {
    let mut orders = Orders::new(input);
    while let Some(line) = orders.next_order()? {
        if lines.blocking_send(line).is_err() {
            break;
        }
    }
    Ok(())
}
