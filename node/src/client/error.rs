//! What may go wrong, and what to try next.

use std::io;
use std::path::PathBuf;

use millrun::OpenError;
use millrun::store::UpkeepError;
use millrun_http::TokenError;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw::Raw;

/// Why a command was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The program's answer: a problem.
    #[error("{}", .0.told())]
    Problem(Box<Problem>),
    /// Nobody answers at the URL or socket.
    #[error("nobody answers at {place}\ntry: millrun serve, or --url, --socket or --store for another place")]
    Unreachable {
        place: String,
        #[source]
        source: io::Error,
    },
    /// No process has the store, and what was asked for needs one.
    #[error(
        "no process answers at the socket {}, and this needs one: the file {} is only read\ntry: millrun serve --store {}, or the program that it belongs to",
        socket.display(), store.display(), store.display()
    )]
    Closed { store: PathBuf, socket: PathBuf },
    /// A process has the store, and nobody answers for it.
    #[error(
        "a process has {} open, and nobody answers at the socket {}\ntry: --url or --socket of that process, or stop it first",
        store.display(), socket.display()
    )]
    Taken { store: PathBuf, socket: PathBuf },
    /// The file cannot be read as a store.
    #[error("{} cannot be read", store.display())]
    Unread {
        store: PathBuf,
        #[source]
        source: Box<OpenError>,
    },
    /// A file is there that would be written over.
    #[error("{} exists, and nothing is written over\ntry: another name", .0.display())]
    Exists(PathBuf),
    /// A copy was made on another machine.
    #[error("the program has written it to {} on its own machine", .0.display())]
    Elsewhere(PathBuf),
    /// A copy was made beside the store, and cannot be moved from there.
    #[error("it was written to {}, and cannot be moved to {}", from.display(), to.display())]
    Unmoved {
        from: PathBuf,
        to: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A backup is not sound.
    #[error("{} is damaged, and was not restored\ntry: another backup, or {command}", backup.display())]
    DamagedBackup { backup: PathBuf, command: String },
    /// What was asked of a store was not done.
    #[error(transparent)]
    Upkeep(#[from] UpkeepError),
    /// There is no such store.
    #[error("there is no store {}\ntry: --store PATH for another one, or millrun serve --store {}", .0.display(), .0.display())]
    NoStore(PathBuf),
    /// The connection ended before an answer came: its process was killed just then, say.
    #[error(
        "the connection ended before an answer came ({why}){}",
        if *is_change {
            ": whether it was done is not known\ntry: millrun describe or millrun list to see, then the same again"
        } else {
            "\ntry: the same again"
        }
    )]
    Cut { why: String, is_change: bool },
    /// The connection ended within an answer, or what came is no answer.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
    /// The answer is longer than the client takes.
    #[error("the answer has more than {0} bytes\ntry: a smaller --limit")]
    TooLarge(usize),
    /// The answer does not come.
    #[error("no answer came within {0} s\ntry: the same again, or millrun stats")]
    Late(u64),
    /// What was given on the command line cannot be sent.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl ClientError {
    /// The exit code that says so.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Problem(_)
            | Self::Answer(_)
            | Self::TooLarge(_)
            | Self::Unread { .. }
            | Self::Exists(_)
            | Self::Elsewhere(_)
            | Self::Unmoved { .. }
            | Self::DamagedBackup { .. }
            | Self::Upkeep(_) => 1,
            Self::Usage(_) | Self::Token(_) => 2,
            Self::Unreachable { .. }
            | Self::Closed { .. }
            | Self::Taken { .. }
            | Self::NoStore(_)
            | Self::Cut { .. }
            | Self::Late(_) => 4,
        }
    }
}

/// A problem (RFC 9457) as the API tells it.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    kind: String,
    title: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    advice: String,
    /// What the code says about it, as a payload.
    #[serde(default)]
    error: Option<Box<RawValue>>,
    /// The instance that was asked for.
    #[serde(skip)]
    pub(crate) id: Option<String>,
}

impl Problem {
    /// What is wrong, what to do about it, and the next command.
    fn told(&self) -> String {
        let Self {
            title,
            detail,
            advice,
            ..
        } = self;
        let mut told = title.clone();
        if !detail.is_empty() {
            told.push_str(&format!(": {detail}"));
        }
        if let Some(error) = self.error.as_ref().and_then(|error| Raw::parse(error.get()).ok()) {
            told.push_str(&format!("\nerror: {}", error.text()));
        }
        if !advice.is_empty() {
            told.push_str(&format!("\nadvice: {advice}"));
        }
        if let Some(command) = self.next_command() {
            told.push_str(&format!("\ntry: {command}"));
        }
        told
    }

    /// What is wrong, without what to do about it.
    pub(crate) fn summary(&self) -> String {
        match self.detail.is_empty() {
            true => self.title.clone(),
            false => format!("{}: {}", self.title, self.detail),
        }
    }

    fn next_command(&self) -> Option<String> {
        let of_instance = |command: &str| {
            let id = self.id.as_deref()?;
            Some(format!("millrun {command} {}", quoted(id)))
        };
        match self.kind.rsplit(':').next().unwrap_or_default() {
            "not-found" => Some("millrun list".to_owned()),
            "not-registered" => Some("millrun catalogue".to_owned()),
            "expired" => Some("millrun list --finished".to_owned()),
            "finished" | "already-finished" => of_instance("result"),
            "already-running" | "other-workflow" => of_instance("describe"),
            "refused" | "parked" | "unanswered" | "too-many-watchers" => of_instance("why"),
            "update-failed" | "rejected" | "not-reset" => of_instance("history"),
            "name" => Some("millrun catalogue".to_owned()),
            "token" | "forbidden" => {
                Some("--token-file PATH, or MILLRUN_TOKEN in the environment".to_owned())
            }
            "host" => Some("--url with a loopback name, or --socket".to_owned()),
            "no-topic" => Some("millrun topics".to_owned()),
            "not-durable" => of_instance("tail --topic"),
            "record-token" | "other-store" | "other-topic" | "record-not-yet" => of_instance("records")
                .map(|command| format!("{command} --from beginning, now, last:20, or a time such as 2h")),
            "record-gone" | "no-record" | "no-undelivered-record" => of_instance("records"),
            "topic-full" => Some("millrun topology".to_owned()),
            "too-many-live" => Some("millrun stats".to_owned()),
            "damaged" => Some("millrun salvage".to_owned()),
            "stopped" | "stopping" => Some("millrun serve".to_owned()),
            _ => None,
        }
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./:@%+=,".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
