//! A running server, and how it is stopped.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::rt::Timer as _;
use hyper_util::rt::TokioTimer;
use millrun::host::{Host, TaskHandle};
use tokio::sync::{oneshot, watch};

use super::ServeConfig;
use super::accept::{Listener, accept};
use crate::Console;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServedAt {
    /// The address that was asked for, with the port that the system has given.
    Address(SocketAddr),
    /// A Unix socket.
    Socket(PathBuf),
}

impl fmt::Display for ServedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "http://{address}"),
            Self::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A running server. Dropping it ends it and all its connections at once; [`stop`](Self::stop) lets requests under way be
/// answered.
#[must_use = "dropping it ends the server"]
pub struct Serving {
    at: ServedAt,
    console: Console,
    unready_for: Duration,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<Drained>,
    task: TaskHandle,
    /// Removed together with the server.
    _socket: Option<Box<dyn Send + Sync>>,
}

/// How a server stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// The number of connections that had not ended within [`drain_within`](ServeConfig::drain_within) and were closed.
    pub cut: usize,
}

impl Serving {
    /// Starts a server on the host of the console's runtime.
    pub(super) fn start<L: Listener>(
        console: &Console,
        at: ServedAt,
        listener: L,
        config: ServeConfig,
        socket: Option<Box<dyn Send + Sync>>,
    ) -> Self {
        let (stop, ending) = ending();
        let (end, ended) = oneshot::channel();
        let unready_for = config.unready_for;
        let routes = console.routes();
        let host: &Arc<dyn Host> = console.runtime().host();
        let task = host.spawn(
            "http",
            Box::pin(async move {
                let drained = accept(listener, routes, config, ending).await;
                // The caller may have given up.
                end.send(drained).ok();
            }),
        );
        Self {
            at,
            console: console.clone(),
            unready_for,
            stop,
            ended,
            task,
            _socket: socket,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn at(&self) -> &ServedAt {
        &self.at
    }

    /// Stops the server, in this order: `ready` answers 503 ([`Console::not_ready`]), and the server works on for
    /// [`unready_for`](ServeConfig::unready_for); then no further connection or request is accepted, streams of events and
    /// waits for results are ended, and requests under way are answered; what is left after
    /// [`drain_within`](ServeConfig::drain_within) is closed. The runtime is not stopped: shut it down afterwards.
    ///
    /// # Cancel safety
    /// Dropping the future ends the server at once.
    pub async fn stop(mut self) -> Drained {
        self.console.not_ready();
        if !self.unready_for.is_zero() {
            TokioTimer::new().sleep(self.unready_for).await;
        }
        self.stop.send_replace(true);
        // If the host has ended, so have all connections.
        (&mut self.ended).await.unwrap_or_default()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// Tells when the server stops. A cheap clone.
#[derive(Clone)]
pub(super) struct Ending(watch::Receiver<bool>);

/// The switch that tells a server to stop, and its receiver.
pub(super) fn ending() -> (watch::Sender<bool>, Ending) {
    let (stop, ending) = watch::channel(false);
    (stop, Ending(ending))
}

impl Ending {
    /// Completes once the server stops, or is dropped.
    pub(super) fn stopping(&self) -> Stopping {
        let mut ending = self.0.clone();
        Stopping {
            ending: self.0.clone(),
            told: Box::pin(async move {
                // An error means that the sender is gone.
                ending.wait_for(|is_stopping| *is_stopping).await.ok();
            }),
            waker: None,
        }
    }
}

/// Waits for the server to stop.
///
/// A connection's task is polled for every request, and checking the channel takes a lock that all connections share. So it
/// is checked once for each waker, and then when the server stops.
pub(super) struct Stopping {
    ending: watch::Receiver<bool>,
    told: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The waker that the channel wakes.
    waker: Option<Waker>,
}

impl Future for Stopping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let will_be_woken = self
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()));
        if will_be_woken && matches!(self.ending.has_changed(), Ok(false)) {
            return Poll::Pending;
        }
        if self.told.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
