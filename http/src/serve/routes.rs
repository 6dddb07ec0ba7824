//! The routes as the server calls them: the operations of the table, bypassing axum's router, which boxes and clones on each
//! of its levels. That saves a quarter of the time that a small request takes in this process.
//!
//! ```text
//!   request ──► sites ──► table ── method and path of an operation ──► operation
//!                           └── anything else ──► Console::router: the page, webhooks, HEAD, what is refused
//! ```
//!
//! Invariant: an operation is answered as by the router.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use tower::Service as _;

use crate::router::{Served, finished, value_at};
use crate::{OPERATIONS, Operation, Sites};

/// Answers the requests of a server. A cheap clone.
#[derive(Clone)]
pub(crate) struct Routes {
    table: Option<Arc<OperationTable>>,
    router: Router,
}

/// The operations by their paths.
struct OperationTable {
    served: Served,
    sites: Sites,
    paths: matchit::Router<Vec<ServedOperation>>,
}

/// An operation, and the place of the value in its path.
struct ServedOperation {
    operation: &'static Operation,
    value_at: Option<usize>,
}

impl Routes {
    /// The routes of a console, and its router for everything that is not in the table.
    pub(crate) fn new(served: &Served, sites: &Sites, router: Router) -> Self {
        let mut paths: Vec<(String, Vec<ServedOperation>)> = Vec::new();
        for operation in OPERATIONS {
            let path = format!("/{}", operation.path);
            let route = ServedOperation {
                operation,
                value_at: value_at(operation),
            };
            match paths.iter_mut().find(|(known, _)| *known == path) {
                Some((_, routes)) => routes.push(route),
                None => paths.push((path, vec![route])),
            }
        }
        let mut table = matchit::Router::new();
        for (path, routes) in paths {
            table
                .insert(path, routes)
                .expect("axum's router has taken the same paths");
        }
        let table = OperationTable {
            served: served.clone(),
            sites: sites.clone(),
            paths: table,
        };
        Self {
            table: Some(Arc::new(table)),
            router,
        }
    }

    /// Answers a request.
    ///
    /// # Cancel safety
    /// As [`Console::router`](crate::Console::router).
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response {
        let table = self.table.as_ref().and_then(|table| {
            let route = table.route(request.method(), request.uri().path())?;
            Some((table, route))
        });
        let Some((table, route)) = table else {
            return match self.router.clone().call(request).await {
                Ok(answer) => answer,
                Err(impossible) => match impossible {},
            };
        };
        let (head, body) = request.into_parts();
        if let Err(problem) = table.sites.check(&head) {
            return finished(problem.into_response());
        }
        let request = Request::from_parts(head, Body::new(body));
        // Boxed, since each connection keeps room for an answer's future as long as it lasts.
        Box::pin(table.served.respond(route.operation, route.value_at, request)).await
    }
}

impl OperationTable {
    fn route(&self, method: &Method, path: &str) -> Option<&ServedOperation> {
        let routes = self.paths.at(path).ok()?.value;
        routes.iter().find(|route| route.operation.method == *method)
    }
}

#[cfg(test)]
impl From<Router> for Routes {
    /// A router alone.
    fn from(router: Router) -> Self {
        Self { table: None, router }
    }
}

#[cfg(test)]
mod tests {
    use millrun::Runtime;

    use super::*;
    use crate::{Access, Console};

    #[tokio::test]
    async fn an_operation_is_found_by_its_method_and_path_and_anything_else_is_left_to_the_router() {
        let runtime = Runtime::volatile().start().await.unwrap();
        let routes = Console::new(&runtime, Access::operator()).routes();
        let table = routes.table.unwrap();
        let found = |method: &Method, path: &str| table.route(method, path).map(|route| route.operation.name);
        for operation in OPERATIONS {
            let segments = operation.path.split('/').map(|segment| {
                if segment.starts_with('{') {
                    "a%2Fb"
                } else {
                    segment
                }
            });
            let path = segments.fold(String::new(), |path, segment| path + "/" + segment);
            assert_eq!(found(&operation.method, &path), Some(operation.name), "{path}");
            assert_eq!(found(&Method::HEAD, &path), None, "{path}");
            assert_eq!(found(&operation.method, &(path.clone() + "/")), None, "{path}");
        }
        for path in ["/", "/console", "/v1", "/v1/instances/a/b/start", "*"] {
            assert_eq!(found(&Method::POST, path), None, "{path}");
        }
        runtime.shutdown().await.unwrap();
    }
}
