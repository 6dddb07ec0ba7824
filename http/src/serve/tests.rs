//! The server over connections in memory, in tokio's paused time: it moves when nothing else can.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header;
use axum::response::IntoResponse as _;
use axum::routing::{any, get};
use hyper::body::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::ServeConfig;
use super::accept::{Listener, accept};
#[cfg(any(target_os = "android", target_os = "linux"))]
use super::address::listen;
use super::serving::{Drained, ending};
use crate::{Access, Console};

/// Connections that a test makes.
struct Connected(mpsc::Receiver<DuplexStream>);

impl Listener for Connected {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<DuplexStream> {
        match self.0.recv().await {
            Some(io) => Ok(io),
            None => std::future::pending().await,
        }
    }
}

/// A server and its clients' way to it.
struct Server {
    connect: mpsc::Sender<DuplexStream>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<Drained>,
    pieces: Arc<AtomicUsize>,
    release: Arc<Notify>,
}

const PIECE: usize = 1_000;

/// Pieces without an end, counted as they are made.
struct Endless(Arc<AtomicUsize>);

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(vec![b'x'; PIECE].into()))))
    }
}

/// One event, and then silence.
struct OneEvent(bool);

impl HttpBody for OneEvent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"data: 1\n\n")))))
    }
}

fn serve(change: impl FnOnce(&mut ServeConfig)) -> Server {
    let mut config = ServeConfig::default();
    change(&mut config);
    let (pieces, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (made, released) = (Arc::clone(&pieces), Arc::clone(&release));
    let router = Router::new()
        .route("/quick", get(|| async { "quick" }))
        .route("/stuck", any(std::future::pending::<()>))
        .route("/body", any(|body: Bytes| async move { body.len().to_string() }))
        .route(
            "/held",
            get(move || {
                let released = Arc::clone(&released);
                async move {
                    released.notified().await;
                    "held"
                }
            }),
        )
        .route(
            "/endless",
            get(move || {
                let made = Arc::clone(&made);
                async move { Body::new(Endless(made)) }
            }),
        )
        .route(
            "/events",
            get(|| async {
                (
                    [(header::CONTENT_TYPE, "text/event-stream")],
                    Body::new(OneEvent(false)),
                )
                    .into_response()
            }),
        );
    let (connect, connected) = mpsc::channel(16);
    let (stop, ending) = ending();
    let mut tasks = JoinSet::new();
    tasks.spawn(accept(Connected(connected), router.into(), config, ending));
    Server {
        connect,
        stop,
        tasks,
        pieces,
        release,
    }
}

impl Server {
    async fn connect(&self) -> DuplexStream {
        let (ours, theirs) = duplex(1_024);
        self.connect.send(theirs).await.unwrap();
        ours
    }

    /// Sends this on a connection of its own, and reads until the server closes it.
    async fn ask(&self, text: &str) -> String {
        let mut client = self.connect().await;
        client.write_all(text.as_bytes()).await.unwrap();
        all(client).await
    }

    async fn stopped(mut self) -> Drained {
        self.stop.send_replace(true);
        self.tasks.join_next().await.unwrap().unwrap()
    }
}

async fn all(mut client: DuplexStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    text
}

/// Reads until the text has this in it.
async fn read_until(client: &mut DuplexStream, sign: &str) -> String {
    let mut text = String::new();
    while !text.contains(sign) {
        let mut buffer = [0; 256];
        let len = client.read(&mut buffer).await.unwrap();
        assert_ne!(len, 0, "the connection ended after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..len]).unwrap());
    }
    text
}

/// The server takes what was sent.
async fn others_go_on() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

fn request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

fn last_request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_its_headers_slowly_is_left() {
    let server = serve(|_| {});
    for (sent, is_answered) in [
        ("", false),
        ("GET /quick HTT", false),
        ("GET /quick HTTP/1.1\r\nhost: localhost\r\n", false),
        // The next request is waited for no longer.
        ("GET /quick HTTP/1.1\r\nhost: localhost\r\n\r\n", true),
    ] {
        let begun = Instant::now();
        let answer = server.ask(sent).await;
        assert_eq!(begun.elapsed().as_secs(), 5, "{sent:?}");
        assert_eq!(answer.contains("200 OK"), is_answered, "{sent:?}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn headers_that_are_too_long_are_refused() {
    let server = serve(|_| {});
    for (len, status) in [(15_000, "200"), (17_000, "431"), (100_000, "431")] {
        let mut client = server.connect().await;
        let text = format!(
            "GET /quick HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx: {}\r\n\r\n",
            "x".repeat(len)
        );
        let (mut answer, mut ask) = tokio::io::split(&mut client);
        let asked = async {
            // The server may close before it has read all.
            ask.write_all(text.as_bytes()).await.ok();
        };
        let mut head = [0; 12];
        let (_, read) = tokio::join!(asked, answer.read_exact(&mut head));
        read.unwrap();
        assert!(
            std::str::from_utf8(&head).unwrap().ends_with(status),
            "{len}: {head:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_has_its_time_and_a_waiting_one_that_in_addition() {
    let server = serve(|_| {});
    for (target, seconds) in [
        ("/stuck", 30),
        ("/stuck?wait_ms=10000", 40),
        ("/stuck?wait_ms=60001", 30),
    ] {
        let begun = Instant::now();
        let answer = server.ask(&last_request(target)).await;
        assert_eq!(begun.elapsed().as_secs(), seconds, "{target}");
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("urn:millrun:problem:timeout"), "{answer}");
    }
    let begun = Instant::now();
    let answer = server
        .ask("POST /body HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nhalf")
        .await;
    assert_eq!(begun.elapsed().as_secs(), 30);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_read_is_not_made_and_its_connection_is_closed() {
    let server = serve(|_| {});
    let mut client = server.connect().await;
    client.write_all(request("/endless").as_bytes()).await.unwrap();
    read_until(&mut client, "xxx").await;
    let begun = Instant::now();
    let rest = read_once_closed(&server, client, begun).await;
    let made = server.pieces.load(Ordering::Relaxed) * PIECE;
    assert!(made <= 64 * 1024 + 4 * PIECE, "{made} bytes were made");
    assert!(rest <= made, "{rest} of {made}");
}

/// Reads nothing until the connection's time is over, and then what is left; gives how much that is.
async fn read_once_closed(server: &Server, client: DuplexStream, begun: Instant) -> usize {
    // Another connection's time passes meanwhile, again and again.
    while begun.elapsed() < Duration::from_secs(31) {
        server.ask("").await;
    }
    all(client).await.len()
}

/// The system took megabytes of answers for a client that read none, each of which had been made for nobody.
#[cfg(any(target_os = "android", target_os = "linux"))]
#[tokio::test]
async fn the_system_holds_no_more_of_an_answer_than_the_server() {
    let config = ServeConfig::default();
    let listener = listen("127.0.0.1:0".parse().unwrap(), &config).await.unwrap();
    let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(client, listener.accept());
    let (_client, (stream, _)) = (connected.unwrap(), accepted.unwrap());
    let unsent_max = socket2::SockRef::from(&stream).tcp_notsent_lowat().unwrap();
    assert_eq!(unsent_max as usize, config.unsent_bytes_max);
}

#[tokio::test(start_paused = true)]
async fn at_the_bound_the_oldest_connection_without_a_request_makes_room() {
    let server = serve(|config| config.connections_max = 2);
    let mut asked = server.connect().await;
    asked.write_all(request("/held").as_bytes()).await.unwrap();
    others_go_on().await;
    let silent = server.connect().await;
    let begun = Instant::now();
    let answer = server.ask(&last_request("/quick")).await;
    assert!(answer.ends_with("quick"), "{answer}");
    assert_eq!(all(silent).await, "");
    assert_eq!(begun.elapsed(), Duration::ZERO, "nobody had to wait");

    server.release.notify_one();
    assert!(read_until(&mut asked, "held").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(start_paused = true)]
async fn at_the_bound_of_requests_a_client_waits_until_one_has_ended() {
    let server = serve(|config| config.connections_max = 1);
    let mut asked = server.connect().await;
    asked.write_all(last_request("/held").as_bytes()).await.unwrap();
    others_go_on().await;
    let begun = Instant::now();
    let quick = last_request("/quick");
    let (answer, ()) = tokio::join!(server.ask(&quick), async {
        tokio::time::advance(Duration::from_secs(7)).await;
        server.release.notify_one();
    });
    assert!(answer.ends_with("quick"), "{answer}");
    assert!(begun.elapsed() >= Duration::from_secs(7));
    assert!(all(asked).await.ends_with("held"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_answers_what_is_under_way_and_tells_its_streams() {
    let server = serve(|_| {});
    let idle = server.connect().await;
    let mut held = server.connect().await;
    held.write_all(request("/held").as_bytes()).await.unwrap();
    let mut events = server.connect().await;
    events.write_all(request("/events").as_bytes()).await.unwrap();
    read_until(&mut events, "data: 1\n\n").await;
    let mut waiting = server.connect().await;
    waiting
        .write_all(request("/stuck?wait_ms=60000").as_bytes())
        .await
        .unwrap();
    others_go_on().await;

    let (release, begun) = (Arc::clone(&server.release), Instant::now());
    let stopped: JoinHandle<Drained> = spawned(server.stopped());
    let last = all(events).await;
    assert!(last.contains("event: problem\ndata: {"), "{last}");
    assert!(
        last.contains("urn:millrun:problem:stopping") && last.contains("\n\n"),
        "{last}"
    );
    assert!(all(waiting).await.contains("urn:millrun:problem:stopping"));
    assert_eq!(all(idle).await, "");
    release.notify_one();
    assert!(all(held).await.ends_with("held"));
    assert_eq!(stopped.await.unwrap(), Drained { cut: 0 });
    assert_eq!(begun.elapsed(), Duration::ZERO, "nothing had to be waited for");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_is_cut_off_when_the_server_stops() {
    let server = serve(|_| {});
    let mut stuck = server.connect().await;
    stuck.write_all(request("/stuck").as_bytes()).await.unwrap();
    others_go_on().await;
    let begun = Instant::now();
    assert_eq!(server.stopped().await, Drained { cut: 1 });
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(all(stuck).await, "");
}

#[expect(clippy::disallowed_methods, reason = "a test has no host")]
fn spawned<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(task)
}

#[tokio::test]
async fn a_token_file_names_the_address_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = millrun::Runtime::open(folder.path().join("app.redb"))
        .start()
        .await
        .unwrap();
    let console = Console::new(&runtime, Access::read_only());
    let serving = console.at_token_file(ServeConfig::default()).await.unwrap();
    let path = folder.path().join("app.redb.sock");
    let file = std::fs::read_to_string(&path).unwrap();
    let (address, token) = file.trim().split_once('\n').unwrap();
    assert_eq!(address, serving.at().to_string());
    for (token, status) in [(token, 200), ("0123456789abcdef", 401)] {
        let ask =
            format!("GET /v1/stats HTTP/1.1\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n");
        let mut client = tokio::net::TcpStream::connect(&address["http://".len()..])
            .await
            .unwrap();
        client.write_all(ask.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    serving.stop().await;
    assert!(!path.exists());
    runtime.shutdown().await.unwrap();
}
