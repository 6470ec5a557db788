//! The test of a pool's server, for the API.

use std::sync::Arc;
use std::time::Duration;

use skep_console::{ControlError, NewServerTest, SERVER_TEST_MS, ServerTest};
use skep_http::Host;
use skep_proxy::{Group, TestRequest};

use super::refusal;
use crate::running::Running;

/// How long the result is awaited beyond the limit of the test.
const MARGIN: Duration = Duration::from_secs(1);

pub(super) fn test(
    running: &Running,
    pool: &Arc<Group>,
    name: &str,
    test: &NewServerTest,
) -> Result<ServerTest, ControlError> {
    let request = requested(test)?;
    let limit_ms = test.timeout_ms.unwrap_or(SERVER_TEST_MS);
    let Some(node) = running.parts.node.as_ref() else { return Err(no_answer()) };
    let tested = node.test_server(pool, name, request, limit_ms).map_err(refusal)?;
    let limit = Duration::from_millis(limit_ms) + MARGIN;
    let tested = tested.recv_timeout(limit).map_err(|_| no_answer())?;
    let server = pool.members().into_iter().find(|member| member.name == name);
    Ok(ServerTest {
        name: name.to_owned(),
        address: server.ok_or_else(no_answer)?.address,
        target: tested.target,
        connected_us: tested.connected_us,
        head_us: tested.head_us,
        ended_us: tested.ended_us,
        status: tested.status,
        fields: tested.fields,
        body_bytes: tested.body_bytes,
        body: tested.body,
        is_cut: tested.is_cut,
        check: tested.check,
        error: tested.error,
    })
}

/// The request of a test; target and host both become part of its head.
fn requested(test: &NewServerTest) -> Result<TestRequest, ControlError> {
    if test.health {
        return match (&test.target, &test.host) {
            (None, None) => Ok(TestRequest::Check),
            _ => Err(invalid("expected `health`, or `target` and `host`, found both".to_owned())),
        };
    }
    let target = test.target.clone().unwrap_or_else(|| "/".to_owned());
    if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        let expected = "a path that begins with /, and a query, percent-encoded";
        return Err(invalid(format!("expected {expected}, found {target:?}")));
    }
    if let Some(host) = test.host.as_deref().filter(|it| Host::parse(it.as_bytes()).is_err()) {
        return Err(invalid(format!("expected a host, or HOST:PORT, found {host:?}")));
    }
    Ok(TestRequest::Get { target, host: test.host.clone() })
}

fn invalid(what: String) -> ControlError {
    ControlError::Invalid { what, did_you_mean: None }
}

fn no_answer() -> ControlError {
    ControlError::Unavailable { what: "the node is starting or ending: try again".to_owned() }
}
