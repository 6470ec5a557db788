//! Requests that go to the servers of a pool, and their responses.

use skep_engine::{Exchange, ExchangeError};
use skep_http::forward::{Claims, Forward, HostPolicy};
use skep_http::path::{self, Path, Reading};
use skep_http::{Reject, RequestHead};
use skep_proxy::{ForwardError, Refused, ReplyRules};

use super::SlowRequest;
use crate::model::pool_backend::PoolBackend;

impl SlowRequest<'_> {
    /// The same for a request whose path was read as the name of a file, but names none.
    pub(super) async fn pass_what_is_no_file(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        pool: &PoolBackend,
    ) -> Result<(), ExchangeError> {
        let path = path::read(request.path, Reading::Origins)?;
        self.pass_to_pool(request, exchange, pool, &path).await
    }

    /// Answers with the response of a server of `pool`. `path` is read as those of web servers are.
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
        let target = pool.target(path.target(), request.query).ok_or(Reject::PATH_TWO_ROUTES)?;
        let (without, extra) = pool.request_rules(&request.fields);
        let forward = Forward {
            client: exchange.conn().peer().ip(),
            proto: "http",
            host: pool.host.as_deref().map_or(HostPolicy::Keep, HostPolicy::Set),
            claims: self.claims(exchange, pool),
            target: Some(&target),
            server_name: self.site.name.as_deref(),
            upgrade: pool.upgrade,
            without: &without,
            extra: &extra,
        };
        let rules = ReplyRules {
            times: pool.times,
            without: &pool.response_without,
            extra: &pool.response_lines,
        };
        let servers = self.handler.servers(&pool.group);
        // By itself, so that what awaits it stays small: a future is moved with each that awaits it.
        match Box::pin(servers.forward(request, exchange, &forward, &rules)).await {
            Ok(()) => Ok(()),
            Err(ForwardError::Exchange(error)) => Err(error),
            Err(ForwardError::Refused(Refused { status, lines })) => {
                let lines = [&*lines, b"Cache-Status: skep; fwd=bypass\r\n"].concat();
                self.error(request, exchange, status, &lines).await
            }
        }
    }

    /// Whether what the request says about its client is believed: of dispatchers of the cluster,
    /// which are one hop with this node, and where the operator says so.
    fn claims(&self, exchange: &Exchange<'_>, pool: &PoolBackend) -> Claims {
        let peer = exchange.conn().peer().ip().to_canonical();
        if self.handler.node.dispatchers.load().contains(&peer) {
            Claims::Keep
        } else if pool.trusts_claims {
            Claims::Extend
        } else {
            Claims::Replace
        }
    }
}
