//! The client to which the memory of a reply is charged.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use skep_engine::Exchange;
use skep_http::RequestHead;
use skep_http::forward::Claims;
use skep_serve::client_of;

use super::SlowRequest;

impl SlowRequest<'_> {
    /// The address to which the client's memory is charged: its own, or its IPv6 prefix
    /// (`limits.client_ipv6_prefix_bits`). Behind a proxying dispatcher it is the address that the
    /// dispatcher reports; a client that connects directly can forge it.
    pub(super) fn client(&self, request: &RequestHead<'_, '_>, exchange: &Exchange<'_>) -> IpAddr {
        let claims = match self.handler.node.is_proxied.load(Ordering::Relaxed) {
            true => Claims::Keep,
            false => Claims::Replace,
        };
        let address = claims.client(request).unwrap_or_else(|| exchange.conn().peer().ip());
        client_of(address, self.handler.node.ipv6_prefix_bits.load(Ordering::Relaxed))
    }
}
