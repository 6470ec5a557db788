//! Where the bytes of a reply come from, and who is sent them.

use std::collections::VecDeque;
use std::fs::File;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use skep_engine::Exchange;
use skep_http::{Known, RequestHead};
use skep_serve::client_of;
use skep_telemetry::CacheResult;

use super::Serving;
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
        came: CacheResult,
        address: IpAddr,
    ) -> Source<'a> {
        Source {
            store: &self.handler.node.store,
            site: &self.site,
            object,
            counters: self.handler.context.counters(),
            others: self.others(resource),
            remote: resource.remote().map(|_| (&self.remotes, resource)),
            came,
            file,
            prepared: None,
            client: Client { address, pins: &self.handler.node.pins },
            taker: Taker::default(),
            ahead: VecDeque::new(),
            entered: None,
        }
    }

    /// What the client is held to account by: its address, or its part of IPv6's
    /// (`limits.client_ipv6_prefix_bits`). Behind a proxying dispatcher the one that
    /// it names; who comes here directly may lie about it.
    pub(super) fn client(&self, request: &RequestHead<'_, '_>, exchange: &Exchange<'_>) -> IpAddr {
        let is_proxied = self.handler.node.is_proxied.load(Ordering::Relaxed);
        let named = request.known(Known::XForwardedFor).filter(|_| is_proxied);
        let named = named.and_then(|it| std::str::from_utf8(it).ok()?.split(',').next());
        let named = named.and_then(|it| it.trim().parse().ok());
        let address = named.unwrap_or_else(|| exchange.conn().peer().ip());
        client_of(address, self.handler.node.ipv6_prefix_bits.load(Ordering::Relaxed))
    }
}
