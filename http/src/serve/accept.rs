//! The accept loop: connections up to a bound, until the server stops.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::rt::Timer as _;
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::ServeConfig;
use super::connection::serve;
use super::routes::Routes;
use super::serving::{Drained, Ending};
use super::silent::Silent;

/// How long no connection is accepted after the system had no room for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A source of connections.
pub(super) trait Listener: Send + 'static {
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection.
    ///
    /// # Cancel safety
    /// No connection is lost.
    fn accept(&mut self) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

impl Listener for TcpListener {
    type Io = tokio::net::TcpStream;

    async fn accept(&mut self) -> io::Result<Self::Io> {
        let (stream, _) = Self::accept(self).await?;
        // Answers are written in one piece, so waiting for more to send (Nagle) would only delay them.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Accepts connections until the server stops, and returns when they have ended.
///
/// # Cancel safety
/// Dropping it closes all connections at once.
pub(super) async fn accept<L: Listener>(
    mut listener: L,
    routes: Routes,
    config: ServeConfig,
    ending: Ending,
) -> Drained {
    let config = Arc::new(config);
    let silent = Silent::default();
    let mut connections = JoinSet::new();
    let mut stopping = ending.stopping();
    // One connection beyond the bound, which waits until another has ended.
    let mut beyond = None;
    loop {
        let is_full = connections.len() >= config.connections_max.max(1);
        match beyond.take() {
            Some(io) if !is_full => {
                let place = silent.enter();
                let served = serve(io, routes.clone(), Arc::clone(&config), ending.clone(), place);
                connections.spawn(served);
                continue;
            }
            Some(io) => {
                silent.close_oldest();
                beyond = Some(io);
            }
            None => {}
        }
        tokio::select! {
            biased;
            () = &mut stopping => break,
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept(), if beyond.is_none() => match accepted {
                Ok(io) => beyond = Some(io),
                Err(error) => on_error(&error, &silent).await,
            },
        }
    }
    drop((listener, beyond));
    let cut = drain(&mut connections, config.drain_within).await;
    connections.shutdown().await;
    Drained { cut }
}

/// Waits for connections to end. Returns how many have not.
async fn drain(connections: &mut JoinSet<()>, within: Duration) -> usize {
    let is_late = TokioTimer::new().sleep(within);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    tokio::select! {
        biased;
        () = all_ended => {}
        () = is_late => {}
    }
    connections.len()
}

/// An error for a connection that ended before it was accepted is ignored. Any other error means that a resource is
/// exhausted, which passes when connections end.
async fn on_error(error: &io::Error, silent: &Silent) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, NotConnected};

    let is_gone = [
        ConnectionAborted,
        ConnectionRefused,
        ConnectionReset,
        Interrupted,
        NotConnected,
    ];
    if is_gone.contains(&error.kind()) {
        return;
    }
    tracing::warn!(%error, "no connection can be taken at the moment");
    silent.close_oldest();
    TokioTimer::new().sleep(ACCEPT_PAUSE).await;
}
