//! The router: a route for each operation of the table.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, on};
use millrun::Runtime;
use percent_encoding::percent_decode_str;

use crate::answers::{Asked, answer};
use crate::body::read;
use crate::exporting::EXPORTS_LEN_MAX;
use crate::keys::Keys;
use crate::operations::Action;
use crate::page::page_routes;
use crate::past::Past;
use crate::problem::Problem;
use crate::stream::Places;
use crate::topics::Topics;
use crate::{Access, OPERATIONS, Operation, Redaction, TopicRequest};

/// A route for each operation of the table, and those of the page.
pub(crate) fn routes(served: &Served) -> Router {
    let served = Arc::new(served.clone());
    let mut router = page_routes();
    for operation in OPERATIONS {
        let served = Arc::clone(&served);
        let value_at = value_at(operation);
        let handler = move |request: Request| {
            let served = Arc::clone(&served);
            async move { served.respond(operation, value_at, request).await }
        };
        let method = MethodFilter::try_from(operation.method.clone())
            .expect("the table has methods that a route can have");
        router = router.route(&format!("/{}", operation.path), on(method, handler));
    }
    router
        .fallback(|| async {
            finished(Problem::new("no-route", "no operation has this path").into_response())
        })
        .method_not_allowed_fallback(|| async {
            finished(Problem::new("method", "no operation of this path has this method").into_response())
        })
}

/// The state that all requests share. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) runtime: Runtime,
    pub(crate) access: Access,
    /// Whether `ready` answers that the program is not ready, even if the runtime is.
    pub(crate) is_leaving: Arc<AtomicBool>,
    pub(crate) streams: Places,
    /// The places for histories that are being sent.
    pub(crate) exports: Places,
    pub(crate) topics: Topics,
    pub(crate) keys: Keys,
    pub(crate) redaction: Redaction,
    /// The last minutes, if they are kept.
    pub(crate) past: Option<Past>,
}

impl Served {
    pub(crate) fn new(runtime: &Runtime, access: Access) -> Self {
        Self {
            runtime: runtime.clone(),
            access,
            is_leaving: Arc::default(),
            streams: Places::default(),
            exports: Places::of(EXPORTS_LEN_MAX),
            topics: Topics::default(),
            keys: Keys::default(),
            redaction: Redaction::default(),
            past: None,
        }
    }

    /// The answer to a request for an operation, or a problem.
    pub(crate) async fn respond(
        &self,
        operation: &Operation,
        value_at: Option<usize>,
        request: Request,
    ) -> Response {
        let answered = self.answer(operation, value_at, request).await;
        finished(answered.unwrap_or_else(|problem| problem.respond(&self.redaction)))
    }

    async fn answer(
        &self,
        operation: &Operation,
        value_at: Option<usize>,
        request: Request,
    ) -> Result<Response, Problem> {
        let (request, body) = request.into_parts();
        let role = self.access.role(&request);
        let topic_use = operation.topic_use().filter(|_| self.access.has_topic_rule());
        if role < operation.role && topic_use.is_none() {
            return Err(self.access.refusal(operation, role));
        }
        if matches!(operation.action, Action::Ready) && self.is_leaving.load(Ordering::Relaxed) {
            return Err(Problem::stopping());
        }
        let value = value_of(request.uri.path(), value_at)?;
        if let Some(wanted) = topic_use {
            let asked = TopicRequest {
                head: &request,
                role,
                topic: &value,
                wanted,
            };
            if !self.access.may_use(&asked, false) {
                return Err(self.access.topic_refusal(operation, role, &value));
            }
        }
        let query = request.uri.query().unwrap_or_default();
        let body = match operation.body() {
            Some(form) => read(form, &request.headers, body).await?,
            None => Vec::new(),
        };
        let asked = Asked {
            head: &request,
            access: &self.access,
            role,
            value: &value,
            query,
            body: &body,
        };
        answer(self, operation.action, asked).await
    }
}

/// Which segment of a path has an operation's value, counted from the end. A nested router's prefix adds segments at the
/// front.
pub(crate) fn value_at(operation: &Operation) -> Option<usize> {
    let mut segments = operation.path.rsplit('/');
    segments.position(|segment| segment.starts_with('{'))
}

/// The value in the path of a request.
pub(crate) fn value_of(path: &str, at: Option<usize>) -> Result<Cow<'_, str>, Problem> {
    let segment = at.and_then(|at| path.rsplit('/').nth(at)).unwrap_or_default();
    let value = percent_decode_str(segment).decode_utf8();
    value.map_err(|_| Problem::new("invalid-id", format!("{segment:?} in the path is no UTF-8")))
}

/// Marks an answer as not cacheable, since the state of a run may change at any moment, and as data that must not be shown as
/// a page.
pub(crate) fn finished(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}
