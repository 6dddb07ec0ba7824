//! Starting instances, one or many at once.
//!
//! ```text
//!   body ──► lines ──► up to 512 starts under way, which share commits ──► a line of answer for each, in order
//! ```
//!
//! All lines are read before the first start begins: a body that cannot be read to its end starts nothing.

use std::num::NonZeroU64;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use millrun::workflow::TraceContext;
use millrun::{OnConflict, Payload, Retry, Runtime, Timestamp};

use crate::body::{StartBody, StartLine, parse, payload};
use crate::exporting::JSON_LINES;
use crate::keys::{Fingerprint, key_of};
use crate::problem::Problem;
use crate::router::Served;
use crate::traceparent::trace_of;
use crate::view::{Json, object};
use crate::{BODY_BYTES_MAX, Redaction};

/// The largest number of lines of a request.
pub const LINES_LEN_MAX: usize = 1_000;
/// The longest name of a workflow, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// How many starts of a request are under way at once.
const STARTS_AT_ONCE: usize = 512;

/// Starts an instance for each line, and answers with a line for each, in the same order. An error in one line is reported in
/// its place, and does not affect the others.
pub(crate) async fn start_lines(
    runtime: &Runtime,
    trace: Option<TraceContext>,
    body: &[u8],
) -> Result<impl IntoResponse + use<>, Problem> {
    let body = body.strip_suffix(b"\n").unwrap_or(body);
    let len = body.split(|byte| *byte == b'\n').count();
    if len > LINES_LEN_MAX {
        let detail =
            format!("it has {len}, of which {LINES_LEN_MAX} may be sent at once; nothing was started");
        return Err(Problem::new("too-many-lines", detail));
    }
    let mut lines = body.split(|byte| *byte == b'\n');
    let mut under_way = FuturesOrdered::new();
    let mut text = String::new();
    loop {
        let room = STARTS_AT_ONCE - under_way.len();
        under_way.extend(
            lines
                .by_ref()
                .take(room)
                .map(|line| start_line(runtime, trace, line)),
        );
        let Some(answer) = under_way.next().await else {
            break;
        };
        text.push_str(
            &answer
                .unwrap_or_else(Problem::into_json)
                .to_text(&Redaction::everything()),
        );
        text.push('\n');
    }
    Ok(([(header::CONTENT_TYPE, JSON_LINES)], text))
}

async fn start_line(runtime: &Runtime, trace: Option<TraceContext>, line: &[u8]) -> Result<Json, Problem> {
    if line.len() > BODY_BYTES_MAX {
        let detail = format!(
            "the line has {} bytes, of which {BODY_BYTES_MAX} may be",
            line.len()
        );
        return Err(Problem::new("body-too-large", detail));
    }
    let asked = StartAsked::of_line(parse(line)?, None)?;
    asked.start(runtime.clone(), trace, "runs/").await
}

/// Starts an instance with this id, or with the one in the body or the key. A request that is repeated with its key gets the
/// same answer.
pub(crate) async fn start_one(
    served: &Served,
    id: Option<&str>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Json, Problem> {
    let (key, trace) = (key_of(headers)?, trace_of(headers));
    let (asked, runs) = match id {
        Some(id) => (StartAsked::new(id, parse(body)?)?, "../../runs/"),
        None => (StartAsked::of_line(parse(body)?, key)?, "runs/"),
    };
    let start = asked.start(served.runtime.clone(), trace, runs);
    match key {
        Some(key) => {
            let fingerprint = Fingerprint::of(id.unwrap_or_default(), body);
            Box::pin(served.keys.once(&served.runtime, key, fingerprint, start)).await
        }
        None => start.await,
    }
}

/// Refuses a workflow without code in this program: its run would wait, and a wrong name is more likely than a later program
/// with that code.
pub(crate) fn check_registered(runtime: &Runtime, workflow: &str) -> Result<(), Problem> {
    // The start itself refuses an invalid name.
    let is_name = (1..=NAME_BYTES_MAX).contains(&workflow.len());
    if !is_name || runtime.has_workflow(workflow) {
        return Ok(());
    }
    let detail = format!("there is no workflow {workflow:?} in this program");
    Err(Problem::new("not-registered", detail))
}

/// A start whose body has been parsed.
struct StartAsked {
    id: String,
    workflow: String,
    input: Payload,
    on_conflict: OnConflict,
    delay: Option<DelayAsked>,
    retry: Option<Retry>,
    run_timeout: Option<Duration>,
    chain_timeout: Option<Duration>,
}

/// The delay of a new run's code.
enum DelayAsked {
    By(Duration),
    Until(Timestamp),
}

impl DelayAsked {
    fn of(delay_ms: Option<u64>, start_at_us: Option<u64>) -> Result<Option<Self>, Problem> {
        match (delay_ms, start_at_us) {
            (None, None) => Ok(None),
            (Some(delay), None) => Ok(Some(Self::By(Duration::from_millis(delay)))),
            (None, Some(at)) => Ok(Some(Self::Until(Timestamp::from_micros(at)))),
            (Some(_), Some(_)) => {
                let detail = "it has delay_ms and start_at_us, of which one may be";
                Err(Problem::new("invalid-body", detail))
            }
        }
    }
}

fn timeout(ms: NonZeroU64) -> Duration {
    Duration::from_millis(ms.get())
}

impl StartAsked {
    fn new(id: &str, body: StartBody<'_>) -> Result<Self, Problem> {
        Ok(Self {
            id: id.to_owned(),
            workflow: body.workflow,
            input: payload(body.input)?,
            on_conflict: body.on_conflict.into(),
            delay: DelayAsked::of(body.delay_ms, body.start_at_us)?,
            retry: body.retry.map(Retry::from),
            run_timeout: body.run_timeout_ms.map(timeout),
            chain_timeout: body.chain_timeout_ms.map(timeout),
        })
    }

    /// An id in the line takes precedence over the key.
    fn of_line(line: StartLine<'_>, key: Option<&str>) -> Result<Self, Problem> {
        let on_conflict: OnConflict = line.on_conflict.into();
        let id = match (line.id, key) {
            (Some(id), _) => id,
            (None, Some(key)) if matches!(on_conflict, OnConflict::Attach | OnConflict::Refuse) => {
                key.to_owned()
            }
            // A repetition of a start with a restart policy would begin another run, or end the run that it has begun.
            (None, Some(_)) => {
                let detail = "the key is the id, with which on_conflict is attach or refuse: name an id for another one";
                return Err(Problem::new("invalid-body", detail));
            }
            (None, None) => return Err(Problem::new("invalid-body", "there is no id")),
        };
        Ok(Self {
            id,
            workflow: line.workflow,
            input: payload(line.input)?,
            on_conflict,
            delay: DelayAsked::of(line.delay_ms, line.start_at_us)?,
            retry: line.retry.map(Retry::from),
            run_timeout: line.run_timeout_ms.map(timeout),
            chain_timeout: line.chain_timeout_ms.map(timeout),
        })
    }

    /// Starts it; `runs` is the relative path from the request's URL to the runs.
    async fn start(
        self,
        runtime: Runtime,
        trace: Option<TraceContext>,
        runs: &'static str,
    ) -> Result<Json, Problem> {
        check_registered(&runtime, &self.workflow)?;
        let mut start = runtime.start_untyped(self.workflow, &self.id, self.input);
        if let Some(trace) = trace {
            start = start.traced(trace);
        }
        if let Some(retry) = self.retry {
            start = start.retried(retry);
        }
        if let Some(timeout) = self.run_timeout {
            start = start.run_timeout(timeout);
        }
        if let Some(timeout) = self.chain_timeout {
            start = start.chain_timeout(timeout);
        }
        start = match self.delay {
            None => start,
            Some(DelayAsked::By(pause)) => start.delayed_by(pause),
            Some(DelayAsked::Until(at)) => start.delayed_until(at),
        };
        let handle = start.on_conflict(self.on_conflict).await?;
        let run = handle.run_id().map(|run| run.to_string());
        let history = run.as_ref().map(|run| [runs, run, "/history"].concat());
        Ok(object([
            ("id", handle.id().into()),
            ("run", run.into()),
            ("history", history.into()),
        ]))
    }
}
