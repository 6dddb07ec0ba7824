//! A connection that asks one request after the other, with as little work as a client can have.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::BenchError;

/// An answer whose head is longer is not one of ours.
const HEAD_BYTES_MAX: usize = 16_384;
/// How much is read at once.
const READ_BYTES: usize = 16_384;

/// The error of a server, in the words of a client.
pub(super) fn asking(cause: impl std::fmt::Display) -> BenchError {
    BenchError::failed("the server", cause)
}

/// Kept alive from request to request.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Result<Self, BenchError> {
        let stream = TcpStream::connect(address).await.map_err(asking)?;
        stream.set_nodelay(true).map_err(asking)?;
        Ok(Self {
            stream,
            read: Vec::with_capacity(READ_BYTES),
        })
    }

    /// Sends it and reads all of the answer; one that is no success is an error.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<&[u8], BenchError> {
        self.stream.write_all(request).await.map_err(asking)?;
        self.read.clear();
        let (head, body) = loop {
            self.read_more().await?;
            if let Some(end) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break (end + 4, body_bytes(&self.read[..end])?);
            }
            if self.read.len() > HEAD_BYTES_MAX {
                return Err(asking("the head of an answer does not end"));
            }
        };
        while self.read.len() < head + body {
            self.read_more().await?;
        }
        Ok(&self.read[head..])
    }

    /// Sends the request of a stream, and leaves the rest to the caller.
    pub(super) async fn stream(mut self, request: &[u8]) -> Result<TcpStream, BenchError> {
        self.stream.write_all(request).await.map_err(asking)?;
        Ok(self.stream)
    }

    async fn read_more(&mut self) -> Result<(), BenchError> {
        self.read.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.read).await.map_err(asking)? {
            0 => Err(asking("a connection was closed before the answer had come")),
            _ => Ok(()),
        }
    }
}

/// The length of the body that this head announces.
fn body_bytes(head: &[u8]) -> Result<usize, BenchError> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 20") {
        return Err(asking(status));
    }
    lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .ok_or_else(|| asking("the answer has no content-length"))
}

/// Connections that requests take in turn.
#[derive(Clone, Debug)]
pub(super) struct Connections(Arc<Mutex<Vec<Connection>>>);

impl Connections {
    pub(super) async fn open(address: SocketAddr, len: usize) -> Result<Self, BenchError> {
        let mut connections = Vec::with_capacity(len);
        for _ in 0..len {
            connections.push(Connection::open(address).await?);
        }
        Ok(Self(Arc::new(Mutex::new(connections))))
    }

    /// Asks by a connection that is free; there must be one.
    pub(super) async fn ask(&self, request: &[u8]) -> Result<(), BenchError> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = free.ok_or_else(|| asking("more requests than connections"))?;
        connection.ask(request).await?;
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        Ok(())
    }
}

/// A request without a body.
pub(super) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").into_bytes()
}

/// A request with JSON.
pub(super) fn post(path: &str, body: &str) -> Vec<u8> {
    post_as("application/json", path, body)
}

/// A request with a body of this type.
pub(super) fn post_as(content_type: &str, path: &str, body: &str) -> Vec<u8> {
    post_with("", content_type, path, body)
}

/// As [`post_as`], with these lines in its head, each with its end.
pub(super) fn post_with(lines: &str, content_type: &str, path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {content_type}\r\n{lines}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_by_its_length_and_a_refusal_is_an_error() {
        let head = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 12";
        assert_eq!(body_bytes(head).unwrap(), 12);
        let refused = body_bytes(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0");
        assert!(refused.unwrap_err().to_string().contains("503"));
        assert!(body_bytes(b"HTTP/1.1 200 OK").is_err());
    }
}
