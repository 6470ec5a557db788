//! Requests to application servers for health checks and operators' tests, which have no client.

use std::net::{Ipv4Addr, SocketAddr};

use skep_http::gateway::GatewayRequest;
use skep_http::{BodyFraming, Host, Method, Version};

/// Placeholder for the client address.
const NO_CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The request for `target` at `host`, with these fields and without a body.
pub(crate) fn probe_request<'a>(
    method: Method<'a>,
    target: &'a str,
    host: &'a str,
    fields: &'a [(&'a str, &'a [u8])],
) -> GatewayRequest<'a> {
    let path = target.split('?').next().unwrap_or(target);
    let named = Host::parse(host.as_bytes()).ok();
    GatewayRequest {
        method,
        target: target.as_bytes(),
        path: path.as_bytes(),
        query: target.get(path.len() + 1..).map(str::as_bytes),
        version: Version::Http11,
        host: host.as_bytes(),
        fields,
        client: NO_CLIENT,
        local: NO_CLIENT,
        server_name: named.map_or(host.as_bytes(), |it| it.name),
        server_port: named.and_then(|it| it.port).unwrap_or(80),
        is_tls: false,
        body: BodyFraming::None,
    }
}
