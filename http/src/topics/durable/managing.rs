//! What an operator does to durable topics.

use millrun::topics::{PurgeBefore, RecordToken, RecordTokenError, TopicManageError};
use millrun::{RunError, Runtime};

use crate::body::PurgeBody;
use crate::problem::Problem;
use crate::view::{Json, object};

/// Drops records of a topic.
pub(crate) async fn purge_topic(runtime: &Runtime, topic: &str, body: PurgeBody) -> Result<Json, Problem> {
    let before = match (body.before, body.token) {
        (None, None) => PurgeBefore::Now,
        (Some(number), None) => PurgeBefore::Number(number),
        (None, Some(token)) => {
            let token: Result<RecordToken, _> = token.parse();
            let token =
                token.map_err(|error: RecordTokenError| Problem::new("record-token", error.to_string()));
            PurgeBefore::Record(token?)
        }
        (Some(_), Some(_)) => {
            let detail = "one of before and token is expected, or neither";
            return Err(Problem::new("invalid-body", detail));
        }
    };
    let purged = runtime.purge_durable_topic(topic, before).await?;
    Ok(object([
        ("purged", purged.count.into()),
        ("first", purged.first.into()),
    ]))
}

/// Deletes a topic.
pub(crate) async fn delete_topic(runtime: &Runtime, topic: &str) -> Result<Json, Problem> {
    let deleted = runtime.delete_durable_topic(topic).await?;
    Ok(object([
        ("deleted", deleted.count.into()),
        ("subscriptions", deleted.subscriptions.into()),
    ]))
}

impl From<TopicManageError> for Problem {
    fn from(error: TopicManageError) -> Self {
        let told = error.to_string();
        match error {
            TopicManageError::Unknown { .. } => Self::new("no-topic", told),
            TopicManageError::NoSubscription { .. } => Self::new("no-subscription", told),
            TopicManageError::OtherStore => Self::new("other-store", told),
            TopicManageError::OtherTopic => Self::new("other-topic", told),
            TopicManageError::Stopped(cause) => RunError::Stopped(cause).into(),
            _ => Self::new("unknown", told),
        }
    }
}
