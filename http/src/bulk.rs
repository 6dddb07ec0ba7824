//! Bulks: one thing done to all runs that a filter finds.
//!
//! ```text
//!   body ──► a bulk of the runtime ─┬─ dry run ──► how many it would reach
//!                                   └─ name, or key ──► started once, by a durable workflow ──► v1/bulk/NAME
//! ```

use millrun::builders::Bulk;
use millrun::operating::{BulkAction, BulkHandle, RunSearch, TimeRange};
use millrun::{Runtime, Timestamp};

use crate::body::{BulkBody, BulkVerb, FilterBody, parse, payload};
use crate::keys::Fingerprint;
use crate::problem::Problem;
use crate::query::status_of;
use crate::router::Served;
use crate::view::{Json, bulk, bulk_started, bulk_would_reach};

/// Starts a bulk under the name in its body, or else under its key; or counts the runs that it would reach.
pub(crate) async fn start_bulk(served: &Served, key: Option<&str>, body: &[u8]) -> Result<Json, Problem> {
    let asked = BulkAsked::of(parse(body)?)?;
    if asked.is_dry_run {
        return Ok(bulk_would_reach(&asked.bulk(&served.runtime).count().await?));
    }
    let name = asked.name.as_deref().or(key);
    let name = name
        .ok_or_else(|| Problem::new("invalid-body", "there is no name"))?
        .to_owned();
    let start = asked.start(served.runtime.clone(), name);
    match key {
        Some(key) => {
            let fingerprint = Fingerprint::of("", body);
            served.keys.once(&served.runtime, key, fingerprint, start).await
        }
        None => start.await,
    }
}

/// The description and the progress of a bulk.
pub(crate) async fn told_bulk(handle: &BulkHandle) -> Result<Json, Problem> {
    let summary = handle.summary().await?;
    let (described, progress) = (handle.describe().await?, handle.progress().await?);
    Ok(bulk(&summary, &described, &progress))
}

/// A bulk whose body has been parsed.
struct BulkAsked {
    action: BulkAction,
    ids: Vec<String>,
    filter: Option<RunSearch>,
    per_second: Option<u32>,
    name: Option<String>,
    is_dry_run: bool,
}

impl BulkAsked {
    fn of(body: BulkBody<'_>) -> Result<Self, Problem> {
        let action = action_of(&body)?;
        if body.filter.is_none() && body.ids.is_empty() {
            return Err(wrong(
                "there is neither a filter nor an id; the filter {} is for all runs",
            ));
        }
        Ok(Self {
            action,
            ids: body.ids,
            filter: body.filter.map(search_of).transpose()?,
            per_second: body.per_second.map(Into::into),
            name: body.name,
            is_dry_run: body.dry_run,
        })
    }

    fn bulk<'a>(&self, runtime: &'a Runtime) -> Bulk<'a> {
        let mut bulk = runtime.bulk(self.action.clone()).ids(&self.ids);
        if let Some(filter) = &self.filter {
            bulk = bulk.matching(filter.clone());
        }
        match self.per_second {
            Some(per_second) => bulk.per_second(per_second),
            None => bulk,
        }
    }

    /// Starts it. A bulk of this name that does something else is refused.
    async fn start(self, runtime: Runtime, name: String) -> Result<Json, Problem> {
        let bulk = self.bulk(&runtime);
        let wanted = bulk.describe();
        let handle = bulk.start(&name).await?;
        if handle.describe().await? != wanted {
            let detail = format!("there is a bulk {name:?} that was started with something else");
            return Err(Problem::new("key-reused", detail));
        }
        Ok(bulk_started(&name))
    }
}

/// The action. Fields that belong to another action are refused, like unknown fields.
fn action_of(body: &BulkBody<'_>) -> Result<BulkAction, Problem> {
    let BulkBody {
        action,
        reason,
        signal,
        value,
        ..
    } = body;
    let has_reason = matches!(action, BulkVerb::Cancel | BulkVerb::Terminate);
    if reason.is_some() != has_reason {
        return Err(wrong(
            "cancel and terminate have a reason, and other actions have none",
        ));
    }
    if signal.is_some() != (*action == BulkVerb::Signal) {
        return Err(wrong(
            "the action signal has a signal, and other actions have none",
        ));
    }
    if value.is_some() && signal.is_none() {
        return Err(wrong("a value is that of a signal"));
    }
    let reason = reason.clone().unwrap_or_default();
    Ok(match action {
        BulkVerb::Cancel => BulkAction::Cancel { reason },
        BulkVerb::Terminate => BulkAction::Terminate { reason },
        BulkVerb::Resume => BulkAction::Resume,
        BulkVerb::Signal => BulkAction::Signal {
            name: signal.clone().unwrap_or_default(),
            value: payload(*value)?,
        },
        BulkVerb::StartAgain => BulkAction::StartAgain,
    })
}

fn search_of(body: FilterBody) -> Result<RunSearch, Problem> {
    let times = |from: Option<u64>, until: Option<u64>| {
        let mut times = TimeRange::default();
        times.from = from.map_or(times.from, Timestamp::from_micros);
        times.until = until.map_or(times.until, Timestamp::from_micros);
        times
    };
    let mut search = RunSearch::new()
        .id_prefix(body.id_prefix)
        .started(times(body.started_from_us, body.started_until_us))
        .ended(times(body.ended_from_us, body.ended_until_us));
    search.workflow = body.workflow;
    for name in &body.status {
        search = search.status(status_of(name).map_err(|what| wrong(&what))?);
    }
    Ok(search)
}

fn wrong(what: &str) -> Problem {
    Problem::new("invalid-body", what)
}
