//! Where the bytes of a reply come from, and who is sent them.

use std::collections::VecDeque;
use std::fs::File;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use skep_engine::{Exchange, ExchangeError};
use skep_http::{Known, RequestHead};
use skep_serve::client_of;
use skep_telemetry::{CacheResult, Counter};

use super::Serving;
use crate::fetch_error::FetchError;
use crate::object::Object;
use crate::resource::Resource;
use crate::stream::{Client, Source};
use crate::taker::Taker;

impl Serving<'_> {
    /// Where bytes of an object of `resource` come from: memory, and what is behind it.
    pub(super) fn source<'a>(
        &'a self,
        resource: &'a Arc<Resource>,
        object: &'a Arc<Object>,
        file: Option<Arc<File>>,
        cache_result: CacheResult,
        address: IpAddr,
    ) -> Source<'a> {
        Source {
            store: &self.handler.node.store,
            site: &self.site,
            object,
            counters: self.handler.context.counters(),
            peer_client: self.peer_client(resource),
            remote: resource.remote().map(|_| (&self.remotes, resource)),
            cache_result,
            file,
            prepared: None,
            client: Client { address, pins: &self.handler.node.pins },
            taker: Taker::default(),
            ahead: VecDeque::new(),
            entered: None,
        }
    }

    /// Sends a body that was made for this client alone. It counts as what replies hold: an
    /// address has its share, and who is slow is cut off when others need the memory.
    pub(super) async fn send_made(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<(), ExchangeError> {
        let (store, bytes) = (&self.handler.node.store, body.len() as u64);
        let share = self.handler.node.pins.share(self.client(request, exchange), bytes);
        let Some(_share) = share.filter(|_| store.may_pin()) else {
            self.handler.context.counters().inc(Counter::PinsRefused);
            return self.error(request, exchange, 503, &self.retry_after()).await;
        };
        let _held = store.ledger().hold(bytes);
        let mut reply = exchange.reply.write();
        reply.start(200);
        reply.field("Content-Type", content_type.as_bytes());
        reply.field_number("Content-Length", bytes);
        reply.lines(b"Cache-Control: no-cache\r\nVary: Accept\r\n");
        reply.lines(&self.site.lines);
        reply.end_head();
        reply.body_copy(&body);
        drop(body);
        loop {
            match tokio::time::timeout(Taker::PATIENCE, exchange.reply.flush()).await {
                Ok(flushed) => return flushed,
                Err(_) if store.may_fill() => {}
                Err(_) => {
                    let (counter, reason) = FetchError::NoMemory.cut();
                    self.handler.context.counters().inc(counter);
                    return Err(ExchangeError::ReplyCutShort(reason));
                }
            }
        }
    }

    /// What the client is held to account by: its address, or its part of IPv6's
    /// (`limits.client_ipv6_prefix_bits`). Behind a proxying dispatcher the one that
    /// it names; who comes here directly may lie about it.
    pub(super) fn client(&self, request: &RequestHead<'_, '_>, exchange: &Exchange<'_>) -> IpAddr {
        let is_proxied = self.handler.node.is_proxied.load(Ordering::Relaxed);
        let named = request.known(Known::XForwardedFor).filter(|_| is_proxied);
        let named = named.and_then(client_named);
        let address = named.unwrap_or_else(|| exchange.conn().peer().ip());
        client_of(address, self.handler.node.ipv6_prefix_bits.load(Ordering::Relaxed))
    }
}

/// The client in a value of X-Forwarded-For that a dispatcher has written: it puts whoever
/// connected to it last. Where it trusts a proxy (`trust_forwarded`), that is the proxy, and
/// the one before is what the proxy says. What is further left may be anybody's invention.
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
