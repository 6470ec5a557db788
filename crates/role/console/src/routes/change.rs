//! Routes that change something. Each returns the resulting state.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::{Body, Name, OfService, Params, Removal, ServerName, ServerRemoval, Shared, beside};
use crate::limits::{PURGE_MS, PURGE_MS_MAX, REMOVE_MS, SERVER_TEST_MS, SERVER_TEST_MS_MAX};
use crate::model::{
    Explained, NewComparison, NewExplain, NewNode, NewPolicy, NewPurge, NewServer, NewServerTest,
    NewWeight, NodeStatus, PolicyComparison, Purged, Reloaded, ServerCommand, ServerOrdered,
    ServerTest, ServiceStatus,
};
use crate::problem::{Problem, ProblemKind};

type Nodes = Result<Json<Vec<NodeStatus>>, Problem>;
type Ordered = Result<Json<ServerOrdered>, Problem>;

/// Adds a node. It receives requests after its first successful health check, and survives reloads until it
/// is removed or the process ends.
#[utoipa::path(
    post, path = "/api/v1/nodes", tag = "nodes", request_body = NewNode,
    responses(
        (status = 200, description = "The node, once for each of its services", body = [NodeStatus]),
        (status = 404, description = "No such service", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Name or address is taken", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Not a node that could be", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn add_node(State(control): State<Shared>, Body(node): Body<NewNode>) -> Nodes {
    control.add_node(&node)?;
    Ok(named(&control, &node.name))
}

/// Removes a node: it receives no new requests, and is gone when its last request has ended or the time is
/// over. A node of the config file does not return with a reload.
#[utoipa::path(
    delete, path = "/api/v1/nodes/{name}", tag = "nodes",
    params(("name" = String, Path, description = "Name of the node"), Removal),
    responses(
        (status = 200, description = "What is left of the node; nothing once it is gone", body = [NodeStatus]),
        (status = 404, description = "No such service or node", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove_node(
    State(control): State<Shared>,
    Name(name): Name,
    Params(removal): Params<Removal>,
) -> Nodes {
    let timeout_ms = removal.timeout_ms.unwrap_or(REMOVE_MS);
    control.remove_node(removal.service.as_deref(), &name, timeout_ms)?;
    Ok(named(&control, &name))
}

/// Drains a node: it receives no new requests, and those in progress end. Its state is then `drained`.
#[utoipa::path(
    post, path = "/api/v1/nodes/{name}/drain", tag = "nodes",
    params(("name" = String, Path, description = "Name of the node"), OfService),
    responses(
        (status = 200, description = "The node", body = [NodeStatus]),
        (status = 404, description = "No such service or node", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is being removed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn drain_node(
    State(control): State<Shared>,
    Name(name): Name,
    Params(of): Params<OfService>,
) -> Nodes {
    let (asked, node) = (Arc::clone(&control), name.clone());
    beside(move || asked.drain_node(of.service.as_deref(), &node)).await??;
    Ok(named(&control, &name))
}

/// Sends requests to a drained node again, as soon as its health checks succeed.
#[utoipa::path(
    post, path = "/api/v1/nodes/{name}/resume", tag = "nodes",
    params(("name" = String, Path, description = "Name of the node"), OfService),
    responses(
        (status = 200, description = "The node", body = [NodeStatus]),
        (status = 404, description = "No such service or node", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is being removed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume_node(
    State(control): State<Shared>,
    Name(name): Name,
    Params(of): Params<OfService>,
) -> Nodes {
    control.resume_node(of.service.as_deref(), &name)?;
    Ok(named(&control, &name))
}

/// Changes a node's share under weighted policies.
#[utoipa::path(
    put, path = "/api/v1/nodes/{name}/weight", tag = "nodes", request_body = NewWeight,
    params(("name" = String, Path, description = "Name of the node"), OfService),
    responses(
        (status = 200, description = "The node", body = [NodeStatus]),
        (status = 404, description = "No such service or node", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "No such weight", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn set_weight(
    State(control): State<Shared>,
    Name(name): Name,
    Params(of): Params<OfService>,
    Body(new): Body<NewWeight>,
) -> Nodes {
    control.set_weight(of.service.as_deref(), &name, new.weight)?;
    Ok(named(&control, &name))
}

/// Changes the policy by which a service's nodes are chosen, from the next request on, until the config file
/// specifies another one.
#[utoipa::path(
    put, path = "/api/v1/services/{name}/policy", tag = "services", request_body = NewPolicy,
    params(("name" = String, Path, description = "Name of the service")),
    responses(
        (status = 200, description = "The service", body = [ServiceStatus]),
        (status = 404, description = "No such service", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "No such policy", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn set_policy(
    State(control): State<Shared>,
    Name(name): Name,
    Body(new): Body<NewPolicy>,
) -> Result<Json<Vec<ServiceStatus>>, Problem> {
    control.set_policy(&name, &new.policy)?;
    let services = control.status().services.into_iter();
    Ok(Json(services.filter(|service| service.name == name).collect()))
}

/// Compares policies of a service by an A/B test, from the next request on, in place of a running test. The
/// test continues until it is stopped, or the config file specifies other arms.
#[utoipa::path(
    put, path = "/api/v1/services/{name}/comparison", tag = "services", request_body = NewComparison,
    params(("name" = String, Path, description = "Name of the service")),
    responses(
        (status = 200, description = "The test", body = PolicyComparison),
        (status = 404, description = "No such service or node", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "No such policy, or no test", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn start_comparison(
    State(control): State<Shared>,
    Name(name): Name,
    Body(new): Body<NewComparison>,
) -> Result<Json<PolicyComparison>, Problem> {
    control.start_comparison(&name, &new.arms)?;
    Ok(Json(control.comparison(&name)?))
}

/// Ends the A/B test of a service: its own policy applies to all clients, from the next request on.
#[utoipa::path(
    delete, path = "/api/v1/services/{name}/comparison", tag = "services",
    params(("name" = String, Path, description = "Name of the service")),
    responses(
        (status = 200, description = "What it has counted", body = PolicyComparison),
        (status = 404, description = "No such service, or no test", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn stop_comparison(
    State(control): State<Shared>,
    Name(name): Name,
) -> Result<Json<PolicyComparison>, Problem> {
    Ok(Json(control.stop_comparison(&name)?))
}

/// Adds a server to a pool, at all nodes. It receives requests after its first successful health check. It
/// survives reloads, and restarts as long as other processes of the cluster know it, until it is removed or
/// its pool disappears from the config.
#[utoipa::path(
    post, path = "/api/v1/pools/{name}/servers", tag = "pools", request_body = NewServer,
    params(("name" = String, Path, description = "Name of the pool")),
    responses(
        (status = 200, description = "What came of it at each node", body = ServerOrdered),
        (status = 404, description = "No such pool or server", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Name or address is taken", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Not a server that could be", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn add_server(
    State(control): State<Shared>,
    Name(pool): Name,
    Body(server): Body<NewServer>,
) -> Ordered {
    let name = server.name.clone();
    order(control, ServerName { pool, name }, ServerCommand::Add(Box::new(server))).await
}

/// Removes a server from a pool, at all nodes: it receives no new requests, and is gone when its last request
/// has ended or the time is over. A server of the config file does not return with a reload.
#[utoipa::path(
    delete, path = "/api/v1/pools/{pool}/servers/{name}", tag = "pools",
    params(
        ("pool" = String, Path, description = "Name of the pool"),
        ("name" = String, Path, description = "Name of the server"),
        ServerRemoval,
    ),
    responses(
        (status = 200, description = "What came of it at each node", body = ServerOrdered),
        (status = 404, description = "No such pool or server", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The last server, or one that is being removed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove_server(
    State(control): State<Shared>,
    server: ServerName,
    Params(removal): Params<ServerRemoval>,
) -> Ordered {
    let timeout_ms = removal.timeout_ms.unwrap_or(REMOVE_MS);
    order(control, server, ServerCommand::Remove { timeout_ms }).await
}

/// Drains a server of a pool, at all nodes: it receives no new requests, and those in progress end. Its state
/// is then `drained`.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/servers/{name}/drain", tag = "pools",
    params(
        ("pool" = String, Path, description = "Name of the pool"),
        ("name" = String, Path, description = "Name of the server"),
    ),
    responses(
        (status = 200, description = "What came of it at each node", body = ServerOrdered),
        (status = 404, description = "No such pool or server", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is being removed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn drain_server(State(control): State<Shared>, server: ServerName) -> Ordered {
    order(control, server, ServerCommand::Drain).await
}

/// Sends requests to a drained server of a pool again, at all nodes, as soon as its health checks succeed.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/servers/{name}/resume", tag = "pools",
    params(
        ("pool" = String, Path, description = "Name of the pool"),
        ("name" = String, Path, description = "Name of the server"),
    ),
    responses(
        (status = 200, description = "What came of it at each node", body = ServerOrdered),
        (status = 404, description = "No such pool or server", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is being removed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume_server(State(control): State<Shared>, server: ServerName) -> Ordered {
    order(control, server, ServerCommand::Resume).await
}

/// Changes a server's share under weighted policies, at all nodes, until the config file specifies another
/// weight.
#[utoipa::path(
    put, path = "/api/v1/pools/{pool}/servers/{name}/weight", tag = "pools", request_body = NewWeight,
    params(
        ("pool" = String, Path, description = "Name of the pool"),
        ("name" = String, Path, description = "Name of the server"),
    ),
    responses(
        (status = 200, description = "What came of it at each node", body = ServerOrdered),
        (status = 404, description = "No such pool or server", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "No such weight", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn set_server_weight(
    State(control): State<Shared>,
    server: ServerName,
    Body(new): Body<NewWeight>,
) -> Ordered {
    order(control, server, ServerCommand::Weight(new.weight)).await
}

/// Tests a server of a pool, whatever its state, by a separate GET from the node of this process, and returns
/// the response and its times. The request is sent even if the server is drained or down, and is not counted.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/servers/{name}/test", tag = "pools", request_body = NewServerTest,
    params(
        ("pool" = String, Path, description = "Name of the pool"),
        ("name" = String, Path, description = "Name of the server"),
    ),
    responses(
        (status = 200, description = "What it answered, or why it did not", body = ServerTest),
        (status = 404, description = "No such pool or server", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A target or host that is none", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn test_server(
    State(control): State<Shared>,
    server: ServerName,
    Body(test): Body<NewServerTest>,
) -> Result<Json<ServerTest>, Problem> {
    let timeout_ms = test.timeout_ms.unwrap_or(SERVER_TEST_MS);
    if !(1..=SERVER_TEST_MS_MAX).contains(&timeout_ms) {
        let detail =
            format!("expected timeout_ms of 1 to {SERVER_TEST_MS_MAX}, found {timeout_ms}");
        return Err(Problem::new(ProblemKind::Invalid, detail));
    }
    let test = NewServerTest { timeout_ms: Some(timeout_ms), ..test };
    let tested = beside(move || control.test_server(&server.pool, &server.name, &test)).await?;
    Ok(Json(tested?))
}

/// Purges stored objects by path or tag, and waits until all nodes that are linked, or serve clients, have
/// applied the purge. All other nodes receive it before they take part again.
#[utoipa::path(
    post, path = "/api/v1/purge", tag = "nodes", request_body = NewPurge,
    responses(
        (status = 200, description = "What came of it; `complete` if all that are linked or serve acknowledged it", body = Purged),
        (status = 404, description = "This process is no dispatcher", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Nothing that could be purged", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "No node is linked", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn purge(
    State(control): State<Shared>,
    Body(purge): Body<NewPurge>,
) -> Result<Json<Purged>, Problem> {
    let timeout_ms = purge.timeout_ms.unwrap_or(PURGE_MS);
    if !(1..=PURGE_MS_MAX).contains(&timeout_ms) {
        let detail = format!("expected timeout_ms of 1 to {PURGE_MS_MAX}, found {timeout_ms}");
        return Err(Problem::new(ProblemKind::Invalid, detail));
    }
    let is_soft = purge.soft.unwrap_or(false);
    let purged = beside(move || control.purge(&purge.what, is_soft, timeout_ms)).await?;
    Ok(Json(purged?))
}

/// Explains why nodes store the response to a request, or do not: they examine what they have, without
/// contacting applications or origins. A dispatcher asks all linked nodes; a node answers only for itself.
#[utoipa::path(
    post, path = "/api/v1/cache/explain", tag = "nodes", request_body = NewExplain,
    responses(
        (status = 200, description = "What each node says; `complete` if all did", body = Explained),
        (status = 422, description = "Nothing that could be requested", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "No node can be asked", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn explain(
    State(control): State<Shared>,
    Body(asked): Body<NewExplain>,
) -> Result<Json<Explained>, Problem> {
    let explained = beside(move || control.explain(&asked)).await?;
    Ok(Json(explained?))
}

/// Reloads the config file. A file with an error is refused as a whole, and the old config stays in force.
#[utoipa::path(
    post, path = "/api/v1/reload", tag = "config",
    responses(
        (status = 200, description = "The new config is in force", body = Reloaded),
        (status = 422, description = "The file has an error", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "There is no file, or this is not the time", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn reload(State(control): State<Shared>) -> Result<Json<Reloaded>, Problem> {
    Ok(Json(control.reload()?))
}

async fn order(control: Shared, server: ServerName, command: ServerCommand) -> Ordered {
    let ordered =
        beside(move || control.order_server(&server.pool, &server.name, &command)).await?;
    Ok(Json(ordered?))
}

fn named(control: &Shared, name: &str) -> Json<Vec<NodeStatus>> {
    let nodes = control.status().services.into_iter().flat_map(|service| service.nodes);
    Json(nodes.filter(|node| node.name == name).collect())
}
