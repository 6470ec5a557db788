//! What a role answers requests with.

use skep_http::RequestHead;

use crate::exchange::{Exchange, ExchangeError};
use crate::reply::Reply;

/// Whether a request could be answered from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quick {
    /// The reply is complete.
    Done,
    /// Nothing was written; ask [`Handler::slow`].
    Later,
}

/// Answers requests; one value per worker, shared by its connections.
pub trait Handler: 'static {
    /// Answers at once if that needs no waiting. Runs inside a poll: must not
    /// block, and should not allocate. Never sees a request with a body.
    fn quick(&self, request: &RequestHead<'_, '_>, reply: &mut Reply<'_>) -> Quick;

    /// Whether asking [`Handler::quick`] can be worth it at all. A proxy says
    /// no, and saves parsing every head twice.
    fn answers_quickly(&self) -> bool {
        true
    }

    /// Answers in its own time: when it is done the reply is whole, if not sent. An error
    /// closes the connection; if the client has seen nothing of a reply, it is told first.
    /// What is left of the request's body is read and thrown away.
    fn slow(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> impl Future<Output = Result<(), ExchangeError>>;
}
