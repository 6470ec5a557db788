//! Authorization: the checks in front of every route.
//!
//! The unix socket is protected by its file mode. Over TCP, in this order:
//! - The client must be on this machine, or in one of the configured networks.
//! - Host must name this listener: a page that resolves its own name to this address (DNS
//!   rebinding) still sends its own name.
//! - Origin, which browsers send, must be this listener as well.
//! - If a token is configured, it must be present and correct.
//! - Without a configured token, nothing can be changed.

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, AsHeaderName, CACHE_CONTROL, CONTENT_LENGTH, HOST, ORIGIN,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::audit::{self, Caller};
use crate::limits::{BODY_BYTES_MAX, REQUEST_MS};
use crate::problem::{Problem, ProblemKind};
use crate::token::Token;
use skep_units::Subnet;

/// The listener that received a request.
#[derive(Clone, Debug)]
pub(crate) enum Door {
    /// The unix socket.
    Socket,
    Tcp {
        /// The address listened on.
        ip: IpAddr,
        /// The token that clients must send.
        token: Option<Token>,
        /// Networks from which clients are accepted, besides this machine; empty: all.
        networks: Vec<Subnet>,
    },
}

/// The middleware around all routes.
pub(crate) async fn guard(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let peer = request.extensions().get::<Caller>().cloned();
    let verdict = check_peer(&door, peer.as_ref())
        .and_then(|()| judge(&door, &method, &uri, request.headers()));
    let mut response = match verdict {
        Ok(()) => in_time(Duration::from_millis(REQUEST_MS), next.run(request)).await,
        Err(problem) => problem.into_response(),
    };
    audit::note(&peer.unwrap_or(Caller::Local { uid: None }), &method, &uri, response.status());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The response, or an error if it takes longer than `limit`, for example because a body stalls.
async fn in_time(limit: Duration, answer: impl Future<Output = Response>) -> Response {
    match tokio::time::timeout(limit, answer).await {
        Ok(response) => response,
        Err(_) => Problem::new(ProblemKind::Timeout, "the request took too long").into_response(),
    }
}

/// Whether the caller's address is accepted.
fn check_peer(door: &Door, peer: Option<&Caller>) -> Result<(), Problem> {
    let (Door::Tcp { networks, .. }, Some(Caller::Tcp(address))) = (door, peer) else {
        return Ok(());
    };
    let ip = address.ip().to_canonical();
    let is_in = ip.is_loopback() || networks.iter().any(|network| network.contains(ip));
    match networks.is_empty() || is_in {
        true => Ok(()),
        false => {
            let detail = format!("{ip} is in none of the networks that admin.networks names");
            Err(Problem::new(ProblemKind::ForeignAddress, detail))
        }
    }
}

/// Whether a request may pass.
fn judge(door: &Door, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if let Door::Tcp { ip, token, .. } = door {
        check_host(*ip, uri, headers)?;
        check_origin(*ip, headers)?;
        check_token(token.as_ref(), method, headers)?;
    }
    check_length(headers)
}

fn check_host(ip: IpAddr, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let host: Option<Authority> = only(headers, HOST).and_then(|host| host.parse().ok());
    // An absolute target overrides Host (RFC 9112, section 3.2.2): both must match.
    let is_own = host.as_ref().is_some_and(|host| is_own(ip, host))
        && uri.authority().is_none_or(|authority| is_own(ip, authority));
    if is_own {
        return Ok(());
    }
    let detail = format!("call this API by its address, {}, not by another name", name_of(ip));
    Err(Problem::new(ProblemKind::ForeignHost, detail))
}

fn check_origin(ip: IpAddr, headers: &HeaderMap) -> Result<(), Problem> {
    if !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    let authority = only(headers, ORIGIN).and_then(|origin| origin.strip_prefix("http://"));
    let host = only(headers, HOST);
    let is_own = authority.is_some_and(|authority| {
        host == Some(authority) && authority.parse().is_ok_and(|authority| is_own(ip, &authority))
    });
    let detail = "pages of other origins may not call this API";
    if is_own { Ok(()) } else { Err(Problem::new(ProblemKind::ForeignOrigin, detail)) }
}

fn check_token(token: Option<&Token>, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(token) = token else {
        let detail = "nothing can be changed over TCP without a token: set admin.token_file, or \
                      use the unix socket";
        return match method.is_safe() {
            true => Ok(()),
            false => Err(Problem::new(ProblemKind::ReadOnly, detail)),
        };
    };
    match only(headers, AUTHORIZATION).and_then(bearer) {
        Some(claim) if token.is(claim.as_bytes()) => Ok(()),
        Some(_) => Err(Problem::new(ProblemKind::Unauthorized, "the token is not the right one")),
        None => Err(Problem::new(ProblemKind::Unauthorized, "send `Authorization: Bearer TOKEN`")),
    }
}

/// Refuses a request whose announced body is too large; an unannounced one is checked while it is
/// read.
fn check_length(headers: &HeaderMap) -> Result<(), Problem> {
    let length = only(headers, CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length > BODY_BYTES_MAX as u64) {
        return Err(too_large());
    }
    Ok(())
}

pub(crate) fn too_large() -> Problem {
    Problem::new(ProblemKind::TooLarge, format!("bodies are at most {BODY_BYTES_MAX} bytes here"))
}

/// Whether `authority` is a name of the listener on `ip`. Ports are not compared: port forwarding
/// changes them, and only the name can be forged through the DNS.
fn is_own(ip: IpAddr, authority: &Authority) -> bool {
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        // An address is never the result of a DNS look-up, and such a listener does not know by
        // which of its addresses it was called.
        Ok(_) if ip.is_unspecified() => true,
        Ok(named) => named == ip || (named.is_loopback() && ip.is_loopback()),
        Err(_) => {
            bare.eq_ignore_ascii_case("localhost") && (ip.is_loopback() || ip.is_unspecified())
        }
    }
}

fn name_of(ip: IpAddr) -> String {
    match (ip.is_loopback(), ip.is_unspecified()) {
        (true, _) => "127.0.0.1 or localhost".to_owned(),
        (_, true) => "a number".to_owned(),
        _ => ip.to_string(),
    }
}

/// The value of a field that occurs exactly once.
fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim_matches(' '))
}

#[cfg(test)]
mod tests;
