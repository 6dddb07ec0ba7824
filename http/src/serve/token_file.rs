//! For systems without Unix sockets: a server at a loopback address, with a token for it in a file beside the store.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tokio::runtime::Handle;

use super::address::{beside, listen};
use super::serving::{ServedAt, Serving};
use super::{ServeConfig, ServeError};
use crate::token::hexadecimal;
use crate::{Access, Console, Token};

impl Console {
    /// Serves the routes at a loopback address that requires a token. Both are in the file beside the store, one per line;
    /// for `app.redb` it is `app.redb.sock`. A process that can read the file is an operator. The file is removed when the server
    /// ends, and one that a killed process has left is replaced.
    ///
    /// (On systems with Unix sockets, this is a socket.)
    ///
    /// # Errors
    /// When the runtime has no store of its own, or the system refuses.
    ///
    /// # Cancel safety
    /// If the future is dropped, no server is left.
    #[cfg(not(unix))]
    pub async fn at_socket(&self, config: ServeConfig) -> Result<Serving, ServeError> {
        self.at_token_file(config).await
    }

    pub(super) async fn at_token_file(&self, config: ServeConfig) -> Result<Serving, ServeError> {
        let store = self.runtime().store().ok_or(ServeError::NoStore)?;
        Handle::try_current().map_err(|_| ServeError::NoTokio)?;
        let path = beside(store.path());
        let failed = |source| ServeError::Listen {
            at: ServedAt::Socket(path.clone()),
            source,
        };
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| failed(error.into()))?;
        let text = hexadecimal(&secret);
        let token = Token::new(&text).expect("64 digits are a token");
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let listener = listen(address, &config).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        fs::write(&path, format!("http://{address}\n{text}\n")).map_err(failed)?;
        let file = TokenFile(path.clone());
        let console = self.clone().with_access(Access::token(None, token));
        let at = ServedAt::Address(address);
        Ok(Serving::start(
            &console,
            at,
            listener,
            config,
            Some(Box::new(file)),
        ))
    }
}

/// The file, removed with its server.
struct TokenFile(PathBuf);

impl Drop for TokenFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}
