//! The accept loop: connections up to a bound, and their end.

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

/// How long no further connection is taken when the system has no room for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where connections come from.
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
        // An answer is written at once, and waits for nothing that could join it.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Takes connections until the stage says that the server stops, and returns when they have ended.
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
    // The one connection beyond the bound, until another has ended.
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

/// Waits for connections to end; gives how many have not.
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

/// A connection that was gone before it was taken is nothing; anything else is for want of something, which goes
/// when connections go.
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
