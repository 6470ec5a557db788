//! The client to which a reply's memory is accounted.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use skep_engine::Exchange;
use skep_http::{Known, RequestHead};
use skep_serve::client_of;

use super::SlowRequest;

impl SlowRequest<'_> {
    /// The address that the client is accounted by: its own, or its prefix in IPv6
    /// (`limits.client_ipv6_prefix_bits`). Behind a proxying dispatcher it is the address that
    /// the dispatcher reports; a client that connects here directly can forge it.
    pub(super) fn client(&self, request: &RequestHead<'_, '_>, exchange: &Exchange<'_>) -> IpAddr {
        let is_proxied = self.handler.node.is_proxied.load(Ordering::Relaxed);
        let named = request.fields.known(Known::XForwardedFor).filter(|_| is_proxied);
        let named = named.and_then(client_named);
        let address = named.unwrap_or_else(|| exchange.conn().peer().ip());
        client_of(address, self.handler.node.ipv6_prefix_bits.load(Ordering::Relaxed))
    }
}

/// The client in a value of X-Forwarded-For written by a dispatcher, which appends the address
/// of its peer. If the dispatcher trusts a proxy (`trust_forwarded`), that peer is the proxy,
/// and the entry before it was written by the proxy. Any entry further left may be forged.
fn client_named(value: &[u8]) -> Option<IpAddr> {
    let named = std::str::from_utf8(value).ok()?.rsplit(',').take(2).last()?;
    named.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_one_whom_the_nearest_proxy_saw() {
        let client = |value: &str| client_named(value.as_bytes()).map(|it| it.to_string());
        assert_eq!(client("192.0.2.1").as_deref(), Some("192.0.2.1"));
        assert_eq!(client("192.0.2.1, 10.0.0.1").as_deref(), Some("192.0.2.1"));
        assert_eq!(client("6.6.6.6, 192.0.2.1,10.0.0.1").as_deref(), Some("192.0.2.1"));
        assert_eq!(client("6.6.6.6, 2001:db8::1, 10.0.0.1").as_deref(), Some("2001:db8::1"));
        for nobody in ["", "unknown", "192.0.2.1, unknown, 10.0.0.1"] {
            assert_eq!(client(nobody), None, "{nobody}");
        }
    }
}
