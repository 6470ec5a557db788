//! A request to a member, in the member's protocol; used for all attempts.

use skep_http::RequestHead;
use skep_http::forward::Forward;

use crate::request::gateway::GatewayLeg;
use crate::request::recipient::Ends;
use crate::request::upload::Upload;

pub(super) enum Outbound {
    Http(Box<Upload>),
    Gateway(Box<GatewayLeg>),
}

impl Outbound {
    /// Whether any part of the request may have reached the member.
    pub(super) fn is_begun(&self) -> bool {
        match self {
            Self::Http(upload) => upload.is_begun(),
            Self::Gateway(leg) => leg.is_begun(),
        }
    }

    /// Whether the member has the whole request.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::Http(upload) => upload.is_complete(),
            Self::Gateway(leg) => leg.is_complete(),
        }
    }

    /// Restores the request, of a client at `ends`, for another connection. Possible only if none of
    /// it was sent, or if it has no body.
    pub(super) fn restart(
        &mut self,
        head: &RequestHead<'_, '_>,
        forward: &Forward<'_>,
        ends: Ends,
    ) {
        match self {
            Self::Http(upload) => upload.restart(head, forward),
            Self::Gateway(leg) => leg.restart(head, forward, ends),
        }
    }
}
