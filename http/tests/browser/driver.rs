//! A browser, driven as the WebDriver standard has it: JSON over HTTP to `chromedriver`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs, io};

use serde_json::{Value, json};
use tempfile::TempDir;

/// What Chromium needs to run without a screen, as any user, and without asking the network for anything.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-precise-memory-info",
];

// Keys without a character, as WebDriver writes them.
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const END: &str = "\u{e010}";
pub(crate) const DOWN: &str = "\u{e015}";
pub(crate) const ESCAPE: &str = "\u{e00c}";

/// A browser with a profile of its own. It ends when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
}

/// Whether the tool of this name has to be there; else a test that misses it is skipped, loudly.
fn is_required() -> bool {
    let required = env::var("MILLRUN_REQUIRE").unwrap_or_default();
    required.split([',', ' ']).any(|name| name == "browser")
}

/// Says that a test was not made, or fails where it has to be.
pub(crate) fn skipped(why: &str) {
    assert!(!is_required(), "MILLRUN_REQUIRE asks for a browser: {why}");
    #[expect(clippy::explicit_write, reason = "the harness would keep what a macro prints")]
    writeln!(io::stderr(), "SKIPPED: {why}").unwrap();
}

impl Browser {
    /// Starts a browser, if there is one.
    pub(crate) fn start() -> Option<Self> {
        let name = env::var("MILLRUN_CHROMEDRIVER").unwrap_or("chromedriver".to_owned());
        let mut command = Command::new(&name);
        command
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut driver = match command.spawn() {
            Ok(driver) => driver,
            Err(error) => {
                skipped(&format!("{name} does not start: {error}"));
                return None;
            }
        };
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        let profile = TempDir::new().unwrap();
        let mut browser = Self {
            driver,
            port: port.unwrap(),
            session: String::new(),
            _profile: profile,
        };
        let mut flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        flags.push(format!("--user-data-dir={}", browser._profile.path().display()));
        let wanted = json!({
            "goog:chromeOptions": {"args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let begun = browser.ask(
            "POST",
            "session",
            &json!({"capabilities": {"alwaysMatch": wanted}}),
        );
        let Some(session) = begun["sessionId"].as_str() else {
            skipped(&format!("the browser does not start: {begun}"));
            return None;
        };
        browser.session = format!("session/{session}/");
        browser.tell("timeouts", &json!({"script": 60_000}));
        Some(browser)
    }

    /// Goes to an address, and waits until the page is there.
    pub(crate) fn go(&self, address: &str) {
        // Of two addresses that differ behind the # only, the second would not be loaded.
        self.tell("url", &json!({"url": "about:blank"}));
        self.tell("url", &json!({"url": address}));
    }

    /// What a script returns, with `arguments`.
    pub(crate) fn run(&self, script: &str, arguments: &[Value]) -> Value {
        self.tell("execute/sync", &json!({"script": script, "args": arguments}))
    }

    /// What an asynchronous function of this body returns, which may `await`.
    pub(crate) fn run_async(&self, body: &str, arguments: &[Value]) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1];
             (async (...arguments) => {{ {body} }})(...arguments).then(done, error => done(String(error)));"
        );
        self.tell("execute/async", &json!({"script": script, "args": arguments}))
    }

    /// Waits until an expression holds, and gives its value.
    pub(crate) fn until(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[0];
             const look = () => {{ let value; try {{ value = {expression} }} catch {{}}
                value ? done(value) : setTimeout(look, 20) }};
             look();"
        );
        let told = self.ask(
            "POST",
            &format!("{}execute/async", self.session),
            &json!({"script": script, "args": []}),
        );
        assert!(
            told["error"].is_null(),
            "{expression} does not come to hold. The page: {}",
            self.text("body")
        );
        told
    }

    /// Waits until the page shows this text.
    pub(crate) fn until_shown(&self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text)));
    }

    /// The text of an element, as it is shown.
    pub(crate) fn text(&self, selector: &str) -> String {
        let text = self.run(
            "return document.querySelector(arguments[0])?.innerText",
            &[json!(selector)],
        );
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Presses keys one after the other, into what has the focus.
    pub(crate) fn press(&self, keys: &str) {
        let chords = keys.chars().flat_map(|key| {
            let key = key.to_string();
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        });
        let chords: Vec<_> = chords.collect();
        self.tell(
            "actions",
            &json!({"actions": [{"type": "key", "id": "keyboard", "actions": chords}]}),
        );
    }

    /// Opens another tab and turns to it.
    pub(crate) fn tab(&self) -> String {
        let made = self.tell("window/new", &json!({"type": "tab"}));
        let handle = made["handle"].as_str().unwrap().to_owned();
        self.turn_to(&handle);
        handle
    }

    pub(crate) fn turn_to(&self, tab: &str) {
        self.tell("window", &json!({"handle": tab}));
    }

    /// As wide as this, light or dark.
    pub(crate) fn look(&self, width: u32, is_dark: bool) {
        let height = if width < 500 { 844 } else { 900 };
        let scheme = if is_dark { "dark" } else { "light" };
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        self.devtools("Emulation.setEmulatedMedia", &media);
    }

    pub(crate) fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.tell("goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Writes a picture of what is visible.
    pub(crate) fn picture(&self, path: &Path) {
        let picture = self.devtools("Page.captureScreenshot", &json!({"format": "png"}));
        let bytes = unbase64(picture["data"].as_str().unwrap());
        fs::write(path, bytes).unwrap();
    }

    /// What the browser has said on its console since it was asked last: errors of scripts, what the policy refused,
    /// files that could not be had.
    pub(crate) fn messages(&self) -> Vec<String> {
        let told = self.tell("se/log", &json!({"type": "browser"}));
        let messages = told.as_array().unwrap().iter();
        messages
            .map(|entry| format!("{} {}", entry["level"], entry["message"]))
            .collect()
    }

    fn tell(&self, path: &str, body: &Value) -> Value {
        let told = self.ask("POST", &format!("{}{path}", self.session), body);
        assert!(told["error"].is_null(), "{path} {body}: {told}");
        told
    }

    /// The value that the driver answers. Each request has a connection of its own.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            connection,
            "{method} /{path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        )
        .unwrap();
        let mut reader = BufReader::new(connection);
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
        }
        let mut answer = vec![0; headers["content-length"].parse().unwrap()];
        reader.read_exact(&mut answer).unwrap();
        let mut answer: Value = serde_json::from_slice(&answer).unwrap();
        answer["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            self.ask("DELETE", self.session.trim_end_matches('/'), &json!({}));
        }
        // Nothing is left of a driver that has ended by itself.
        let _ended = self.driver.kill().and_then(|()| self.driver.wait());
    }
}

/// The bytes of a text in base64.
fn unbase64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'=').collect();
    let mut bytes = Vec::with_capacity(digits.len());
    for group in digits.chunks(4) {
        let number = group.iter().fold(0_u32, |number, digit| {
            let value = DIGITS.iter().position(|one| one == digit).unwrap();
            number << 6 | u32::try_from(value).unwrap()
        });
        let shifted = number << (6 * (4 - group.len()));
        bytes.extend(&shifted.to_be_bytes()[1..group.len()]);
    }
    bytes
}
