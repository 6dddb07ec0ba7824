//! Webhooks of the settings file, posted to the real program.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::serve::serve;
use crate::support::Folder;

const SECRET: &str = "a-secret-of-the-test";

/// Two hooks of Stripe, with a secret in the environment and another in a file, and one that believes everybody.
const SETTINGS: &str = r#"
[[hook]]
path = "/stripe/orders"
scheme = "stripe"
secret_env = ["STRIPE_SECRET"]
action = "start"
workflow = "sample-order"
input_at = "/data/order"
when_at = "/type"
when = ["order.created"]

[[hook]]
path = "/stripe/payments"
scheme = "stripe"
secret_env = ["STRIPE_SECRET"]
secret_file = ["secret"]
action = "signal"
id_at = "/data/for"
signal = "paid"
value_at = "/data/payment"

[[hook]]
path = "/open"
scheme = "unsigned"
action = "signal-with-start"
workflow = "sample-order"
id_at = "/id"
input_at = "/order"
signal_at = "/signal"
value_at = "/value"
"#;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("millrun.toml", SETTINGS.as_bytes());
    folder.write("secret", b"the next secret\n");
    folder
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The header with which Stripe signs a body.
fn signed(secret: &str, seconds: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{seconds}.{body}").as_bytes());
    let sum = mac.finalize().into_bytes();
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("stripe-signature: t={seconds},v1={sum}\r\n")
}

/// Posts a body, and gives the status and what was said.
fn post(address: &str, path: &str, header: &str, body: &str) -> (u16, String) {
    let mut io = TcpStream::connect(address).unwrap();
    let len = body.len();
    write!(
        io,
        "POST {path} HTTP/1.1\r\nhost: {address}\r\n{header}content-length: {len}\r\nconnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    io.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let said = answer.split_once("\r\n\r\n").unwrap().1;
    (status, said.to_owned())
}

fn order(id: &str) -> String {
    format!(
        r#"{{"id":"{id}","type":"order.created","data":{{"order":{{"customer":"ada","cents":9007199254740993}}}}}}"#
    )
}

#[test]
fn a_webhook_that_is_signed_starts_one_run_however_often_it_is_sent_and_any_other_none() {
    let folder = folder();
    let environment = [("MILLRUN_CONFIG", "millrun.toml"), ("STRIPE_SECRET", SECRET)];
    let (running, address) = serve(&folder, &environment, &[]);
    let body = order("evt-1");
    let path = "/hooks/stripe/orders";
    let forged = signed("another secret", now(), &body);
    let stale = signed(SECRET, now() - 400, &body);
    let of_another = signed(SECRET, now(), &order("evt-2"));
    for header in ["", &forged, &stale, &of_another] {
        let (status, said) = post(&address, path, header, &body);
        assert_eq!(status, 401, "{said}");
    }
    assert!(!folder.run(&["list"]).expect(0).out.contains("evt-"));

    let header = signed(SECRET, now(), &body);
    let runs: Vec<String> = std::thread::scope(|scope| {
        let posts: Vec<_> = (0..100)
            .map(|_| scope.spawn(|| post(&address, path, &header, &body)))
            .collect();
        let answers = posts.into_iter().map(|post| post.join().unwrap());
        answers
            .map(|(status, said)| {
                assert_eq!(status, 200, "{said}");
                let said: serde_json::Value = serde_json::from_str(&said).unwrap();
                assert_eq!(said["id"], "evt-1");
                said["run"].as_str().unwrap().to_owned()
            })
            .collect()
    });
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
    let history = folder.run(&["history", "evt-1", "--jsonl"]).expect(0).out;
    assert!(history.contains("9007199254740993"), "{history}");
    assert_eq!(folder.run(&["list"]).expect(0).out.matches("evt-").count(), 1);

    // Another kind of event is taken, and leads to nothing.
    let other = order("evt-3").replace("order.created", "order.seen");
    let (status, _) = post(&address, path, &signed(SECRET, now(), &other), &other);
    assert_eq!(status, 204);

    // The second secret counts as well; what does not fit the signal's type is not recorded.
    let path = "/hooks/stripe/payments";
    let wrong = r#"{"id":"evt-4","data":{"for":"evt-1"}}"#;
    let (status, said) = post(&address, path, &signed("the next secret", now(), wrong), wrong);
    assert_eq!(status, 422, "{said}");
    assert!(said.contains("/data/payment"), "{said}");
    let paid = r#"{"id":"evt-5","data":{"for":"evt-1","payment":{"by":"grace"}}}"#;
    for secret in ["the next secret", SECRET] {
        let (status, said) = post(&address, path, &signed(secret, now(), paid), paid);
        assert_eq!(status, 200, "{said}");
    }
    let history = folder.run(&["history", "evt-1", "--jsonl"]).expect(0).out;
    assert_eq!(history.matches(r#""name":"paid""#).count(), 1, "{history}");

    let both = r#"{"id":77,"order":{"customer":"alan","cents":5},"signal":"paid","value":{"by":"alan"}}"#;
    let (status, said) = post(&address, "/hooks/open", "idempotency-key: k-1\r\n", both);
    assert_eq!(status, 200, "{said}");
    assert!(said.contains(r#""id":"77""#), "{said}");
    assert_eq!(running.terminate(), Some(0));
}

/// A hook of GitHub that publishes, and one of Standard Webhooks that tells a result.
const OTHERS: &str = r#"
[[hook]]
path = "/github"
scheme = "github"
secret_env = ["GITHUB_SECRET"]
action = "publish"
topic = "sample.sent"
value_at = "/label"
when_at = "/action"
when = ["published"]

[[hook]]
path = "/standard"
scheme = "standard-webhooks"
secret_file = ["standard"]
action = "start"
workflow = "sample-order"
input_at = "/order"
result_within_ms = 1
"#;

fn hmac(secret: &[u8], signed: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(signed.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

#[test]
fn a_webhook_of_github_is_published_and_one_of_standard_webhooks_is_told_the_result() {
    let folder = Folder::new();
    folder.write("millrun.toml", OTHERS.as_bytes());
    let standard = b"twenty-four bytes of it!";
    let written = format!("whsec_{}", STANDARD.encode(standard));
    folder.write("standard", written.as_bytes());
    let environment = [("MILLRUN_CONFIG", "millrun.toml"), ("GITHUB_SECRET", SECRET)];
    let (running, address) = serve(&folder, &environment, &[]);

    let github = |secret: &str, body: &str| {
        let sum = hmac(secret.as_bytes(), body);
        let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        let header = format!("x-hub-signature-256: sha256={sum}\r\n");
        post(&address, "/hooks/github", &header, body)
    };
    let body = r#"{"action": "published", "label": "label-of-github"}"#;
    assert_eq!(github("another", body).0, 401);
    assert_eq!(github(SECRET, &body.replace("published", "deleted")).0, 204);
    let wrong = r#"{"action": "published", "label": 7}"#;
    assert!((400..500).contains(&github(SECRET, wrong).0), "it is no text");
    // What is published before the listener is there is not told to it.
    let mut tailing = folder.start(&["tail", "--topic", "sample.sent", "--limit", "1"]);
    while !tailing.has_ended() {
        let (status, said) = github(SECRET, body);
        assert_eq!(status, 200, "{said}");
    }
    let tailed = tailing.ended().expect(0).out;
    assert!(tailed.contains("\"label-of-github\""), "{tailed}");

    let order = r#"{"order": {"customer": "ada", "cents": 5}}"#;
    let standard = |id: &str| {
        let seconds = now();
        let sum = STANDARD.encode(hmac(standard, &format!("{id}.{seconds}.{order}")));
        let header =
            format!("webhook-id: {id}\r\nwebhook-timestamp: {seconds}\r\nwebhook-signature: v1,{sum}\r\n");
        let (status, said) = post(&address, "/hooks/standard", &header, order);
        (status, serde_json::from_str::<serde_json::Value>(&said).unwrap())
    };
    let (status, said) = standard("msg_1");
    assert_eq!(
        (status, &said["id"], &said["outcome"]),
        (200, &"msg_1".into(), &"running".into())
    );
    folder
        .run(&["terminate", "msg_1", "--reason", "enough"])
        .expect(0);
    let (status, again) = standard("msg_1");
    assert_eq!(
        (status, &again["outcome"]),
        (200, &"terminated".into()),
        "{again}"
    );
    assert_eq!(
        (&again["run"], &again["message"]),
        (&said["run"], &"enough".into())
    );
    let (status, said) = standard("msg.1");
    assert_eq!(status, 401, "{said}");
    assert_eq!(running.terminate(), Some(0));
}

#[test]
fn a_hook_is_shown_without_its_secret() {
    let folder = folder();
    let environment = [("MILLRUN_CONFIG", "millrun.toml"), ("STRIPE_SECRET", SECRET)];
    for arguments in [["config"].as_slice(), &["config", "--json"]] {
        let told = folder.run_with(arguments, &environment).expect(0).out;
        for expected in [
            "hook /stripe/orders",
            "stripe (secret set), start sample-order",
            "stripe (2 secrets set), signal",
            "unsigned, signal-with-start sample-order",
        ] {
            assert!(told.contains(expected), "{expected} is not in {told}");
        }
        assert!(!told.contains(SECRET) && !told.contains("next secret"), "{told}");
    }
}

#[test]
fn what_is_wrong_with_a_hook_is_told_with_its_line_and_its_key() {
    let folder = folder();
    let table = "[[hook]]\npath = \"/h\"\nscheme = \"unsigned\"\naction = \"start\"\nworkflow = \"w\"\n";
    let stripe = table.replace("unsigned", "stripe");
    let publish = table.replace("start", "publish").replace("workflow", "topic");
    for (text, expected) in [
        (table.replace("unsigned", "none"), vec!["line 3", "unsigned"]),
        (
            table.replace("workflow = \"w\"\n", ""),
            vec!["line 1", "`workflow`", "is missing"],
        ),
        (table.replace("action", "acton"), vec!["line 4", "acton"]),
        (table.replace("\"/h\"", "\"/{h}\""), vec!["line 1", "`path`"]),
        (
            format!("{table}id_at = \"id\"\n"),
            vec!["line 6", "begins with a slash"],
        ),
        (
            format!("{table}topic = \"t\"\n"),
            vec!["line 1", "`topic`", "says nothing"],
        ),
        (format!("{table}when = [\"a\"]\n"), vec!["line 1", "`when_at`"]),
        (format!("{table}\n{table}"), vec!["line 7", "`path`", "twice"]),
        (
            format!("{table}secret_env = [\"PATH\"]\n"),
            vec!["line 1", "`scheme`"],
        ),
        (
            format!("{publish}result_within_ms = 5\n"),
            vec!["line 1", "`result_within_ms`"],
        ),
        (stripe.clone(), vec!["line 1", "`secret_env`", "needs a secret"]),
        (
            format!("{stripe}secret_env = [\"NO_SUCH\"]\n"),
            vec!["line 1", "`secret_env`", "NO_SUCH"],
        ),
        (
            format!("{stripe}secret_file = [\"none\"]\n"),
            vec!["line 1", "`secret_file`", "none"],
        ),
    ] {
        folder.write("wrong.toml", text.as_bytes());
        let ended = folder.run(&["config", "--config", "wrong.toml"]).expect(1);
        for part in expected {
            assert!(
                ended.err.contains(part),
                "{part} is not in {} of\n{text}",
                ended.err
            );
        }
    }
}
