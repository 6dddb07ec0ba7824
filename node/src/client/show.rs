//! Answers as a person reads them.

use super::raw::Raw;
use super::time::{date_and_time, duration};
use super::top::more;
use crate::table::{Table, on_one_line};

/// How wide a bar of a timeline is.
const BAR_WIDTH: u64 = 40;

/// Live instances.
pub(super) fn instances(items: &[Raw]) -> String {
    let mut table = Table::of(["id", "workflow", "status", "run"]);
    for item in items {
        table.row(["id", "workflow", "status", "run"].map(|name| item.text_of(name)));
    }
    table.to_string()
}

/// Finished runs.
pub(super) fn finished(items: &[Raw]) -> String {
    let mut table = Table::of(["id", "ended at (UTC)", "events", "run"]);
    for item in items {
        let ended = item
            .number_of("ended_at_us")
            .map_or_else(String::new, date_and_time);
        table.row([
            item.text_of("id"),
            ended,
            item.text_of("sequence"),
            item.text_of("run"),
        ]);
    }
    table.to_string()
}

/// Counts by workflow.
pub(super) fn counts(counts: &Raw) -> String {
    counts_up_to(counts, usize::MAX)
}

/// The same of so many workflows at most; the others are counted.
pub(super) fn counts_up_to(counts: &Raw, rows_max: usize) -> String {
    const HEAD: [&str; 12] = [
        "workflow",
        "running",
        "parked",
        "paused",
        "delayed",
        "not_registered",
        "completed",
        "failed",
        "cancelled",
        "terminated",
        "timed_out",
        "continued",
    ];
    let mut table = Table::of(HEAD);
    let workflows = counts.list_of("workflows");
    for item in workflows.iter().take(rows_max) {
        table.row(HEAD.map(|name| item.text_of(name)));
    }
    format!("{table}{}", more(workflows.len(), rows_max))
}

/// Runs at the ends of a store, each with what it is there.
pub(super) fn ends(runs: &[(&str, &Raw)]) -> String {
    let mut table = Table::of(["which", "id", "workflow", "began at (UTC)", "ended at (UTC)"]);
    for (which, run) in runs {
        let time = |name| run.number_of(name).map_or_else(String::new, date_and_time);
        table.row([
            which.replace('_', " "),
            run.text_of("id"),
            run.text_of("workflow"),
            time("started_at_us"),
            time("ended_at_us"),
        ]);
    }
    table.to_string()
}

/// Runs that a filter has found.
pub(super) fn found(items: &[Raw]) -> String {
    let mut table = Table::of([
        "id",
        "workflow",
        "status",
        "began at (UTC)",
        "ended at (UTC)",
        "run",
    ]);
    for item in items {
        let time = |name| item.number_of(name).map_or_else(String::new, date_and_time);
        let [id, workflow, status, run] = ["id", "workflow", "status", "run"].map(|name| item.text_of(name));
        table.row([
            id,
            workflow,
            status,
            time("started_at_us"),
            time("ended_at_us"),
            run,
        ]);
    }
    table.to_string()
}

/// The fields of an object, a line each; those that are null or empty are left out, and lists follow as tables.
pub(super) fn fields(object: &Raw) -> String {
    let (mut lines, mut lists) = (Vec::new(), Vec::new());
    collect(object, "", &mut lines, &mut lists);
    let width = lines
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let mut all: Vec<_> = lines
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}"))
        .collect();
    for (name, items) in lists {
        all.push(format!("{name}:"));
        all.extend(items.iter().map(|item| format!("  {}", details(item, &[]))));
    }
    all.join("\n")
}

fn collect(
    object: &Raw,
    prefix: &str,
    lines: &mut Vec<(String, String)>,
    lists: &mut Vec<(String, Vec<Raw>)>,
) {
    for (name, value) in object.object().0 {
        let name = format!("{prefix}{name}");
        let items = value.list();
        if !items.is_empty() {
            lists.push((name, items));
        } else if !value.object().0.is_empty() {
            collect(&value, &format!("{name}."), lines, lists);
        } else if !["null", "[]", "{}"].contains(&value.json()) {
            lines.push(shown_field(&name, &value));
        }
    }
}

/// A field; the microseconds of a time are shown as a time.
fn shown_field(name: &str, value: &Raw) -> (String, String) {
    let time = name
        .strip_suffix("_us")
        .filter(|name| name.ends_with("_at") || TIMES.contains(name));
    match (time, value.json().parse()) {
        (Some(name), Ok(micros)) => (name.to_owned(), date_and_time(micros)),
        _ => (name.to_owned(), on_one_line(&value.text())),
    }
}

/// Times whose names do not end with `_at`.
const TIMES: [&str; 9] = [
    "since",
    "parked_since",
    "until",
    "deadline",
    "start_by",
    "filter.started_from",
    "filter.started_until",
    "filter.ended_from",
    "filter.ended_until",
];

/// All fields of an object but these, on one line.
fn details(item: &Raw, without: &[&str]) -> String {
    let fields = item.object().0;
    if fields.is_empty() {
        return on_one_line(&item.text());
    }
    let fields = fields.into_iter().filter(|(name, value)| {
        !without.contains(&name.as_str()) && !["null", "[]", "{}"].contains(&value.json())
    });
    let shown = fields.map(|(name, value)| {
        let (name, value) = shown_field(&name, &value);
        format!("{name}={value}")
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The events of a history.
pub(super) fn events(events: &[Raw]) -> String {
    let mut table = Table::of(["event", "at (UTC)", "kind", "what"]);
    for event in events {
        table.row(event_row(event));
    }
    table.to_string()
}

/// One event, as it comes.
pub(super) fn event(event: &Raw) -> String {
    let [sequence, at, kind, what] = event_row(event);
    on_one_line(&format!("{sequence:>6}  {at}  {kind:24}  {what}"))
}

/// One message of a topic, as it comes.
pub(super) fn message(message: &Raw) -> String {
    let at = message.number_of("at_us").map_or_else(String::new, date_and_time);
    let (key, payload) = (message.text_of("key"), message.text_of("payload"));
    on_one_line(format!("{at}  {key}  {payload}").trim_end())
}

/// One chunk of an output stream, as it comes.
pub(super) fn chunk(chunk: &Raw) -> String {
    let [operation, attempt, chunk] = ["operation", "attempt", "chunk"].map(|name| chunk.text_of(name));
    on_one_line(&format!("{operation}.{attempt}  {chunk}"))
}

/// What has become of a run or a part.
pub(super) fn change(change: &Raw) -> String {
    let at = change.number_of("at_us").map_or_else(String::new, date_and_time);
    let kind = change.text_of("kind");
    let rest = match &*kind {
        "part-failed" => details(change, &["at_us", "kind"]),
        _ => {
            let what = [change.text_of("status"), change.text_of("reason")];
            let what: Vec<_> = what.into_iter().filter(|text| !text.is_empty()).collect();
            let (id, workflow) = (change.text_of("id"), change.text_of("workflow"));
            format!("{id}  {workflow}  {}", what.join(": "))
        }
    };
    on_one_line(format!("{at}  {kind:8}  {rest}").trim_end())
}

fn event_row(event: &Raw) -> [String; 4] {
    let at = event.number_of("at_us").map_or_else(String::new, date_and_time);
    let what = details(event, &["sequence", "at_us", "kind"]);
    [event.text_of("sequence"), at, event.text_of("kind"), what]
}

/// One operation of a run.
struct Span {
    operation: String,
    what: String,
    from: u64,
    to: u64,
    events: u64,
}

/// The operations of a history with their times.
pub(super) fn timeline(events: &[Raw]) -> String {
    let at = |event: &Raw| event.number_of("at_us").unwrap_or(0);
    let begun = events.first().map_or(0, at);
    let ended = events.last().map_or(0, at);
    let mut spans: Vec<Span> = Vec::new();
    for event in events {
        let operation = event.text_of("operation");
        match spans
            .iter_mut()
            .find(|span| !operation.is_empty() && span.operation == operation)
        {
            Some(span) => {
                span.to = at(event);
                span.events += 1;
            }
            None => spans.push(Span {
                operation,
                what: what(event),
                from: at(event),
                to: at(event),
                events: 1,
            }),
        }
    }
    let whole = ended.saturating_sub(begun).max(1);
    let place = |time: u64| time.saturating_sub(begun).saturating_mul(BAR_WIDTH) / whole;
    let mut table = Table::of(["after", "took", "events", "what", "when"]);
    for span in spans {
        let (from, to) = (place(span.from), place(span.to));
        let bar: String = (0..=BAR_WIDTH)
            .map(|column| if (from..=to).contains(&column) { '=' } else { '.' })
            .collect();
        table.row([
            duration(span.from.saturating_sub(begun)),
            duration(span.to.saturating_sub(span.from)),
            span.events.to_string(),
            span.what,
            bar,
        ]);
    }
    table.to_string()
}

/// What an event is about, in a few words.
fn what(event: &Raw) -> String {
    let names = ["activity", "workflow", "topic", "name", "id"];
    let named = names
        .iter()
        .map(|name| event.text_of(name))
        .filter(|text| !text.is_empty());
    let named: Vec<_> = named.collect();
    format!("{} {}", event.text_of("kind"), named.join(" "))
        .trim_end()
        .to_owned()
}

/// The parts of a runtime.
pub(super) fn parts(answer: &Raw) -> String {
    let mut table = Table::of(["part", "running", "restarts"]);
    for part in answer.list_of("parts") {
        table.row(["name", "is_running", "restarts"].map(|name| part.text_of(name)));
    }
    table.to_string()
}

/// The versions of workflows.
pub(super) fn versions(answer: &Raw) -> String {
    let mut table = Table::of(["workflow", "version", "live", "parked", "policy", "code"]);
    for version in answer.list_of("versions") {
        let is_so = |name: &str| version.text_of(name) == "true";
        let code = match (is_so("is_registered"), is_so("is_newest"), is_so("is_deletable")) {
            (false, ..) => "not registered",
            (true, true, _) => "newest",
            (true, false, true) => "can be deleted",
            (true, false, false) => "registered",
        };
        let [workflow, number, live, parked, policy] =
            ["workflow", "version", "live", "parked", "policy"].map(|name| version.text_of(name));
        table.row([workflow, number, live, parked, policy, code.to_owned()]);
    }
    table.to_string()
}

/// What is registered.
pub(super) fn catalogue(answer: &Raw) -> String {
    let joined = |item: &Raw, name: &str| {
        let all: Vec<_> = item.list_of(name).iter().map(Raw::text).collect();
        all.join(" ")
    };
    let mut workflows = Table::of(["workflow", "input", "result", "queries", "updates"]);
    for item in answer.list_of("workflows") {
        let [name, input, result] = ["name", "input", "result"].map(|name| item.text_of(name));
        workflows.row([
            name,
            input,
            result,
            joined(&item, "queries"),
            joined(&item, "updates"),
        ]);
    }
    let mut activities = Table::of(["activity", "queue"]);
    for item in answer.list_of("activities") {
        activities.row(["name", "queue"].map(|name| item.text_of(name)));
    }
    let others =
        ["queues", "topics", "topic_filters"].map(|name| format!("{name}: {}", joined(answer, name)));
    format!("{workflows}\n\n{activities}\n\n{}", others.join("\n"))
}
