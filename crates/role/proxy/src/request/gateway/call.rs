//! A client's request in the form for application servers.

use std::borrow::Cow;
use std::net::SocketAddr;

use skep_http::forward::{Claims, Forward, HostPolicy, write_request_fields};
use skep_http::forwarded::scheme_named;
use skep_http::gateway::GatewayRequest;
use skep_http::{BodyFraming, RequestHead};

use crate::request::recipient::Ends;

/// Capacity for the fields of a browser's request, in bytes.
const LINES_BYTES_USUAL: usize = 1024;
const FIELDS_USUAL: usize = 24;

/// Runs `job` on the request for the server, with `framing` for its body.
pub(super) fn with_request<R>(
    head: &RequestHead<'_, '_>,
    forward: &Forward<'_>,
    ends: Ends,
    framing: BodyFraming,
    job: impl FnOnce(&GatewayRequest<'_>) -> R,
) -> R {
    let mut lines = Vec::with_capacity(LINES_BYTES_USUAL);
    write_request_fields(&mut lines, head, forward);
    let mut fields = Vec::with_capacity(FIELDS_USUAL);
    fields.extend(lines_of(&lines));
    let target = target(head, forward);
    // A rewritten query is also the one that the application gets.
    let mut parts = target.splitn(2, |byte| *byte == b'?');
    let (path, query) = (parts.next().unwrap_or_default(), parts.next());
    let is_tls = is_tls(head, forward);
    job(&GatewayRequest {
        method: head.method,
        target: &target,
        path,
        query,
        version: head.version,
        host: match forward.host {
            HostPolicy::Keep => head.host,
            HostPolicy::Set(host) => host,
        },
        fields: &fields,
        client: client(head, forward, ends.client),
        local: ends.local,
        server_name: forward.server_name.unwrap_or(head.authority.name),
        server_port: head.authority.port.unwrap_or(if is_tls { 443 } else { 80 }),
        is_tls,
        body: framing,
    })
}

/// Path and query as routed, as HTTP servers get them: applications must select by the same path as
/// routes. Without a route, as sent, in origin form.
fn target<'a>(head: &RequestHead<'_, 'a>, forward: &Forward<'a>) -> Cow<'a, [u8]> {
    match (forward.target, head.query) {
        (Some(target), _) => Cow::Borrowed(target),
        (None, None) => Cow::Borrowed(head.path),
        (None, Some(query)) => Cow::Owned([head.path, b"?", query].concat()),
    }
}

/// The fields in `lines`, which this process has written.
fn lines_of(lines: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r")?;
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = std::str::from_utf8(&line[..colon]).ok()?;
        Some((name, line[colon + 1..].trim_ascii()))
    })
}

/// The client: the connection's peer, or the client that a trusted peer names. In the latter case its
/// port is unknown, 0.
fn client(head: &RequestHead<'_, '_>, forward: &Forward<'_>, peer: SocketAddr) -> SocketAddr {
    forward.claims.client(head).map_or(peer, |ip| SocketAddr::new(ip, 0))
}

/// Whether the client's connection is encrypted, according to the sources that are trusted to state it.
fn is_tls(head: &RequestHead<'_, '_>, forward: &Forward<'_>) -> bool {
    let said = scheme_named(head).filter(|_| forward.claims != Claims::Replace);
    said.unwrap_or(forward.proto.as_bytes()).eq_ignore_ascii_case(b"https")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use skep_http::limits::HeadLimits;
    use skep_http::{FieldSlots, parse_request};

    use super::*;

    fn forward(claims: Claims) -> Forward<'static> {
        Forward {
            client: [192, 0, 2, 9].into(),
            proto: "http",
            host: HostPolicy::Keep,
            claims,
            target: None,
            server_name: None,
            upgrade: true,
            without: &[],
            extra: b"X-Own: a: b\r\n",
        }
    }

    #[test]
    fn only_trusted_peers_say_who_the_client_is() {
        let mut slots = FieldSlots::new();
        let head =
            b"GET /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.1\r\n\
                     X-Forwarded-Proto: https\r\n\r\n";
        let head = parse_request(&mut slots, head, &HeadLimits::default()).unwrap();
        let peer: SocketAddr = "192.0.2.9:4711".parse().unwrap();
        for (claims, address, encrypted) in [
            (Claims::Replace, "192.0.2.9:4711", false),
            (Claims::Extend, "10.0.0.1:0", true),
            (Claims::Keep, "192.0.2.1:0", true),
        ] {
            let forward = forward(claims);
            assert_eq!(client(&head, &forward, peer).to_string(), address);
            assert_eq!(is_tls(&head, &forward), encrypted);
        }
    }

    #[test]
    fn the_target_is_the_one_that_was_routed() {
        let mut slots = FieldSlots::new();
        let head = b"GET /x/../admin/%2e/y?a=%20 HTTP/1.1\r\nHost: a\r\n\r\n";
        let head = parse_request(&mut slots, head, &HeadLimits::default()).unwrap();
        let routed = Forward { target: Some(b"/admin/y?a=%20"), ..forward(Claims::Replace) };
        assert_eq!(*target(&head, &routed), *b"/admin/y?a=%20");
        let unrouted = forward(Claims::Replace);
        assert_eq!(*target(&head, &unrouted), *b"/x/../admin/%2e/y?a=%20");
    }

    #[test]
    fn fields_are_those_of_the_next_hop() {
        let mut slots = FieldSlots::new();
        let head =
            b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: x-hop\r\nX-Hop: 1\r\nProxy: http://e\r\n\
                     Accept: text/html\r\n\r\n";
        let head = parse_request(&mut slots, head, &HeadLimits::default()).unwrap();
        let mut lines = Vec::new();
        write_request_fields(&mut lines, &head, &forward(Claims::Replace));
        let fields: Vec<_> = lines_of(&lines).collect();
        let value = |name: &str| fields.iter().find(|(it, _)| *it == name).map(|(_, value)| *value);
        assert_eq!(value("Accept"), Some(&b"text/html"[..]));
        assert_eq!(value("X-Own"), Some(&b"a: b"[..]));
        assert_eq!(value("X-Forwarded-For"), Some(&b"192.0.2.9"[..]));
        assert_eq!(value("Via"), Some(&b"1.1 skep"[..]));
        let are_gone = ["Host", "Connection", "X-Hop", "Proxy"].map(value);
        assert_eq!(are_gone, [None; 4], "{fields:?}");
    }
}
