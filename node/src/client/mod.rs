//! The client: asks a running program over HTTP or at the socket next to its store.
//!
//! ```text
//!   command line ──► place ──► wire: one operation of the table of millrun-http ──► raw answer
//!                                                                   --json: as it is ◄─┤
//!                                                                   for people: show ◄─┘
//! ```

mod bulk;
mod closed;
mod entities;
mod error;
mod exporting;
mod filter;
mod follow;
mod inspect;
mod moment;
mod options;
mod place;
mod raw;
mod records;
mod schedule;
mod show;
mod time;
mod top;
mod topics;
mod trace;
mod upkeep;
mod wire;

use std::error::Error;
use std::io::{IsTerminal as _, Read as _};
use std::time::{Duration, SystemTime};

use clap::ValueEnum as _;
use serde_json::value::RawValue;

use crate::outcome::Outcome;
use crate::output::tell;
pub(crate) use error::ClientError;
use moment::{DateTime, Pause};
pub(crate) use options::ClientCommand;
use options::{
    At, Call, Describe, End, Form, History, List, OfProgram, QueryOf, Reset, ResultOf, Signal, Start, Update,
};
use place::client;
use raw::Raw;
use wire::{Ask, Client};

/// How many items a page is asked for.
const PAGE: u64 = 1_000;
/// How long one request is asked to wait for a result; longer waits are several.
const WAIT: Duration = Duration::from_secs(30);
/// The pause of `--watch`.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Does what the command line asks for.
///
/// # Errors
/// When nobody answers, or the answer is a problem.
pub(crate) async fn run(command: ClientCommand) -> Result<Outcome, Box<dyn Error>> {
    match command {
        ClientCommand::List(options) => list(options).await,
        ClientCommand::Describe(options) => describe(options).await,
        ClientCommand::Why(of) => show_one("why", &of.id, &of.at, of.form, |why| why.text_of("text")).await,
        ClientCommand::Trace(options) => trace::trace(options).await,
        ClientCommand::History(options) => history(options).await,
        ClientCommand::Tail(options) => follow::tail(options).await,
        ClientCommand::Stream(options) => follow::output(options).await,
        ClientCommand::Result(options) => result(options).await,
        ClientCommand::Start(options) => start(options).await,
        ClientCommand::Signal(options) => signal(options).await,
        ClientCommand::Query(say) => query(say).await,
        ClientCommand::Update(options) => update(options).await,
        ClientCommand::Command(options) => entities::command(options).await,
        ClientCommand::Read(options) => entities::read(options).await,
        ClientCommand::Entities(options) => entities::entities(options).await,
        ClientCommand::DeleteEntity(of) => entities::delete(of).await,
        ClientCommand::Cancel(options) => end("cancel", options).await,
        ClientCommand::Terminate(options) => end("terminate", options).await,
        ClientCommand::Reset(options) => reset(options).await,
        ClientCommand::Pause(options) => end("pause", options).await,
        ClientCommand::Resume(of) => {
            say("resume", &of.id, "{}".to_owned(), &of.at, of.form, show::fields).await
        }
        ClientCommand::Bulk(command) => bulk::bulk(command).await,
        ClientCommand::Schedule(command) => schedule::schedule(*command).await,
        ClientCommand::Stats(of) => program("stats", of, show::fields).await,
        ClientCommand::Top(options) => top::top(options).await,
        ClientCommand::Parts(of) => program("parts", of, show::parts).await,
        ClientCommand::Topology(of) => program("topology", of, show::fields).await,
        ClientCommand::Topics(of) => topics::topics(of).await,
        ClientCommand::Subscriptions(options) => topics::subscriptions(options).await,
        ClientCommand::PurgeTopic(options) => topics::purge(options).await,
        ClientCommand::DeleteTopic(of) => topics::change(of, "delete_topic", object(&[])).await,
        ClientCommand::RemoveSubscription(options) => topics::remove_subscription(options).await,
        ClientCommand::ReleaseKey(options) => topics::release_key(options).await,
        ClientCommand::SendBack(options) => topics::send_back(options).await,
        ClientCommand::Records(options) => records::records(options).await,
        ClientCommand::Publish(options) => topics::publish(options).await,
        ClientCommand::Catalogue(of) => program("catalogue", of, show::catalogue).await,
        ClientCommand::Versions(of) => program("versions", of, show::versions).await,
        ClientCommand::Call(options) => call(options).await,
        ClientCommand::Counts(of) => inspect::counts(of).await,
        ClientCommand::Inspect(of) => inspect::inspect(of).await,
        ClientCommand::Verify(of) => upkeep::verify(of).await,
        ClientCommand::Backup(options) => upkeep::backup(options).await,
        ClientCommand::Restore(options) => upkeep::restore(options).await,
        ClientCommand::Export(options) => upkeep::export(options).await,
        ClientCommand::Compact(of) => upkeep::compact(of).await,
    }
}

/// Writes an answer: unchanged, or formatted for readers.
fn write(answer: &str, form: Form, shown: impl FnOnce(&Raw) -> String) -> Result<(), Box<dyn Error>> {
    if form.json || form.jsonl {
        tell(answer)?;
    } else {
        tell(shown(&Raw::parse(answer)?))?;
    }
    Ok(())
}

async fn describe(options: Describe) -> Result<Outcome, Box<dyn Error>> {
    let Describe { of, then } = options;
    let ask = Ask {
        operation: "describe_instance",
        value: &of.id,
        query: then.query(),
        ..Ask::default()
    };
    write(&client(&of.at).await?.ask(ask).await?, of.form, show::fields)?;
    Ok(Outcome::Complete)
}

async fn show_one(
    operation: &str,
    id: &str,
    at: &At,
    form: Form,
    shown: impl FnOnce(&Raw) -> String,
) -> Result<Outcome, Box<dyn Error>> {
    let ask = Ask {
        operation,
        value: id,
        ..Ask::default()
    };
    write(&client(at).await?.ask(ask).await?, form, shown)?;
    Ok(Outcome::Complete)
}

async fn program(
    operation: &str,
    of: OfProgram,
    shown: impl FnOnce(&Raw) -> String,
) -> Result<Outcome, Box<dyn Error>> {
    show_one(operation, "", &of.at, of.form, shown).await
}

/// Says something to an instance.
async fn say(
    operation: &str,
    id: &str,
    body: String,
    at: &At,
    form: Form,
    shown: impl FnOnce(&Raw) -> String,
) -> Result<Outcome, Box<dyn Error>> {
    let ask = Ask {
        operation,
        value: id,
        body: Some(body),
        ..Ask::default()
    };
    write(&client(at).await?.ask(ask).await?, form, shown)?;
    Ok(Outcome::Complete)
}

/// All pages of a list, up to a limit: the items, and whether there are more.
async fn pages(
    client: &Client,
    (operation, value): (&str, &str),
    items_of: &str,
    parameters: &[(&'static str, String)],
    mut after: Option<String>,
    limit: u64,
) -> Result<(Vec<Raw>, bool), ClientError> {
    let mut items = Vec::new();
    loop {
        let left = limit.saturating_sub(items.len() as u64).min(PAGE);
        if left == 0 {
            return Ok((items, true));
        }
        let mut query = vec![("limit", left.to_string())];
        query.extend(parameters.iter().cloned());
        query.extend(after.map(|after| ("after", after)));
        let ask = Ask {
            operation,
            value,
            query,
            ..Ask::default()
        };
        let answer = Raw::parse(&client.ask(ask).await?)?;
        items.extend(answer.list_of(items_of));
        after = next_after(&answer)?;
        if after.is_none() {
            return Ok((items, false));
        }
    }
}

/// Behind what the next page begins, if there is one.
fn next_after(page: &Raw) -> Result<Option<String>, ClientError> {
    let next = page.text_of("next");
    let mut linked = next.trim_start_matches('?').split('&');
    let Some(behind) = linked.find_map(|parameter| parameter.strip_prefix("after=")) else {
        return Ok(None);
    };
    let behind = percent_encoding::percent_decode_str(behind).decode_utf8();
    let behind = behind.map_err(|_| ClientError::Answer("the link to the next page is wrong".to_owned()))?;
    Ok(Some(behind.into_owned()))
}

/// Writes the items of a list.
fn write_list(
    (items, has_more): &(Vec<Raw>, bool),
    form: Form,
    shown: impl FnOnce(&[Raw]) -> String,
) -> Result<(), Box<dyn Error>> {
    if form.jsonl {
        for item in items {
            tell(item.json())?;
        }
    } else if form.json {
        let items: Vec<_> = items.iter().map(Raw::json).collect();
        tell(format_args!("[{}]", items.join(",")))?;
    } else {
        tell(shown(items))?;
    }
    if *has_more {
        crate::output::note(format_args!(
            "there are more than {}: --limit, or --after",
            items.len()
        ));
    }
    Ok(())
}

async fn list(options: List) -> Result<Outcome, Box<dyn Error>> {
    let (operation, items_of, shown): (_, _, fn(&[Raw]) -> String) = match options.finished {
        _ if !options.filter.is_empty() => ("find", "runs", show::found),
        true => ("finished", "runs", show::finished),
        false => ("instances", "instances", show::instances),
    };
    let parameters = options.filter.query();
    let client = client(&options.at).await?;
    loop {
        let after = options.after.clone();
        let page = pages(
            &client,
            (operation, ""),
            items_of,
            &parameters,
            after,
            options.limit,
        )
        .await?;
        if options.watch && std::io::stdout().is_terminal() {
            // Clears the screen, and begins at its top.
            tell(format_args!("\x1b[2J\x1b[H{}", shown(&page.0)))?;
        } else {
            write_list(&page, options.form, shown)?;
        }
        if !options.watch {
            return Ok(Outcome::Complete);
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

/// Whether this is a run id (32 digits) and not an instance id.
fn is_run(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The latest run of an instance.
async fn run_of(client: &Client, id: &str) -> Result<String, ClientError> {
    let ask = Ask {
        operation: "describe_instance",
        value: id,
        ..Ask::default()
    };
    Ok(Raw::parse(&client.ask(ask).await?)?.text_of("run"))
}

async fn history(options: History) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&options.at).await?;
    let run = match (options.run, &options.id) {
        (Some(run), _) => run,
        (None, id) => run_of(&client, id.as_deref().unwrap_or_default()).await?,
    };
    if options.export {
        return exporting::export(&client, &run, &options.redact).await;
    }
    let events = pages(&client, ("history", &run), "events", &[], None, options.limit).await?;
    let shown = if options.timeline {
        show::timeline
    } else {
        show::events
    };
    write_list(&events, options.form, shown)?;
    Ok(Outcome::Complete)
}

async fn result(options: ResultOf) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&options.at).await?;
    // In a file no run advances.
    let waited = if client.is_closed() { 0 } else { options.wait };
    let mut left = Duration::from_secs(waited);
    loop {
        let wait = left.min(WAIT);
        left -= wait;
        let ask = Ask {
            operation: "result",
            value: &options.id,
            query: vec![("wait_ms", wait.as_millis().to_string())],
            wait,
            ..Ask::default()
        };
        let text = client.ask(ask).await?;
        let answer = Raw::parse(&text)?;
        let outcome = answer.text_of("outcome");
        if outcome == "running" && !left.is_zero() {
            continue;
        }
        write(&text, options.form, |answer| match &*outcome {
            "completed" => answer.text_of("result"),
            "parked" => format!(
                "parked: {}",
                answer
                    .get("reason")
                    .map_or_else(String::new, |reason| reason.text_of("message"))
            ),
            "running" => "running".to_owned(),
            "timed-out" => format!("timed out: its {} timeout has passed", answer.text_of("timeout")),
            _ => format!("{outcome}: {}", answer.text_of("message")),
        })?;
        return Ok(match &*outcome {
            "completed" => Outcome::Complete,
            "running" | "parked" => Outcome::Partial,
            _ => Outcome::Lost,
        });
    }
}

async fn start(options: Start) -> Result<Outcome, Box<dyn Error>> {
    let on_conflict = options.on_conflict.to_possible_value();
    let (workflow, input) = (text(&options.workflow), json(options.input)?);
    let on_conflict = text(on_conflict.as_ref().map_or("attach", |value| value.get_name()));
    let delay = options.delay.map(|Pause(micros)| (micros / 1_000).to_string());
    let start_at = options.start_at.map(|DateTime(micros)| micros.to_string());
    let mut fields = vec![
        ("workflow", &*workflow),
        ("input", &*input),
        ("on_conflict", &*on_conflict),
    ];
    fields.extend(delay.as_deref().map(|delay| ("delay_ms", delay)));
    fields.extend(start_at.as_deref().map(|at| ("start_at_us", at)));
    let retry = options.retry.map(|tries| {
        let pause_ms = options.retry_pause.map_or(1_000, |Pause(micros)| micros / 1_000);
        let pause_max_ms = pause_ms.max(60_000);
        object(&[
            ("attempts_max", &*tries.to_string()),
            ("first_pause_ms", &*pause_ms.to_string()),
            ("pause_max_ms", &*pause_max_ms.to_string()),
        ])
    });
    fields.extend(retry.as_deref().map(|retry| ("retry", retry)));
    let in_ms = |timeout: Option<Pause>| timeout.map(|Pause(micros)| (micros / 1_000).to_string());
    let (run_timeout, chain_timeout) = (in_ms(options.run_timeout), in_ms(options.chain_timeout));
    fields.extend(run_timeout.as_deref().map(|ms| ("run_timeout_ms", ms)));
    fields.extend(chain_timeout.as_deref().map(|ms| ("chain_timeout_ms", ms)));
    let body = object(&fields);
    let shown = |answer: &Raw| format!("{} {}", answer.text_of("id"), answer.text_of("run"));
    say("start", &options.id, body, &options.at, options.form, shown).await
}

async fn signal(
    Signal {
        say: options,
        request,
    }: Signal,
) -> Result<Outcome, Box<dyn Error>> {
    let (name, value) = (text(&options.name), json(options.value)?);
    let mut fields = vec![("name", &*name), ("value", &*value)];
    let request = request.as_deref().map(text);
    fields.extend(request.as_deref().map(|request| ("request", request)));
    let body = object(&fields);
    say("signal", &options.id, body, &options.at, options.form, recorded).await
}

async fn query(options: QueryOf) -> Result<Outcome, Box<dyn Error>> {
    let QueryOf { say, then } = options;
    let body = object(&[("name", &text(&say.name)), ("question", &*json(say.value)?)]);
    let ask = Ask {
        operation: "query",
        value: &say.id,
        query: then.query(),
        body: Some(body),
        ..Ask::default()
    };
    let answer = client(&say.at).await?.ask(ask).await?;
    write(&answer, say.form, |answer| answer.text_of("answer"))?;
    Ok(Outcome::Complete)
}

/// The given request id, or a new unique one.
fn request_or_own(request: Option<String>) -> String {
    request.unwrap_or_else(|| {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        format!("command-line-{}-{}", std::process::id(), since.as_nanos())
    })
}

async fn update(options: Update) -> Result<Outcome, Box<dyn Error>> {
    let request = request_or_own(options.request);
    let body = object(&[
        ("name", &text(&options.name)),
        ("request", &text(&request)),
        ("input", &*json(options.input)?),
    ]);
    say("update", &options.id, body, &options.at, options.form, |answer| {
        answer.text_of("answer")
    })
    .await
}

async fn end(operation: &str, options: End) -> Result<Outcome, Box<dyn Error>> {
    let body = object(&[("reason", &text(&options.reason))]);
    say(operation, &options.id, body, &options.at, options.form, recorded).await
}

async fn reset(options: Reset) -> Result<Outcome, Box<dyn Error>> {
    let (to_event, reason) = (options.to_event.to_string(), text(&options.reason));
    let keep_signals = options.keep_signals.to_string();
    let run = options.run.as_deref().map(text);
    let mut fields = vec![
        ("to_event", &*to_event),
        ("keep_signals", &*keep_signals),
        ("reason", &*reason),
    ];
    fields.extend(run.as_deref().map(|run| ("run", run)));
    let shown = |answer: &Raw| format!("goes on as run {}", answer.text_of("run"));
    say(
        "reset",
        &options.id,
        object(&fields),
        &options.at,
        options.form,
        shown,
    )
    .await
}

/// What was said is in the history.
fn recorded(_answer: &Raw) -> String {
    "recorded".to_owned()
}

async fn call(options: Call) -> Result<Outcome, Box<dyn Error>> {
    let query = options.query.iter().map(|parameter| {
        let wrong = || ClientError::Usage(format!("{parameter:?} is no NAME=VALUE"));
        let (name, value) = parameter.split_once('=').ok_or_else(wrong)?;
        Ok((name, value.to_owned()))
    });
    let ask = Ask {
        operation: &options.operation,
        value: options.value.as_deref().unwrap_or_default(),
        second: "",
        query: query.collect::<Result<_, ClientError>>()?,
        body: options.body.map(read).transpose()?,
        wait: WAIT,
    };
    tell(client(&options.at).await?.ask(ask).await?.trim_end())?;
    Ok(Outcome::Complete)
}

/// An argument, or standard input in its place.
fn read(argument: String) -> Result<String, ClientError> {
    if argument != "-" {
        return Ok(argument);
    }
    let mut text = String::new();
    let bytes_max = millrun_http::LINES_BYTES_MAX as u64 + 1;
    let read = std::io::stdin().take(bytes_max).read_to_string(&mut text);
    read.map_err(|error| ClientError::Usage(format!("standard input cannot be read: {error}")))?;
    Ok(text)
}

/// A value in JSON, its text as it is.
fn json(argument: String) -> Result<String, ClientError> {
    let text = read(argument)?;
    let checked = serde_json::from_str::<&RawValue>(&text).map(|value| value.get().to_owned());
    checked.map_err(|error| {
        ClientError::Usage(format!(
            "{text:?} is no JSON: {error}\ntry: quotes within quotes for a text, '\"{}\"'",
            text.trim()
        ))
    })
}

/// A text in JSON.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn object(fields: &[(&str, &str)]) -> String {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", fields.join(","))
}
