//! The server at an address and at a socket beside the store.

use std::net::SocketAddr;

use millrun::Runtime;
use millrun_http::{Access, Console, Role, ServeConfig, ServeError, ServedAt, Token};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::runtime;

/// Sends a GET and reads the answer to its end.
async fn ask(mut io: impl AsyncRead + AsyncWrite + Unpin, target: &str, headers: &str) -> String {
    let text = format!("GET {target} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    io.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.unwrap();
    answer
}

fn port_0(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), 0)
}

#[tokio::test]
async fn a_loopback_address_is_served_until_the_server_is_stopped() {
    let runtime = runtime().await;
    let console = Console::new(&runtime, Access::read_only());
    let serving = console
        .at_address(port_0("127.0.0.1"), ServeConfig::default())
        .await
        .unwrap();
    let ServedAt::Address(address) = *serving.at() else {
        panic!("{serving:?}");
    };
    assert_eq!(serving.at().to_string(), format!("http://{address}"));
    let host = format!("host: {address}\r\n");
    let answer = ask(TcpStream::connect(address).await.unwrap(), "/v1/ready", &host).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let evil = ask(
        TcpStream::connect(address).await.unwrap(),
        "/v1/ready",
        "host: evil.example\r\n",
    )
    .await;
    assert!(evil.starts_with("HTTP/1.1 421"), "{evil}");

    assert_eq!(serving.stop().await.cut, 0);
    assert!(
        TcpStream::connect(address).await.is_err(),
        "nobody listens any more"
    );
    assert!(runtime.stop_cause().is_none(), "the runtime goes on");
}

#[tokio::test]
async fn an_address_that_others_reach_needs_a_token() {
    let runtime = runtime().await;
    let open = [Access::read_only(), Access::operator()];
    for ip in ["0.0.0.0", "::", "192.0.2.7"] {
        for access in &open {
            let console = Console::new(&runtime, access.clone());
            let refused = console.at_address(port_0(ip), ServeConfig::default()).await;
            assert!(matches!(refused, Err(ServeError::NeedsToken(_))), "{refused:?}");
        }
    }
    let token = Token::new("0123456789abcdef").unwrap();
    for access in [Access::token(token, None), Access::by(|_| Role::Anonymous)] {
        let console = Console::new(&runtime, access);
        let serving = console
            .at_address(port_0("0.0.0.0"), ServeConfig::default())
            .await
            .unwrap();
        let ServedAt::Address(address) = *serving.at() else {
            panic!("{serving:?}");
        };
        let loopback = SocketAddr::new("127.0.0.1".parse().unwrap(), address.port());
        let stream = TcpStream::connect(loopback).await.unwrap();
        // An address is a name of the machine; whose it is has the token to show.
        let answer = ask(stream, "/v1/stats", "host: 192.0.2.7\r\n").await;
        assert!(
            answer.contains("token") || answer.contains("forbidden"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn while_a_server_stops_it_is_not_ready_and_goes_on() {
    let runtime = runtime().await;
    let console = Console::new(&runtime, Access::read_only());
    let mut config = ServeConfig::default();
    config.unready_for = std::time::Duration::from_secs(3600);
    let serving = console.at_address(port_0("127.0.0.1"), config).await.unwrap();
    let ServedAt::Address(address) = *serving.at() else {
        panic!("{serving:?}");
    };
    let mut stopped = std::pin::pin!(serving.stop());
    let asked = async {
        let ready = ask(TcpStream::connect(address).await.unwrap(), "/v1/ready", "").await;
        assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
        assert!(ready.contains("urn:millrun:problem:stopping"), "{ready}");
        let stats = ask(TcpStream::connect(address).await.unwrap(), "/v1/stats", "").await;
        assert!(stats.starts_with("HTTP/1.1 200"), "{stats}");
    };
    tokio::select! {
        biased;
        _ = &mut stopped => panic!("it goes on for an hour"),
        () = asked => {}
    }
}

#[tokio::test]
async fn an_address_in_use_is_an_error_that_names_it() {
    let runtime = runtime().await;
    let console = Console::new(&runtime, Access::read_only());
    let serving = console
        .at_address(port_0("127.0.0.1"), ServeConfig::default())
        .await
        .unwrap();
    let ServedAt::Address(address) = *serving.at() else {
        panic!("{serving:?}");
    };
    let refused = console
        .at_address(address, ServeConfig::default())
        .await
        .unwrap_err();
    assert!(refused.to_string().contains(&address.to_string()), "{refused}");
}

#[cfg(unix)]
mod socket {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use tokio::net::UnixStream;

    use super::*;

    async fn open(folder: &Path) -> Runtime {
        Runtime::open(folder.join("app.redb")).start().await.unwrap()
    }

    fn console(runtime: &Runtime) -> Console {
        Console::new(runtime, Access::operator())
    }

    #[tokio::test]
    async fn a_socket_beside_the_store_is_for_its_user_alone_and_goes_with_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = open(folder.path()).await;
        let serving = console(&runtime).at_socket(ServeConfig::default()).await.unwrap();
        let path = folder.path().join("app.redb.sock");
        assert_eq!(*serving.at(), ServedAt::Socket(path.clone()));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        // The process's umask is as it was.
        let made = folder.path().join("made");
        fs::write(&made, "").unwrap();
        assert_ne!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o400);
        let answer = ask(
            UnixStream::connect(&path).await.unwrap(),
            "/v1/ready",
            "host: localhost\r\n",
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

        let again = console(&runtime).at_socket(ServeConfig::default()).await;
        assert!(matches!(again, Err(ServeError::AlreadyServed(_))), "{again:?}");
        serving.stop().await;
        assert!(!path.exists());
        runtime.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn a_socket_that_a_killed_process_left_is_replaced_and_anything_else_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = open(folder.path()).await;
        let path = folder.path().join("app.redb.sock");
        // Nobody listens on it any more, and its file stays.
        drop(UnixListener::bind(&path).unwrap());
        let serving = console(&runtime).at_socket(ServeConfig::default()).await.unwrap();
        let answer = ask(UnixStream::connect(&path).await.unwrap(), "/v1/ready", "").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

        // What has been put in its place is not removed with it.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        drop(serving);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        let refused = console(&runtime).at_socket(ServeConfig::default()).await;
        assert!(matches!(refused, Err(ServeError::NotASocket(_))), "{refused:?}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        runtime.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_and_a_runtime_without_a_store_have_no_socket() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(100));
        fs::create_dir(&deep).unwrap();
        let stored = open(&deep).await;
        let refused = console(&stored).at_socket(ServeConfig::default()).await;
        assert!(
            matches!(refused, Err(ServeError::PathTooLong { .. })),
            "{refused:?}"
        );
        stored.shutdown().await.unwrap();

        let refused = console(&runtime().await).at_socket(ServeConfig::default()).await;
        assert!(matches!(refused, Err(ServeError::NoStore)), "{refused:?}");
    }
}
