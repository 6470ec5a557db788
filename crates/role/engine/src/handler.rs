//! The interface through which a role answers requests.

use skep_http::RequestHead;
use skep_serve::Conn;

use crate::exchange::{Exchange, ExchangeError};
use crate::reply::Reply;
use crate::summary::Summary;

/// Whether a request was answered from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quick {
    /// The reply is complete.
    Done,
    /// Nothing was written; call [`Handler::slow`].
    Later,
}

/// The state of a connection before one of its requests.
pub struct ConnectionSoFar<'a> {
    pub conn: &'a Conn,
    /// Number of requests answered here.
    pub requests: u64,
    /// Number of times that it has moved between nodes.
    pub moves: u8,
}

/// The node to which a connection should move; only the handler interprets the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination(pub u32);

/// A connection that is about to move to another node.
pub struct Departure<'a, 'f, 'b> {
    pub conn: &'a Conn,
    /// The request that begins `received`; `None`: the client is idle.
    pub request: Option<&'a RequestHead<'f, 'b>>,
    /// All bytes that were read and not answered: the request's head, and what follows it.
    pub received: &'a [u8],
    pub to: Destination,
    /// Number of times that the connection has moved between nodes.
    pub moves: u8,
    /// The node that accepted it, if not this one.
    pub accepted_by: Option<&'a str>,
}

/// The result of a hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departed {
    /// The connection is unchanged: this node answers.
    Kept,
    /// Another node has it. Its descriptor is closed silently.
    Gone,
}

/// The result of a request.
pub struct Answered<'a> {
    pub conn: &'a Conn,
    pub summary: &'a Summary,
    /// Whether all of the response was written; `None`: not, because of the client.
    pub is_whole: Option<bool>,
    /// Time from the request's head to that of the response, in microseconds.
    pub first_byte_us: u64,
    /// The same up to the end of the response.
    pub total_us: u64,
}

/// Answers requests; one value per worker, shared by its connections.
pub trait Handler: 'static {
    /// Answers at once if that is possible without waiting. Runs inside a poll: must not block, and
    /// should not allocate. Not called for requests with a body.
    fn quick(&self, request: &RequestHead<'_, '_>, reply: &mut Reply<'_>) -> Quick;

    /// Whether [`Handler::quick`] can ever answer. A proxy returns false, which saves parsing every
    /// head twice.
    fn answers_quickly(&self) -> bool {
        true
    }

    /// The node that should answer this request and get its connection; `None`: this one. Called
    /// before [`Handler::quick`], when no output is queued; must be as quick.
    fn destination(
        &self,
        _request: &RequestHead<'_, '_>,
        _connection: &ConnectionSoFar<'_>,
    ) -> Option<Destination> {
        None
    }

    /// The node to which an idle connection should move; `None`: it stays. Called when
    /// [`TimeoutCause::Evacuate`](skep_serve::TimeoutCause) wakes the connection.
    fn idle_destination(&self, _connection: &ConnectionSoFar<'_>) -> Option<Destination> {
        None
    }

    /// Size of the reply to this request in bytes, if known at once.
    fn expected_bytes(&self, _request: &RequestHead<'_, '_>) -> Option<u64> {
        None
    }

    /// Hands a connection off.
    fn depart(&self, _departure: Departure<'_, '_, '_>) -> impl Future<Output = Departed> {
        std::future::ready(Departed::Kept)
    }

    /// Called when a request was answered, or its reply failed.
    fn answered(&self, _answered: &Answered<'_>) {}

    /// Answers asynchronously: on return the reply is complete, though possibly not sent yet. An
    /// error closes the connection; if none of the reply was sent, an error reply is sent first.
    /// The rest of the request's body is read and discarded.
    fn slow(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> impl Future<Output = Result<(), ExchangeError>>;
}
