//! What each operation answers.

use axum::response::{IntoResponse as _, Response};
use millrun::history::Sequence;
use millrun::{RunError, RunId, Runtime};

use crate::operations::Action;
use crate::problem::Problem;
use crate::query::PageQuery;
use crate::view::{description, history, object, why};

/// Performs an operation; `value` is what the path says, `query` what stands behind it.
pub(crate) async fn answer(
    runtime: &Runtime,
    action: Action,
    value: &str,
    query: &str,
) -> Result<Response, Problem> {
    let body = match action {
        Action::Live => object([("live", true.into())]),
        Action::Ready => match runtime.stop_cause() {
            None => object([("ready", true.into())]),
            Some(cause) => return Err(RunError::Stopped(cause).into()),
        },
        Action::DescribeInstance => description(&runtime.attach_untyped(value)?.describe().await?),
        Action::DescribeRun => description(&runtime.describe_run(run(value)?).await?),
        Action::Why => why(&runtime.attach_untyped(value)?.why().await?),
        Action::History => {
            let (run, page) = (run(value)?, PageQuery::parse(query)?);
            let after = Sequence::new(page.after);
            history(&runtime.history(run, after, page.limit).await?, page.limit)
        }
    };
    Ok(body.into_response())
}

/// The run of these 32 hexadecimal digits.
fn run(text: &str) -> Result<RunId, Problem> {
    let is_run = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bits = u128::from_str_radix(text, 16).ok().filter(|_| is_run);
    bits.and_then(RunId::from_bits)
        .ok_or_else(|| Problem::new("invalid-id", format!("{text:?} is no run")))
}
