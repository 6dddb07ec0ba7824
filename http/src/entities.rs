//! Entities by their names and keys: commands, reads, deletions, and lists of keys.

use axum::http::HeaderMap;
use millrun::operating::{RunSearch, RunStatus};
use millrun::{CommandError, Payload, Runtime, UntypedEntity};

use crate::body::{EmptyBody, PerformBody, QueryBody, parse, payload};
use crate::keys::key_of;
use crate::operations::Action;
use crate::problem::Problem;
use crate::query::{EntitiesQuery, next_of};
use crate::view::{Json, list, object};

/// Asks, commands or deletes an entity.
pub(crate) async fn on_entity(
    runtime: &Runtime,
    action: Action,
    (entity, key): (&str, &str),
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Json, Problem> {
    let entity = handle(runtime, entity, key)?;
    match action {
        Action::EntityRead => {
            let QueryBody { name, question } = parse(body)?;
            let answer = entity.read(&name, payload(question)?).await?;
            Ok(object([("answer", (&answer).into())]))
        }
        Action::EntityCommand => {
            let PerformBody { name, request, input } = parse(body)?;
            let request = request.as_deref().or(key_of(headers)?);
            let input = payload(input)?;
            let answer = match request {
                Some(request) => entity.call_as(&name, request, input).await?,
                None => entity.call(&name, input).await?,
            };
            Ok(object([("answer", (&answer).into())]))
        }
        _ => {
            let EmptyBody {} = parse(body)?;
            Ok(object([("deleted", entity.delete().await?.into())]))
        }
    }
}

fn handle(runtime: &Runtime, entity: &str, key: &str) -> Result<UntypedEntity, Problem> {
    runtime.entity_untyped(entity, key).ok_or_else(|| {
        Problem::new(
            "not-registered",
            format!("no entity {entity:?} is registered in this program"),
        )
    })
}

/// A page of the keys of an entity.
pub(crate) async fn entities_page(runtime: &Runtime, entity: &str, query: &str) -> Result<Json, Problem> {
    let EntitiesQuery { prefix, after, limit } = EntitiesQuery::parse(query)?;
    handle(runtime, entity, "")?;
    let before = format!("{entity}/");
    let mut search = RunSearch::new()
        .workflow(entity)
        .id_prefix(format!("{before}{prefix}"));
    for status in [
        RunStatus::Running,
        RunStatus::Parked,
        RunStatus::Paused,
        RunStatus::NotRegistered,
    ] {
        search = search.status(status);
    }
    let page = runtime.find(&search, after, limit).await?;
    let next = page.next.map(|cursor| next_of(query, &cursor.to_string()));
    Ok(object([
        (
            "entities",
            list(&page.runs, |run| {
                let id = run.id.as_str();
                object([
                    ("key", id.strip_prefix(&before).unwrap_or(id).into()),
                    ("id", (&run.id).into()),
                    ("run", run.run.into()),
                    ("status", run.status.name().into()),
                    ("begun_at_us", run.started_at.into()),
                ])
            }),
        ),
        ("unreadable", page.unreadable.into()),
        ("next", next.into()),
    ]))
}

impl From<CommandError<Payload>> for Problem {
    fn from(error: CommandError<Payload>) -> Self {
        match error {
            CommandError::Rejected(error) => Self::rejected(error, "the entity is as it was"),
            CommandError::Payload(error) => Self::new("payload", error.to_string()),
            CommandError::Id(error) => error.into(),
            CommandError::Start(error) => error.into(),
            CommandError::Run(error) => error.into(),
            _ => Self::new("unknown", "the command has no answer"),
        }
    }
}
