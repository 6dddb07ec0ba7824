//! Webhooks of the settings file: their paths, their signatures, and their actions.
//!
//! ```text
//!   [[hook]] ──► table, with its line ──► checked: secrets read, fields that fit the action ──► Hook of the console
//!                                                   webhook ── JSON pointers ──► id, input, signal
//! ```
//!
//! Invariants: a secret is in the environment or in a file, is read once and is never shown. A field of a table that has no
//! effect is an error, and so is a missing one.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrun::Payload;
use millrun_http::{Hook, Reaction, RefusedWebhook, Scheme, Webhook};
use serde::Deserialize;
use serde_json::value::RawValue;
use toml::Spanned;

/// How many hooks a settings file may have.
pub(super) const HOOKS_LEN_MAX: usize = 64;

/// One table `[[hook]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HookTable {
    path: String,
    scheme: SchemeName,
    #[serde(default)]
    secret_env: Vec<String>,
    #[serde(default)]
    secret_file: Vec<PathBuf>,
    action: ActionName,
    workflow: Option<String>,
    id_at: Option<JsonPointer>,
    input_at: Option<JsonPointer>,
    signal: Option<String>,
    signal_at: Option<JsonPointer>,
    value_at: Option<JsonPointer>,
    topic: Option<String>,
    when_at: Option<JsonPointer>,
    when: Option<Vec<String>>,
    result_within_ms: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SchemeName {
    StandardWebhooks,
    Github,
    Stripe,
    Unsigned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ActionName {
    Start,
    Signal,
    SignalWithStart,
    Publish,
}

/// A place in a JSON value, as RFC 6901 writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct JsonPointer(String);

impl TryFrom<String> for JsonPointer {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.is_empty() || text.starts_with('/') {
            true => Ok(Self(text)),
            false => Err("a JSON pointer is empty or begins with a slash: /data/id"),
        }
    }
}

/// The error in a table.
#[derive(Debug, thiserror::Error)]
#[error("the [[hook]] in line {line}: `{key}` {why}")]
pub(crate) struct HookError {
    /// The line of the settings file in which the table begins.
    line: usize,
    key: &'static str,
    why: String,
}

/// A table with consistent fields, with its secrets.
#[derive(Clone, Debug)]
pub(crate) struct HookSetting {
    path: String,
    scheme_name: SchemeName,
    /// `None` if nothing is signed.
    scheme: Option<Scheme>,
    secrets_len: usize,
    action: HookAction,
    when: Option<(JsonPointer, Vec<String>)>,
    result_within: Duration,
}

/// What the hook does, and where in the body its values are.
#[derive(Clone, Debug)]
enum HookAction {
    Start {
        workflow: String,
        id: Option<JsonPointer>,
        input: JsonPointer,
    },
    Signal {
        id: JsonPointer,
        signal: SignalName,
        value: JsonPointer,
    },
    SignalWithStart {
        workflow: String,
        id: JsonPointer,
        input: JsonPointer,
        signal: SignalName,
        value: JsonPointer,
    },
    Publish {
        topic: String,
        value: JsonPointer,
    },
}

#[derive(Clone, Debug)]
enum SignalName {
    Is(String),
    At(JsonPointer),
}

impl HookSetting {
    /// Checks the tables of a settings file with this text, and reads their secrets.
    ///
    /// # Errors
    /// The error in the first invalid table.
    pub(super) fn all(tables: Vec<Spanned<HookTable>>, text: &str) -> Result<Vec<Self>, HookError> {
        let mut all: Vec<Self> = Vec::new();
        for table in tables {
            let line = 1 + text[..table.span().start].matches('\n').count();
            let wrong = |key, why: String| HookError { line, key, why };
            if all.len() == HOOKS_LEN_MAX {
                return Err(wrong(
                    "path",
                    format!("is one too many: there may be {HOOKS_LEN_MAX}"),
                ));
            }
            let setting = Self::of(table.into_inner()).map_err(|(key, why)| wrong(key, why))?;
            if all.iter().any(|other| other.path == setting.path) {
                return Err(wrong("path", format!("{:?} stands there twice", setting.path)));
            }
            all.push(setting);
        }
        Ok(all)
    }

    fn of(table: HookTable) -> Result<Self, (&'static str, String)> {
        let path = table.path.trim_start_matches('/').to_owned();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if path.is_empty() || !path.bytes().all(is_plain) {
            let why = "is letters, digits, - _ . and / alone, such as \"/stripe\"";
            return Err(("path", why.to_owned()));
        }
        let secrets = secrets(&table)?;
        let secrets_len = secrets.len();
        let made = match table.scheme {
            SchemeName::Unsigned if secrets_len > 0 => {
                return Err(("scheme", "is unsigned, and secrets are given".to_owned()));
            }
            SchemeName::Unsigned => None,
            SchemeName::StandardWebhooks => Some(Scheme::standard(secrets)),
            SchemeName::Github => Some(Scheme::github(secrets)),
            SchemeName::Stripe => Some(Scheme::stripe(secrets)),
        };
        let scheme = made.transpose();
        let scheme = scheme.map_err(|error| ("secret_env", format!("or `secret_file`: {error}")))?;
        let when = match (table.when_at.clone(), table.when.clone()) {
            (None, None) => None,
            (Some(at), Some(is)) => Some((at, is)),
            (Some(_), None) => return Err(("when", "is missing beside `when_at`".to_owned())),
            (None, Some(_)) => return Err(("when_at", "is missing beside `when`".to_owned())),
        };
        let result_within = Duration::from_millis(table.result_within_ms.unwrap_or(0).into());
        Ok(Self {
            path,
            scheme_name: table.scheme,
            scheme,
            secrets_len,
            action: HookAction::of(table)?,
            when,
            result_within,
        })
    }

    /// The hook as the console takes it.
    pub(super) fn hook(&self) -> Hook {
        let path = Hook::post(self.path.clone());
        let signed = match &self.scheme {
            Some(scheme) => path.verify(scheme.clone()),
            None => path.unsigned(),
        };
        let (action, when) = (self.action.clone(), self.when.clone());
        signed
            .then(move |webhook| action.reaction(webhook, when.as_ref()))
            .result_within(self.result_within)
    }

    /// Its name in the table of `config`.
    pub(super) fn name(&self) -> String {
        format!("hook /{}", self.path)
    }
}

impl fmt::Display for HookSetting {
    /// Without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme_name {
            SchemeName::StandardWebhooks => "standard-webhooks",
            SchemeName::Github => "github",
            SchemeName::Stripe => "stripe",
            SchemeName::Unsigned => "unsigned",
        };
        write!(f, "{scheme}")?;
        match self.secrets_len {
            0 => {}
            1 => f.write_str(" (secret set)")?,
            len => write!(f, " ({len} secrets set)")?,
        }
        match &self.action {
            HookAction::Start { workflow, .. } => write!(f, ", start {workflow}"),
            HookAction::Signal { .. } => f.write_str(", signal"),
            HookAction::SignalWithStart { workflow, .. } => write!(f, ", signal-with-start {workflow}"),
            HookAction::Publish { topic, .. } => write!(f, ", publish {topic}"),
        }
    }
}

/// The secrets that a table names, in their order.
fn secrets(table: &HookTable) -> Result<Vec<String>, (&'static str, String)> {
    let mut all = Vec::new();
    for name in &table.secret_env {
        let secret = env::var(name);
        all.push(secret.map_err(|error| ("secret_env", format!("names {name}: {error}")))?);
    }
    for path in &table.secret_file {
        let read = |path: &Path| fs::read_to_string(path);
        let secret =
            read(path).map_err(|error| ("secret_file", format!("names {}: {error}", path.display())))?;
        all.push(secret.trim_end_matches(['\r', '\n']).to_owned());
    }
    Ok(all)
}

impl HookAction {
    fn of(table: HookTable) -> Result<Self, (&'static str, String)> {
        let (name, uses): (_, &[&str]) = match table.action {
            ActionName::Start => ("start", &["workflow", "id_at", "input_at", "result_within_ms"]),
            ActionName::Signal => ("signal", &["id_at", "signal", "signal_at", "value_at"]),
            ActionName::SignalWithStart => (
                "signal-with-start",
                &[
                    "workflow",
                    "id_at",
                    "input_at",
                    "signal",
                    "signal_at",
                    "value_at",
                    "result_within_ms",
                ],
            ),
            ActionName::Publish => ("publish", &["topic", "value_at"]),
        };
        let given = [
            ("workflow", table.workflow.is_some()),
            ("id_at", table.id_at.is_some()),
            ("input_at", table.input_at.is_some()),
            ("signal", table.signal.is_some()),
            ("signal_at", table.signal_at.is_some()),
            ("value_at", table.value_at.is_some()),
            ("topic", table.topic.is_some()),
            ("result_within_ms", table.result_within_ms.is_some()),
        ];
        if let Some((key, _)) = given
            .iter()
            .find(|(key, is_given)| *is_given && !uses.contains(key))
        {
            return Err((key, format!("says nothing for the action {name:?}")));
        }
        let missing = |key| move || (key, format!("is missing: the action {name:?} needs it"));
        let whole = || JsonPointer(String::new());
        let signal = match (table.signal, table.signal_at) {
            (Some(_), Some(_)) => {
                return Err((
                    "signal_at",
                    "stands beside `signal`; one of them is enough".to_owned(),
                ));
            }
            (Some(name), None) => Some(SignalName::Is(name)),
            (None, at) => at.map(SignalName::At),
        };
        let value = table.value_at.unwrap_or_else(whole);
        let input = table.input_at.unwrap_or_else(whole);
        Ok(match table.action {
            ActionName::Start => Self::Start {
                workflow: table.workflow.ok_or_else(missing("workflow"))?,
                id: table.id_at,
                input,
            },
            ActionName::Signal => Self::Signal {
                id: table.id_at.ok_or_else(missing("id_at"))?,
                signal: signal.ok_or_else(missing("signal"))?,
                value,
            },
            ActionName::SignalWithStart => Self::SignalWithStart {
                workflow: table.workflow.ok_or_else(missing("workflow"))?,
                id: table.id_at.ok_or_else(missing("id_at"))?,
                input,
                signal: signal.ok_or_else(missing("signal"))?,
                value,
            },
            ActionName::Publish => Self::Publish {
                topic: table.topic.ok_or_else(missing("topic"))?,
                value,
            },
        })
    }

    fn reaction(
        &self,
        webhook: &Webhook<'_>,
        when: Option<&(JsonPointer, Vec<String>)>,
    ) -> Result<Reaction, RefusedWebhook> {
        let body: &RawValue = serde_json::from_slice(webhook.body())?;
        if let Some((at, is)) = when {
            // A webhook of another kind may not have the field.
            let found = at.find(body).and_then(|found| word(found).ok());
            if !found.is_some_and(|found| is.contains(&found)) {
                return Ok(Reaction::nothing());
            }
        }
        Ok(match self {
            Self::Start { workflow, id, input } => {
                let id = id.as_ref().map(|id| id.word(body)).transpose()?;
                Reaction::start_untyped(workflow, id, input.payload(body)?)
            }
            Self::Signal { id, signal, value } => {
                Reaction::signal_untyped(id.word(body)?, signal.of(body)?, value.payload(body)?)
            }
            Self::SignalWithStart {
                workflow,
                id,
                input,
                signal,
                value,
            } => Reaction::signal_with_start_untyped(
                workflow,
                id.word(body)?,
                input.payload(body)?,
                signal.of(body)?,
                value.payload(body)?,
            ),
            Self::Publish { topic, value } => Reaction::publish_untyped(topic, value.payload(body)?),
        })
    }
}

impl SignalName {
    fn of(&self, body: &RawValue) -> Result<String, RefusedWebhook> {
        match self {
            Self::Is(name) => Ok(name.clone()),
            Self::At(at) => at.word(body),
        }
    }
}

impl JsonPointer {
    /// The value at this place, as its text was.
    fn find<'a>(&self, body: &'a RawValue) -> Option<&'a RawValue> {
        let mut found = body;
        for part in self.0.split('/').skip(1) {
            let name = part.replace("~1", "/").replace("~0", "~");
            found = match found.get().as_bytes().first()? {
                b'{' => *serde_json::from_str::<BTreeMap<String, &RawValue>>(found.get())
                    .ok()?
                    .get(&name)?,
                b'[' => serde_json::from_str::<Vec<&RawValue>>(found.get())
                    .ok()?
                    .get(name.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some(found)
    }

    fn needed<'a>(&self, body: &'a RawValue) -> Result<&'a RawValue, RefusedWebhook> {
        self.find(body)
            .ok_or_else(|| RefusedWebhook::because(format!("its body has nothing at {:?}", self.0)))
    }

    fn payload(&self, body: &RawValue) -> Result<Payload, RefusedWebhook> {
        let payload = Payload::from_json(self.needed(body)?.get());
        payload.map_err(|error| RefusedWebhook::because(format!("at {:?}: {error}", self.0)))
    }

    fn word(&self, body: &RawValue) -> Result<String, RefusedWebhook> {
        let found = word(self.needed(body)?);
        found.map_err(|why| RefusedWebhook::because(format!("at {:?}: {why}", self.0)))
    }
}

/// A text, or a whole number as text.
fn word(value: &RawValue) -> Result<String, &'static str> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'"') => serde_json::from_str(text).map_err(|_| "it is no text"),
        Some(b'0'..=b'9' | b'-') if text.bytes().skip(1).all(|digit| digit.is_ascii_digit()) => {
            Ok(text.to_owned())
        }
        _ => Err("it is neither a text nor a whole number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_pointer_finds_its_place_and_leaves_the_text_as_it_was() {
        let body = raw(r#"{"a/b": [10, {"~": 18446744073709551615}], "n": null}"#);
        let find = |pointer: &str| JsonPointer(pointer.to_owned()).find(&body).map(RawValue::get);
        assert_eq!(find(""), Some(body.get()));
        assert_eq!(find("/a~1b/0"), Some("10"));
        assert_eq!(find("/a~1b/1/~0"), Some("18446744073709551615"));
        assert_eq!(find("/n"), Some("null"));
        for nothing in ["/a", "/a~1b/2", "/a~1b/-1", "/n/x", "/a~1b/0/x"] {
            assert_eq!(find(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn an_id_is_a_text_or_a_whole_number() {
        assert_eq!(word(&raw(r#""in\u0020voice""#)).unwrap(), "in voice");
        assert_eq!(word(&raw("42")).unwrap(), "42");
        for other in ["4.2", "null", "{}", "[1]", "true"] {
            assert!(word(&raw(other)).is_err(), "{other}");
        }
    }
}
