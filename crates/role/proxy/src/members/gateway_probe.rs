//! Checks of application servers, in the terms of each protocol.
//!
//! ```text
//!   FastCGI  GET_VALUES, or the path of the check: php-fpm's `ping.path`
//!   AJP      CPING, then `OPTIONS *`, then the path of the check, if there is one
//! ```
//! `OPTIONS *` reaches no application, so a refusal is by the server itself: a 403 indicates that
//! the secret is wrong or missing. CPONG is sent even without a secret.

use std::rc::Rc;

use skep_ajp::{AjpEvent, AjpExchange, AjpSettings, CPING, Pong};
use skep_cluster::Failure;
use skep_fastcgi::{FcgiEvent, FcgiExchange, GET_VALUES, ValuesReply};
use skep_http::Method;
use skep_http::limits::RESPONSE_HEAD;
use skep_serve::{Conn, Output, Worker};
use skep_units::ServerAddress;
use skep_upstream::UpstreamError;

use crate::members::conn_io::{self, read_more};
use crate::members::probe_request::probe_request;
use crate::members::protocol::{AjpSpec, MemberProtocol};
use crate::members::settings::GroupSettings;
use crate::members::state::CheckOutcome;

/// A check in progress.
pub(super) struct Asking<'a> {
    worker: &'a Rc<Worker>,
    address: ServerAddress,
    settings: &'a GroupSettings,
    is_connected: bool,
}

/// The result of a step: a failure is not always one of the connection.
type ProbeStep = Result<Result<(), Failure>, UpstreamError>;

impl<'a> Asking<'a> {
    pub(super) fn new(
        worker: &'a Rc<Worker>,
        address: ServerAddress,
        settings: &'a GroupSettings,
    ) -> Self {
        Self { worker, address, settings, is_connected: false }
    }

    /// Whether only a free worker of the application is missing: the kernel has accepted the
    /// connection, or its queue is full, which only a Unix socket reports.
    pub(super) fn waits_for_worker(&self) -> bool {
        let has_workers = self.settings.protocol != MemberProtocol::Http;
        has_workers && (self.is_connected || self.address.tcp().is_none())
    }

    /// Returns the verdict. Not bounded in time.
    pub(super) async fn ask(&mut self) -> Result<CheckOutcome, UpstreamError> {
        let timeout_ms = self.settings.membership.health.timeout_ms;
        let connected = Conn::connect(self.worker, self.address, timeout_ms).await;
        let conn = match connected.map_err(UpstreamError::from) {
            Err(UpstreamError::ConnectTimeout) => {
                return Ok(CheckOutcome::Bad(Failure::TimedOut));
            }
            connected => connected?,
        };
        self.is_connected = true;
        let asked = match &self.settings.protocol {
            MemberProtocol::Ajp(spec) => self.ask_by_ajp(&conn, spec).await?,
            MemberProtocol::Http | MemberProtocol::Fcgi(_) => self.ask_by_fcgi(&conn).await?,
        };
        Ok(asked.map_or_else(CheckOutcome::Bad, |()| CheckOutcome::Good))
    }

    async fn ask_by_fcgi(&self, conn: &Conn) -> ProbeStep {
        let Some(path) = &self.settings.check.path else {
            let mut reply = ValuesReply::default();
            send(conn, &GET_VALUES).await?;
            return until(conn, |bytes| match reply.receive(bytes) {
                Ok(true) => Some(Ok(())),
                Ok(false) => None,
                Err(_) => Some(Err(Failure::Malformed)),
            })
            .await;
        };
        let mut out = Vec::new();
        let Ok(mut exchange) = FcgiExchange::probe(&mut out, path.as_bytes(), b"", &RESPONSE_HEAD)
        else {
            return Ok(Err(Failure::Malformed));
        };
        send(conn, &out).await?;
        let expected = self.settings.check.status;
        until(conn, |bytes| {
            let mut at = 0;
            loop {
                let Ok(received) = exchange.receive(&bytes[at..]) else {
                    return Some(Err(Failure::Malformed));
                };
                at += received.consumed;
                match received.event? {
                    FcgiEvent::Head(head) => return Some(verdict(head.status, expected)),
                    FcgiEvent::End { .. } => return Some(Err(Failure::Malformed)),
                    FcgiEvent::Body(_) | FcgiEvent::Stderr(_) => {}
                }
            }
        })
        .await
    }

    async fn ask_by_ajp(&self, conn: &Conn, spec: &AjpSpec) -> ProbeStep {
        let mut pong = Pong::default();
        send(conn, &CPING).await?;
        let ponged = until(conn, |bytes| match pong.receive(bytes) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(_) => Some(Err(Failure::Malformed)),
        })
        .await?;
        if let Err(failure) = ponged {
            return Ok(Err(failure));
        }
        let settings = spec.settings(false);
        let host = self.settings.check.host.as_deref().unwrap_or("localhost");
        let known = ajp_status(conn, &settings, (Method::Options, "*"), host).await?;
        match (known, &self.settings.check.path) {
            (Err(failure), _) => Ok(Err(failure)),
            (Ok(403), _) => Ok(Err(Failure::Secret)),
            (Ok(_), None) => Ok(Ok(())),
            (Ok(_), Some(path)) => {
                let status = ajp_status(conn, &settings, (Method::Get, path), host).await?;
                Ok(status.and_then(|status| verdict(status, self.settings.check.status)))
            }
        }
    }
}

fn verdict(found: u16, expected: u16) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(Failure::Status(found)) }
}

/// The status of the reply to a request without a body; the reply is read to its end.
async fn ajp_status(
    conn: &Conn,
    settings: &AjpSettings<'_>,
    (method, target): (Method<'_>, &str),
    host: &str,
) -> Result<Result<u16, Failure>, UpstreamError> {
    let request = probe_request(method, target, host, &[("User-Agent", b"skep-check")]);
    let mut out = Vec::new();
    let Ok(mut exchange) = AjpExchange::start(&mut out, &request, settings) else {
        return Ok(Err(Failure::Malformed));
    };
    send(conn, &out).await?;
    let mut status = None;
    until(conn, |bytes| {
        let mut at = 0;
        loop {
            let Ok(received) = exchange.receive(&bytes[at..]) else {
                return Some(Err(Failure::Malformed));
            };
            at += received.consumed;
            match received.event? {
                AjpEvent::Head(head) => status = Some(head.status),
                AjpEvent::End => return Some(status.ok_or(Failure::Malformed)),
                AjpEvent::Body(_) | AjpEvent::Flush | AjpEvent::Wants(_) => {}
            }
        }
    })
    .await
}

async fn send(conn: &Conn, bytes: &[u8]) -> Result<(), UpstreamError> {
    let mut output = Output::default();
    output.copy(bytes);
    Ok(conn_io::send(conn, output).await?)
}

/// Reads until `take` returns a verdict on the bytes received.
async fn until<R>(
    conn: &Conn,
    mut take: impl FnMut(&[u8]) -> Option<Result<R, Failure>>,
) -> Result<Result<R, Failure>, UpstreamError> {
    let mut received = Vec::new();
    loop {
        received.clear();
        if !read_more(conn, &mut received).await? {
            return Ok(Err(Failure::Reset));
        }
        if let Some(verdict) = take(&received) {
            return Ok(verdict);
        }
    }
}
