//! The interface by which a role answers requests.

use skep_http::RequestHead;
use skep_serve::Conn;

use crate::exchange::{Exchange, ExchangeError};
use crate::reply::Reply;
use crate::summary::Summary;

/// Whether a request could be answered from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quick {
    /// The reply is complete.
    Done,
    /// Nothing was written; ask [`Handler::slow`].
    Later,
}

/// A connection before one of its requests.
pub struct ConnectionSoFar<'a> {
    pub conn: &'a Conn,
    /// Requests that were answered here.
    pub requests: u64,
    /// How often it has moved between nodes.
    pub moves: u8,
}

/// Where a connection should go: means something to the handler alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination(pub u32);

/// A connection that is to leave for another node.
pub struct Departure<'a, 'f, 'b> {
    pub conn: &'a Conn,
    /// The request that begins `received`; `None`: the client is idle.
    pub request: Option<&'a RequestHead<'f, 'b>>,
    /// All bytes that were read and not answered: the request's head, and what follows it.
    pub received: &'a [u8],
    pub to: Destination,
    /// How often the connection has moved between nodes.
    pub moves: u8,
    /// The node that accepted it, if not this one.
    pub accepted_by: Option<&'a str>,
}

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departed {
    /// It is as it was: this node answers.
    Kept,
    /// Another node has it. Its descriptor closes silently.
    Gone,
}

/// What became of a request.
pub struct Answered<'a> {
    pub conn: &'a Conn,
    pub summary: &'a Summary,
    /// Whether all of the response was written; `None`: it was the client who would not have it.
    pub is_whole: Option<bool>,
    /// From the request's head to that of the response, in microseconds.
    pub first_byte_us: u64,
    /// The same to the end.
    pub total_us: u64,
}

/// Answers requests; one value per worker, shared by its connections.
pub trait Handler: 'static {
    /// Answers at once if that needs no waiting. Runs inside a poll: must not
    /// block, and should not allocate. Never sees a request with a body.
    fn quick(&self, request: &RequestHead<'_, '_>, reply: &mut Reply<'_>) -> Quick;

    /// Whether [`Handler::quick`] can ever answer. A proxy returns false, which saves parsing every
    /// head twice.
    fn answers_quickly(&self) -> bool {
        true
    }

    /// Where this request should be answered, with its connection; `None`: here. Asked before
    /// [`Handler::quick`], with nothing unsent; must be as quick.
    fn destination(
        &self,
        _request: &RequestHead<'_, '_>,
        _connection: &ConnectionSoFar<'_>,
    ) -> Option<Destination> {
        None
    }

    /// Where a connection between two requests should go; `None`: it stays. Asked when
    /// [`TimeoutCause::Evacuate`](skep_serve::TimeoutCause) wakes it.
    fn idle_destination(&self, _connection: &ConnectionSoFar<'_>) -> Option<Destination> {
        None
    }

    /// Bytes of the reply to this request, if that is known at once.
    fn expected_bytes(&self, _request: &RequestHead<'_, '_>) -> Option<u64> {
        None
    }

    /// Hands the connection of such a request off.
    fn depart(&self, _departure: Departure<'_, '_, '_>) -> impl Future<Output = Departed> {
        std::future::ready(Departed::Kept)
    }

    /// A request has been answered, or not.
    fn answered(&self, _answered: &Answered<'_>) {}

    /// Answers asynchronously: on return the reply is complete, though perhaps unsent. An error
    /// closes the connection; if none of a reply was sent, an error reply is sent first. The rest
    /// of the request's body is read and discarded.
    fn slow(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> impl Future<Output = Result<(), ExchangeError>>;
}
