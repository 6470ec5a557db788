//! Requests of application servers that have no client: those of checks and tests.

use std::net::{Ipv4Addr, SocketAddr};

use skep_http::gateway::GatewayRequest;
use skep_http::{BodyFraming, Host, Method, Version};

/// Nobody's address.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The request for `target` at `host`, with these fields and without a body.
pub(crate) fn nobodys<'a>(
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
        client: NOBODY,
        local: NOBODY,
        server_name: named.map_or(host.as_bytes(), |it| it.name),
        server_port: named.and_then(|it| it.port).unwrap_or(80),
        is_tls: false,
        body: BodyFraming::None,
    }
}
