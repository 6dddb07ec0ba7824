//! A page of a durable topic's existing records.

use millrun::topics::ReadFrom;
use millrun::{RunError, Runtime};

use super::carried::CarriesRecords;
use super::from::RecordsQuery;
use super::read::{ToldRead, told};
use crate::problem::Problem;
use crate::query::next_page;
use crate::view::{Json, object};

/// The size at which a page of records ends, counted over the encoded payloads: 1 MiB. The record that reaches it is on the
/// page.
pub const RECORDS_BYTES_MAX: usize = 1024 * 1024;

/// The existing records from the query's place on, or else from the first. Does not wait.
pub(crate) async fn records_page(
    runtime: &Runtime,
    topic: &dyn CarriesRecords,
    query: &str,
) -> Result<Json, Problem> {
    let RecordsQuery { from, limit } = RecordsQuery::of_page(query)?;
    if let Some(cause) = runtime.stop_cause() {
        return Err(RunError::Stopped(cause).into());
    }
    let mut reader = topic.read(from.unwrap_or(ReadFrom::Beginning)).await?;
    let (mut records, mut gaps, mut bytes, mut next) = (Vec::new(), Vec::new(), 0, None);
    loop {
        let behind = reader.position();
        let Some(read) = reader.next_now().await else {
            break;
        };
        let len = records.len() + gaps.len();
        let has_more = len >= limit || bytes >= RECORDS_BYTES_MAX;
        match told(behind, read) {
            ToldRead::Over(problem) if len == 0 => return Err(problem),
            _ if has_more => next = behind,
            ToldRead::Over(_) => next = behind,
            ToldRead::Record {
                json, bytes: more, ..
            } => {
                bytes += more;
                records.push(json);
                continue;
            }
            ToldRead::Gap(gap) => {
                gaps.push(gap.to_json());
                continue;
            }
        }
        break;
    }
    let next = next.map(|token| next_page(&token.to_string(), limit));
    Ok(object([
        ("records", Json::List(records)),
        ("gaps", Json::List(gaps)),
        ("next", next.into()),
    ]))
}
