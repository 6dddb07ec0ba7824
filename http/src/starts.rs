//! Starting instances, one or many at once.
//!
//! ```text
//!   body ──► lines ──► up to 512 starts under way, which share commits ──► a line of answer for each, in order
//! ```
//!
//! All lines have been read before the first start begins: a body that cannot be read to its end starts nothing.

use axum::http::header;
use axum::response::IntoResponse;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use millrun::{Runtime, UntypedHandle};

use crate::BODY_BYTES_MAX;
use crate::body::{StartLine, parse, payload};
use crate::problem::Problem;
use crate::view::{Json, object};

/// How many lines a request may have.
pub const LINES_LEN_MAX: usize = 1_000;
/// How many starts of a request are under way at once.
const STARTS_AT_ONCE: usize = 512;

/// What a start is answered with; `runs` leads from where it was asked for to where runs are.
pub(crate) fn started(handle: &UntypedHandle, runs: &str) -> Json {
    let run = handle.run_id();
    object([
        ("id", handle.id().into()),
        ("run", run.into()),
        ("history", run.map(|run| format!("{runs}{run}/history")).into()),
    ])
}

/// Starts an instance for each line, and answers each with a line, in their order. What is wrong with a line is told
/// in its place, and is nothing to the others.
pub(crate) async fn start_lines(
    runtime: &Runtime,
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
        under_way.extend(lines.by_ref().take(room).map(|line| start_line(runtime, line)));
        let Some(answer) = under_way.next().await else {
            break;
        };
        text.push_str(&answer.unwrap_or_else(Problem::into_json).to_text());
        text.push('\n');
    }
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], text))
}

async fn start_line(runtime: &Runtime, line: &[u8]) -> Result<Json, Problem> {
    if line.len() > BODY_BYTES_MAX {
        let detail = format!(
            "the line has {} bytes, of which {BODY_BYTES_MAX} may be",
            line.len()
        );
        return Err(Problem::new("body-too-large", detail));
    }
    let StartLine {
        id,
        workflow,
        input,
        on_conflict,
    } = parse(line)?;
    let start = runtime.start_untyped(workflow, &id, payload(input)?);
    let handle = start.on_conflict(on_conflict.into()).await?;
    Ok(started(&handle, "runs/"))
}
