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

/// How many bytes the path of a socket may have: the size of `sun_path` without the zero at its end.
const PATH_LEN_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

impl Listener for UnixListener {
    type Io = UnixStream;

    async fn accept(&mut self) -> io::Result<Self::Io> {
        Ok(Self::accept(self).await?.0)
    }
}

impl Console {
    /// Serves the routes at the socket beside the store: that of `app.redb` is `app.redb.sock`. No port is taken, and
    /// only the user of this process can ask: the socket has the mode 0600 from its beginning on, for which the
    /// process's umask is set for a moment (a file that another thread creates in it has no more rights than 0600
    /// either).
    ///
    /// The runtime has the store, and with it the only right to listen there; a socket that a killed process has left
    /// is replaced. It is removed when the server ends.
    ///
    /// # Errors
    /// When the runtime has no store of its own, the path is longer than a socket's may be or has something that is
    /// no socket, this process serves it already, or the system refuses.
    ///
    /// # Cancel safety
    /// A server that is not returned is not there.
    pub async fn at_socket(&self, config: ServeConfig) -> Result<Serving, ServeError> {
        let store = self.runtime().store().ok_or(ServeError::NoStore)?;
        Handle::try_current().map_err(|_| ServeError::NoTokio)?;
        let path = beside(store.path());
        let (listener, socket) = listen(&path)?;
        let at = ServedAt::Socket(path);
        Ok(Serving::start(self, at, listener, config, Some(Box::new(socket))))
    }
}

/// Listens on a socket that nobody else may listen on.
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
        // Nobody listens on it.
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

/// While it lasts, files of this process are created for its user alone.
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
        // Another may have been put there.
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| found.ino() == self.inode) {
            fs::remove_file(&self.path).ok();
        }
    }
}
