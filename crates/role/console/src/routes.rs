//! The routes of the API. Each handler carries its own documentation, from which
//! [`crate::openapi_json`] is made.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::control::Control;
use crate::guard::{Door, guard, too_large};
use crate::limits::BODY_BYTES_MAX;
use crate::problem::{Problem, ProblemKind};

pub(crate) mod change;
pub(crate) mod openapi;
pub(crate) mod read;

/// The state available to handlers.
pub(crate) type Shared = Arc<dyn Control>;

/// Creates the API, with the checks for `door`.
pub(crate) fn api(control: Shared, door: Door) -> Router {
    Router::new()
        .route("/api/v1/status", get(read::status))
        .route("/api/v1/requests", get(read::requests))
        .route("/api/v1/series", get(read::series))
        .route("/api/v1/services", get(read::services))
        .route("/api/v1/services/{name}/policy", put(change::set_policy))
        .route(
            "/api/v1/services/{name}/comparison",
            get(read::comparison).put(change::start_comparison).delete(change::stop_comparison),
        )
        .route("/api/v1/nodes", get(read::nodes).post(change::add_node))
        .route("/api/v1/nodes/{name}", delete(change::remove_node))
        .route("/api/v1/nodes/{name}/drain", post(change::drain_node))
        .route("/api/v1/nodes/{name}/resume", post(change::resume_node))
        .route("/api/v1/nodes/{name}/weight", put(change::set_weight))
        .route("/api/v1/pools", get(read::pools))
        .route("/api/v1/cluster/pools", get(read::pools_of_nodes))
        .route("/api/v1/cluster/requests", get(read::requests_of_nodes))
        .route("/api/v1/cluster/series", get(read::series_of_nodes))
        .route("/api/v1/pools/{name}/servers", post(change::add_server))
        .route("/api/v1/pools/{pool}/servers/{name}", delete(change::remove_server))
        .route("/api/v1/pools/{pool}/servers/{name}/drain", post(change::drain_server))
        .route("/api/v1/pools/{pool}/servers/{name}/resume", post(change::resume_server))
        .route("/api/v1/pools/{pool}/servers/{name}/weight", put(change::set_server_weight))
        .route("/api/v1/pools/{pool}/servers/{name}/test", post(change::test_server))
        .route("/api/v1/purge", post(change::purge))
        .route("/api/v1/cache/explain", post(change::explain))
        .route("/api/v1/reload", post(change::reload))
        .route("/api/v1/config", get(read::config))
        .route("/api/v1/metrics", get(read::metrics))
        .route("/api/v1/openapi.json", get(openapi::openapi))
        .method_not_allowed_fallback(no_such_method)
        .fallback(no_route)
        .layer(from_fn_with_state(Arc::new(door), guard))
        .with_state(control)
}

/// Creates the routes of the metrics listener: two resources that anyone may read.
pub(crate) fn metrics(control: Shared) -> Router {
    Router::new()
        .route("/metrics", get(read::metrics))
        .route("/healthz", get(read::healthz))
        .method_not_allowed_fallback(no_such_method)
        .fallback(no_route)
        .with_state(control)
}

async fn no_route(uri: Uri) -> Problem {
    Problem::no_route(&uri)
}

async fn no_such_method(request: Request) -> Problem {
    let detail = format!("{} is not a method of {:?}", request.method(), request.uri().path());
    Problem::new(ProblemKind::NoSuchMethod, detail)
}

/// Selects one of the services of a process.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfService {
    /// Name of the service; by default, all services that have the node.
    pub(crate) service: Option<String>,
}

/// How to remove a node.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Removal {
    /// Name of the service; by default, all services that have the node.
    pub(crate) service: Option<String>,
    /// Time for its requests to end, in milliseconds; 30 seconds by default.
    #[param(maximum = 86_400_000)]
    pub(crate) timeout_ms: Option<u64>,
}

/// The resolution of requests over time.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SeriesParams {
    /// Length of a step in seconds: 10 (for the last hour) or 60 (for the last 30 hours); 60 by
    /// default.
    pub(crate) step_s: Option<u64>,
}

/// How to remove a server of a pool.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ServerRemoval {
    /// Time for its requests to end, in milliseconds; 30 seconds by default.
    #[param(maximum = 86_400_000)]
    pub(crate) timeout_ms: Option<u64>,
}

/// The query of a request, or a [`Problem`].
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => Err(Problem::new(ProblemKind::Malformed, rejection.body_text())),
        }
    }
}

/// The name in a route, or a [`Problem`].
pub(crate) struct Name(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(rejection) => Err(Problem::new(ProblemKind::Malformed, rejection.body_text())),
        }
    }
}

/// The names of a pool and of a server in a route, or a [`Problem`].
pub(crate) struct ServerName {
    pub(crate) pool: String,
    pub(crate) name: String,
}

impl<S: Send + Sync> FromRequestParts<S> for ServerName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path((pool, name))) => Ok(Self { pool, name }),
            Err(rejection) => Err(Problem::new(ProblemKind::Malformed, rejection.body_text())),
        }
    }
}

/// The JSON body of a request, or a [`Problem`].
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let detail = "send a body with `Content-Type: application/json`";
            return Err(Problem::new(ProblemKind::NotJson, detail));
        }
        let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
        let bytes = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => too_large(),
            None => Problem::new(ProblemKind::Malformed, "the body broke off"),
        })?;
        let bytes = bytes.to_bytes();
        // Serde would accept a list as an object with its members in order.
        if bytes.trim_ascii_start().first() == Some(&b'[') {
            return Err(Problem::new(ProblemKind::Invalid, "send an object, not a list"));
        }
        serde_json::from_slice(&bytes).map(Self).map_err(|error| {
            let kind = if error.is_data() { ProblemKind::Invalid } else { ProblemKind::Malformed };
            Problem::new(kind, error.to_string())
        })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media_type = value.split(';').next().unwrap_or("");
    media_type.trim().eq_ignore_ascii_case("application/json")
}

/// A text response of a media type.
pub(crate) fn text(status: StatusCode, media_type: &'static str, text: String) -> Response {
    (status, [(CONTENT_TYPE, media_type)], text).into_response()
}

/// Runs a job that may wait for other processes or machines on a separate thread, so that other
/// requests do not wait for it.
pub(crate) async fn beside<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    #[expect(clippy::disallowed_methods, reason = "connections bound the threads")]
    let done = tokio::task::spawn_blocking(job);
    done.await.map_err(|_| Problem::new(ProblemKind::Unavailable, "the process is about to end"))
}
