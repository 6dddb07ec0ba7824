//! The command line client against the real program.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};

use crate::serve::serve;
use crate::support::{Ended, Folder};

/// A program with a parked run and one that waits for its signal.
struct Program {
    folder: Folder,
    _running: crate::support::Running,
}

fn program() -> Program {
    let folder = Folder::new();
    let (running, _) = serve(&folder, &[], &[]);
    folder
        .run(&["start", "sample-shipment", "ship-1", "\"shelf-1\""])
        .expect(0);
    Program {
        folder,
        _running: running,
    }
}

impl Program {
    fn run(&self, line: &str) -> Ended {
        let arguments: Vec<_> = line.split(' ').collect();
        self.folder.run(&arguments)
    }

    fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.run(line).expect(0).out).unwrap()
    }
}

#[test]
fn what_runs_is_told_in_columns_and_as_json() {
    let program = program();
    let list = program.run("list").expect(0).out;
    assert!(list.starts_with("ID "), "{list}");
    assert!(list.contains("ship-1  sample-shipment  running"), "{list}");
    assert_eq!(program.json("list --json")[0]["id"], "ship-1");
    let line = program.run("list --jsonl").expect(0).out;
    assert_eq!(line.lines().count(), 1);
    let described = program.run("describe ship-1").expect(0).out;
    assert!(described.contains("kind=timer"), "{described}");
    assert_eq!(program.json("describe ship-1 --json")["status"], "running");
    let why = program.run("why ship-1").expect(0).out;
    assert!(why.contains("timer"), "{why}");
    assert_eq!(program.json("why ship-1 --json")["waits"][0]["kind"], "timer");
    let versions = program.run("versions").expect(0).out;
    assert!(
        versions.contains("sample-shipment") && versions.contains("newest"),
        "{versions}"
    );
    let catalogue = program.run("catalogue").expect(0).out;
    for name in ["sample-order", "sample-reserve", "status"] {
        assert!(catalogue.contains(name), "{catalogue}");
    }
    assert!(program.run("parts").expect(0).out.contains("shard 0"));
    assert!(program.run("stats").expect(0).out.contains("started"));
    program.run("topology").expect(0);
    let top = program.run("top --once").expect(0).out;
    for expected in ["live 1", "sample-shipment", "default", "commits ", "restarts 0"] {
        assert!(top.contains(expected), "{expected} is not in {top}");
    }
    assert!(!top.contains('\x1b'), "{top}");
}

#[test]
fn a_history_is_told_by_events_and_by_operations() {
    let program = program();
    let history = program.run("history ship-1").expect(0).out;
    assert!(
        history.contains("timer_started") || history.contains("TimerStarted"),
        "{history}"
    );
    let timeline = program.run("history ship-1 --timeline").expect(0).out;
    assert!(timeline.contains("===") || timeline.contains('='), "{timeline}");
    let run = program.json("describe ship-1 --json")["run"]
        .as_str()
        .unwrap()
        .to_owned();
    let of_run = program.run(&format!("history --run {run}")).expect(0).out;
    assert_eq!(of_run, history);
    let tail = program.run("tail ship-1 --limit 2").expect(0).out;
    assert_eq!(tail.lines().count(), 2, "{tail}");
    let call = program
        .run(&format!("call history {run} --query limit=1"))
        .expect(0)
        .out;
    assert!(call.contains("\"next\":\"?after=1&limit=1\""), "{call}");
}

#[test]
fn what_is_said_to_an_instance_is_recorded_and_its_end_told() {
    let program = program();
    let pending = program.run("result ship-1").expect(3);
    assert_eq!(pending.out.trim(), "running");
    program.run("pause ship-1 --reason lunch").expect(0);
    assert!(program.run("why ship-1").expect(0).out.contains("lunch"));
    assert!(
        program.run("result ship-1").expect(3).out.starts_with("parked"),
        "it is paused"
    );
    program.run("resume ship-1").expect(0);
    program.run("cancel ship-1 --reason enough").expect(0);
    let ended = program.run("result ship-1 --wait 60").expect(1);
    assert!(ended.out.starts_with("cancelled"), "{ended:#?}");
    let finished = program.run("list --finished").expect(0).out;
    assert!(finished.contains("ship-1"), "{finished}");
    let refused = program.run("signal ship-1 paid 7").expect(1);
    assert!(refused.err.contains("try: millrun result ship-1"), "{refused:#?}");
    let nowhere = program.run("reset ship-1 --to-event 99").expect(1);
    assert!(nowhere.err.contains("no event 99"), "{nowhere:#?}");
    let reset = program
        .run("reset ship-1 --to-event 1 --keep-signals --reason again")
        .expect(0);
    let run = reset
        .out
        .trim()
        .strip_prefix("goes on as run ")
        .unwrap()
        .to_owned();
    assert_eq!(program.run("result ship-1").expect(3).out.trim(), "running");
    let stale = format!("reset ship-1 --to-event 1 --run {run}");
    program.run(&stale).expect(0);
    assert!(program.run(&stale).expect(1).err.contains("latest run"));
    program.run("cancel ship-1").expect(0);

    let order = [
        "start",
        "sample-order",
        "o 1",
        r#"{"customer":"ada","cents":9007199254740993}"#,
    ];
    program.folder.run(&order).expect(0);
    program
        .folder
        .run(&["terminate", "o 1", "--reason", "enough"])
        .expect(0);
    let history = program.folder.run(&["history", "o 1"]).expect(0).out;
    assert!(
        history.contains("9007199254740993"),
        "numbers are exact: {history}"
    );
    let again = [&order[..], &["--on-conflict", "refuse"]].concat();
    let refused = program.folder.run(&again).expect(1);
    assert!(refused.err.contains("try: millrun result 'o 1'"), "{refused:#?}");
}

#[test]
fn a_start_is_delayed_or_takes_the_place_of_a_live_run() {
    let program = program();
    let order = ["start", "sample-order", "o", r#"{"customer":"ada","cents":5}"#];
    let with = |more: &[&str]| program.folder.run(&[&order[..], more].concat());
    let first = with(&["--delay", "7d"]).expect(0).out;
    assert!(program.run("describe o").expect(0).out.contains("delayed"));
    assert!(
        program
            .run("list --status delayed")
            .expect(0)
            .out
            .contains("sample-order")
    );
    let second = with(&["--on-conflict", "terminate-running", "--start-at", "2999-01-01"]);
    assert_ne!(second.expect(0).out, first);
    program.run("resume o").expect(0);
    with(&["--delay", "soon"]).expect(2);
    with(&["--delay", "7d", "--start-at", "2999-01-01"]).expect(2);
}

#[test]
fn a_start_says_how_often_its_run_is_tried() {
    let program = program();
    let order = ["start", "sample-order", "o", r#"{"customer":"ada","cents":5}"#];
    let with = |more: &[&str]| program.folder.run(&[&order[..], more].concat());
    with(&["--retry", "3", "--retry-pause", "5m"]).expect(0);
    let described = program.run("describe o --json").expect(0).out;
    assert!(
        described.contains(r#""try":{"number":1,"attempts_max":3"#),
        "{described}"
    );
    with(&["--retry", "0"]).expect(2);
    with(&["--retry-pause", "5m"]).expect(2);
}

#[test]
fn a_start_says_how_long_its_run_may_take() {
    let program = program();
    let start = |id: &str, more: &[&str]| {
        let order = ["start", "sample-order", id, r#"{"customer":"ada","cents":5}"#];
        program.folder.run(&[&order[..], more].concat())
    };
    let late = ["--start-at", "2999-01-01"];
    start(
        "o",
        &[&late[..], &["--run-timeout", "2h", "--chain-timeout", "1h"]].concat(),
    )
    .expect(0);
    let described = program.run("describe o --json").expect(0).out;
    assert!(described.contains(r#""timeout":"chain""#), "{described}");
    start("p", &["--run-timeout", "0s"]).expect(1);
    start("p", &["--chain-timeout", "soon"]).expect(2);
    program.run("list --status timed-out").expect(0);
}

#[test]
fn a_query_is_answered_and_an_update_that_is_none_refused() {
    let program = program();
    let order = ["start", "sample-order", "o", r#"{"customer":"ada","cents":5}"#];
    program.folder.run(&order).expect(0);
    assert!(program.run("query o status").expect(0).out.contains('r'));
    // As it was when it had begun.
    let before = program.json("describe o --at 1 --json");
    assert_eq!(before["fit"]["kind"], "fits", "{before}");
    assert_eq!(before["status"], "running");
    assert!(program.run("query o status --at 1").expect(0).out.contains('r'));
    let none = program.run("describe o --at 1000000").expect(1).err;
    assert!(none.contains("no event 1000000"), "{none}");
    let refused = program.run("start nonsense n").expect(1);
    assert!(refused.err.contains("try: millrun catalogue"), "{refused:#?}");
    let refused = program.run("query o nonsense").expect(1);
    assert!(refused.err.contains("try: millrun why o"), "{refused:#?}");
    let refused = program.run("update o nonsense 1").expect(1);
    assert!(refused.err.contains("advice: "), "{refused:#?}");
}

#[test]
fn what_cannot_be_asked_says_what_to_try() {
    let program = program();
    let nobody = program.run("describe nobody").expect(1);
    assert!(nobody.err.contains("try: millrun list"), "{nobody:#?}");
    let other = program.run("list --store other.redb").expect(4);
    assert!(other.err.contains("there is no store other.redb"), "{other:#?}");
    // Port 9 is for what discards everything, and nobody has that any more.
    let url = program.run("list --url http://127.0.0.1:9").expect(4);
    assert!(url.err.contains("try: millrun serve"), "{url:#?}");
    for line in [
        "list --url https://127.0.0.1:9",
        "list --url nonsense",
        "signal ship-1 paid {",
        "call nonsense",
    ] {
        program.run(line).expect(2);
    }
    let wrong = program.run("call describe_instance").expect(2);
    assert!(wrong.err.contains("name it"), "{wrong:#?}");
}

#[test]
fn nothing_is_cut_in_a_pipe() {
    let program = program();
    let id = "long-".repeat(40);
    let input = format!("\"{}\"", "x".repeat(5_000));
    program
        .folder
        .run(&["start", "sample-shipment", &id, &input])
        .expect(0);
    assert!(program.run("list").expect(0).out.contains(&id));
    assert!(
        program
            .folder
            .run(&["history", &id])
            .expect(0)
            .out
            .contains(&"x".repeat(5_000))
    );
}

#[test]
fn shells_complete_commands() {
    let folder = Folder::new();
    for shell in ["bash", "fish", "zsh"] {
        let script = folder.run(&["completions", shell]).expect(0).out;
        assert!(
            script.contains("describe") && script.contains("unready-for-ms"),
            "{shell}"
        );
    }
}

/// A command that came just behind a kill reached the socket of the process that was dying, and ended with an error that
/// told nobody what to do.
#[test]
fn what_only_reads_is_asked_again_when_the_connection_ends_and_what_changes_something_is_not() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.path("millrun.redb.sock")).unwrap();
    let reads = |mut stream: &UnixStream| {
        let mut head = [0; 4_096];
        let len = stream.read(&mut head).unwrap();
        String::from_utf8_lossy(&head[..len]).into_owned()
    };
    // The first connection of a command only asks whether somebody listens.
    let cut = || {
        drop(listener.accept().unwrap());
        let (stream, _) = listener.accept().unwrap();
        assert!(reads(&stream).contains("/v1/instances"));
    };
    let ended = std::thread::scope(|scope| {
        let command = scope.spawn(|| folder.run(&["list"]));
        cut();
        let (mut stream, _) = listener.accept().unwrap();
        assert!(reads(&stream).starts_with("GET /v1/instances"));
        let body = r#"{"instances": [], "next": null}"#;
        let len = body.len();
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n{body}").unwrap();
        command.join().unwrap()
    });
    assert!(ended.expect(0).out.starts_with("ID"));

    let ended = std::thread::scope(|scope| {
        let command = scope.spawn(|| folder.run(&["signal", "i", "go"]));
        cut();
        command.join().unwrap()
    });
    let told = ended.expect(4).err;
    assert!(
        told.contains("not known") && told.contains("try: millrun describe"),
        "{told}"
    );
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "it was not sent again");
}

#[test]
fn a_topic_is_tailed_and_a_signal_sent_twice_is_recorded_once() {
    let program = program();
    let tail = ["tail", "--topic", "sample.sent", "--limit", "1"];
    let mut tailing = program.folder.start(&tail);
    // The tail does not show what was published before it began: publish until it has shown one.
    while !tailing.has_ended() {
        let publish = [
            "call",
            "publish",
            "sample.sent",
            "--body",
            r#"{"value": "label-7"}"#,
        ];
        program.folder.run(&publish).expect(0);
    }
    assert!(tailing.ended().expect(0).out.contains("\"label-7\""));

    let order = ["start", "sample-order", "o", r#"{"customer":"ada","cents":5}"#];
    program.folder.run(&order).expect(0);
    for _ in 0..2 {
        let signal = ["signal", "o", "paid", r#"{"by":"grace"}"#, "--request", "r1"];
        program.folder.run(&signal).expect(0);
    }
    let history = program.run("history o --jsonl").expect(0).out;
    assert_eq!(history.matches(r#""by":"grace""#).count(), 1, "{history}");
    assert!(
        program
            .run("tail --topic nothing")
            .expect(1)
            .err
            .contains("no topic")
    );
}

#[test]
fn what_activities_send_while_they_work_is_followed_and_the_beginning_of_an_attempt_told() {
    let program = program();
    let order = ["start", "sample-order", "o", r#"{"customer":"ada","cents":5}"#];
    program.folder.run(&order).expect(0);
    let followed = program.run("stream o progress --limit 1").expect(0);
    assert!(
        followed.out.contains(".1  \"asking the warehouse\""),
        "{followed:#?}"
    );
    assert!(followed.err.contains(r#""attempt":1"#), "{followed:#?}");
    let run = program.json("describe o --json")["run"]
        .as_str()
        .unwrap()
        .to_owned();
    let listed = program.run("stream o --jsonl").expect(0).out;
    assert!(
        listed.starts_with(r#"{"name":"progress","durable":false,"#),
        "{listed}"
    );
    assert!(program.run("stream o").expect(0).out.contains("in memory"));
    let line = program
        .run(&format!("stream {run} progress --limit 1 --jsonl"))
        .expect(0)
        .out;
    assert!(
        line.contains(r#""chunk":{"value":"asking the warehouse"}"#),
        "{line}"
    );
    program.run("terminate o --reason enough").expect(0);
    let chunk: serde_json::Value = serde_json::from_str(&line).unwrap();
    let behind = chunk["position"].as_str().unwrap();
    let rest = program
        .run(&format!(
            "stream {run} progress --limit 1 --after {behind} --jsonl"
        ))
        .expect(0);
    assert_ne!(rest.out, line, "it goes on behind the first chunk");
    assert!(!rest.err.contains("gap"), "{rest:#?}");
    // The end of the run is that of all its streams.
    assert_eq!(program.run("stream o nothing").expect(0).out, "");
    let wrong = program.run(&format!("call output {run}")).expect(2).err;
    assert!(wrong.contains("try: millrun stream RUN NAME"), "{wrong}");
    let nobody = program.run("stream nobody progress").expect(1).err;
    assert!(nobody.contains("instance"), "{nobody}");
}

#[test]
fn an_exported_history_of_a_program_is_that_of_its_file() {
    let program = program();
    let exported = program.run("history ship-1 --export").expect(0).out;
    let Program {
        folder,
        _running: running,
    } = program;
    running.kill();
    let of_file = folder.run(&["history", "ship-1", "--export"]).expect(0).out;
    // The header says how many there were.
    let events: Vec<_> = exported.lines().skip(1).collect();
    let of_file: Vec<_> = of_file.lines().skip(1).take(events.len()).collect();
    assert_eq!(of_file, events);
}

#[test]
fn a_durable_topic_is_published_to_read_and_followed_and_its_subscriptions_told() {
    let program = program();
    let publish = |customer: &str, id: &str| {
        let order = format!(r#"{{"customer":"{customer}","cents":5}}"#);
        let line = ["publish", "sample.ordered", &order, "--key", customer, "--id", id];
        program.folder.run(&line).expect(0).out
    };
    let first = publish("ada", "1");
    let [sequence, token] = first.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("its number and its token: {first}");
    };
    assert_eq!((sequence, token.len()), ("1", 28));
    assert!(publish("ada", "1").contains("published before"), "it has its id");
    let again = ["publish", "sample.ordered", "-", "--key", "grace", "--json"];
    let order = br#"{"customer":"grace","cents":18446744073709551615}"#;
    let again = program.folder.run_with_input(&again, order).expect(0).out;
    assert!(
        again.contains(r#""sequence":2"#) && again.contains(r#""is_repeat":false"#),
        "{again}"
    );
    publish("alan", "3");

    let topics = program.run("topics").expect(0).out;
    for expected in ["sample.ordered  3", "168 h 0 min", "sample.sent"] {
        assert!(topics.contains(expected), "{expected} is not in\n{topics}");
    }
    let told = program.json("topics --json");
    assert_eq!(told["durable"][0]["last"], 3);
    assert!(told["durable"][0]["first_at_us"].is_u64());

    let behind = format!("records sample.ordered --from {token}");
    for (line, keys) in [
        ("records sample.ordered", vec!["ada", "grace", "alan"]),
        (
            "records sample.ordered --from beginning --limit 2",
            vec!["ada", "grace"],
        ),
        ("records sample.ordered --from last:1", vec!["alan"]),
        ("records sample.ordered --from now", vec![]),
        ("records sample.ordered --from 2h --key grace", vec!["grace"]),
        ("records sample.ordered --from 2001-01-01 --limit 1", vec!["ada"]),
        (
            "records sample.ordered --follow --limit 3",
            vec!["ada", "grace", "alan"],
        ),
        (
            "records sample.ordered --follow --key alan --limit 1",
            vec!["alan"],
        ),
        (&behind, vec!["grace", "alan"]),
    ] {
        let lines = program.run(&format!("{line} --jsonl")).expect(0).out;
        let read: Vec<_> = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["key"].clone())
            .collect();
        assert_eq!(read, keys, "{line}");
    }
    let shown = program.run("records sample.ordered").expect(0).out;
    assert!(
        shown.contains(token) && shown.contains("18446744073709551615"),
        "{shown}"
    );
    let some = program.run("records sample.ordered --limit 1").expect(0);
    assert!(
        some.err.contains(&format!("the next: --from {token}")),
        "{some:#?}"
    );
    let mut followed = program.folder.start(&[
        "records",
        "sample.ordered",
        "--from",
        "now",
        "--follow",
        "--limit",
        "1",
    ]);
    let mut number = 4;
    while !followed.has_ended() {
        publish("barbara", &number.to_string());
        number += 1;
    }
    let followed = followed.ended().expect(0).out;
    assert!(followed.contains("barbara"), "{followed}");

    // Each has started an order, through the trigger of the program.
    for id in ["ada", "grace", "alan"] {
        while !program.run("list").expect(0).out.contains(id) {}
    }
    let subscriptions = loop {
        let told = program.json("subscriptions sample.ordered --json");
        if told[0]["lag"] == 0 {
            break told;
        }
    };
    assert_eq!(
        (&subscriptions[0]["name"], &subscriptions[0]["is_open"]),
        (&"sample-orders".into(), &true.into())
    );
    let shown = program.run("subscriptions sample.ordered").expect(0).out;
    assert!(shown.contains("sample-orders  yes   0"), "{shown}");
}

#[test]
fn records_are_purged_a_subscription_is_removed_and_a_topic_deleted() {
    let program = program();
    let publish = |id: &str| {
        let order = r#"{"customer":"ada","cents":5}"#;
        let line = ["publish", "sample.ordered", order, "--key", "ada", "--id", id];
        let told = program.folder.run(&line).expect(0).out;
        told.split_whitespace().nth(1).unwrap().to_owned()
    };
    let tokens: Vec<_> = ["1", "2", "3", "4"].iter().map(|id| publish(id)).collect();
    let purged = |line: &str| {
        let answer = program.json(&format!("purge-topic sample.ordered --json {line}"));
        (
            answer["purged"].as_u64().unwrap(),
            answer["first"].as_u64().unwrap(),
        )
    };
    assert_eq!(purged("--before 2"), (1, 2));
    assert_eq!(purged(&format!("--before {}", tokens[2])), (1, 3));
    let shown = program.run("purge-topic sample.ordered --all").expect(0).out;
    assert!(
        shown.contains("purged  2") && shown.contains("first   5"),
        "{shown}"
    );

    program
        .run("remove-subscription sample.ordered sample-orders")
        .expect(0);
    assert_eq!(
        program.json("subscriptions sample.ordered --json"),
        serde_json::json!([])
    );
    publish("5");
    assert_eq!(program.json("delete-topic sample.ordered --json")["deleted"], 1);
    for (line, code, expected) in [
        ("delete-topic sample.ordered", 1, "try: millrun topics"),
        ("purge-topic sample.ordered --all", 1, "try: millrun topics"),
        ("purge-topic sample.ordered", 2, "--all"),
        (
            "purge-topic sample.ordered --all --before 2",
            2,
            "cannot be used with",
        ),
        (
            "remove-subscription sample.ordered sample-orders",
            1,
            "try: millrun topics",
        ),
    ] {
        let refused = program.run(line).expect(code);
        assert!(refused.err.contains(expected), "{line}: {refused:#?}");
    }
}

#[test]
fn an_entity_is_commanded_read_listed_and_deleted() {
    let program = program();
    assert_eq!(program.run("read sample-shelf a/1 stock").expect(0).out, "0\n");
    for _ in 0..2 {
        let put = program.run("command sample-shelf a/1 put 5 --request r-1");
        assert_eq!(put.expect(0).out, "5\n", "once under its request");
    }
    assert_eq!(
        program.run("command sample-shelf a/1 take 2").expect(0).out,
        "3\n"
    );
    program.run("command sample-shelf b put 1").expect(0);
    assert_eq!(
        program.json("read sample-shelf a/1 stock --json")["answer"]["value"],
        3
    );
    let listed = program.json("entities sample-shelf --prefix a/ --json");
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["key"]),
        (1, &"a/1".into())
    );
    let listed = program.run("entities sample-shelf --limit 1").expect(0);
    assert!(listed.out.contains("b    running"), "{listed:#?}");
    for (line, code, expected) in [
        (
            "command sample-shelf a/1 take 9",
            1,
            "there are not so many on the shelf",
        ),
        ("command sample-shelf a/1 take {", 2, "is no JSON"),
        ("command sample-shelves a put 1", 1, "no entity"),
        ("call read_entity sample-shelf", 2, "try: millrun command"),
        ("read sample-shelf a --store other.redb", 2, "<NAME>"),
    ] {
        let refused = program.run(line).expect(code);
        assert!(format!("{refused:?}").contains(expected), "{line}: {refused:#?}");
    }
    for expected in [true, false] {
        let deleted = program.json("delete-entity sample-shelf a/1 --json");
        assert_eq!(deleted["deleted"], expected);
    }
    assert_eq!(program.run("read sample-shelf a/1 stock").expect(0).out, "0\n");
}

#[test]
fn undelivered_records_are_sent_back_one_by_one_or_all() {
    let program = program();
    // A key that is no id of an instance.
    let key = "k".repeat(300);
    let order = r#"{"customer":"ada","cents":5}"#;
    for id in ["1", "2"] {
        let line = ["publish", "sample.ordered", order, "--key", &key, "--id", id];
        program.folder.run(&line).expect(0);
    }
    let refused = || {
        let lines = program.run("records sample.refused --jsonl").expect(0).out;
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.collect::<Vec<_>>()
    };
    while refused().len() < 2 {}
    let token = refused()[0]["token"].as_str().unwrap().to_owned();
    let sent = |line: &str| {
        let told = program.json(&format!("send-back sample.refused --json {line}"));
        ["sent_back", "repeats", "passed_over"].map(|name| told[name].as_u64().unwrap())
    };
    assert_eq!(sent(&token), [1, 0, 0]);
    assert_eq!(sent(&token), [0, 1, 0]);
    assert_eq!(sent(&format!("--all --after {token} --limit 1")), [1, 0, 0]);
    let shown = program
        .run("send-back sample.refused --all --limit 2")
        .expect(0)
        .out;
    assert!(shown.contains("repeats      2"), "{shown}");
    // Sent back, they are refused again.
    while refused().len() < 4 {}
    let released = program.json(&format!("release-key sample.ordered sample-orders {key} --json"));
    assert_eq!(released["released"], false, "the sample holds no keys");
    for (line, code, expected) in [
        ("send-back sample.refused", 2, "--all"),
        ("send-back sample.refused x --all", 2, "cannot be used with"),
        ("send-back sample.refused x", 1, "token"),
        ("send-back nothing --all", 1, "try: millrun topics"),
        (
            "release-key sample.ordered nobody k",
            1,
            "no durable subscription",
        ),
    ] {
        let refused = program.run(line).expect(code);
        assert!(refused.err.contains(expected), "{line}: {refused:#?}");
    }
}

#[test]
fn what_cannot_be_done_with_topics_says_what_to_try() {
    let program = program();
    for (line, code, expected) in [
        ("records nothing", 1, "try: millrun topics"),
        ("publish nothing 1", 1, "try: millrun topics"),
        ("subscriptions nothing", 1, "try: millrun topics"),
        ("records sample.sent", 1, "try: millrun tail --topic sample.sent"),
        (
            "records sample.sent --follow",
            1,
            "try: millrun tail --topic sample.sent",
        ),
        (
            "records sample.ordered --from yesterday",
            1,
            "try: millrun records sample.ordered --from beginning",
        ),
        (
            "records sample.ordered --from yesterday --follow",
            1,
            "try: millrun records sample.ordered --from beginning",
        ),
        ("publish sample.ordered {", 2, "is no JSON"),
        ("publish sample.ordered 7", 1, "cannot be encoded"),
        ("records sample.ordered --limit 0", 2, "--limit"),
        ("topics --store other.redb", 4, "there is no store"),
    ] {
        let refused = program.run(line).expect(code);
        assert!(refused.err.contains(expected), "{line}: {refused:#?}");
    }
}
