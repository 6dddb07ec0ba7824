//! A JSON value in which fields keep their order and payloads their exact text.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use millrun::workflow::{Cause, OperationId, TraceContext};
use millrun::{InstanceId, Payload, RunId, Timestamp};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::value::RawValue;

use crate::Redaction;

/// A JSON value.
#[derive(Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(u64),
    Text(String),
    /// A text that is already JSON.
    Raw(Box<RawValue>),
    /// A payload: integers of 64 bits and the order of fields stay exact.
    Payload(Payload),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// A text that is already JSON.
    pub(crate) fn raw(json: String) -> Self {
        RawValue::from_string(json).map_or(Self::Null, Self::Raw)
    }

    /// The value as text.
    pub(crate) fn to_text(&self, redaction: &Redaction) -> String {
        let json = self;
        serde_json::to_string(&Shown { json, redaction }).expect("keys are text, and nothing in it refuses")
    }

    /// An answer with this text.
    pub(crate) fn respond(&self, redaction: &Redaction) -> Response {
        let mut response = Response::new(Body::from(self.to_text(redaction)));
        let media_type = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, media_type);
        response
    }
}

/// An object of these fields.
pub(crate) fn object<const N: usize>(fields: [(&'static str, Json); N]) -> Json {
    Json::Object(fields.into())
}

/// A list with the result for each item.
pub(crate) fn list<T>(items: impl IntoIterator<Item = T>, make: impl FnMut(T) -> Json) -> Json {
    Json::List(items.into_iter().map(make).collect())
}

/// A value that is being written.
struct Shown<'a> {
    json: &'a Json,
    redaction: &'a Redaction,
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let redaction = self.redaction;
        let shown = |json| Shown { json, redaction };
        match self.json {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(number) => serializer.serialize_u64(*number),
            Json::Text(text) => serializer.serialize_str(text),
            Json::Raw(value) => value.serialize(serializer),
            Json::Payload(payload) => shown(&readable(payload, redaction)).serialize(serializer),
            Json::List(items) => serializer.collect_seq(items.iter().map(shown)),
            Json::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, &shown(value))?;
                }
                map.end()
            }
        }
    }
}

/// A payload as an object with its value, or with the reason why JSON cannot express it.
fn readable(payload: &Payload, redaction: &Redaction) -> Json {
    let json = payload.to_json().map_err(|error| error.to_string());
    let raw = json.and_then(|json| {
        let shown = redaction.applied(&json).into_owned();
        RawValue::from_string(shown).map_err(|error| error.to_string())
    });
    match raw {
        Ok(raw) => object([("value", Json::Raw(raw))]),
        Err(why) => object([("unreadable", why.into())]),
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Json {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Json {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Timestamp> for Json {
    fn from(time: Timestamp) -> Self {
        Self::Number(time.as_micros())
    }
}

impl From<RunId> for Json {
    fn from(run: RunId) -> Self {
        Self::Text(run.to_string())
    }
}

impl From<&InstanceId> for Json {
    fn from(id: &InstanceId) -> Self {
        id.as_str().into()
    }
}

impl From<OperationId> for Json {
    fn from(operation: OperationId) -> Self {
        operation.get().into()
    }
}

impl From<Cause> for Json {
    fn from(cause: Cause) -> Self {
        object([("run", cause.run.into()), ("operation", cause.operation.into())])
    }
}

impl From<TraceContext> for Json {
    fn from(trace: TraceContext) -> Self {
        object([
            ("trace_id", trace.trace_id().to_string().into()),
            ("span_id", trace.span_id().to_string().into()),
            ("is_sampled", trace.is_sampled().into()),
        ])
    }
}

impl From<&Payload> for Json {
    fn from(payload: &Payload) -> Self {
        Self::Payload(payload.clone())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
