//! What a reader of a durable topic returned, in the form for clients.

use millrun::RunError;
use millrun::topics::{RecordToken, TopicReadError};

use super::carried::EncodedRead;
use crate::problem::Problem;
use crate::view::{Json, object, record, unreadable_record};

/// What is at the next place of a topic.
pub(super) enum ToldRead {
    Record {
        /// The record's token as text.
        token: String,
        json: Json,
        /// The size of its encoded payload.
        bytes: usize,
    },
    /// Records that cannot be read any more.
    Gap(RecordGap),
    /// The read cannot continue.
    Over(Problem),
}

/// Missing records.
pub(super) struct RecordGap {
    /// The number of the last record before the gap.
    after: u64,
    lost: u64,
    /// `dropped` by retention, or `damaged`.
    why: &'static str,
    detail: String,
}

impl RecordGap {
    pub(super) fn to_json(&self) -> Json {
        object([
            ("after", self.after.into()),
            ("lost", self.lost.into()),
            ("why", self.why.into()),
            ("detail", self.detail.as_str().into()),
        ])
    }
}

/// Converts the result of a read behind this record.
pub(super) fn told(behind: Option<RecordToken>, read: EncodedRead) -> ToldRead {
    let error = match read {
        Ok(read) => {
            return ToldRead::Record {
                token: read.token().to_string(),
                bytes: read.payload().len(),
                json: record(&read),
            };
        }
        Err(error) => error,
    };
    let detail = error.to_string();
    let gap = |lost, why, detail| {
        let after = behind.map_or(0, |token| token.sequence().get());
        ToldRead::Gap(RecordGap {
            after,
            lost,
            why,
            detail,
        })
    };
    match error {
        TopicReadError::Dropped { count } => gap(count, "dropped", detail),
        TopicReadError::Damaged { count: 0, cause } => ToldRead::Over(Problem::new("damaged", cause)),
        TopicReadError::Damaged { count, .. } => gap(count, "damaged", detail),
        TopicReadError::Undecodable { token, problem } => ToldRead::Record {
            token: token.to_string(),
            json: unreadable_record(token, &problem),
            bytes: 0,
        },
        TopicReadError::Deleted => ToldRead::Over(Problem::new("no-topic", detail)),
        TopicReadError::Stopped(cause) => ToldRead::Over(RunError::Stopped(cause).into()),
        _ => ToldRead::Over(Problem::new("unknown", detail)),
    }
}

#[cfg(test)]
mod tests {
    use millrun::StopCause;

    use super::*;
    use crate::Redaction;

    #[test]
    fn what_is_missing_is_told_with_its_number_and_what_ends_a_topic_as_a_problem() {
        let token: RecordToken = "AQAAAAAAAAAHAAAAAQAAAAAAAAAD".parse().unwrap();
        let cause = || "a bad disk".to_owned();
        for (error, expected) in [
            (TopicReadError::Dropped { count: 7 }, "dropped 7 behind 3"),
            (
                TopicReadError::Damaged {
                    count: 2,
                    cause: cause(),
                },
                "damaged 2 behind 3",
            ),
            (
                TopicReadError::Damaged {
                    count: 0,
                    cause: cause(),
                },
                "damaged",
            ),
            (TopicReadError::Deleted, "no-topic"),
            (TopicReadError::Stopped(StopCause::Shutdown), "stopped"),
        ] {
            let told = match told(Some(token), Err(error)) {
                ToldRead::Gap(RecordGap { after, lost, why, .. }) => format!("{why} {lost} behind {after}"),
                ToldRead::Over(problem) => problem.code().to_owned(),
                ToldRead::Record { .. } => panic!("there is none"),
            };
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn a_record_that_cannot_be_decoded_is_told_at_its_place() {
        let token: RecordToken = "AQAAAAAAAAAHAAAAAQAAAAAAAAAD".parse().unwrap();
        let problem = "no header".to_owned();
        let undecodable = TopicReadError::Undecodable { token, problem };
        let ToldRead::Record { token: id, json, .. } = told(None, Err(undecodable)) else {
            panic!("it has its place");
        };
        let json = json.to_text(&Redaction::default());
        assert!(
            id == token.to_string() && json.contains(r#""unreadable":"no header""#),
            "{json}"
        );
    }
}
