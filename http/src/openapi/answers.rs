//! Descriptions of the answers of operations, without errors.

use millrun::operating::RunStatus;
use utoipa::openapi::{Content, Response, ResponseBuilder};

use super::parameters::{record_token, run};
use super::schema::{
    Shape, either, flag, list, named, number, object, open_object, or_null, text, time, word,
};
use crate::exporting::JSON_LINES;
use crate::metrics::MEDIA_TYPE;
use crate::operations::Action;

/// The answers of an operation, by status.
pub(super) fn of(action: Action) -> Vec<(&'static str, Response)> {
    match action {
        Action::Events | Action::Output => vec![
            ("200", told("text/event-stream", text())),
            (
                "204",
                empty("the run has ended, and the client has seen the last of it"),
            ),
        ],
        Action::Tail | Action::Changes => vec![("200", told("text/event-stream", text()))],
        Action::Metrics => vec![("200", told(MEDIA_TYPE, text()))],
        Action::Starts | Action::ExportHistory => vec![("200", told(JSON_LINES, text()))],
        action => vec![("200", told("application/json", shape(action)))],
    }
}

fn told(media_type: &str, shape: Shape) -> Response {
    ResponseBuilder::new()
        .description("what was asked for")
        .content(media_type, Content::new(Some(shape)))
        .build()
}

fn empty(about: &str) -> Response {
    ResponseBuilder::new().description(about).build()
}

/// The schema of a JSON answer.
fn shape(action: Action) -> Shape {
    match action {
        Action::Live => object([("live", flag())]),
        Action::Ready => object([("ready", flag())]),
        Action::OpenApi => open_object([("openapi", text())]),
        Action::Catalogue => object([
            ("workflows", list(named("CatalogueWorkflow"))),
            ("activities", list(object([("name", text()), ("queue", text())]))),
            ("queues", list(text())),
            ("topics", list(text())),
            ("topic_filters", list(text())),
        ]),
        Action::Versions => object([("versions", list(named("WorkflowVersion")))]),
        Action::Instances => object([
            ("instances", list(named("InstanceSummary"))),
            ("next", or_null(text())),
        ]),
        Action::Finished => object([("runs", list(named("FinishedRun"))), ("next", or_null(text()))]),
        Action::Find => object([
            ("runs", list(named("RunSummary"))),
            ("unreadable", number()),
            ("next", or_null(text())),
        ]),
        Action::Counts => object([
            ("workflows", list(named("WorkflowCounts"))),
            ("others", named("WorkflowCounts")),
            ("bulks_running", number()),
        ]),
        Action::Stats => named("Stats"),
        Action::Past => object([
            ("now_us", time()),
            ("every_us", number()),
            ("samples", list(named("PastSample"))),
        ]),
        Action::Parts => object([(
            "parts",
            list(object([
                ("name", text()),
                ("is_running", flag()),
                ("restarts", number()),
            ])),
        )]),
        Action::Topology => open_object([]),
        Action::DescribeInstance | Action::DescribeRun => named("Description"),
        Action::Why | Action::WhyRun => named("Why"),
        Action::TraceInstance | Action::TraceRun | Action::TraceRecord => named("TracePage"),
        Action::History => object([
            ("run", run()),
            ("head", number()),
            ("trimmed_before", or_null(number())),
            ("events", list(named("Event"))),
            ("next", or_null(text())),
        ]),
        Action::Outputs => object([(
            "streams",
            list(object([
                ("name", text()),
                ("durable", flag()),
                ("sent_to", flag()),
            ])),
        )]),
        Action::Result | Action::ResultOfRun => open_object([
            ("run", run()),
            (
                "outcome",
                word([
                    "running",
                    "parked",
                    "completed",
                    "failed",
                    "cancelled",
                    "terminated",
                    "timed-out",
                ]),
            ),
        ]),
        Action::Topics => object([
            (
                "topics",
                list(object([
                    ("name", text()),
                    ("payload", text()),
                    ("published", number()),
                ])),
            ),
            ("durable", list(named("DurableTopic"))),
        ]),
        Action::Records => object([
            ("records", list(named("Record"))),
            (
                "gaps",
                list(object([
                    ("after", number()),
                    ("lost", number()),
                    ("why", word(["dropped", "damaged"])),
                    ("detail", text()),
                ])),
            ),
            ("next", or_null(text())),
        ]),
        Action::Subscriptions => object([
            ("next", or_null(text())),
            ("subscriptions", list(named("DurableSubscription"))),
        ]),
        Action::Publish => either(
            object([("envelope", text()), ("delivered", number())]),
            object([
                ("token", record_token()),
                ("sequence", number()),
                ("is_repeat", flag()),
            ]),
        ),
        Action::PurgeTopic => object([("purged", number()), ("first", number())]),
        Action::DeleteTopic => object([("deleted", number()), ("subscriptions", number())]),
        Action::RemoveSubscription => object([("removed", flag())]),
        Action::ReleaseKey => object([("released", flag())]),
        Action::SendBack => object([
            ("sent_back", number()),
            ("repeats", number()),
            ("passed_over", number()),
            ("next", or_null(record_token())),
        ]),
        Action::Entities => object([
            (
                "entities",
                list(object([
                    ("key", text()),
                    ("id", text()),
                    ("run", run()),
                    ("status", word(RunStatus::ALL.map(RunStatus::name))),
                    ("begun_at_us", time()),
                ])),
            ),
            ("unreadable", number()),
            ("next", or_null(text())),
        ]),
        Action::EntityDelete => object([("deleted", flag())]),
        Action::Query | Action::Update | Action::EntityRead | Action::EntityCommand => {
            object([("answer", named("Payload"))])
        }
        Action::Start | Action::StartByKey => object([
            ("id", text()),
            ("run", or_null(run())),
            ("history", or_null(text())),
        ]),
        Action::Reset => object([("run", run())]),
        Action::Signal
        | Action::Cancel
        | Action::Terminate
        | Action::Pause
        | Action::Resume
        | Action::SchedulePause
        | Action::ScheduleResume
        | Action::ScheduleBackfill
        | Action::BulkStop => object([("recorded", flag())]),
        Action::Bulks => object([("bulks", list(named("BulkSummary"))), ("next", or_null(text()))]),
        Action::Bulk => named("Bulk"),
        Action::Schedules => object([
            ("schedules", list(named("ScheduleSummary"))),
            ("next", or_null(text())),
        ]),
        Action::Schedule => named("Schedule"),
        Action::ScheduleMake => object([("made", flag())]),
        Action::ScheduleUpdate => object([("updated", flag())]),
        Action::ScheduleTrigger => object([("id", text())]),
        Action::ScheduleDelete => object([("deleted", flag())]),
        Action::Store => object([
            ("path", text()),
            ("file_bytes", number()),
            ("log_bytes", number()),
            ("live_bytes", number()),
            ("format", number()),
            ("live_runs", number()),
            ("parked_runs", number()),
            ("finished_runs", number()),
            ("was_repaired", flag()),
            ("was_index_rebuilt", flag()),
            ("damaged", list(text())),
            ("is_compacting", flag()),
            ("compactions", number()),
        ]),
        Action::StoreVerify => object([
            ("records", number()),
            ("bytes", number()),
            ("trimmed_runs", number()),
            ("is_sound", flag()),
            ("damaged", list(text())),
        ]),
        Action::StoreBackup => object([("path", text())]),
        Action::StoreExport => object([("path", text()), ("runs", number()), ("records", number())]),
        Action::StoreCompact => object([("begun", flag())]),
        Action::BulkStart => object([
            ("name", or_null(text())),
            ("bulk", or_null(text())),
            ("selected", or_null(number())),
            ("reached", or_null(number())),
        ]),
        Action::Session => object([("role", word(["anonymous", "reader", "operator"]))]),
        Action::Events
        | Action::Output
        | Action::Tail
        | Action::Changes
        | Action::Metrics
        | Action::ExportHistory
        | Action::Starts => text(),
    }
}
