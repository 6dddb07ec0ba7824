//! The settings of `serve`: from the command line, the environment, a file, or defaults.
//!
//! Each value comes from the first of these that has it. `millrun config` shows which one.

use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use millrun_http::{Access, ServeConfig, Sites, Token, TokenError};
use serde::Deserialize;
use toml::Spanned;
use tracing_subscriber::filter::Targets;

use super::hooks::{HookError, HookSetting, HookTable};

/// Variables of the environment with tokens in them.
const OPERATING_TOKEN: &str = "MILLRUN_TOKEN";
const READING_TOKEN: &str = "MILLRUN_READING_TOKEN";

/// The command line of `serve` and `config`. A flag that is not given is looked for in the environment, then in the
/// file.
#[derive(Debug, Default, Args)]
pub(crate) struct ServeOptions {
    /// A file with settings, in TOML: `listen = "127.0.0.1:8080"`. Or `MILLRUN_CONFIG`.
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// The store file [default: millrun.redb].
    #[arg(long, value_name = "PATH")]
    pub(crate) store: Option<PathBuf>,
    /// The address for HTTP; port 0 is one that the system chooses [default: 127.0.0.1:7070].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Whether to listen on the socket beside the store, too [default: true].
    #[arg(long, value_name = "BOOL")]
    pub(crate) socket: Option<bool>,
    /// A file with the token of operators, who may do everything. Or the token itself in `MILLRUN_TOKEN`.
    #[arg(long, value_name = "PATH")]
    pub(crate) token_file: Option<PathBuf>,
    /// A file with the token of readers, who may only look. Or the token itself in `MILLRUN_READING_TOKEN`.
    #[arg(long, value_name = "PATH")]
    pub(crate) reading_token_file: Option<PathBuf>,
    /// Names under which the address may be asked for, beside loopback ones; commas between them.
    #[arg(long, value_name = "NAMES")]
    pub(crate) hosts: Option<Words>,
    /// Origins of pages that may ask, beside the program's own; commas between them.
    #[arg(long, value_name = "ORIGINS")]
    pub(crate) origins: Option<Words>,
    /// Fields of payloads that are hidden, such as `card.number,**.password`; commas between them.
    #[arg(long, value_name = "PATHS")]
    pub(crate) redact: Option<Words>,
    /// How many connections there may be at once [default: 8192].
    #[arg(long, value_name = "N")]
    pub(crate) connections_max: Option<usize>,
    /// How long a request may take that verifies, copies or exports the store [default: 3600].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) upkeep_within_s: Option<u32>,
    /// How long the program says that it is not ready before it stops [default: 0].
    #[arg(long, value_name = "MILLISECONDS")]
    pub(crate) unready_for_ms: Option<u32>,
    /// How long requests and activities may take once it stops [default: 10].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) stop_within_s: Option<u16>,
    /// How the log is written [default: pretty].
    #[arg(long, value_name = "pretty|json")]
    pub(crate) log: Option<LogForm>,
    /// What is logged, such as `info,millrun=debug` [default: info].
    #[arg(long, value_name = "FILTER")]
    pub(crate) log_filter: Option<LogFilter>,
    /// Whether to start demo workflows at a gentle pace [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) sample: Option<bool>,
}

/// The file: the same settings.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    store: Option<PathBuf>,
    listen: Option<SocketAddr>,
    socket: Option<bool>,
    token_file: Option<PathBuf>,
    reading_token_file: Option<PathBuf>,
    hosts: Option<Vec<String>>,
    origins: Option<Vec<String>>,
    redact: Option<Vec<String>>,
    connections_max: Option<usize>,
    upkeep_within_s: Option<u32>,
    unready_for_ms: Option<u32>,
    stop_within_s: Option<u16>,
    log: Option<LogForm>,
    log_filter: Option<String>,
    sample: Option<bool>,
    #[serde(default)]
    hook: Vec<Spanned<HookTable>>,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag(String),
    Environment(String),
    File(PathBuf),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value and its source.
#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// All settings of `serve`.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) store: Setting<PathBuf>,
    pub(crate) listen: Setting<SocketAddr>,
    pub(crate) socket: Setting<bool>,
    pub(crate) token: Setting<Option<Token>>,
    pub(crate) reading_token: Setting<Option<Token>>,
    pub(crate) hosts: Setting<Words>,
    pub(crate) origins: Setting<Words>,
    pub(crate) redact: Setting<Words>,
    pub(crate) connections_max: Setting<usize>,
    pub(crate) upkeep_within_s: Setting<u32>,
    pub(crate) unready_for_ms: Setting<u32>,
    pub(crate) stop_within_s: Setting<u16>,
    pub(crate) log: Setting<LogForm>,
    pub(crate) log_filter: Setting<LogFilter>,
    pub(crate) sample: Setting<bool>,
    /// Webhooks, which can only be set in the file.
    pub(crate) hooks: Setting<Vec<HookSetting>>,
}

/// Why the settings are not valid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("the settings file {} cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the settings file {} is wrong", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: Box<toml::de::Error>,
    },
    #[error("the settings file {} is wrong", path.display())]
    Hook {
        path: PathBuf,
        #[source]
        source: HookError,
    },
    #[error("{name} in the environment is wrong: {why}")]
    Environment { name: String, why: String },
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// The settings file, if there is one.
struct Layers {
    path: PathBuf,
}

impl Settings {
    /// Reads the settings file and the environment.
    ///
    /// # Errors
    /// When the file, a variable or a token is wrong.
    pub(crate) fn read(flags: ServeOptions) -> Result<Self, SettingsError> {
        let path = flags
            .config
            .or_else(|| env::var_os("MILLRUN_CONFIG").map(PathBuf::from));
        let (file, hooks) = path
            .as_deref()
            .map_or_else(|| Ok(Default::default()), read_file)?;
        let layers = Layers {
            path: path.unwrap_or_default(),
        };
        let words = |words: Option<Vec<String>>| words.map(Words);
        let log_filter = file.log_filter.map(|text| text.parse());
        let log_filter = log_filter
            .transpose()
            .map_err(|why: String| SettingsError::Environment {
                name: "log_filter".into(),
                why,
            })?;
        let bounds = ServeConfig::default();
        Ok(Self {
            store: layers.pick("store", flags.store, file.store, "millrun.redb".into())?,
            listen: layers.pick("listen", flags.listen, file.listen, ([127, 0, 0, 1], 7070).into())?,
            socket: layers.pick("socket", flags.socket, file.socket, cfg!(unix))?,
            token: layers.token(OPERATING_TOKEN, "token-file", flags.token_file, file.token_file)?,
            reading_token: layers.token(
                READING_TOKEN,
                "reading-token-file",
                flags.reading_token_file,
                file.reading_token_file,
            )?,
            hosts: layers.pick("hosts", flags.hosts, words(file.hosts), Words::default())?,
            origins: layers.pick("origins", flags.origins, words(file.origins), Words::default())?,
            redact: layers.pick("redact", flags.redact, words(file.redact), Words::default())?,
            connections_max: layers.pick(
                "connections-max",
                flags.connections_max,
                file.connections_max,
                bounds.connections_max,
            )?,
            upkeep_within_s: layers.pick(
                "upkeep-within-s",
                flags.upkeep_within_s,
                file.upkeep_within_s,
                3_600,
            )?,
            unready_for_ms: layers.pick("unready-for-ms", flags.unready_for_ms, file.unready_for_ms, 0)?,
            stop_within_s: layers.pick("stop-within-s", flags.stop_within_s, file.stop_within_s, 10)?,
            log: layers.pick("log", flags.log, file.log, LogForm::Pretty)?,
            log_filter: layers.pick("log-filter", flags.log_filter, log_filter, LogFilter::info())?,
            sample: layers.pick("sample", flags.sample, file.sample, false)?,
            hooks: Setting {
                value: hooks,
                origin: Origin::File(layers.path),
            },
        })
    }

    /// The access rights at the address.
    pub(crate) fn access(&self) -> Access {
        match (&self.reading_token.value, &self.token.value) {
            (None, None) => Access::operator(),
            (reading, operating) => Access::token(reading.clone(), operating.clone()),
        }
    }

    pub(crate) fn sites(&self) -> Sites {
        let hosts = self.hosts.value.0.iter().cloned();
        let sites = hosts.fold(Sites::loopback(), Sites::host);
        self.origins.value.0.iter().cloned().fold(sites, Sites::origin)
    }

    pub(crate) fn bounds(&self) -> ServeConfig {
        let mut bounds = ServeConfig::default();
        bounds.connections_max = self.connections_max.value;
        bounds.upkeep_within = Duration::from_secs(self.upkeep_within_s.value.into());
        bounds.unready_for = Duration::from_millis(self.unready_for_ms.value.into());
        bounds.drain_within = Duration::from_secs(self.stop_within_s.value.into());
        bounds
    }

    /// Name, value and origin of each. A token is not shown.
    pub(crate) fn rows(&self) -> Vec<[String; 3]> {
        fn row(name: &str, value: impl fmt::Display, origin: &Origin) -> [String; 3] {
            [name.to_owned(), value.to_string(), origin.to_string()]
        }
        let token = |token: &Option<Token>| if token.is_some() { "(set)" } else { "(none)" };
        let hooks = self.hooks.value.iter();
        let hooks = hooks.map(|hook| row(&hook.name(), hook, &self.hooks.origin));
        let settings = [
            row("store", self.store.value.display(), &self.store.origin),
            row("listen", self.listen.value, &self.listen.origin),
            row("socket", self.socket.value, &self.socket.origin),
            row("token", token(&self.token.value), &self.token.origin),
            row(
                "reading_token",
                token(&self.reading_token.value),
                &self.reading_token.origin,
            ),
            row("hosts", &self.hosts.value, &self.hosts.origin),
            row("origins", &self.origins.value, &self.origins.origin),
            row("redact", &self.redact.value, &self.redact.origin),
            row(
                "connections_max",
                self.connections_max.value,
                &self.connections_max.origin,
            ),
            row(
                "upkeep_within_s",
                self.upkeep_within_s.value,
                &self.upkeep_within_s.origin,
            ),
            row(
                "unready_for_ms",
                self.unready_for_ms.value,
                &self.unready_for_ms.origin,
            ),
            row(
                "stop_within_s",
                self.stop_within_s.value,
                &self.stop_within_s.origin,
            ),
            row("log", self.log.value, &self.log.origin),
            row("log_filter", &self.log_filter.value, &self.log_filter.origin),
            row("sample", self.sample.value, &self.sample.origin),
        ];
        settings.into_iter().chain(hooks).collect()
    }
}

/// The settings of a file, and its hooks.
fn read_file(path: &Path) -> Result<(SettingsFile, Vec<HookSetting>), SettingsError> {
    let text = fs::read_to_string(path).map_err(|source| SettingsError::Read {
        path: path.to_owned(),
        source,
    })?;
    let mut file: SettingsFile = toml::from_str(&text).map_err(|source| SettingsError::File {
        path: path.to_owned(),
        source: Box::new(source),
    })?;
    let hooks = HookSetting::all(std::mem::take(&mut file.hook), &text);
    let hooks = hooks.map_err(|source| SettingsError::Hook {
        path: path.to_owned(),
        source,
    })?;
    Ok((file, hooks))
}

impl Layers {
    /// The first of flag, environment, file and default that has a value.
    fn pick<T: FromStr<Err: fmt::Display>>(
        &self,
        flag_name: &str,
        flag: Option<T>,
        file: Option<T>,
        default: T,
    ) -> Result<Setting<T>, SettingsError> {
        if let Some(value) = flag {
            let origin = Origin::Flag(format!("--{flag_name}"));
            return Ok(Setting { value, origin });
        }
        let name = format!("MILLRUN_{}", flag_name.to_uppercase().replace('-', "_"));
        if let Some(value) = env::var_os(&name) {
            let wrong = |why: String| SettingsError::Environment {
                name: name.clone(),
                why,
            };
            let text = value
                .into_string()
                .map_err(|_| wrong("it is no text".to_owned()))?;
            let value = text.parse::<T>().map_err(|error| wrong(error.to_string()))?;
            let origin = Origin::Environment(name);
            return Ok(Setting { value, origin });
        }
        Ok(match file {
            Some(value) => Setting {
                value,
                origin: Origin::File(self.path.clone()),
            },
            None => Setting {
                value: default,
                origin: Origin::Default,
            },
        })
    }

    /// A token: of the file that a flag names, of the environment, or of the file that the settings file names.
    fn token(
        &self,
        variable: &str,
        flag_name: &str,
        flag: Option<PathBuf>,
        file: Option<PathBuf>,
    ) -> Result<Setting<Option<Token>>, SettingsError> {
        let (token, origin) = if let Some(path) = flag {
            (
                Some(Token::from_file(path)?),
                Origin::Flag(format!("--{flag_name}")),
            )
        } else if env::var_os(variable).is_some() {
            (
                Some(Token::from_env(variable)?),
                Origin::Environment(variable.to_owned()),
            )
        } else {
            let path = self.pick(flag_name, None, file, PathBuf::new())?;
            match path.origin {
                Origin::Default => (None, Origin::Default),
                origin => (Some(Token::from_file(path.value)?), origin),
            }
        };
        Ok(Setting { value: token, origin })
    }
}

/// Words with commas between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) Vec<String>);

impl FromStr for Words {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        Ok(Self(words.map(str::to_owned).collect()))
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogForm {
    Pretty,
    Json,
}

impl FromStr for LogForm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "pretty" => Ok(Self::Pretty),
            "json" => Ok(Self::Json),
            _ => Err("it is pretty or json"),
        }
    }
}

impl fmt::Display for LogForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pretty => "pretty",
            Self::Json => "json",
        })
    }
}

/// What is logged.
#[derive(Clone, Debug)]
pub(crate) struct LogFilter(pub(crate) Targets);

impl LogFilter {
    fn info() -> Self {
        Self(Targets::new().with_default(tracing_subscriber::filter::LevelFilter::INFO))
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|error| format!("{error}"))
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
