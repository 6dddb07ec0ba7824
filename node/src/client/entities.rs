//! Entities: commands, reads, deletions, and lists of keys.

use std::error::Error;

use super::options::{CommandEntity, Entities, OfEntity, ReadEntity};
use super::place::client;
use super::raw::Raw;
use super::time::date_and_time;
use super::wire::Ask;
use super::{json, object, pages, request_or_own, show, text, write, write_list};
use crate::outcome::Outcome;
use crate::table::Table;

/// Has an entity perform a command.
pub(super) async fn command(options: CommandEntity) -> Result<Outcome, Box<dyn Error>> {
    let body = object(&[
        ("name", &text(&options.name)),
        ("request", &text(&request_or_own(options.request))),
        ("input", &*json(options.input)?),
    ]);
    say("command", &options.of, body, |answer| answer.text_of("answer")).await
}

/// Asks the state of an entity.
pub(super) async fn read(options: ReadEntity) -> Result<Outcome, Box<dyn Error>> {
    let body = object(&[
        ("name", &text(&options.name)),
        ("question", &*json(options.question)?),
    ]);
    say("read_entity", &options.of, body, |answer| {
        answer.text_of("answer")
    })
    .await
}

/// Deletes an entity.
pub(super) async fn delete(of: OfEntity) -> Result<Outcome, Box<dyn Error>> {
    say("delete_entity", &of, object(&[]), show::fields).await
}

async fn say(
    operation: &str,
    of: &OfEntity,
    body: String,
    shown: impl FnOnce(&Raw) -> String,
) -> Result<Outcome, Box<dyn Error>> {
    let ask = Ask {
        operation,
        value: &of.entity,
        second: &of.key,
        body: Some(body),
        ..Ask::default()
    };
    write(&client(&of.at).await?.ask(ask).await?, of.form, shown)?;
    Ok(Outcome::Complete)
}

/// Lists the keys of an entity.
pub(super) async fn entities(options: Entities) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&options.at).await?;
    let parameters = [("prefix", options.prefix)];
    let page = pages(
        &client,
        ("entities", &options.entity),
        "entities",
        &parameters,
        options.after,
        options.limit,
    );
    write_list(&page.await?, options.form, shown_entities)?;
    Ok(Outcome::Complete)
}

fn shown_entities(items: &[Raw]) -> String {
    let mut table = Table::of(["key", "status", "begun at (UTC)", "run"]);
    for item in items {
        let [key, status, run] = ["key", "status", "run"].map(|name| item.text_of(name));
        let begun = item
            .number_of("begun_at_us")
            .map_or_else(String::new, date_and_time);
        table.row([key, status, begun, run]);
    }
    table.to_string()
}
