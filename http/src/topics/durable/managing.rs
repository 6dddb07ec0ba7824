//! An operator's operations on durable topics.

use millrun::topics::{
    DurableTopicError, PurgeBefore, RecordToken, RecordTokenError, SendBackError, TopicManageError,
    TopicReadError,
};
use millrun::{RunError, Runtime};

use crate::body::{PurgeBody, SendBackBody};
use crate::problem::Problem;
use crate::view::{Json, object};

/// Drops records of a topic.
pub(crate) async fn purge_topic(runtime: &Runtime, topic: &str, body: PurgeBody) -> Result<Json, Problem> {
    let before = match (body.before, body.token) {
        (None, None) => PurgeBefore::Now,
        (Some(number), None) => PurgeBefore::Number(number),
        (None, Some(token)) => PurgeBefore::Record(record_token(&token)?),
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

/// How many undelivered records one request sends back: by default, and at most.
const SENT_BACK: (usize, usize) = (100, 1_000);

/// Sends undelivered records back: one, or several of the topic.
pub(crate) async fn send_back(runtime: &Runtime, topic: &str, body: SendBackBody) -> Result<Json, Problem> {
    let not_declared = |error: DurableTopicError| Problem::new("no-topic", error.to_string());
    let undelivered = runtime.undelivered_topic(topic).map_err(not_declared)?;
    let SendBackBody { token, after, limit } = body;
    if let Some(token) = token {
        if after.is_some() || limit.is_some() {
            let detail = "a token is expected, or after and limit";
            return Err(Problem::new("invalid-body", detail));
        }
        let sent = undelivered.send_back_at(record_token(&token)?).await?;
        let count = |is_counted: bool| u64::from(is_counted).into();
        return Ok(object([
            ("sent_back", count(!sent.is_repeat())),
            ("repeats", count(sent.is_repeat())),
            ("passed_over", 0_u64.into()),
            ("next", Json::Null),
        ]));
    }
    let after = after.as_deref().map(record_token).transpose()?;
    let limit = limit.unwrap_or(SENT_BACK.0);
    if limit == 0 || limit > SENT_BACK.1 {
        return Err(Problem::new("invalid-body", "limit is from 1 to 1,000"));
    }
    let done = undelivered.send_back_behind(after, limit).await?;
    Ok(object([
        ("sent_back", done.sent_back.into()),
        ("repeats", done.repeats.into()),
        ("passed_over", done.passed_over.into()),
        ("next", done.next.map(|token| token.to_string()).into()),
    ]))
}

fn record_token(token: &str) -> Result<RecordToken, Problem> {
    let token: Result<RecordToken, RecordTokenError> = token.parse();
    token.map_err(|error| Problem::new("record-token", error.to_string()))
}

impl From<SendBackError> for Problem {
    fn from(error: SendBackError) -> Self {
        let told = error.to_string();
        match error {
            SendBackError::NoRecord { .. } => Self::new("no-undelivered-record", told),
            SendBackError::NotDeclared { .. } | SendBackError::Read(TopicReadError::Deleted) => {
                Self::new("no-topic", told)
            }
            SendBackError::From(error) => error.into(),
            SendBackError::Publish(error) => error.into(),
            SendBackError::Read(TopicReadError::Stopped(cause)) => RunError::Stopped(cause).into(),
            SendBackError::Read(_) => Self::new("read", told),
            _ => Self::new("unknown", told),
        }
    }
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
