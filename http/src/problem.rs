//! Errors as problem details (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrun::schedules::ScheduleError;
use millrun::workflow::Unanswered;
use millrun::{
    InstanceIdError, Payload, QueryError, RunError, StartError, StartWithSignalError, UpdateError,
};

use crate::Redaction;
use crate::view::{Json, object};

/// A type of problem in answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProblemType {
    /// The problem's `type` is `urn:millrun:problem:` followed by this.
    pub code: &'static str,
    /// The status of the answer.
    pub status: u16,
    /// What is wrong: the problem's `title`.
    pub title: &'static str,
    /// What to do next: the problem's `advice`.
    pub advice: &'static str,
}

const fn problem(code: &'static str, status: u16, title: &'static str, advice: &'static str) -> ProblemType {
    ProblemType {
        code,
        status,
        title,
        advice,
    }
}

/// All types of problems, in the order of the documents: the router's own, then those of [`RunError::CODES`], then those of
/// [`StartError::CODES`] that are not among these, those of queries and updates, and one for errors that this version does
/// not know.
pub static PROBLEMS: &[ProblemType] = &[
    problem(
        "no-route",
        404,
        "there is nothing at this path",
        "see the table of operations in the README of millrun-http",
    ),
    problem(
        "method",
        405,
        "the path has no such method",
        "use one of those that the header Allow names",
    ),
    problem(
        "host",
        421,
        "the name that is asked under is not one of this program",
        "ask under a loopback name, or have the program allow the name with Console::sites",
    ),
    problem(
        "origin",
        403,
        "a page of another site asks",
        "ask from the program's own page, or have the program allow the origin with Console::sites",
    ),
    problem(
        "token",
        401,
        "there is no token, or a wrong one",
        "send the program's token as authorization: Bearer, or have the page ask for it again",
    ),
    problem(
        "timeout",
        503,
        "the request has taken longer than it may",
        "ask again, and send less at once; what it was to change may be recorded already",
    ),
    problem(
        "stopping",
        503,
        "the program is about to stop",
        "ask another process, or try again when the program has started again",
    ),
    problem(
        "forbidden",
        403,
        "the caller's role is not enough",
        "ask as somebody to whom the program gives a greater role",
    ),
    problem(
        "invalid-id",
        400,
        "the path names no instance or run",
        "an id has 1 to 255 bytes of UTF-8, percent-encoded; a run has 32 hexadecimal digits",
    ),
    problem(
        "invalid-query",
        400,
        "a parameter is not known or out of range",
        "see what the operation takes in the README of millrun-http",
    ),
    problem(
        "media-type",
        415,
        "the body is not said to be JSON",
        "send it with content-type: application/json",
    ),
    problem(
        "body-too-large",
        413,
        "the body is longer than one may be",
        "send less at once, or pass a reference",
    ),
    problem(
        "too-many-lines",
        413,
        "the body has more lines than one may have",
        "send them in several requests",
    ),
    problem(
        "invalid-body",
        400,
        "the body is not what the operation takes",
        "see what the operation takes in the README of millrun-http",
    ),
    problem(
        "invalid-key",
        400,
        "the header idempotency-key is no key",
        "send one of 1 to 255 visible ASCII characters, in quotes or without",
    ),
    problem(
        "key-reused",
        422,
        "the key came with another request before",
        "choose a new key for each request, and the same for the same request sent again",
    ),
    problem(
        "not-found",
        404,
        "there is no such instance or run",
        "check the id; what has ended is only known for as long as retention says",
    ),
    problem(
        "not-registered",
        422,
        "no workflow of this name is registered",
        "the operation catalogue tells which are",
    ),
    problem(
        "other-workflow",
        409,
        "the id belongs to an instance of another workflow",
        "choose another id, or ask without a workflow",
    ),
    problem(
        "expired",
        410,
        "the run has ended, and is retained no longer",
        "its id is free; an archive has its history, if there was one",
    ),
    problem(
        "finished",
        409,
        "the run has ended",
        "read its result or its history",
    ),
    problem(
        "not-reset",
        409,
        "the run was not reset, or has no such event to be shown at",
        "nothing has changed; the detail says why, and which events can be chosen",
    ),
    problem(
        "refused",
        409,
        "the run does not take it at the moment",
        "the detail says why",
    ),
    problem(
        "wrong-type",
        422,
        "the value is not of the type that the workflow takes",
        "the detail names the type that is expected",
    ),
    problem(
        "reserved-name",
        422,
        "the workflow is one of millrun's own",
        "choose a name that does not begin with millrun.",
    ),
    problem(
        "too-many-watchers",
        503,
        "too many callers wait at the run",
        "let callers share a wait, or try again later",
    ),
    problem(
        "too-many-streams",
        503,
        "there are as many streams as there may be",
        "let tabs share a stream, or try again later",
    ),
    problem(
        "too-many-starts",
        503,
        "as many starts with a key are under way as there may be",
        "send it again later, with the same key",
    ),
    problem(
        "no-topic",
        404,
        "no topic of this name is exposed",
        "the operation topics tells which are; a program exposes one with Console::expose or Console::expose_durable",
    ),
    problem(
        "not-durable",
        409,
        "the topic is in memory, and has no records",
        "tail it, or declare it durable in the program and expose it with Console::expose_durable",
    ),
    problem(
        "record-token",
        400,
        "this names no record or place of a durable topic",
        "send a token as it was given, percent-encoded, or from=beginning, from=now or a time",
    ),
    problem(
        "other-store",
        409,
        "the token is of a record in another store",
        "read from a time or from the beginning: a restored backup is another store",
    ),
    problem(
        "other-topic",
        409,
        "the token is of a record of another topic",
        "ask the topic that the token is of",
    ),
    problem(
        "record-not-yet",
        409,
        "this store has not had the record",
        "read from a time or from the beginning",
    ),
    problem(
        "record-gone",
        410,
        "retention has dropped the record",
        "the detail says which record of the topic is the first that is there",
    ),
    problem(
        "no-record",
        404,
        "no record of the topic is remembered under this id",
        "name the record by its token or its number: ids are remembered for the last 100,000 records",
    ),
    problem(
        "no-undelivered-record",
        404,
        "there is no undelivered record at this place",
        "records of the topic tells which are there; the topic is that of undelivered_to",
    ),
    problem(
        "no-subscription",
        404,
        "the topic has no durable subscription of this name",
        "GET v1/topics/{topic}/subscriptions lists them",
    ),
    problem(
        "topic-full",
        503,
        "an inbox at the topic has no room",
        "publish again later; inboxes that had room have the value, and get it once more then",
    ),
    problem(
        "topic",
        503,
        "the topic cannot be listened to",
        "the detail says why; raise the bound that it names",
    ),
    problem(
        "no-store",
        409,
        "the runtime has no store of its own",
        "ask a program that has opened its runtime by the path of a store",
    ),
    problem(
        "exists",
        409,
        "there is a file of this name",
        "choose another name, or remove the file on the machine of the program",
    ),
    problem(
        "store",
        500,
        "what was asked of the store was not done",
        "the detail says why; see the room on the disk and the permissions of the store's folder",
    ),
    problem(
        "payload",
        400,
        "the value cannot be encoded",
        "change the value as the detail says",
    ),
    problem(
        "turn",
        422,
        "what the message leads to does not fit the journal",
        "send less at once",
    ),
    problem(
        "damaged",
        500,
        "a record is damaged",
        "salvage the store, or restore a backup",
    ),
    problem(
        "read",
        500,
        "the history cannot be read",
        "see the program's log; the detail says what failed",
    ),
    problem(
        "history",
        500,
        "the history cannot be understood",
        "run the release that wrote it, or a later one",
    ),
    problem(
        "moved",
        503,
        "the partition has another owner",
        "ask the process that owns the partition",
    ),
    problem(
        "elsewhere",
        502,
        "the node that has the run has not done it",
        "see the log of that node; the detail says what it tells",
    ),
    problem(
        "stopped",
        503,
        "the runtime has stopped",
        "try again when the program has started again",
    ),
    problem(
        "too-large",
        422,
        "the input is larger than a payload may be",
        "pass a reference in its place, or raise payload_bytes_max",
    ),
    problem(
        "name",
        400,
        "the name is no name of a workflow",
        "a name has 1 to 255 bytes",
    ),
    problem(
        "no-time",
        400,
        "the start has a timeout of zero",
        "leave the timeout out, or give the run some time",
    ),
    problem(
        "not-replaced",
        409,
        "the run that is there could not be terminated",
        "it goes on, and nothing was started: see the detail",
    ),
    problem(
        "already-running",
        409,
        "an instance of this id runs",
        "choose another id, or attach to it",
    ),
    problem(
        "already-finished",
        409,
        "an instance of this id has finished",
        "choose another id, or restart it with on_conflict",
    ),
    problem(
        "not-retained",
        409,
        "no run of the instance is retained any more",
        "start it under another id, or without naming the run that it is to follow",
    ),
    problem(
        "too-many-live",
        503,
        "there are as many live instances as there may be",
        "try again when some have finished, or raise live_len_max",
    ),
    problem(
        "unanswered",
        422,
        "the query has no answer",
        "the detail says why; the guide says what a workflow answers",
    ),
    problem(
        "rejected",
        422,
        "the validator of the update, or the handler of the command, has said no",
        "change the input as the error says",
    ),
    problem(
        "update-failed",
        422,
        "the update is recorded, and has no answer",
        "the detail says why; the same request gives the same",
    ),
    problem(
        "parked",
        409,
        "it is recorded, and the code of the run does not run",
        "see why the run is parked; the same request gives the answer once it runs",
    ),
    problem(
        "no-schedule",
        404,
        "there is no schedule of this id",
        "GET v1/schedules lists them; make it first",
    ),
    problem(
        "schedule-differs",
        409,
        "there is a schedule of this id that was described otherwise",
        "update it, or choose another id",
    ),
    problem(
        "schedule",
        422,
        "no schedule can be like this",
        "change it as the detail says; nothing was changed",
    ),
    problem(
        "signature",
        401,
        "the webhook is not signed as it should be",
        "compare the secret and the scheme of the hook with those of the sender",
    ),
    problem(
        "stale",
        401,
        "the webhook was signed too long ago, or is of the future",
        "send it anew, and set the clocks of both sides",
    ),
    problem(
        "webhook",
        422,
        "the hook does not take a webhook like this",
        "the detail says why",
    ),
    problem(
        "unknown",
        500,
        "an error that this version has no name for",
        "see the detail, and use a version of millrun-http that belongs to that of millrun",
    ),
];

/// A problem on its way to the client.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    code: &'static str,
    detail: String,
    is_retryable: bool,
    /// The workflow's own error, if it is one.
    error: Option<Payload>,
}

impl Problem {
    pub(crate) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            is_retryable: false,
            error: None,
        }
    }

    /// The code has rejected the request, with this error.
    pub(crate) fn rejected(error: Payload, detail: &str) -> Self {
        Self {
            error: Some(error),
            ..Self::new("rejected", detail)
        }
    }

    /// Marks that the same request may succeed later.
    pub(crate) fn retryable(self) -> Self {
        Self {
            is_retryable: true,
            ..self
        }
    }

    /// The problem as the body of an answer.
    pub(crate) fn into_json(self) -> Json {
        let problem = self.problem_type();
        object([
            ("type", format!("urn:millrun:problem:{}", problem.code).into()),
            ("title", problem.title.into()),
            ("status", u64::from(problem.status).into()),
            ("detail", self.detail.into()),
            ("advice", problem.advice.into()),
            ("retry", self.is_retryable.into()),
            ("error", self.error.as_ref().into()),
        ])
    }

    /// The program is about to stop, and says so before its runtime does.
    pub(crate) fn stopping() -> Self {
        Self::new("stopping", "it takes no more requests soon").retryable()
    }

    #[cfg(test)]
    pub(crate) const fn code(&self) -> &'static str {
        self.code
    }

    fn problem_type(&self) -> &'static ProblemType {
        let named = PROBLEMS.iter().find(|problem| problem.code == self.code);
        named.unwrap_or(&PROBLEMS[PROBLEMS.len() - 1])
    }
}

/// The problem code for a run error's code.
fn code_of_id(code: &'static str) -> &'static str {
    match code {
        "id" => "invalid-id",
        code => code,
    }
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        Self {
            code: code_of_id(error.code()),
            is_retryable: error.is_retryable(),
            detail: error.to_string(),
            error: None,
        }
    }
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Self {
        Self {
            is_retryable: error.is_retryable(),
            ..Self::new(code_of_id(error.code()), error.to_string())
        }
    }
}

impl From<StartWithSignalError> for Problem {
    fn from(error: StartWithSignalError) -> Self {
        match error {
            StartWithSignalError::Start(error) => error.into(),
            StartWithSignalError::Signal(error) => error.into(),
            other => Self::new("unknown", other.to_string()),
        }
    }
}

impl From<QueryError> for Problem {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Run(error) => error.into(),
            QueryError::Unanswered(Unanswered::WrongType(wrong)) => {
                Self::new("wrong-type", wrong.to_string())
            }
            QueryError::Unanswered(unanswered) => Self::new("unanswered", unanswered.to_string()),
            QueryError::Payload(error) => Self::new("payload", error.to_string()),
            other => Self::new("unknown", other.to_string()),
        }
    }
}

impl From<UpdateError<Payload>> for Problem {
    fn from(error: UpdateError<Payload>) -> Self {
        match error {
            UpdateError::Run(error) => error.into(),
            UpdateError::Rejected(error) => Self::rejected(error, "the run's state is as it was"),
            UpdateError::Failed { message } => Self::new("update-failed", message),
            UpdateError::Parked(reason) => Self {
                is_retryable: true,
                ..Self::new("parked", reason.to_string())
            },
            UpdateError::Payload(error) => Self::new("payload", error.to_string()),
            _ => Self::new("unknown", "the update has no answer"),
        }
    }
}

impl From<ScheduleError> for Problem {
    fn from(error: ScheduleError) -> Self {
        let is_retryable = error.is_retryable();
        let problem = match error {
            ScheduleError::Run(error) => return error.into(),
            ScheduleError::Start(error) => return error.into(),
            ScheduleError::Id { .. } => Self::new("invalid-id", error.to_string()),
            ScheduleError::NotFound => Self::new("no-schedule", error.to_string()),
            ScheduleError::Differs => Self::new("schedule-differs", error.to_string()),
            ScheduleError::Payload(error) => Self::new("payload", error.to_string()),
            ScheduleError::Cron { ref source, .. } => Self::new("schedule", format!("{error}: {source}")),
            error => Self::new("schedule", error.to_string()),
        };
        Self {
            is_retryable,
            ..problem
        }
    }
}

impl From<InstanceIdError> for Problem {
    fn from(error: InstanceIdError) -> Self {
        Self::new("invalid-id", error.to_string())
    }
}

/// For problems without a payload: a workflow's own error would be hidden completely.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.respond(&Redaction::everything())
    }
}

impl Problem {
    /// The answer with this problem.
    pub(crate) fn respond(self, redaction: &Redaction) -> Response {
        let problem = self.problem_type();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.into_json().respond(redaction)).into_response();
        let form = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, form);
        if problem.status == 401 {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
