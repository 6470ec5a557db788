//! A worker's handler: answers one service's requests in the dispatch mode of the service.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use skep_config::DispatchMode;
use skep_engine::{Context, Exchange, ExchangeError, Handler, Quick, Reply};
use skep_http::RequestHead;
use skep_http::forward::{Claims, Forward, HostPolicy, upgrade_of, write_request};
use skep_proxy::{ForwardError, ReplyRules, WorkerGroup};
use skep_telemetry::CoreCounters;

use crate::service::{DispatchSettings, Dispatcher};

/// Answers a service's requests on one worker.
pub struct DispatcherHandler {
    context: Rc<Context>,
    nodes: Rc<WorkerGroup>,
    settings: RefCell<Cache<Arc<ArcSwap<DispatchSettings>>, Arc<DispatchSettings>>>,
}

impl DispatcherHandler {
    /// The handler of `dispatcher` on the worker of `context`.
    pub fn new(dispatcher: &Arc<Dispatcher>, context: &Rc<Context>) -> Rc<Self> {
        Rc::new(Self {
            context: Rc::clone(context),
            nodes: WorkerGroup::new(dispatcher.group(), context),
            settings: RefCell::new(Cache::new(Arc::clone(dispatcher.settings()))),
        })
    }

    pub(crate) fn nodes(&self) -> &Rc<WorkerGroup> {
        &self.nodes
    }

    pub(crate) fn counters(&self) -> &CoreCounters {
        self.context.counters()
    }

    /// Calls `look` with the settings in force, without counting a reference, for which workers would
    /// contend.
    pub(crate) fn with_settings<R>(&self, look: impl FnOnce(&DispatchSettings) -> R) -> R {
        look(self.settings.borrow_mut().load())
    }

    fn dispatch(&self) -> DispatchMode {
        self.with_settings(|settings| settings.dispatch)
    }

    /// Answers `request` with a node's response.
    async fn proxy(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), ExchangeError> {
        let trusts = self.with_settings(|settings| settings.trust_forwarded);
        let claims = if trusts { Claims::Extend } else { Claims::Replace };
        let forward = forward(exchange.conn().peer(), claims);
        match self.nodes.forward(request, exchange, &forward, &ReplyRules::default()).await {
            Ok(()) => Ok(()),
            Err(ForwardError::Exchange(error)) => Err(error),
            Err(ForwardError::Refused(refused)) => {
                exchange.reply.write().plain(refused.status, &refused.lines);
                Ok(())
            }
        }
    }
}

impl Handler for DispatcherHandler {
    fn quick(&self, request: &RequestHead<'_, '_>, reply: &mut Reply<'_>) -> Quick {
        let is_redirected = self.dispatch() == DispatchMode::Redirect;
        if !is_redirected || must_be_proxied(request, reply.client()) {
            return Quick::Later;
        }
        self.redirect(request, reply.client(), reply);
        Quick::Done
    }

    fn answers_quickly(&self) -> bool {
        matches!(self.dispatch(), DispatchMode::Redirect)
    }

    async fn slow(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), ExchangeError> {
        match self.dispatch() {
            DispatchMode::Redirect if must_be_proxied(request, exchange.conn().peer()) => {
                self.proxy(request, exchange).await
            }
            // A request with a body.
            DispatchMode::Redirect => {
                let mut reply = exchange.reply.write();
                self.redirect(request, reply.client(), &mut reply);
                Ok(())
            }
            // The service is steered since a reload: its requests are proxied until the restart.
            DispatchMode::Proxy | DispatchMode::Direct | DispatchMode::Handoff => {
                self.proxy(request, exchange).await
            }
        }
    }
}

/// Whether clients would not follow a redirect of `request`: browsers do not during the handshake of
/// a WebSocket (RFC 6455 4.1 leaves it to them, the Fetch standard forbids it).
fn must_be_proxied(request: &RequestHead<'_, '_>, client: SocketAddr) -> bool {
    upgrade_of(request, &forward(client, Claims::Replace)).is_some()
}

/// The head of a request of a client on this machine, in the form in which a proxying dispatcher
/// sends it to a node.
pub fn forwarded_head(request: &RequestHead<'_, '_>) -> Vec<u8> {
    let mut head = Vec::new();
    let client = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    write_request(&mut head, request, &forward(client, Claims::Replace));
    head
}

/// How requests of `client` are forwarded.
fn forward(client: SocketAddr, claims: Claims) -> Forward<'static> {
    Forward {
        client: client.ip(),
        proto: "http",
        host: HostPolicy::Keep,
        claims,
        target: None,
        server_name: None,
        upgrade: true,
        without: &[],
        extra: b"",
    }
}
