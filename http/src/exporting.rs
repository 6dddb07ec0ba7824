//! A history as a file: its lines, without the fields that are hidden.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use millrun::RunId;

use crate::problem::Problem;
use crate::router::Served;
use crate::stream::FRAMES_BYTES;

/// How many histories a router sends at once; each is read as a whole.
pub const EXPORTS_LEN_MAX: usize = 4;

/// The media type of JSON lines.
pub(crate) const JSON_LINES: &str = "application/x-ndjson";

/// The whole history of a run.
pub(crate) async fn export_history(served: &Served, run: RunId) -> Result<Response, Problem> {
    let place = served.exports.take()?;
    let history = served.runtime.export_history(run).await?;
    let lines = history.into_redacted_lines(served.redaction.clone());
    // The body holds the place, and frees it when everything is sent or the reader is gone.
    let body = stream::unfold((lines, place), |(mut lines, place)| async {
        let mut text = String::new();
        while text.len() < FRAMES_BYTES
            && let Some(line) = lines.next()
        {
            text.push_str(&line);
        }
        (!text.is_empty()).then_some((Ok::<_, Infallible>(text), (lines, place)))
    });
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static(JSON_LINES))];
    Ok((headers, Body::from_stream(body)).into_response())
}
