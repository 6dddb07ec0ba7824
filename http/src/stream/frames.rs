//! The text of server-sent events, as the HTML standard has it (section 9.2.6).

use std::fmt::{Display, Write as _};

use crate::problem::Problem;
use crate::view::Json;

/// Some events, written one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Frames(String);

impl Frames {
    /// A comment, which clients pass over.
    pub(crate) fn heartbeat() -> Self {
        Self(":\n\n".to_owned())
    }

    /// Adds an event. A client that resumes behind it names its `id`; one of no `kind` is a message.
    pub(crate) fn event(&mut self, id: Option<&dyn Display>, kind: Option<&str>, data: &Json) {
        if let Some(id) = id {
            self.field("id", id);
        }
        if let Some(kind) = kind {
            self.field("event", &kind);
        }
        // JSON may have line breaks between its parts, which are the same as spaces there.
        for line in data.to_text().lines() {
            self.field("data", &line);
        }
        self.0.push('\n');
    }

    /// Adds the event that ends a stream early, and says why.
    pub(crate) fn problem(&mut self, problem: Problem) {
        self.event(None, Some("problem"), &problem.into_json());
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
    use crate::view::object;

    #[test]
    fn an_event_has_its_fields_on_lines_of_their_own_and_an_empty_line_behind() {
        let mut frames = Frames::default();
        frames.event(Some(&7), None, &object([("a", "x\ny".into())]));
        frames.event(None, Some("end"), &Json::raw("{\n\"b\":\r\n1}".to_owned()));
        assert_eq!(
            frames.into_text(),
            "id: 7\ndata: {\"a\":\"x\\ny\"}\n\nevent: end\ndata: {\ndata: \"b\":\ndata: 1}\n\n"
        );
    }
}
