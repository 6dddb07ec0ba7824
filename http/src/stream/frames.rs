//! The text of server-sent events, as in the HTML standard (section 9.2.6).

use std::fmt::{Display, Write as _};

use crate::Redaction;
use crate::problem::Problem;
use crate::view::{Json, object};

/// Some events, written one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Frames(String);

impl Frames {
    /// A comment, which clients ignore.
    pub(crate) fn heartbeat() -> Self {
        Self(":\n\n".to_owned())
    }

    /// Adds a message in JSON. A client that resumes with its id continues behind it.
    pub(crate) fn message(&mut self, id: &dyn Display, json: &str) {
        self.id(id);
        self.data(json);
    }

    /// Adds an id: a client that resumes with it continues behind what follows.
    pub(crate) fn id(&mut self, id: &dyn Display) {
        self.field("id", id);
    }

    /// Adds an event that is not a message, and has no payload.
    pub(crate) fn event(&mut self, kind: &str, data: &Json) {
        self.field("event", &kind);
        self.data(&data.to_text(&Redaction::everything()));
    }

    /// Adds the event that tells how many messages are missing.
    pub(crate) fn gap(&mut self, lost: Json) {
        self.event("gap", &object([("lost", lost)]));
    }

    /// Adds the event that ends a stream early, with the reason.
    pub(crate) fn problem(&mut self, problem: Problem) {
        self.event("problem", &problem.into_json());
    }

    fn data(&mut self, json: &str) {
        // JSON may have line breaks between its parts, which mean the same as spaces. For the client of a stream, a carriage
        // return alone is a line break too.
        for line in json.split(['\n', '\r']).filter(|line| !line.is_empty()) {
            self.field("data", &line);
        }
        self.0.push('\n');
    }

    fn field(&mut self, name: &str, value: &dyn Display) {
        writeln!(self.0, "{name}: {value}").expect("writing to a text does not fail");
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: what followed a carriage return was a line without a field for the client, which so had half of the JSON.
    #[test]
    fn json_is_whole_however_its_lines_end() {
        let mut frames = Frames::default();
        frames.message(&7, "[\r1,\n\r2,\r\n3]");
        assert_eq!(
            frames.into_text(),
            "id: 7\ndata: [\ndata: 1,\ndata: 2,\ndata: 3]\n\n"
        );
    }

    #[test]
    fn an_event_has_its_fields_on_lines_of_their_own_and_an_empty_line_behind() {
        let mut frames = Frames::default();
        frames.message(&7, "{\n\"b\":\r\n1}");
        frames.event("end", &object([("a", "x\ny".into())]));
        assert_eq!(
            frames.into_text(),
            "id: 7\ndata: {\ndata: \"b\":\ndata: 1}\n\nevent: end\ndata: {\"a\":\"x\\ny\"}\n\n"
        );
    }
}
