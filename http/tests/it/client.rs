//! A client of streams.

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode};
use futures_util::StreamExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

/// A client that reads a stream of server-sent events.
pub(crate) struct Client {
    body: BodyDataStream,
    text: String,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Received {
    pub(crate) id: Option<String>,
    /// `message` where the event says nothing else; a comment has none.
    pub(crate) kind: Option<String>,
    pub(crate) data: Value,
}

impl Client {
    pub(crate) async fn connect(app: &Router, path: &str, last: Option<&str>) -> Self {
        let mut request = Request::get(path);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = app
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        Self {
            body: response.into_body().into_data_stream(),
            text: String::new(),
        }
    }

    /// The next event, or comment; `None` when the stream is over.
    pub(crate) async fn next(&mut self) -> Option<Received> {
        while !self.text.contains("\n\n") {
            let bytes = self.body.next().await?.unwrap();
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        let (block, rest) = self.text.split_once("\n\n").unwrap();
        let field = |name: &str| {
            let mut lines = block.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
        };
        let data = field("data").map_or(Value::Null, |data| serde_json::from_str(&data).unwrap());
        let received = Received {
            id: field("id"),
            kind: (block != ":").then(|| field("event").unwrap_or("message".to_owned())),
            data,
        };
        self.text = rest.to_owned();
        Some(received)
    }

    /// All that follows.
    pub(crate) async fn rest(mut self) -> Vec<Received> {
        let mut all = Vec::new();
        while let Some(received) = self.next().await {
            all.push(received);
        }
        all
    }
}
