//! Statements of trusted proxies about their clients: `Forwarded` (RFC 7239), and the older
//! `X-Forwarded-*`.
//!
//! Most proxies write one family, and most applications read the other. What is stated in only one
//! is also stated in the other (RFC 7239 7.4): the client nearest to the first proxy has its scheme
//! and host. If both were received, neither is translated: a proxy that writes one may forward the
//! other as its client sent it.

use std::net::{IpAddr, SocketAddr};

use crate::bytes;
use crate::encode::{write_address, write_field};
use crate::fields::Known;
use crate::limits::FORWARDED_TRANSLATED_MAX;
use crate::request::RequestHead;

/// The clients stated in `head`, in the order of the hops; as written, without port, brackets and
/// quotes.
fn clients_named<'h>(head: &RequestHead<'_, 'h>) -> Vec<&'h [u8]> {
    match has_older(head) {
        true => head.fields.known_all(Known::XForwardedFor).flat_map(bytes::list).collect(),
        false => elements(head).map(|element| node_of(parameter(element, b"for"))).collect(),
    }
}

/// The last two clients stated in `head`, the nearest one last. Like [`clients_named`], without a
/// list.
pub(crate) fn last_clients<'h>(head: &RequestHead<'_, 'h>) -> [Option<&'h [u8]>; 2] {
    let push = |[_, last]: [Option<&'h [u8]>; 2], client| [last, Some(client)];
    match has_older(head) {
        true => {
            head.fields.known_all(Known::XForwardedFor).flat_map(bytes::list).fold([None; 2], push)
        }
        false => {
            let nodes = elements(head).map(|element| node_of(parameter(element, b"for")));
            nodes.fold([None; 2], push)
        }
    }
}

/// The scheme used by the first client, as stated in `head`.
pub fn scheme_named<'h>(head: &RequestHead<'_, 'h>) -> Option<&'h [u8]> {
    match has_older(head) {
        true => head.fields.get("x-forwarded-proto"),
        false => parameter(elements(head).next()?, b"proto"),
    }
}

/// The host requested by the first client, as stated in `head`.
fn host_named<'h>(head: &RequestHead<'_, 'h>) -> Option<&'h [u8]> {
    match has_older(head) {
        true => head.fields.get("x-forwarded-host"),
        false => parameter(elements(head).next()?, b"host"),
    }
}

/// Whether any of the older fields was received.
fn has_older(head: &RequestHead<'_, '_>) -> bool {
    head.fields.known(Known::XForwardedFor).is_some()
        || ["x-forwarded-proto", "x-forwarded-host"].iter().any(|it| head.fields.get(it).is_some())
}

/// Appends the fields of both families for the next hop: the client and the scheme known here,
/// after the received ones, if those are kept.
pub(crate) fn write_forwarded(
    out: &mut Vec<u8>,
    head: &RequestHead<'_, '_>,
    (own_client, own_scheme): (IpAddr, &str),
    is_kept: bool,
) {
    let has = |field| is_kept && head.fields.known(field).is_some();
    let (has_standard, has_clients) = (has(Known::Forwarded), has(Known::XForwardedFor));
    let clients = if is_kept { clients_named(head) } else { Vec::new() };
    // More would not be a chain of proxies, and each entry grows when translated. The last ones are
    // those of the nearest proxies.
    let clients = &clients[clients.len().saturating_sub(FORWARDED_TRANSLATED_MAX)..];
    let scheme = is_kept.then(|| scheme_named(head)).flatten().filter(|it| is_scheme(it));
    let host = is_kept.then(|| host_named(head)).flatten().filter(|it| is_host(it));
    let (own_client, own_scheme, own_host) =
        (own_client.to_canonical(), own_scheme.as_bytes(), head.host);

    out.extend_from_slice(b"Forwarded: ");
    // The first proxy knows where the request was sent.
    let mut first = Some((host.unwrap_or(own_host), scheme.unwrap_or(own_scheme)));
    if has_standard {
        write_lines(out, head, Known::Forwarded);
        first = None;
    } else {
        for client in clients {
            write_element(out, address_of(client), first.take());
            out.extend_from_slice(b", ");
        }
    }
    let of_own = first.unwrap_or((own_host, own_scheme));
    write_element(out, Some(own_client), Some(of_own));
    out.extend_from_slice(b"\r\nX-Forwarded-For: ");
    if has_clients {
        write_lines(out, head, Known::XForwardedFor);
    } else {
        for client in clients.iter().filter_map(|client| address_of(client)) {
            write_address(out, client);
            out.extend_from_slice(b", ");
        }
    }
    write_address(out, own_client);
    out.extend_from_slice(b"\r\n");
    for (name, said, known) in
        [("X-Forwarded-Proto", scheme, own_scheme), ("X-Forwarded-Host", host, own_host)]
    {
        let is_sent = is_kept && head.fields.get(name).is_some();
        let value = said.unwrap_or(known);
        if !is_sent && !value.is_empty() {
            write_field(out, name, value);
        }
    }
}

/// Appends all received values as a list, followed by a comma.
fn write_lines(out: &mut Vec<u8>, head: &RequestHead<'_, '_>, field: Known) {
    for value in head.fields.known_all(field).filter(|value| !value.is_empty()) {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
}

/// Appends an element of Forwarded, with host and scheme if they are known.
fn write_element(out: &mut Vec<u8>, client: Option<IpAddr>, asked: Option<(&[u8], &[u8])>) {
    out.extend_from_slice(b"for=");
    match client {
        Some(client @ IpAddr::V4(_)) => write_address(out, client),
        Some(client @ IpAddr::V6(_)) => {
            out.extend_from_slice(b"\"[");
            write_address(out, client);
            out.extend_from_slice(b"]\"");
        }
        None => out.extend_from_slice(b"unknown"),
    }
    let Some((host, scheme)) = asked else { return };
    if !host.is_empty() {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host);
        out.push(b'"');
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(scheme);
}

/// The elements of all lines of Forwarded.
fn elements<'h>(head: &RequestHead<'_, 'h>) -> impl Iterator<Item = &'h [u8]> {
    let lines = head.fields.known_all(Known::Forwarded);
    lines.flat_map(|line| split_unquoted(line, b',')).filter(|element| !element.is_empty())
}

/// The value of a parameter of an element, without quotes.
fn parameter<'h>(element: &'h [u8], name: &[u8]) -> Option<&'h [u8]> {
    split_unquoted(element, b';').find_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        pair[..at].eq_ignore_ascii_case(name).then(|| unquoted(&pair[at + 1..]))
    })
}

/// The parts between `separator`s outside quoted strings (RFC 9110 5.6.4), trimmed.
fn split_unquoted(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = value.split(move |byte| {
        let was_escaped = is_escaped;
        is_escaped = is_quoted && !was_escaped && *byte == b'\\';
        if *byte == b'"' && !was_escaped {
            is_quoted = !is_quoted;
        }
        *byte == separator && !is_quoted
    });
    parts.map(<[u8]>::trim_ascii)
}

/// The contents of quotes. No value read here contains escapes.
fn unquoted(value: &[u8]) -> &[u8] {
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    inner.unwrap_or(value)
}

/// A node of RFC 7239 6, without port and brackets.
fn node_of(node: Option<&[u8]>) -> &[u8] {
    let node = node.unwrap_or(b"unknown");
    if let Some(end) = node.iter().position(|byte| *byte == b']').filter(|_| node[0] == b'[') {
        return &node[1..end];
    }
    let colons = node.iter().filter(|byte| **byte == b':').count();
    let port = node.iter().position(|byte| *byte == b':').filter(|_| colons == 1);
    &node[..port.unwrap_or(node.len())]
}

/// The address written by a proxy, perhaps with a port.
pub(crate) fn address_of(client: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(client).ok()?;
    text.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|it| it.ip()))
}

fn is_scheme(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(u8::is_ascii_alphanumeric)
}

/// Whether it can be written between quotes unchanged.
fn is_host(value: &[u8]) -> bool {
    let is_of_host = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(byte);
    !value.is_empty() && value.iter().all(is_of_host)
}
