//! Errors as problem details (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrun::{InstanceIdError, RunError};

use crate::view::{Json, object};

/// A type of problem that an answer may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProblemType {
    /// The last part of the problem's `type`, which is `urn:millrun:problem:` and this.
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

/// All types of problems, in the order of the documents: the router's own, then those of [`RunError::CODES`], then
/// that of errors which this version has no name for.
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
        "not-found",
        404,
        "there is no such instance or run",
        "check the id; what has ended is only known for as long as retention says",
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
        "refused",
        409,
        "the run does not take it at the moment",
        "the detail says why",
    ),
    problem(
        "too-many-watchers",
        503,
        "too many callers wait at the run",
        "let callers share a wait, or try again later",
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
        "a record of the run is damaged",
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
        "stopped",
        503,
        "the runtime has stopped",
        "try again when the program has started again",
    ),
    problem(
        "unknown",
        500,
        "an error that this version has no name for",
        "see the detail, and use a version of millrun-http that belongs to that of millrun",
    ),
];

/// A problem on its way to the client.
#[derive(Debug)]
pub(crate) struct Problem {
    code: &'static str,
    detail: String,
    is_retryable: bool,
}

impl Problem {
    pub(crate) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            is_retryable: false,
        }
    }

    fn problem_type(&self) -> &'static ProblemType {
        let named = PROBLEMS.iter().find(|problem| problem.code == self.code);
        named.unwrap_or(&PROBLEMS[PROBLEMS.len() - 1])
    }
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        Self {
            code: error.code(),
            is_retryable: error.is_retryable(),
            detail: error.to_string(),
        }
    }
}

impl From<InstanceIdError> for Problem {
    fn from(error: InstanceIdError) -> Self {
        Self::new("invalid-id", error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let problem = self.problem_type();
        let body = object([
            ("type", format!("urn:millrun:problem:{}", problem.code).into()),
            ("title", problem.title.into()),
            ("status", u64::from(problem.status).into()),
            ("detail", self.detail.into()),
            ("advice", problem.advice.into()),
            ("retry", self.is_retryable.into()),
        ]);
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json::into_response(body)).into_response();
        let form = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, form);
        response
    }
}
