//! Requests forwarded to the servers of a pool, and their responses.

use std::net::IpAddr;

use skep_engine::{Exchange, ExchangeError};
use skep_http::forward::{Claims, Forward, HostPolicy};
use skep_http::path::{self, Path, Reading};
use skep_http::{Reject, RequestHead};
use skep_httpcache::{CacheStatus, is_safe};
use skep_proxy::{ForwardError, Refused, ReplyCoding, Tap};
use skep_units::Now;

use super::hand_over::HandOver;
use super::{NodeHandler, SlowRequest};
use crate::backend::dynamic::{Changed, Invalidation};
use crate::http::cacheable::{CACHE_OFF, CacheBypass, Cacheable};
use crate::model::pool_backend::PoolBackend;
use crate::model::pool_cache::{scheme_of, with_query};

impl SlowRequest<'_> {
    /// The same for a request whose path was parsed as a file name but leads to no file.
    pub(super) async fn pass_what_is_no_file(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        pool: &PoolBackend,
    ) -> Result<(), ExchangeError> {
        let path = path::read(request.path, Reading::Origins)?;
        self.pass_to_pool(request, exchange, pool, &path).await
    }

    /// Answers with the response of a server of `pool`. `path` is parsed by the rules for origins.
    pub(super) async fn pass_to_pool(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        pool: &PoolBackend,
        path: &Path<'_>,
    ) -> Result<(), ExchangeError> {
        if !pool.allows(request.method) {
            return self.error(request, exchange, 405, &pool.allow_line).await;
        }
        if let Some(bytes_max) = pool.body_bytes_max {
            exchange.body.limit(bytes_max)?;
        }
        if let Some(timeout_ms) = pool.upload_timeout_ms {
            exchange.body.limit_time(timeout_ms);
        }
        let claims = self.handler.claims(exchange.conn().peer().ip(), pool);
        let from = (claims, exchange.conn().peer().ip());
        pool.count_session(request, from, Now(self.handler.context.worker().now_ms()));
        let mut past = None;
        if let Some(cache) = &pool.cache {
            match Cacheable::of(request, (pool, cache), path, claims)? {
                // Boxed, as are all large futures here: a future is moved together with the one that
                // awaits it.
                Ok(of) => return Box::pin(self.answer_cacheable(request, exchange, &of)).await,
                Err(of) => past = Some(of),
            }
        }
        let target = pool.target(path.target(), request.query).ok_or(Reject::PATH_TWO_ROUTES)?;
        let (mut without, mut extra) = pool.request_rules(&request.fields);
        pool.name_plain_tags(&request.fields, (&mut without, &mut extra));
        let forward = Forward {
            client: exchange.conn().peer().ip(),
            proto: "http",
            host: pool.host.as_deref().map_or(HostPolicy::Keep, HostPolicy::Set),
            claims,
            target: Some(&target),
            server_name: self.site.name.as_deref(),
            upgrade: pool.upgrade,
            without: &without,
            extra: &extra,
        };
        let status = past.map_or(CACHE_OFF, CacheBypass::status);
        if is_safe(request.method) || !self.site.stores_responses() {
            return Box::pin(self.pass(request, exchange, pool, &forward, &status)).await;
        }
        let changed = Changed {
            method: request.method,
            scheme: scheme_of(request, claims),
            authority: request.authority,
            target: with_query(path.target(), request.query),
        };
        let peers = self.handler.peer_client.as_deref();
        let of = (&self.route, &*self.site);
        let mut tap = Invalidation::new(of, peers, changed, status.line());
        Box::pin(self.pass_by(request, exchange, pool, &forward, (&status, Some(&mut tap)))).await
    }

    /// Answers with the response of a server to the request `forward`; `status` is the Cache-Status for
    /// the client.
    pub(super) async fn pass(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        pool: &PoolBackend,
        forward: &Forward<'_>,
        status: &CacheStatus<'_>,
    ) -> Result<(), ExchangeError> {
        self.pass_by(request, exchange, pool, forward, (status, None)).await
    }

    /// The same, with a tap that adds Cache-Status itself. A file that the response names is sent in place
    /// of its body.
    async fn pass_by(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        pool: &PoolBackend,
        forward: &Forward<'_>,
        (cache, tap): (&CacheStatus<'_>, Option<&mut dyn Tap>),
    ) -> Result<(), ExchangeError> {
        let cache_line = cache.line();
        let is_tapped = tap.is_some() || pool.file_names.is_some();
        let own_line = if is_tapped { &b""[..] } else { &cache_line };
        let coding = self.passed_compression(request);
        let coding = coding.as_ref().map(|it| it as &dyn ReplyCoding);
        let rules = pool.reply_rules(own_line, coding);
        let servers = self.handler.servers(&pool.group);
        let forwarded = match tap {
            tap if is_tapped => {
                let mut tap = HandOver::new(pool, tap, &cache_line);
                let forwarded =
                    servers.forward_tapped(request, exchange, forward, &rules, &mut tap);
                let forwarded = Box::pin(forwarded).await;
                if let Some(named) = tap.into_named(&forwarded).await {
                    return Box::pin(self.send_named(request, exchange, pool, &named)).await;
                }
                forwarded
            }
            _ => servers.forward(request, exchange, forward, &rules).await,
        };
        match forwarded {
            Ok(()) => Ok(()),
            Err(ForwardError::Exchange(error)) => Err(error),
            Err(ForwardError::Refused(Refused { status, lines, detail, .. })) => {
                let cache = CacheStatus { detail: cache.detail.or(detail), ..*cache };
                let lines = [&*lines, &cache.line()].concat();
                self.error(request, exchange, status, &lines).await
            }
        }
    }
}

impl NodeHandler {
    /// How the request's statements about its client are treated: those of dispatchers of the cluster,
    /// which form one hop with this node, are trusted, as are others where the config allows it.
    pub(super) fn claims(&self, client: IpAddr, pool: &PoolBackend) -> Claims {
        pool.claims(self.node.dispatchers.load().contains(&client.to_canonical()))
    }
}
