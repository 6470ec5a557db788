//! Routes that only read.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use skep_telemetry::METRICS_CONTENT_TYPE;

use super::{Name, Params, SeriesParams, Shared, beside, text};
use crate::limits::SERIES_STEP_S;
use crate::model::{
    ClusterRequests, ClusterSeries, NodePools, NodeStatus, PolicyComparison, PoolStatus,
    ProcessStatus, RequestStatus, ServiceStatus, TrafficSeries,
};
use crate::problem::Problem;

/// Returns the state of the process, with its traffic, its services and their nodes.
#[utoipa::path(
    get, path = "/api/v1/status", tag = "status",
    responses((status = 200, description = "The process at this moment", body = ProcessStatus))
)]
pub(crate) async fn status(State(control): State<Shared>) -> Json<ProcessStatus> {
    Json(control.status())
}

/// Returns the requests of this process in progress at servers of pools and at nodes, oldest first, at most
/// 1,000.
#[utoipa::path(
    get, path = "/api/v1/requests", tag = "status",
    responses((status = 200, description = "The requests", body = [RequestStatus]))
)]
pub(crate) async fn requests(
    State(control): State<Shared>,
) -> Result<Json<Vec<RequestStatus>>, Problem> {
    Ok(Json(beside(move || control.requests()).await?))
}

/// Returns all requests of this process over time, and those to servers of pools.
#[utoipa::path(
    get, path = "/api/v1/series", tag = "status", params(SeriesParams),
    responses(
        (status = 200, description = "The steps that are over", body = TrafficSeries),
        (status = 422, description = "Other steps than there are", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn series(
    State(control): State<Shared>,
    Params(of): Params<SeriesParams>,
) -> Result<Json<TrafficSeries>, Problem> {
    Ok(Json(control.series(of.step_s.unwrap_or(SERIES_STEP_S))?))
}

/// Returns the services.
#[utoipa::path(
    get, path = "/api/v1/services", tag = "services",
    responses((status = 200, description = "The services; none: no dispatcher", body = [ServiceStatus]))
)]
pub(crate) async fn services(State(control): State<Shared>) -> Json<Vec<ServiceStatus>> {
    Json(control.status().services)
}

/// Returns the A/B test of a service: the figures of its arms, and whether they differ.
#[utoipa::path(
    get, path = "/api/v1/services/{name}/comparison", tag = "services",
    params(("name" = String, Path, description = "Name of the service")),
    responses(
        (status = 200, description = "The test", body = PolicyComparison),
        (status = 404, description = "No such service, or no test", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn comparison(
    State(control): State<Shared>,
    Name(name): Name,
) -> Result<Json<PolicyComparison>, Problem> {
    Ok(Json(control.comparison(&name)?))
}

/// Returns the nodes of all services. A node of two services is listed twice.
#[utoipa::path(
    get, path = "/api/v1/nodes", tag = "nodes",
    responses((status = 200, description = "The nodes, service by service", body = [NodeStatus]))
)]
pub(crate) async fn nodes(State(control): State<Shared>) -> Json<Vec<NodeStatus>> {
    Json(control.status().services.into_iter().flat_map(|service| service.nodes).collect())
}

/// Returns the pools, with the counts of all nodes added up. Any process of the cluster queries all nodes
/// linked with its dispatchers, and lists those that did not answer.
#[utoipa::path(
    get, path = "/api/v1/pools", tag = "pools",
    responses((status = 200, description = "The pools of the config", body = [PoolStatus]))
)]
pub(crate) async fn pools(State(control): State<Shared>) -> Result<Json<Vec<PoolStatus>>, Problem> {
    Ok(Json(beside(move || control.pools()).await?))
}

/// Returns the requests of all nodes in progress at servers of pools, the oldest 1,000 of each; and those of
/// this process in progress elsewhere.
#[utoipa::path(
    get, path = "/api/v1/cluster/requests", tag = "status",
    responses((status = 200, description = "The requests, and the nodes that did not answer", body = ClusterRequests))
)]
pub(crate) async fn requests_of_nodes(
    State(control): State<Shared>,
) -> Result<Json<ClusterRequests>, Problem> {
    Ok(Json(beside(move || control.requests_of_nodes()).await?))
}

/// Returns all requests of all nodes over time, and those to servers of pools.
#[utoipa::path(
    get, path = "/api/v1/cluster/series", tag = "status", params(SeriesParams),
    responses(
        (status = 200, description = "The steps that are over, and the nodes that did not answer", body = ClusterSeries),
        (status = 422, description = "Other steps than there are", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn series_of_nodes(
    State(control): State<Shared>,
    Params(of): Params<SeriesParams>,
) -> Result<Json<ClusterSeries>, Problem> {
    let step_s = of.step_s.unwrap_or(SERIES_STEP_S);
    Ok(Json(beside(move || control.series_of_nodes(step_s)).await??))
}

/// Returns the pools as each node of the cluster sees them. Any process queries all nodes linked with the
/// dispatchers, and lists those that did not answer; a process linked with none returns only its own.
#[utoipa::path(
    get, path = "/api/v1/cluster/pools", tag = "pools",
    responses((status = 200, description = "The nodes of the config, each with its pools or why they are missing", body = [NodePools]))
)]
pub(crate) async fn pools_of_nodes(
    State(control): State<Shared>,
) -> Result<Json<Vec<NodePools>>, Problem> {
    Ok(Json(beside(move || control.pools_of_nodes()).await?))
}

/// Returns the config in force, with every setting. It contains no secrets.
#[utoipa::path(
    get, path = "/api/v1/config", tag = "config",
    responses((status = 200, description = "A config file", body = String, content_type = "application/toml"))
)]
pub(crate) async fn config(State(control): State<Shared>) -> Response {
    text(StatusCode::OK, "application/toml", control.config_toml())
}

/// Returns the metrics in the Prometheus text format.
#[utoipa::path(
    get, path = "/api/v1/metrics", tag = "status",
    responses((status = 200, description = "Metrics", body = String, content_type = "text/plain"))
)]
pub(crate) async fn metrics(State(control): State<Shared>) -> Response {
    text(StatusCode::OK, METRICS_CONTENT_TYPE, control.metrics_text())
}

/// Returns whether the process accepts requests, for load balancers in front of it.
pub(crate) async fn healthz(State(control): State<Shared>) -> Response {
    match control.status().draining {
        false => "ok\n".into_response(),
        true => (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response(),
    }
}
