//! The OpenAPI document, made from the table of operations.
//!
//! ```text
//!   OPERATIONS ──► a path each: its parameters, its body, its answer ──► document ──► v1/openapi.json
//!   PROBLEMS ────► the schema of a problem ────────────────────────────────┘
//! ```
//!
//! Bodies and answers are described here, beside the code that reads and makes them, and a test compares the answers of
//! routes with the descriptions.

mod answers;
mod bodies;
mod components;
mod parameters;
mod schema;

use utoipa::openapi::path::{HttpMethod, OperationBuilder, PathItem, PathsBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::{
    ComponentsBuilder, Content, InfoBuilder, License, OpenApi, OpenApiBuilder, OpenApiVersion, Ref, Required,
    Response, ResponseBuilder, ServerBuilder,
};

use crate::{OPERATIONS, Operation};
use components::components;

/// The document, as JSON with line breaks.
///
/// # Panics
/// Never: the document is made of texts and numbers.
#[must_use]
pub fn openapi_json() -> String {
    let mut text = document().to_pretty_json().expect("texts and numbers are JSON");
    text.push('\n');
    text
}

fn document() -> OpenApi {
    let mut license = License::new(env!("CARGO_PKG_LICENSE"));
    license.identifier = Some(env!("CARGO_PKG_LICENSE").to_owned());
    let info = InfoBuilder::new()
        .title("millrun")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(env!("CARGO_PKG_DESCRIPTION")))
        .license(Some(license));
    let mut paths = PathsBuilder::new();
    for operation in OPERATIONS {
        let method = match operation.body() {
            Some(_) => HttpMethod::Post,
            None => HttpMethod::Get,
        };
        paths = paths.path(
            format!("/{}", operation.path),
            PathItem::new(method, path(operation)),
        );
    }
    let mut all = ComponentsBuilder::new().response("Problem", problem());
    for (name, schema) in components() {
        all = all.schema(name, schema);
    }
    OpenApiBuilder::new()
        .openapi(OpenApiVersion::Version31)
        .info(info.build())
        // The document stands at v1/openapi.json below the prefix.
        .servers(Some([ServerBuilder::new().url("..").build()]))
        .paths(paths)
        .components(Some(all.build()))
        .build()
}

/// The description of an operation.
fn path(operation: &Operation) -> OperationBuilder {
    let least = operation.role.name();
    let description = format!("{}. Least role: {least}.", operation.about);
    let mut path = OperationBuilder::new()
        .operation_id(Some(operation.name))
        .summary(Some(operation.about))
        .description(Some(description))
        .parameters(Some(parameters::of(operation)));
    if let Some(form) = operation.body() {
        let mut body = RequestBodyBuilder::new().required(Some(Required::True));
        let schema = bodies::of(operation.action);
        for media_type in form.media_types() {
            body = body.content(*media_type, Content::new(Some(schema.clone())));
        }
        path = path.request_body(Some(body.build()));
    }
    for (status, response) in answers::of(operation.action) {
        path = path.response(status, response);
    }
    path.response("default", Ref::from_response_name("Problem"))
}

fn problem() -> Response {
    ResponseBuilder::new()
        .description("what is wrong, and what to do next")
        .content(
            "application/problem+json",
            Content::new(Some(Ref::from_schema_name("Problem"))),
        )
        .build()
}
