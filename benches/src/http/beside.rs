//! What goes on beside the requests that are measured: readers of streams and of metrics, and clients that misbehave.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::connection::{Connection, asking, get, post};
use super::server::TICKS;
use crate::BenchError;

/// How often metrics are read.
const SCRAPE_EVERY: Duration = Duration::from_secs(1);
/// How fast a slow client sends its headers, a byte each time.
const BYTE_EVERY: Duration = Duration::from_secs(1);
/// What a client has room for that does not read.
const UNREAD_BYTES: u32 = 4_096;

/// Tasks that go on until this is dropped, or its end is asked for.
#[derive(Debug, Default)]
pub(super) struct Beside {
    tasks: JoinSet<Result<(), BenchError>>,
    /// Events that streams have brought.
    events: Arc<AtomicU64>,
}

impl Beside {
    /// Events that its streams have brought so far.
    pub(super) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Ends everything; the error of what has failed meanwhile.
    pub(super) async fn end(mut self) -> Result<(), BenchError> {
        while let Some(ended) = self.tasks.try_join_next() {
            ended.map_err(asking)??;
        }
        self.tasks.shutdown().await;
        Ok(())
    }

    /// Reads `/metrics` each second.
    pub(super) fn scrape(&mut self, at: SocketAddr) {
        self.tasks.spawn(async move {
            let mut connection = Connection::open(at).await?;
            loop {
                connection.ask(&get("/metrics")).await?;
                tokio::time::sleep(SCRAPE_EVERY).await;
            }
        });
    }

    /// Reads the feed of changes.
    pub(super) async fn read_feed(&mut self, at: SocketAddr) -> Result<(), BenchError> {
        self.read_streams(at, "/v1/changes", 1).await
    }

    /// Tails the topic on `streams` connections.
    pub(super) async fn tail(&mut self, at: SocketAddr, streams: usize) -> Result<(), BenchError> {
        let path = format!("/v1/topics/{}/tail", TICKS.name());
        self.read_streams(at, &path, streams).await
    }

    async fn read_streams(&mut self, at: SocketAddr, path: &str, streams: usize) -> Result<(), BenchError> {
        for _ in 0..streams {
            let mut stream = Connection::open(at).await?.stream(&get(path)).await?;
            let events = Arc::clone(&self.events);
            self.tasks.spawn(async move {
                let mut bytes = vec![0; 2_048];
                let mut last = 0;
                loop {
                    let len = stream.read(&mut bytes).await.map_err(asking)?;
                    if len == 0 {
                        return Err(asking("a stream has ended"));
                    }
                    // Each event ends with an empty line; so does a heartbeat, which is rare.
                    let mut found = 0;
                    for byte in &bytes[..len] {
                        found += u64::from(*byte == b'\n' && last == b'\n');
                        last = *byte;
                    }
                    events.fetch_add(found, Ordering::Relaxed);
                }
            });
        }
        Ok(())
    }

    /// Publishes what is tailed, so often.
    pub(super) fn publish(&mut self, at: SocketAddr, every: Duration) {
        let path = format!("/v1/topics/{}/publish", TICKS.name());
        self.tasks.spawn(async move {
            let mut connection = Connection::open(at).await?;
            let mut due = Instant::now();
            loop {
                connection.ask(&post(&path, r#"{"value": 1}"#)).await?;
                due += every;
                tokio::time::sleep_until(due.into()).await;
            }
        });
    }

    /// Clients that send their headers byte by byte. The server closes them after a while, and they come again.
    pub(super) async fn send_slowly(&mut self, at: SocketAddr, clients: usize) -> Result<(), BenchError> {
        for place in 0..clients {
            let mut stream = TcpStream::connect(at).await.map_err(asking)?;
            // Spread over the time between two bytes: clients of many machines do not send at once.
            let wait = BYTE_EVERY.mul_f64(place as f64 / clients as f64);
            self.tasks.spawn(async move {
                tokio::time::sleep(wait).await;
                loop {
                    let begun = stream.write_all(b"GET /v1/live HTTP/1.1\r\nx-slow: ").await;
                    if begun.is_ok() {
                        while stream.write_all(b"x").await.is_ok() {
                            tokio::time::sleep(BYTE_EVERY).await;
                        }
                    }
                    stream = TcpStream::connect(at).await.map_err(asking)?;
                }
            });
        }
        Ok(())
    }

    /// Clients that ask for pages of a thousand runs, one behind the other, and read nothing: the server is to wait
    /// for them with what their small buffers do not take.
    pub(super) async fn stall(&mut self, at: SocketAddr, clients: usize) -> Result<(), BenchError> {
        for place in 0..clients {
            let mut stream = unread(at).await?;
            let wait = BYTE_EVERY.mul_f64(place as f64 / clients as f64);
            self.tasks.spawn(async move {
                tokio::time::sleep(wait).await;
                let request = get("/v1/runs?limit=1000");
                loop {
                    while stream.write_all(&request).await.is_ok() {
                        tokio::time::sleep(BYTE_EVERY).await;
                    }
                    stream = unread(at).await?;
                }
            });
        }
        Ok(())
    }
}

/// A connection that takes few bytes unless it is read.
async fn unread(at: SocketAddr) -> Result<TcpStream, BenchError> {
    let socket = TcpSocket::new_v4().map_err(asking)?;
    socket.set_recv_buffer_size(UNREAD_BYTES).map_err(asking)?;
    socket.connect(at).await.map_err(asking)
}
