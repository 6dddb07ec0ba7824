//! Checks [`Sites`] before a route does anything.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use futures_util::future::Either;
use tower::{Layer, Service};

use crate::Sites;
use crate::router::finished;

/// The layer of all routes. axum's own function middleware boxes the inner service for every request; this one does not.
#[derive(Clone, Debug)]
pub(crate) struct CheckSites(pub(crate) Sites);

impl<S> Layer<S> for CheckSites {
    type Service = Checked<S>;

    fn layer(&self, route: S) -> Checked<S> {
        Checked {
            route,
            sites: self.0.clone(),
        }
    }
}

/// A route whose callers are checked.
#[derive(Clone, Debug)]
pub(crate) struct Checked<S> {
    route: S,
    sites: Sites,
}

impl<S> Service<Request> for Checked<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response, Infallible>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.route.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let (head, body) = request.into_parts();
        match self.sites.check(&head) {
            Ok(()) => Either::Right(self.route.call(Request::from_parts(head, body))),
            Err(problem) => Either::Left(ready(Ok(finished(problem.into_response())))),
        }
    }
}
