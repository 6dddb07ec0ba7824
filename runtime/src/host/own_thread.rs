//! A thread of the host's own for parts that are actors, with a small tokio runtime on it.
//!
//! On the workers of a multi-thread runtime, a part moves to the core of the thread that rang for it last, and its memory has
//! to follow. On a thread of its own it stays, and parts that often wake each other wake on a thread that is already running.

use std::io;
use std::thread::{self, ThreadId};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

pub(super) struct OwnThread {
    pub(super) tokio: Handle,
    pub(super) id: ThreadId,
    /// Dropping this ends the thread, and everything that runs there.
    _running: oneshot::Sender<()>,
}

impl OwnThread {
    pub(super) fn spawn() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let tokio = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        let thread = thread::Builder::new()
            .name("millrun-parts".into())
            .spawn(move || {
                // Nothing is ever sent: the receiver ends when the sender is dropped.
                runtime.block_on(ended).ok();
            })?;
        Ok(Self {
            tokio,
            id: thread.thread().id(),
            _running: running,
        })
    }
}
