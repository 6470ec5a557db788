//! Unifies the codecs of application servers, which differ in bytes, not in events.

use std::ops::Range;

use skep_ajp::{AjpEvent, AjpExchange};
use skep_fastcgi::{FcgiError, FcgiEvent, FcgiExchange, FcgiRefusal, FcgiRequestError};
use skep_http::gateway::{GatewayHead, GatewayRequest};

use crate::members::cause::Cause;
use crate::members::protocol::{GatewayFault, MemberProtocol};

/// One request and its reply, in the protocol of the member.
#[derive(Clone)]
pub(in crate::request) enum GatewayCodec {
    Ajp(AjpExchange),
    Fcgi(FcgiExchange),
}

/// Why a request cannot be sent to a member in its protocol.
#[derive(Debug)]
pub(in crate::request) struct Unsendable {
    /// Status for the client.
    pub(in crate::request) status: u16,
    /// The reason, as a token: see [`crate::Refused`].
    pub(in crate::request) detail: Option<&'static str>,
    /// The reason, as text.
    pub(in crate::request) reason: String,
}

/// An event in a member's response.
pub(in crate::request) enum GatewayEvent {
    Head(GatewayHead),
    /// Bytes of the body, as a range of the input.
    Body(Range<usize>),
    /// The member waits for more of the request's body.
    Wants,
    /// A line for the log.
    Stderr(Vec<u8>),
    /// Everything received so far is to be sent to the client now.
    Flush,
    End,
}

impl Unsendable {
    pub(in crate::request) fn new(status: u16, reason: String) -> Self {
        Self { status, detail: None, reason }
    }
}

impl GatewayCodec {
    /// Appends the head of `request` to `out`, for a member that may be draining.
    ///
    /// # Errors
    /// [`Unsendable`].
    ///
    /// # Panics
    /// If the protocol is HTTP.
    pub(in crate::request) fn start(
        out: &mut Vec<u8>,
        request: &GatewayRequest<'_>,
        protocol: &MemberProtocol,
        is_draining: bool,
    ) -> Result<Self, Unsendable> {
        match protocol {
            MemberProtocol::Http => panic!("HTTP has no codec here"),
            MemberProtocol::Ajp(spec) => {
                AjpExchange::start(out, request, &spec.settings(is_draining))
                    .map(Self::Ajp)
                    .map_err(|error| Unsendable::new(error.status(), error.to_string()))
            }
            MemberProtocol::Fcgi(spec) => spec
                .with_settings(|settings| FcgiExchange::start(out, request, settings))
                .map(Self::Fcgi)
                .map_err(|error| {
                    let of = Unsendable::new(error.status(), spec.explain(error, request.path));
                    let is_script = error == FcgiRequestError::NoScript;
                    Unsendable { detail: is_script.then_some("no-script"), ..of }
                }),
        }
    }

    /// Bytes of the body that may be sent now in one packet, at most.
    pub(in crate::request) fn wanted(&self) -> usize {
        match self {
            Self::Ajp(exchange) => exchange.wanted(),
            Self::Fcgi(exchange) => exchange.wanted(),
        }
    }

    /// Whether the member waits for more of the body, or for its end.
    pub(in crate::request) fn is_awaited(&self) -> bool {
        match self {
            Self::Ajp(exchange) => exchange.is_awaited(),
            Self::Fcgi(exchange) => exchange.is_awaited(),
        }
    }

    /// Appends `bytes` of the body, at most as many as wanted.
    pub(in crate::request) fn write_body(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        match self {
            Self::Ajp(exchange) => out.extend_from_slice(&exchange.body_head(bytes.len())),
            Self::Fcgi(exchange) => out.extend_from_slice(&exchange.body_head(bytes.len())),
        }
        out.extend_from_slice(bytes);
    }

    /// Appends the end of the body.
    pub(in crate::request) fn write_end(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Ajp(exchange) => out.extend_from_slice(&exchange.body_end()),
            Self::Fcgi(exchange) => out.extend_from_slice(&exchange.body_end()),
        }
    }

    /// Takes received bytes and returns their number. Call it again with the rest, even if that is
    /// empty, as long as it returns events.
    pub(in crate::request) fn receive(
        &mut self,
        input: &[u8],
    ) -> Result<(usize, Option<GatewayEvent>), Cause> {
        match self {
            Self::Ajp(exchange) => {
                let received = exchange.receive(input).map_err(GatewayFault::from)?;
                let event = received.event.map(|event| match event {
                    AjpEvent::Head(head) => GatewayEvent::Head(head),
                    AjpEvent::Body(range) => GatewayEvent::Body(range),
                    AjpEvent::Flush => GatewayEvent::Flush,
                    AjpEvent::Wants(_) => GatewayEvent::Wants,
                    AjpEvent::End => GatewayEvent::End,
                });
                Ok((received.consumed, event))
            }
            Self::Fcgi(exchange) => {
                let received = exchange.receive(input).map_err(cause_of)?;
                let event = received.event.map(|event| match event {
                    FcgiEvent::Head(head) => GatewayEvent::Head(head),
                    FcgiEvent::Body(range) => GatewayEvent::Body(range),
                    FcgiEvent::Stderr(line) => GatewayEvent::Stderr(line),
                    FcgiEvent::End { .. } => GatewayEvent::End,
                });
                Ok((received.consumed, event))
            }
        }
    }

    /// The result of an end of the connection in the middle of a reply.
    pub(in crate::request) fn close(&self) -> Result<(), Cause> {
        let closed = match self {
            Self::Ajp(exchange) => exchange.close().map_err(GatewayFault::from),
            Self::Fcgi(exchange) => exchange.close().map_err(GatewayFault::from),
        };
        // Any other fault was returned when it was received.
        closed.map_err(|_| Cause::Broken)
    }

    /// The last line of standard error of a failed reply, if it has no line end.
    pub(in crate::request) fn stderr_rest(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Ajp(_) => None,
            Self::Fcgi(exchange) => exchange.stderr_rest(),
        }
    }

    /// Number of request fields that were not passed on.
    pub(super) fn dropped_fields(&self) -> u64 {
        match self {
            Self::Ajp(_) => 0,
            Self::Fcgi(exchange) => exchange.dropped_fields() as u64,
        }
    }

    /// Bytes of standard error that no event contains.
    pub(in crate::request) fn stderr_dropped_bytes(&self) -> u64 {
        match self {
            Self::Ajp(_) => 0,
            Self::Fcgi(exchange) => exchange.stderr_dropped_bytes(),
        }
    }

    /// Whether the connection may be used for another request, given `unread_bytes` that were not
    /// taken.
    pub(in crate::request) fn is_reusable(&self, unread_bytes: usize) -> bool {
        match self {
            Self::Ajp(exchange) => exchange.is_reusable(unread_bytes),
            Self::Fcgi(exchange) => exchange.is_reusable(unread_bytes),
        }
    }
}

impl From<GatewayFault> for Cause {
    fn from(fault: GatewayFault) -> Self {
        Self::Gateway(fault)
    }
}

fn cause_of(error: FcgiError) -> Cause {
    match error {
        FcgiError::Refused(FcgiRefusal::Overloaded | FcgiRefusal::CantMultiplex) => {
            Cause::Overloaded
        }
        error => Cause::Gateway(error.into()),
    }
}
