//! The client to which a reply's memory is accounted.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use skep_engine::Exchange;
use skep_http::RequestHead;
use skep_http::forward::Claims;
use skep_serve::client_of;

use super::SlowRequest;

impl SlowRequest<'_> {
    /// The address that the client is accounted by: its own, or its prefix in IPv6
    /// (`limits.client_ipv6_prefix_bits`). Behind a proxying dispatcher it is the address that
    /// the dispatcher reports; a client that connects here directly can forge it.
    pub(super) fn client(&self, request: &RequestHead<'_, '_>, exchange: &Exchange<'_>) -> IpAddr {
        let claims = match self.handler.node.is_proxied.load(Ordering::Relaxed) {
            true => Claims::Keep,
            false => Claims::Replace,
        };
        let address = claims.client(request).unwrap_or_else(|| exchange.conn().peer().ip());
        client_of(address, self.handler.node.ipv6_prefix_bits.load(Ordering::Relaxed))
    }
}
