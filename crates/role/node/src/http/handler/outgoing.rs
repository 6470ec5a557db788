//! Fields of requests to pools whose responses may be stored.

use std::net::IpAddr;
use std::sync::Arc;

use skep_http::RequestHead;
use skep_http::forward::{Claims, Forward, HostPolicy};
use skep_httpcache::write_conditions;

use crate::model::pool_backend::PoolBackend;
use crate::model::resource::Resource;

/// Conditional and range fields of clients. They are evaluated against the stored response.
const CONDITIONS: &[&str] =
    &["if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range"];

/// The parts of a forwarded request that a fill sends.
pub(super) struct Outgoing<'a> {
    client: IpAddr,
    claims: Claims,
    pool: &'a PoolBackend,
    target: &'a [u8],
    server_name: Option<&'a [u8]>,
    without: Vec<String>,
    extra: Vec<u8>,
}

impl<'a> Outgoing<'a> {
    /// `kept` is validated; without it, `keeps_conditions` determines whether the client's
    /// conditions are forwarded.
    pub(super) fn new(
        request: &RequestHead<'_, '_>,
        (pool, target, claims): (&'a PoolBackend, &'a [u8], Claims),
        (client, server_name): (IpAddr, Option<&'a [u8]>),
        kept: Option<&Arc<Resource>>,
        keeps_conditions: bool,
    ) -> Self {
        let (mut without, mut extra) = pool.request_rules(&request.fields);
        if keeps_conditions && kept.is_none() {
            pool.name_plain_tags(&request.fields, (&mut without, &mut extra));
        }
        let (mut without, mut extra) = (without.into_owned(), extra.into_owned());
        if kept.is_some() || !keeps_conditions {
            without.extend(CONDITIONS.iter().map(|&name| name.to_owned()));
        }
        const CODINGS: &str = "accept-encoding";
        if pool.asks_for_plain && !without.iter().any(|name| name.eq_ignore_ascii_case(CODINGS)) {
            without.push(CODINGS.to_owned());
            extra.extend_from_slice(b"Accept-Encoding: identity\r\n");
        }
        if let Some(cache) = &pool.cache {
            let names = request.fields.iter().map(|(name, _)| name);
            let is_condition =
                |name: &&str| CONDITIONS.iter().any(|it| it.eq_ignore_ascii_case(name));
            let names = names.filter(|name| !is_condition(name));
            let dropped = names.filter(|name| cache.is_dropped(name.as_bytes(), claims));
            without.extend(dropped.map(str::to_owned));
        }
        if let Some(remote) = kept.and_then(|kept| kept.remote()) {
            write_conditions(&mut extra, &[remote.head.validators()]);
        }
        Self { client, claims, pool, target, server_name, without, extra }
    }

    pub(super) fn forward(&self) -> Forward<'_> {
        let host = self.pool.host.as_deref();
        Forward {
            client: self.client,
            proto: "http",
            host: host.map_or(HostPolicy::Keep, HostPolicy::Set),
            claims: self.claims,
            target: Some(self.target),
            server_name: self.server_name,
            upgrade: self.pool.upgrade,
            without: &self.without,
            extra: &self.extra,
        }
    }
}
