//! Parameters of operations: in the path, in the query, and in headers.

use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};

use super::schema::{Shape, number, number_between, pattern, text, text_of, word};
use crate::Operation;
use crate::operations::Action;

/// The parameters of an operation.
pub(super) fn of(operation: &Operation) -> Vec<Parameter> {
    let mut all: Vec<_> = operation.path.split('/').filter_map(in_path).collect();
    match operation.action {
        Action::Instances => all.extend([
            behind("after", text_of(1, 255), "the id behind which the page begins"),
            limit(),
        ]),
        Action::Finished => all.extend([
            behind("after", run(), "the run behind which the page begins"),
            limit(),
        ]),
        Action::Past => all.push(behind(
            "after",
            number(),
            "the time behind which it begins, in microseconds since 1970",
        )),
        Action::DescribeInstance | Action::DescribeRun | Action::Query => all.push(behind(
            "at",
            number_between(1, u64::MAX),
            "the number of an event: the run as it was behind that, with whether its code fits up to there (`fit`)",
        )),
        Action::History => all.extend([
            behind("after", number(), "the number behind which the page begins"),
            limit(),
        ]),
        Action::Find => {
            let times = [
                (
                    "started_from_us",
                    "began at this time or later, in microseconds since 1970",
                ),
                ("started_until_us", "began before this time"),
                ("ended_from_us", "ended at this time or later"),
                ("ended_until_us", "ended before this time"),
            ];
            all.extend([
                behind("workflow", text(), "the workflow of the runs"),
                behind(
                    "status",
                    text(),
                    "what they do or how they ended; several, with commas",
                ),
                behind("id_prefix", text(), "how the ids of their instances begin"),
            ]);
            all.extend(times.map(|(name, about)| behind(name, number(), about)));
            all.extend([cursor(), limit()]);
        }
        Action::Entities => all.extend([behind("prefix", text(), "how the keys begin"), cursor(), limit()]),
        Action::Bulks | Action::Schedules => all.extend([cursor(), limit()]),
        Action::Events | Action::Output | Action::Tail | Action::Changes => {
            all.extend([
                behind(
                    "after",
                    text(),
                    "the id of a message behind which the stream begins",
                ),
                behind("limit", number_between(1, u64::MAX), "how many messages it has"),
                header("Last-Event-ID", text(), "as after, and counts more"),
            ]);
            if matches!(operation.action, Action::Tail) {
                all.push(from("now"));
            }
        }
        Action::Records => all.extend([
            behind(
                "after",
                record_token(),
                "the token of the record behind which the page begins",
            ),
            from("beginning"),
            limit(),
        ]),
        Action::Subscriptions => all.extend([
            behind("after", text(), "the name behind which the page begins"),
            limit(),
        ]),
        Action::TraceInstance => all.extend(traced()),
        Action::TraceRun => {
            let about = "an operation of the run, in place of all of it";
            all.push(behind("operation", number_between(0, u32::MAX.into()), about));
            all.extend(traced());
        }
        Action::TraceRecord => {
            all.extend([
                behind("token", record_token(), "the token of the record"),
                behind("sequence", number(), "its number, in place of the token"),
                behind(
                    "id",
                    text(),
                    "the id under which it was published, in place of both",
                ),
            ]);
            all.extend(traced());
        }
        Action::Result | Action::ResultOfRun | Action::Publish => {
            let wait = number_between(0, 60_000);
            all.push(behind("wait_ms", wait, "how long the answer may wait"));
        }
        _ => {}
    }
    match operation.action {
        Action::Start
        | Action::StartByKey
        | Action::Publish
        | Action::Signal
        | Action::Update
        | Action::EntityCommand
        | Action::ScheduleTrigger
        | Action::ScheduleBackfill
        | Action::BulkStart => {
            let about = "sent again with the same key, the request has no second effect";
            all.push(header("Idempotency-Key", pattern("^[!#-~]{1,255}$"), about));
        }
        _ => {}
    }
    if matches!(
        operation.action,
        Action::Start | Action::StartByKey | Action::Starts | Action::Publish
    ) {
        let about =
            "the caller's place in a distributed trace (W3C Trace Context); passed over if it is none";
        all.push(header("traceparent", text(), about));
    }
    all
}

/// An id of a run.
pub(super) fn run() -> Shape {
    pattern("^0[0-3][0-9a-f]{30}$")
}

/// A token of a record.
pub(super) fn record_token() -> Shape {
    pattern("^[A-Za-z0-9+/]{28}$")
}

fn from(default: &str) -> Parameter {
    let about = format!(
        "where in a durable topic it begins ({default}): beginning, now, last:N for the last N records, a time in microseconds since 1970, or a token of a record"
    );
    behind("from", text(), &about)
}

fn in_path(part: &str) -> Option<Parameter> {
    let (name, shape, about) = match part {
        "{id}" => ("id", text_of(1, 255), "the id of an instance"),
        "{run}" => ("run", run(), "a run"),
        "{name}" => ("name", text_of(1, 242), "the name of a bulk"),
        "{schedule}" => ("schedule", text_of(1, 160), "the id of a schedule"),
        "{stream}" => ("stream", text_of(1, 255), "the name of an output stream"),
        "{entity}" => ("entity", text_of(1, 255), "the name of an entity"),
        "{key}" => ("key", text_of(1, 255), "the key of one"),
        "{topic}" => ("topic", text_of(1, 255), "the name of a topic"),
        _ => return None,
    };
    let parameter = parameter(name, ParameterIn::Path, shape, about);
    Some(parameter.required(Required::True).build())
}

fn behind(name: &str, shape: Shape, about: &str) -> Parameter {
    parameter(name, ParameterIn::Query, shape, about).build()
}

fn header(name: &str, shape: Shape, about: &str) -> Parameter {
    parameter(name, ParameterIn::Header, shape, about).build()
}

fn cursor() -> Parameter {
    let form = pattern("^(l|f)(0[0-3][0-9a-f]{30})?$");
    behind("after", form, "the cursor of the page")
}

/// The parameters for pages of a trace.
fn traced() -> [Parameter; 3] {
    let form = pattern("^(e[0-9]+[.][0-9]+|k[0-9]+|r((l|f)(0[0-3][0-9a-f]{30})?)?)$");
    let directions = word(["causes", "effects"]);
    [
        behind("direction", directions, "the links of one direction alone"),
        behind("after", form, "the cursor of the page"),
        limit(),
    ]
}

fn limit() -> Parameter {
    behind(
        "limit",
        number_between(1, 1_000),
        "how many there are on the page",
    )
}

fn parameter(name: &str, place: ParameterIn, shape: Shape, about: &str) -> ParameterBuilder {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(Required::False)
        .description(Some(about))
        .schema(Some(shape))
}
