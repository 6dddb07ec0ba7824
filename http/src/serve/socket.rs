//! A server at a Unix socket beside the store.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::umask;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;

use super::accept::Listener;
use super::address::beside;
use super::serving::{ServedAt, Serving};
use super::{ServeConfig, ServeError};
use crate::Console;

/// The longest path of a socket: the size of `sun_path` without the final zero.
const PATH_LEN_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

impl Listener for UnixListener {
    type Io = UnixStream;

    async fn accept(&mut self) -> io::Result<Self::Io> {
        Ok(Self::accept(self).await?.0)
    }
}

impl Console {
    /// Serves the routes at the socket beside the store: for `app.redb` it is `app.redb.sock`. No port is used, and only the
    /// user of this process can connect: the socket has the mode 0600 from its creation on. For that the process's umask is
    /// set for a moment, so a file that another thread creates in that moment has at most the mode 0600 too.
    ///
    /// The runtime has the store open, and with it the only right to listen there; a socket that a killed process has left is
    /// replaced. The socket is removed when the server ends.
    ///
    /// # Errors
    /// When the runtime has no store of its own, the path is longer than a socket's may be or is another kind of file, this
    /// process serves it already, or the system refuses.
    ///
    /// # Cancel safety
    /// If the future is dropped, no server is left.
    pub async fn at_socket(&self, config: ServeConfig) -> Result<Serving, ServeError> {
        let store = self.runtime().store().ok_or(ServeError::NoStore)?;
        Handle::try_current().map_err(|_| ServeError::NoTokio)?;
        let path = beside(store.path());
        let (listener, socket) = listen(&path)?;
        let at = ServedAt::Socket(path);
        Ok(Serving::start(self, at, listener, config, Some(Box::new(socket))))
    }
}

/// Listens on a socket of which no other process may be in charge.
fn listen(path: &Path) -> Result<(UnixListener, Socket), ServeError> {
    if path.as_os_str().len() > PATH_LEN_MAX {
        let path = path.to_owned();
        let len_max = PATH_LEN_MAX;
        return Err(ServeError::PathTooLong { path, len_max });
    }
    let failed = |source| ServeError::Listen {
        at: ServedAt::Socket(path.to_owned()),
        source,
    };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(ServeError::NotASocket(path.to_owned())),
        Ok(_) if StdStream::connect(path).is_ok() => return Err(ServeError::AlreadyServed(path.to_owned())),
        // It is a stale socket.
        Ok(_) => fs::remove_file(path).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = {
        let _narrow = NarrowUmask::set();
        UnixListener::bind(path).map_err(failed)?
    };
    let inode = fs::symlink_metadata(path).map_err(failed)?.ino();
    let path = path.to_owned();
    Ok((listener, Socket { path, inode }))
}

/// While this exists, files that this process creates are only accessible for its user.
struct NarrowUmask(Mode);

impl NarrowUmask {
    fn set() -> Self {
        Self(umask(Mode::RWXG | Mode::RWXO | Mode::XUSR))
    }
}

impl Drop for NarrowUmask {
    fn drop(&mut self) {
        umask(self.0);
    }
}

/// The socket's file, removed with its server.
struct Socket {
    path: PathBuf,
    inode: u64,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another file may have been put there.
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| found.ino() == self.inode) {
            fs::remove_file(&self.path).ok();
        }
    }
}
