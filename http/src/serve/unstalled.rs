//! A connection that fails if its client does not take what is written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Timer as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::timer::{ConnectionSleep, ConnectionTimer};

/// A connection that fails when bytes have waited too long for its client without any being taken.
pub(super) struct Unstalled<Io> {
    io: Io,
    within: Duration,
    timer: ConnectionTimer,
    /// Set while bytes wait.
    deadline: Option<ConnectionSleep>,
}

impl<Io: Unpin> Unstalled<Io> {
    pub(super) const fn new(io: Io, within: Duration, timer: ConnectionTimer) -> Self {
        Self {
            io,
            within,
            timer,
            deadline: None,
        }
    }

    fn bounded<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut Io>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.io), cx) {
            self.deadline = None;
            return Poll::Ready(written);
        }
        let Self { within, timer, .. } = self;
        let deadline = self
            .deadline
            .get_or_insert_with(|| timer.until(timer.now() + *within));
        Pin::new(deadline).poll(cx).map(|()| {
            let why = "the client has taken nothing for too long";
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        })
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Unstalled<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Unstalled<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.bounded(cx, |io, cx| io.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.bounded(cx, |io, cx| io.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bounded(cx, |io, cx| io.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bounded(cx, |io, cx| io.poll_shutdown(cx))
    }
}
