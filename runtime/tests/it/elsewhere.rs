//! Waiting outside of the tokio runtime that hosts a runtime: on another one, and on a plain thread.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;

/// A test that takes longer hangs, and fails here.
pub(crate) const HANGS_AFTER: Duration = Duration::from_secs(60);

/// What polls a future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executor {
    /// Another tokio runtime.
    Tokio,
    /// A thread that knows nothing of tokio.
    Plain,
}

impl Executor {
    pub(crate) const ALL: [Self; 2] = [Self::Tokio, Self::Plain];

    pub(crate) fn block_on<F: Future>(self, future: F) -> F::Output {
        match self {
            Self::Tokio => Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(future),
            Self::Plain => {
                assert!(tokio::runtime::Handle::try_current().is_err(), "it is outside");
                let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
                let mut future = pin!(future);
                loop {
                    match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                        Poll::Ready(output) => return output,
                        Poll::Pending => thread::park(),
                    }
                }
            }
        }
    }
}

struct Unpark(thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

/// Does some work on a thread of its own; fails when it hangs or panics.
pub(crate) fn on_thread<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, end) = channel();
    thread::spawn(move || done.send(work()));
    match end.recv_timeout(HANGS_AFTER) {
        Ok(output) => output,
        Err(RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        Err(RecvTimeoutError::Disconnected) => panic!("{what} panics"),
    }
}
