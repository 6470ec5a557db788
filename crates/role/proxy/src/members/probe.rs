//! One active check: a request on a new connection, which also tests whether the member still
//! accepts connections.

use std::rc::Rc;
use std::time::Duration;

use skep_cluster::Failure;
use skep_http::limits::{INTERIM_RESPONSES_MAX, NODE_RESPONSE_HEAD};
use skep_http::{
    FieldSlots, HeadScanner, Method, ResponseFraming, ResponseHead, encode, parse_response,
};
use skep_serve::{Conn, ConnError, Output, TimeoutCause, Worker};
use skep_units::ServerAddress;
use skep_upstream::UpstreamError;

use crate::limits::CHECK_BODY_BYTES_MAX;
use crate::members::conn_io::{read_more, send};
use crate::members::gateway_probe::Asking;
use crate::members::protocol::MemberProtocol;
use crate::members::settings::GroupSettings;
use crate::members::state::CheckOutcome;

/// Checks the member at `address`; `is_busy` tells whether requests of this process are in progress
/// there. `None`: the check could not be made, because local resources were lacking or all workers
/// of the application were in use.
pub(crate) async fn probe(
    worker: &Rc<Worker>,
    address: ServerAddress,
    settings: &GroupSettings,
    is_busy: impl Fn() -> bool,
) -> Option<CheckOutcome> {
    let timeout_ms = settings.membership.health.timeout_ms;
    // More precise than a connection's deadline: delays of checks would add up to a late verdict.
    let limit = Duration::from_millis(timeout_ms);
    let mut asking = Asking::new(worker, address, settings);
    let asked = tokio::time::timeout(limit, async {
        match settings.protocol {
            MemberProtocol::Http => ask(worker, address, settings).await,
            MemberProtocol::Fcgi(_) | MemberProtocol::Ajp(_) => asking.ask().await,
        }
    });
    let asked = asked.await.unwrap_or(Ok(CheckOutcome::Bad(Failure::TimedOut)));
    match asked {
        // All workers of the application are in use, possibly by slow clients: the application is
        // not down.
        Ok(CheckOutcome::Bad(Failure::TimedOut)) if asking.waits_for_worker() && is_busy() => None,
        Ok(verdict) => Some(verdict),
        Err(error) if !error.blames_node() => {
            tracing::warn!("{address} can't be checked: {error}");
            None
        }
        Err(error) => Some(CheckOutcome::Bad(failure_of(&error))),
    }
}

/// The effect of a failed connection on the health of a member.
pub(crate) fn failure_of(error: &UpstreamError) -> Failure {
    match error {
        UpstreamError::Refused => Failure::Refused,
        UpstreamError::Unreachable => Failure::Unreachable,
        UpstreamError::ConnectTimeout => Failure::TimedOut,
        UpstreamError::Denied => Failure::Denied,
        UpstreamError::NoSocket => Failure::NoSocket,
        UpstreamError::Io(_) | UpstreamError::PoolFull | UpstreamError::Exhausted(_) => {
            Failure::Reset
        }
    }
}

async fn ask(
    worker: &Rc<Worker>,
    address: ServerAddress,
    settings: &GroupSettings,
) -> Result<CheckOutcome, UpstreamError> {
    let timeout_ms = settings.membership.health.timeout_ms;
    let deadline_ms = worker.now_ms() + timeout_ms;
    let conn = Conn::connect(worker, address, timeout_ms).await?;
    let Some(path) = &settings.check.path else { return Ok(CheckOutcome::Good) };
    conn.timer().set(deadline_ms, TimeoutCause::Response);
    let mut output = Output::default();
    let host = settings.check.host.clone().unwrap_or_else(|| host_of(address));
    output.inline(|out| write_get(out, path, &host, &[("User-Agent", b"skep-check")]));
    send(&conn, output).await?;
    let mut received = Vec::new();
    loop {
        match read_more(&conn, &mut received).await {
            Ok(true) => {}
            Ok(false) => return Ok(at_end(&received, settings)),
            // Some servers reset instead of closing: the bytes received may be sufficient.
            Err(ConnError::Io(_)) if !received.is_empty() => {
                return Ok(at_end(&received, settings));
            }
            Err(error) => return Err(error.into()),
        }
        if let Some(verdict) = judge(&received, settings, false) {
            return Ok(verdict);
        }
    }
}

/// Appends a GET with these fields, as the last request of its connection.
pub(crate) fn write_get(out: &mut Vec<u8>, target: &str, host: &str, fields: &[(&str, &[u8])]) {
    out.extend_from_slice(format!("GET {target} HTTP/1.1\r\n").as_bytes());
    encode::write_field(out, "Host", host.as_bytes());
    for (name, value) in fields {
        encode::write_field(out, name, value);
    }
    out.extend_from_slice(b"Connection: close\r\n\r\n");
}

/// The host for a check; a Unix socket has none.
pub(crate) fn host_of(address: ServerAddress) -> String {
    address.tcp().map_or_else(|| "localhost".to_owned(), |address| address.to_string())
}

/// The verdict at the end of the response.
fn at_end(received: &[u8], settings: &GroupSettings) -> CheckOutcome {
    judge(received, settings, true).unwrap_or(CheckOutcome::Bad(match received {
        [] => Failure::Reset,
        _ => Failure::Malformed,
    }))
}

/// The verdict on the bytes received so far; `None`: more are needed.
fn judge(received: &[u8], settings: &GroupSettings, is_all: bool) -> Option<CheckOutcome> {
    let malformed = Some(CheckOutcome::Bad(Failure::Malformed));
    let mut rest = received;
    for _ in 0..=INTERIM_RESPONSES_MAX {
        let len = match HeadScanner::response().scan(rest, &NODE_RESPONSE_HEAD) {
            Ok(Some(len)) => len,
            Ok(None) => return None,
            Err(_) => return malformed,
        };
        let (head, body) = rest.split_at(len);
        let mut slots = FieldSlots::new();
        match parse_response(&mut slots, head, Method::Get, &NODE_RESPONSE_HEAD) {
            Err(_) => return malformed,
            Ok(response) if response.status < 200 => rest = body,
            Ok(response) if response.status == settings.check.status => {
                return Some(CheckOutcome::Good);
            }
            Ok(response) if response.status == 503 && announces_drain(body) => {
                return Some(CheckOutcome::DrainAnnounced);
            }
            // The body may announce a drain.
            Ok(response) if response.status == 503 && !is_all && may_go_on(&response, body) => {
                return None;
            }
            Ok(response) => return Some(CheckOutcome::Bad(Failure::Status(response.status))),
        }
    }
    malformed
}

/// Whether more of the body is needed.
fn may_go_on(response: &ResponseHead<'_, '_>, body: &[u8]) -> bool {
    let len_max = match response.framing {
        ResponseFraming::None => 0,
        ResponseFraming::Length(bytes) => bytes.min(CHECK_BODY_BYTES_MAX as u64) as usize,
        ResponseFraming::Chunked | ResponseFraming::UntilClose => CHECK_BODY_BYTES_MAX,
    };
    body.len() < len_max
}

/// Whether a 503 means that the member drains: its body contains the word, whatever its framing.
fn announces_drain(body: &[u8]) -> bool {
    let body = &body[..body.len().min(CHECK_BODY_BYTES_MAX)];
    body.split(|byte| !byte.is_ascii_alphanumeric()).any(|word| word == b"draining")
}
