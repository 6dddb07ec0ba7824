//! Bodies of requests: JSON of bounded length, in which values keep their exact text.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, header};
use millrun::operating::ResetPoint;
use millrun::{OnConflict, Payload, Retry};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::answers::run as run_of;
use crate::problem::Problem;

/// The largest body in bytes: 2 MiB.
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The largest body of lines in bytes, each line of which may have [`BODY_BYTES_MAX`]: 8 MiB.
pub const LINES_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The form of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyForm {
    /// The accepted values of its `content-type`.
    media_types: &'static [&'static str],
    bytes_max: usize,
}

impl BodyForm {
    /// The accepted values of its `content-type`.
    pub(crate) const fn media_types(self) -> &'static [&'static str] {
        self.media_types
    }

    /// One JSON value.
    pub(crate) const JSON: Self = Self {
        media_types: &["application/json"],
        bytes_max: BODY_BYTES_MAX,
    };
    /// A JSON value per line.
    pub(crate) const LINES: Self = Self {
        media_types: &["application/x-ndjson", "application/jsonl"],
        bytes_max: LINES_BYTES_MAX,
    };
}

/// Reads a body. A page of another origin cannot send one of these media types without permission, so the media type is
/// required even where the body may be empty.
pub(crate) async fn read(form: BodyForm, headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Problem> {
    let media_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = media_type
        .and_then(|value| value.split(';').next())
        .unwrap_or_default();
    let is_of = |expected: &&str| media_type.trim().eq_ignore_ascii_case(expected);
    if !form.media_types.iter().any(is_of) {
        let expected = form.media_types.join(" or ");
        return Err(Problem::new(
            "media-type",
            format!("the content-type is {media_type:?}, and {expected} is expected"),
        ));
    }
    read_bytes(body, form.bytes_max).await
}

/// Reads a body of any form, up to the given number of bytes.
pub(crate) async fn read_bytes(body: Body, bytes_max: usize) -> Result<Vec<u8>, Problem> {
    // The type of the error does not tell which of the two it is.
    let bytes = to_bytes(body, bytes_max).await.map_err(|error| {
        let detail = format!("it has more than {bytes_max} bytes, or could not be read to its end: {error}");
        Problem::new("body-too-large", detail)
    })?;
    Ok(bytes.into())
}

/// Parses a body.
pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| Problem::new("invalid-body", error.to_string()))
}

/// The payload of a value in a body; a missing value is null, which is how `()` is written.
pub(crate) fn payload(value: Option<&RawValue>) -> Result<Payload, Problem> {
    let text = value.map_or("null", RawValue::get);
    Payload::from_json(text).map_err(|error| Problem::new("payload", error.to_string()))
}

/// Starts an instance.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartBody<'a> {
    pub(crate) workflow: String,
    #[serde(borrow, default)]
    pub(crate) input: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) on_conflict: Conflict,
    /// How long the code of a new run waits, or until when: at most one of the two is set.
    #[serde(default)]
    pub(crate) delay_ms: Option<u64>,
    #[serde(default)]
    pub(crate) start_at_us: Option<u64>,
    /// The retry policy of a new run.
    #[serde(default)]
    pub(crate) retry: Option<RetryBody>,
    /// How long a run that begins may take, and its chain.
    #[serde(default)]
    pub(crate) run_timeout_ms: Option<NonZeroU64>,
    #[serde(default)]
    pub(crate) chain_timeout_ms: Option<NonZeroU64>,
}

/// Starts an instance whose id is not in the path: a line of many, or a request whose key may be the id.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartLine<'a> {
    #[serde(default)]
    pub(crate) id: Option<String>,
    pub(crate) workflow: String,
    #[serde(borrow, default)]
    pub(crate) input: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) on_conflict: Conflict,
    /// How long the code of a new run waits, or until when: at most one of the two is set.
    #[serde(default)]
    pub(crate) delay_ms: Option<u64>,
    #[serde(default)]
    pub(crate) start_at_us: Option<u64>,
    /// The retry policy of a new run.
    #[serde(default)]
    pub(crate) retry: Option<RetryBody>,
    /// How long a run that begins may take, and its chain.
    #[serde(default)]
    pub(crate) run_timeout_ms: Option<NonZeroU64>,
    #[serde(default)]
    pub(crate) chain_timeout_ms: Option<NonZeroU64>,
}

/// A retry policy.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryBody {
    attempts_max: NonZeroU32,
    #[serde(default)]
    first_pause_ms: Option<u64>,
    #[serde(default)]
    pause_max_ms: Option<u64>,
}

impl From<RetryBody> for Retry {
    fn from(body: RetryBody) -> Self {
        let mut retry = Self::exponential().attempts(body.attempts_max.get());
        if let Some(pause) = body.first_pause_ms {
            retry = retry.first_pause(Duration::from_millis(pause));
        }
        if let Some(pause) = body.pause_max_ms {
            retry = retry.pause_max(Duration::from_millis(pause));
        }
        retry
    }
}

/// What to do when the id is taken.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Conflict {
    #[default]
    Attach,
    Refuse,
    RestartFinished,
    RestartFailed,
    TerminateRunning,
}

impl From<Conflict> for OnConflict {
    fn from(conflict: Conflict) -> Self {
        match conflict {
            Conflict::Attach => Self::Attach,
            Conflict::Refuse => Self::Refuse,
            Conflict::RestartFinished => Self::RestartFinished,
            Conflict::RestartFailed => Self::RestartFailed,
            Conflict::TerminateRunning => Self::TerminateRunning,
        }
    }
}

/// Sends a signal. With a request name of the client's choice, a repetition is recorded once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalBody<'a> {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) request: Option<String>,
    #[serde(borrow, default)]
    pub(crate) value: Option<&'a RawValue>,
}

/// Publishes to a topic.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublishBody<'a> {
    #[serde(borrow, default)]
    pub(crate) value: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) key: Option<String>,
    /// For durable topics only, like the fields that follow.
    #[serde(default)]
    pub(crate) id: Option<String>,
    #[serde(default)]
    pub(crate) correlation: Option<String>,
    #[serde(default)]
    pub(crate) content_type: Option<String>,
}

/// Asks a query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueryBody<'a> {
    pub(crate) name: String,
    #[serde(borrow, default)]
    pub(crate) question: Option<&'a RawValue>,
}

/// Asks for an update, under a request name of the client's choice: a repetition is performed once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateBody<'a> {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) request: Option<String>,
    #[serde(borrow, default)]
    pub(crate) input: Option<&'a RawValue>,
}

/// Sends a command to an entity. With a request name of the client's choice, a repetition is performed once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PerformBody<'a> {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) request: Option<String>,
    #[serde(borrow, default)]
    pub(crate) input: Option<&'a RawValue>,
}

/// Cancels, terminates or pauses.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReasonBody {
    pub(crate) reason: String,
}

/// Resets a run to an event.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResetBody {
    to_event: u64,
    #[serde(default)]
    keep_signals: bool,
    /// The run that is meant: if another one is the latest by then, nothing is reset.
    #[serde(default)]
    run: Option<String>,
    #[serde(default)]
    reason: String,
}

impl ResetBody {
    pub(crate) fn point(self) -> Result<ResetPoint, Problem> {
        let mut point = ResetPoint::to_event(self.to_event).because(self.reason);
        if self.keep_signals {
            point = point.keep_signals();
        }
        Ok(match self.run {
            Some(run) => point.of_run(run_of(&run)?),
            None => point,
        })
    }
}

/// Starts a bulk, or counts the runs that it would reach.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkBody<'a> {
    pub(crate) action: BulkVerb,
    /// For `cancel` and `terminate`.
    #[serde(default)]
    pub(crate) reason: Option<String>,
    /// For `signal`: its name,
    #[serde(default)]
    pub(crate) signal: Option<String>,
    /// and its value.
    #[serde(borrow, default)]
    pub(crate) value: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) filter: Option<FilterBody>,
    #[serde(default)]
    pub(crate) ids: Vec<String>,
    #[serde(default)]
    pub(crate) per_second: Option<NonZeroU32>,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What a bulk does.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BulkVerb {
    Cancel,
    Terminate,
    Resume,
    Signal,
    StartAgain,
}

/// Which runs are meant, by the same conditions as the parameters of `v1/runs`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FilterBody {
    pub(crate) workflow: Option<String>,
    pub(crate) status: Vec<String>,
    pub(crate) id_prefix: String,
    pub(crate) started_from_us: Option<u64>,
    pub(crate) started_until_us: Option<u64>,
    pub(crate) ended_from_us: Option<u64>,
    pub(crate) ended_until_us: Option<u64>,
}

/// Describes a schedule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleBody<'a> {
    pub(crate) workflow: String,
    #[serde(borrow, default)]
    pub(crate) input: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) cron: Vec<String>,
    #[serde(default)]
    pub(crate) every: Vec<IntervalBody>,
    #[serde(default)]
    pub(crate) zone: Option<String>,
    #[serde(default)]
    pub(crate) overlap: Option<String>,
    #[serde(default)]
    pub(crate) buffer_len_max: Option<u32>,
    #[serde(default)]
    pub(crate) catch_up_s: Option<u64>,
    #[serde(default)]
    pub(crate) jitter_s: Option<u64>,
    #[serde(default)]
    pub(crate) starting_at_us: Option<u64>,
    #[serde(default)]
    pub(crate) ending_at_us: Option<u64>,
    #[serde(default)]
    pub(crate) actions_len_max: Option<u64>,
    /// The note of its pause, if it begins paused.
    #[serde(default)]
    pub(crate) paused: Option<String>,
}

/// An interval of a schedule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IntervalBody {
    pub(crate) every_s: u64,
    #[serde(default)]
    pub(crate) phase_s: u64,
}

/// Pauses or resumes a schedule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteBody {
    pub(crate) note: String,
}

/// Triggers a schedule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TriggerBody {
    #[serde(default)]
    pub(crate) overlap: Option<String>,
}

/// Backfills a schedule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackfillBody {
    pub(crate) from_us: u64,
    pub(crate) through_us: u64,
    #[serde(default)]
    pub(crate) overlap: Option<String>,
}

/// Exchanges a token for a cookie, or ends the cookie.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionBody {
    #[serde(default)]
    pub(crate) end: bool,
}

/// Has the store copied to a file of this name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CopyBody {
    pub(crate) name: String,
}

/// Which records of a topic are purged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PurgeBody {
    pub(crate) before: Option<u64>,
    pub(crate) token: Option<String>,
}

/// The key to release, and its subscription.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseBody {
    pub(crate) subscription: String,
    pub(crate) key: String,
}

/// Which undelivered records are sent back.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendBackBody {
    /// The token of a single record.
    #[serde(default)]
    pub(crate) token: Option<String>,
    /// Or the token behind which they are,
    #[serde(default)]
    pub(crate) after: Option<String>,
    /// and how many, at most.
    #[serde(default)]
    pub(crate) limit: Option<usize>,
}

/// A name in a body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NameBody {
    pub(crate) name: String,
}

/// A body without fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmptyBody {}
