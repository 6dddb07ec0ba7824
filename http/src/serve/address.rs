//! A server at an address.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::ServeConfig;
use super::serving::{ServedAt, Serving};
use crate::Console;

/// Why a server was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Other machines can reach the address, and the access gives everybody a role. Listen on a loopback address, or require
    /// a token with [`Access::token`](crate::Access::token).
    #[error("{0} is no loopback address, and everybody who reaches it would have a role: ask for a token")]
    NeedsToken(SocketAddr),
    /// The system refuses to listen there. Choose another address, or end the program that uses it.
    #[error("{at} cannot be listened on")]
    Listen {
        /// Where.
        at: ServedAt,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The call was made outside of a tokio runtime with IO. Make it within one.
    #[error("a server needs a tokio runtime")]
    NoTokio,
    /// The runtime has no store of its own beside which a socket could be made. Listen on an address.
    #[error("a runtime without a store file has no socket")]
    NoStore,
    /// The path of the socket is longer than the system allows. Open the store by a shorter path, or listen on an address.
    #[error("the socket's path {} has more than {len_max} bytes", path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// How many bytes the system takes.
        len_max: usize,
    },
    /// The file at the socket's path is not a socket, and is left alone. Move it away.
    #[error("{} is there, and is no socket", .0.display())]
    NotASocket(PathBuf),
    /// This program listens on the socket already.
    #[error("{} is served already", .0.display())]
    AlreadyServed(PathBuf),
}

/// The path of the socket beside a store, or of the file in its place.
pub(super) fn beside(store: &Path) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(".sock");
    path.into()
}

/// Listens on an address. The system's send buffer is bounded like the unsent bytes in this process: otherwise it would grow
/// to megabytes for a client that reads nothing, and this process would produce them.
pub(super) async fn listen(address: SocketAddr, config: &ServeConfig) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    // Connections inherit it from the listener.
    #[cfg(any(target_os = "android", target_os = "linux"))]
    {
        let unsent_max = u32::try_from(config.unsent_bytes_max).unwrap_or(u32::MAX);
        socket2::SockRef::from(&listener).set_tcp_notsent_lowat(unsent_max)?;
    }
    #[cfg(not(any(target_os = "android", target_os = "linux")))]
    let _ = config;
    Ok(listener)
}

impl Console {
    /// Serves the routes at an address, within bounds. With port 0 the system chooses one. An address that other machines
    /// reach needs an access with tokens, or one by a function that looks at the request. Addresses are then among the
    /// [sites](Console::sites); names have to be added.
    ///
    /// # Errors
    /// When the address needs a token, or the system refuses to listen on it.
    ///
    /// # Cancel safety
    /// If the future is dropped, no server is left.
    pub async fn at_address(&self, address: SocketAddr, config: ServeConfig) -> Result<Serving, ServeError> {
        let is_loopback = address.ip().to_canonical().is_loopback();
        if !is_loopback && self.access().is_for_everybody() {
            return Err(ServeError::NeedsToken(address));
        }
        Handle::try_current().map_err(|_| ServeError::NoTokio)?;
        let failed = |source| ServeError::Listen {
            at: ServedAt::Address(address),
            source,
        };
        let listener = listen(address, &config).await.map_err(failed)?;
        let at = ServedAt::Address(listener.local_addr().map_err(failed)?);
        let console = if is_loopback {
            self.clone()
        } else {
            self.clone().with_addresses()
        };
        Ok(Serving::start(&console, at, listener, config, None))
    }
}
