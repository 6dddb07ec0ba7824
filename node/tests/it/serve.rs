//! `millrun serve` and `millrun config`: the real program at a port of the system's choice and at its socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use crate::support::{Ended, Folder, Running};

pub(crate) const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

/// Starts it, and gives the address that it prints, such as `127.0.0.1:40000`.
pub(crate) fn serve(folder: &Folder, environment: &[(&str, &str)], more: &[&str]) -> (Running, String) {
    let arguments = [&SERVE[..], more].concat();
    let (running, heard) = folder.start_with(&arguments, environment, "try ");
    let address = heard
        .iter()
        .find_map(|line| line.split_once("http://"))
        .unwrap()
        .1;
    (running, address.to_owned())
}

/// Sends a request, and reads until the connection is closed.
fn ask(mut io: impl Read + Write, head: &str, headers: &str) -> String {
    let request = format!("{head} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    io.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    io.read_to_string(&mut answer).unwrap();
    answer
}

fn start_order(folder: &Folder, id: &str) -> Ended {
    let order = r#"{"customer":"ada","cents":1200}"#;
    folder.run(&["start", "sample-order", id, order])
}

#[test]
fn an_order_is_found_again_after_a_kill_and_completed_by_a_signal() {
    let folder = Folder::new();
    let (first, _) = serve(&folder, &[], &[]);
    start_order(&folder, "order-1").expect(0);
    assert!(folder.run(&["list"]).expect(0).out.contains("order-1"));
    first.kill();
    // The socket of the killed process is there, and nobody behind it.
    assert!(folder.names().contains(&"millrun.redb.sock".to_owned()));
    let closed = folder.run(&["signal", "order-1", "paid"]).expect(4);
    assert!(
        closed.err.contains("try: millrun serve --store millrun.redb"),
        "{closed:#?}"
    );

    let (second, address) = serve(&folder, &[], &[]);
    let url = format!("http://{address}");
    let listed = folder.run(&["list", "--url", &url]).expect(0);
    assert!(listed.out.contains("order-1"), "{listed:#?}");
    folder
        .run(&["signal", "order-1", "paid", r#"{"by":"grace"}"#, "--url", &url])
        .expect(0);
    // Its activity backs off, and then its child waits for half a minute: it is signalled, and runs.
    let history = folder.run(&["history", "order-1", "--jsonl"]).expect(0);
    assert!(history.out.contains(r#""name":"paid""#), "{history:#?}");
    assert_eq!(second.terminate(), Some(0));
    assert!(!folder.names().contains(&"millrun.redb.sock".to_owned()));
}

#[test]
fn the_sample_has_something_to_see_and_to_find_out() {
    let folder = Folder::new();
    let (running, _) = serve(&folder, &[], &["--sample"]);
    // The starts are under way when the address is printed.
    let listed = loop {
        let listed = folder.run(&["list"]).expect(0).out;
        if listed.contains("sample-order-") && listed.contains("parked") {
            break listed;
        }
    };
    let stuck = listed
        .lines()
        .find(|line| line.starts_with("sample-stuck "))
        .unwrap();
    assert!(stuck.contains("parked"), "{listed}");
    let why = folder.run(&["why", "sample-stuck"]).expect(0).out;
    assert!(why.contains("the mistake of the sample"), "{why}");
    let order = listed
        .lines()
        .find(|line| line.starts_with("sample-order-"))
        .unwrap();
    let id = order.split(' ').next().unwrap();
    let why = folder.run(&["why", id]).expect(0).out;
    assert!(why.contains("sample-reserve"), "{why}");
    assert_eq!(running.terminate(), Some(0));
}

#[test]
fn the_socket_is_for_its_user_alone_and_the_address_for_those_with_a_token() {
    let folder = Folder::new();
    let token = "0123456789-operating";
    folder.write("reading", b"0123456789-reading\n");
    let more = ["--reading-token-file", "reading"];
    let (running, address) = serve(&folder, &[("MILLRUN_TOKEN", token)], &more);
    let socket = folder.path("millrun.redb.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let at_socket = ask(
        UnixStream::connect(&socket).unwrap(),
        "GET /v1/stats",
        "host: localhost\r\n",
    );
    assert!(at_socket.starts_with("HTTP/1.1 200"), "{at_socket}");
    for (headers, status) in [
        (String::new(), 401),
        ("authorization: Bearer 0123456789-nonsense\r\n".to_owned(), 401),
        ("authorization: Bearer 0123456789-reading\r\n".to_owned(), 200),
        (format!("authorization: Bearer {token}\r\n"), 200),
        (
            format!("authorization: Bearer {token}\r\nhost: evil.example\r\n"),
            421,
        ),
        (
            format!("authorization: Bearer {token}\r\norigin: http://evil.example\r\n"),
            403,
        ),
    ] {
        let answer = ask(TcpStream::connect(&address).unwrap(), "GET /v1/stats", &headers);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{headers}: {answer}"
        );
    }
    let url = format!("http://{address}");
    let refused = folder.run(&["list", "--url", &url]).expect(1);
    assert!(refused.err.contains("try: --token-file"), "{refused:#?}");
    folder
        .run_with(&["list", "--url", &url], &[("MILLRUN_TOKEN", token)])
        .expect(0);
    let reading = ["list", "--url", &url, "--token-file", "reading"];
    folder.run(&reading).expect(0);
    let start = [
        "start",
        "sample-stuck",
        "x",
        "--url",
        &url,
        "--token-file",
        "reading",
    ];
    assert!(
        folder.run(&start).expect(1).err.contains("role"),
        "reading is not operating"
    );
    drop(running);
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let folder = Folder::new();
    let ended = folder.run(&["serve", "--listen", "0.0.0.0:0"]).expect(1);
    assert!(ended.err.contains("ask for a token"), "{ended:#?}");
}

#[test]
fn a_stop_answers_what_is_under_way_and_is_not_ready_meanwhile() {
    let folder = Folder::new();
    let more = ["--unready-for-ms", "60000", "--stop-within-s", "1"];
    let (running, address) = serve(&folder, &[], &more);
    start_order(&folder, "o").expect(0);
    let ready = || ask(TcpStream::connect(&address).unwrap(), "GET /v1/ready", "");
    assert!(ready().starts_with("HTTP/1.1 200"));
    running.send("-TERM");
    while ready().starts_with("HTTP/1.1 200") {}
    assert!(ready().contains("urn:millrun:problem:stopping"));
    // Everything else goes on, until a second signal ends it at once.
    assert!(folder.run(&["list"]).expect(0).out.contains('o'));
    running.send("-TERM");
    assert_eq!(running.wait(), Some(130));
}

#[test]
fn a_stream_is_told_of_the_stop() {
    let folder = Folder::new();
    let (running, address) = serve(&folder, &[], &[]);
    let started = start_order(&folder, "o").expect(0).out;
    let run = started.trim().rsplit(' ').next().unwrap();
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /v1/runs/{run}/events HTTP/1.1\r\n\r\n").unwrap();
    let mut begun = Vec::new();
    while !begun.windows(5).any(|bytes| bytes == b"id: 1") {
        let mut bytes = [0; 4_096];
        let len = stream.read(&mut bytes).unwrap();
        assert_ne!(len, 0, "{}", String::from_utf8_lossy(&begun));
        begun.extend_from_slice(&bytes[..len]);
    }
    assert_eq!(running.terminate(), Some(0));
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("event: problem"), "{rest}");
}

#[test]
fn each_setting_tells_where_it_comes_from() {
    let folder = Folder::new();
    folder.write(
        "millrun.toml",
        b"listen = \"127.0.0.1:1000\"\nstore = \"file.redb\"\nsample = true\nhosts = [\"a.example\", \"b.example\"]\n",
    );
    let environment = [
        ("MILLRUN_CONFIG", "millrun.toml"),
        ("MILLRUN_STORE", "environment.redb"),
        ("MILLRUN_LISTEN", "127.0.0.1:2000"),
        ("MILLRUN_TOKEN", "0123456789abcdef"),
    ];
    let told = folder
        .run_with(&["config", "--listen", "127.0.0.1:3000"], &environment)
        .expect(0)
        .out;
    let row = |name: &str| {
        let row = told
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name));
        row.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("listen"), "listen 127.0.0.1:3000 flag --listen");
    assert_eq!(row("store"), "store environment.redb environment MILLRUN_STORE");
    assert_eq!(row("sample"), "sample true file millrun.toml");
    assert_eq!(row("hosts"), "hosts a.example,b.example file millrun.toml");
    assert_eq!(row("log"), "log pretty default");
    assert_eq!(row("token"), "token (set) environment MILLRUN_TOKEN");
    assert!(!told.contains("0123456789abcdef"), "{told}");
    let json = folder.run_with(&["config", "--json"], &environment).expect(0).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["listen"]["origin"], "environment MILLRUN_LISTEN");

    for (name, value, said) in [
        ("MILLRUN_LISTEN", "nonsense", "MILLRUN_LISTEN"),
        ("MILLRUN_TOKEN", "short", "16 to 512"),
        ("MILLRUN_LOG", "loud", "pretty or json"),
    ] {
        let ended = folder.run_with(&["config"], &[(name, value)]).expect(1);
        assert!(ended.err.contains(said), "{ended:#?}");
    }
    folder.write("wrong.toml", b"lisen = \"127.0.0.1:1000\"\n");
    let ended = folder.run(&["config", "--config", "wrong.toml"]).expect(1);
    assert!(ended.err.contains("lisen"), "{ended:#?}");
}

#[test]
fn the_log_is_lines_of_json_if_that_is_wanted() {
    let folder = Folder::new();
    // The last word of the log.
    let (running, heard) = folder.start_with(
        &[&SERVE[..], &["--log", "json", "--log-filter", "debug"]].concat(),
        &[],
        "\"level\":",
    );
    let line = heard.last().unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    drop(running);
}

#[test]
fn fields_that_are_hidden_are_told_to_nobody() {
    let folder = Folder::new();
    let (running, _) = serve(&folder, &[("MILLRUN_REDACT", "customer")], &[]);
    start_order(&folder, "o").expect(0);
    for arguments in [&["history", "o"][..], &["history", "o", "--json"]] {
        let history = folder.run(arguments).expect(0).out;
        assert!(
            history.contains("(redacted)") && history.contains("1200"),
            "{history}"
        );
        assert!(!history.contains("ada"), "{history}");
    }
    drop(running);
}

/// The settings of the unit for systemd and of the image are settings.
#[test]
fn what_is_deployed_has_settings_that_there_are() {
    let folder = Folder::new();
    folder.write("token", b"0123456789abcdef");
    let unit = include_str!("../../deploy/millrun.service").replace("\\\n", "");
    let (_, start) = unit.split_once("millrun serve ").unwrap();
    let arguments = start
        .lines()
        .next()
        .unwrap()
        .replace("${STATE_DIRECTORY}", "state");
    let arguments = arguments.replace("${CREDENTIALS_DIRECTORY}/", "");
    let arguments = ["config"].into_iter().chain(arguments.split_whitespace());
    let told = folder.run(&arguments.collect::<Vec<_>>()).expect(0).out;
    assert!(told.contains("state/millrun.redb"), "{told}");

    let image = include_str!("../../deploy/Containerfile");
    let words = image.split_whitespace().filter_map(|word| word.split_once('='));
    let mut environment: Vec<_> = words.filter(|(name, _)| name.starts_with("MILLRUN_")).collect();
    assert_eq!(environment.len(), 4, "{environment:?}");
    for (name, value) in &mut environment {
        if *name == "MILLRUN_TOKEN_FILE" {
            *value = "token";
        }
    }
    let told = folder.run_with(&["config"], &environment).expect(0).out;
    assert_eq!(told.matches("environment MILLRUN_").count(), 4, "{told}");
}
