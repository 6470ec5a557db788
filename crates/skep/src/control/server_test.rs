//! The test of a server of a pool, by the API.

use std::sync::Arc;
use std::time::Duration;

use skep_console::{ControlError, NewServerTest, SERVER_TEST_MS, ServerTest};
use skep_http::Host;
use skep_proxy::Group;

use super::refusal;
use crate::running::Running;

/// Beyond the limit of the test, how long its answer is waited for.
const MARGIN: Duration = Duration::from_secs(1);

pub(super) fn test(
    running: &Running,
    pool: &Arc<Group>,
    name: &str,
    test: &NewServerTest,
) -> Result<ServerTest, ControlError> {
    let target = test.target.clone().unwrap_or_else(|| "/".to_owned());
    // Both become part of a request's head.
    if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        let expected = "a path that begins with /, and a query, percent-encoded";
        return Err(invalid(format!("expected {expected}, found {target:?}")));
    }
    if let Some(host) = test.host.as_deref().filter(|it| Host::parse(it.as_bytes()).is_err()) {
        return Err(invalid(format!("expected a host, or HOST:PORT, found {host:?}")));
    }
    let limit_ms = test.timeout_ms.unwrap_or(SERVER_TEST_MS);
    let Some(node) = running.parts.node.as_ref() else { return Err(no_answer()) };
    let asked = (target.clone(), test.host.clone());
    let tested = node.test_server(pool, name, asked, limit_ms).map_err(refusal)?;
    let limit = Duration::from_millis(limit_ms) + MARGIN;
    let tested = tested.recv_timeout(limit).map_err(|_| no_answer())?;
    let server = pool.members().into_iter().find(|member| member.name == name);
    Ok(ServerTest {
        name: name.to_owned(),
        address: server.ok_or_else(no_answer)?.address,
        target,
        connected_us: tested.connected_us,
        head_us: tested.head_us,
        ended_us: tested.ended_us,
        status: tested.status,
        fields: tested.fields,
        body_bytes: tested.body_bytes,
        body: tested.body,
        is_cut: tested.is_cut,
        error: tested.error,
    })
}

fn invalid(what: String) -> ControlError {
    ControlError::Invalid { what, did_you_mean: None }
}

fn no_answer() -> ControlError {
    ControlError::Unavailable { what: "the node is starting or ending: try again".to_owned() }
}
