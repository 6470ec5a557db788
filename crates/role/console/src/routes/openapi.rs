//! The OpenAPI description, generated from the API's handlers and types.

use axum::http::StatusCode;
use axum::response::Response;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use super::{change, read, text};
use crate::problem::{PROBLEM_JSON, Problem};

/// Returns the contents of the committed `docs/openapi.json`.
pub fn openapi_json() -> String {
    // The types contain nothing that JSON cannot express (such as a map whose keys are not
    // strings); the test of the committed file would detect it.
    let json = Api::openapi().to_pretty_json().unwrap_or_default();
    json + "\n"
}

/// This document.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "status",
    responses((status = 200, description = "What the API can do, as OpenAPI", body = Object))
)]
pub(crate) async fn openapi() -> Response {
    text(StatusCode::OK, "application/json", openapi_json())
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Skep management API",
        description = "What the command line and the console use; there is no other way in.\n\n\
                       Over the unix socket anyone who may open it may do everything. Over TCP, Host \
                       and Origin must be the listener's own; where a token is configured every \
                       request needs it; where none is, nothing can be changed. Refusals are \
                       problem documents (RFC 9457).",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "http://127.0.0.1:7070")),
    tags(
        (name = "status", description = "What is"),
        (name = "services", description = "What dispatchers offer to clients"),
        (name = "nodes", description = "The web servers behind them"),
        (name = "pools", description = "The servers of applications"),
        (name = "config", description = "What the operator said"),
    ),
    paths(
        read::status, read::series, read::requests, read::services, read::nodes, read::config, read::metrics, openapi,
        change::add_node, change::remove_node, change::drain_node, change::resume_node,
        change::set_weight, change::set_policy, read::comparison, change::start_comparison, change::stop_comparison, change::purge, change::reload, change::explain,
        read::pools, read::pools_of_nodes, change::add_server, change::remove_server,
        change::drain_server, change::resume_server, change::set_server_weight, change::test_server,
        read::requests_of_nodes, read::series_of_nodes,
    ),
    components(schemas(Problem)),
    modifiers(&Everywhere),
)]
struct Api;

/// Adds to every route that it may require a token, and may be refused.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(token));
        let refused = ResponseBuilder::new()
            .description("Refused: 400, 401, 403, 404, 408, 413, 415, 422 or 503")
            .content(PROBLEM_JSON, Content::new(Some(Ref::from_schema_name("Problem"))))
            .build();
        for item in api.paths.paths.values_mut() {
            let operations = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                let responses = &mut operation.responses.responses;
                responses.insert("default".to_owned(), refused.clone().into());
                let token = utoipa::openapi::SecurityRequirement::new("token", [""; 0]);
                operation.security = Some(vec![token, Default::default()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_file_is_what_the_code_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/openapi.json");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(committed == openapi_json(), "docs/openapi.json is stale: `cargo xtask gen`");
    }
}
