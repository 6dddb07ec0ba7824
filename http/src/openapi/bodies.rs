//! Bodies of requests, as `body.rs` reads them.

use super::schema::{Shape, anything, flag, sent, text, text_of, word};
use crate::operations::Action;

/// The body of an operation; of one with lines, a line.
pub(super) fn of(action: Action) -> Shape {
    match action {
        Action::Session => sent([], [("end", flag())]),
        Action::Query => sent([("name", name())], [("question", anything())]),
        Action::Publish => sent([], [("value", anything()), ("key", text())]),
        Action::Start => sent([("workflow", name())], [("input", anything()), conflict()]),
        Action::StartByKey => sent(
            [("workflow", name())],
            [("id", name()), ("input", anything()), conflict()],
        ),
        Action::Starts => sent(
            [("id", name()), ("workflow", name())],
            [("input", anything()), conflict()],
        ),
        Action::Signal => sent([("name", name())], [("value", anything()), ("request", name())]),
        Action::Update => sent([("name", name())], [("request", name()), ("input", anything())]),
        Action::Cancel | Action::Terminate | Action::Pause => sent([("reason", text())], []),
        _ => sent([], []),
    }
}

fn name() -> Shape {
    text_of(1, 255)
}

fn conflict() -> (&'static str, Shape) {
    ("on_conflict", word(["attach", "refuse", "restart-finished"]))
}
