//! The interface by which a role answers requests.

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

    /// Whether [`Handler::quick`] can ever answer. A proxy returns false, which saves parsing every
    /// head twice.
    fn answers_quickly(&self) -> bool {
        true
    }

    /// Answers asynchronously: on return the reply is complete, though perhaps unsent. An error
    /// closes the connection; if none of a reply was sent, an error reply is sent first. The rest
    /// of the request's body is read and discarded.
    fn slow(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> impl Future<Output = Result<(), ExchangeError>>;
}
