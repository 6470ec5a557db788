//! A worker's handler: answers one service's requests, in the service's dispatch mode.

use std::cell::{RefCell, RefMut};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use skep_config::DispatchMode;
use skep_engine::{Context, Exchange, ExchangeError, Handler, Quick, Reply};
use skep_http::RequestHead;
use skep_telemetry::{CoreCounters, Counter};
use skep_units::{NodeId, Now, Rng};
use skep_upstream::Pool;

use crate::http::worker_balancer::{PickedNode, WorkerBalancer};
use crate::service::dispatcher::Dispatcher;

/// Answers a service's requests on one worker.
pub struct DispatcherHandler {
    dispatcher: Arc<Dispatcher>,
    context: Rc<Context>,
    pool: Rc<Pool>,
    balancer: RefCell<WorkerBalancer>,
}

impl DispatcherHandler {
    /// The handler of `dispatcher` on the worker of `context`.
    pub fn new(dispatcher: &Arc<Dispatcher>, context: &Rc<Context>) -> Rc<Self> {
        let worker = context.worker();
        let pool = Pool::new(worker, dispatcher.published().load().settings.pool);
        // Workers must not walk in step: each has a sequence of its own.
        let seed = Rng::new(dispatcher.seed().wrapping_add(worker.index() as u64)).next_u64();
        let balancer = WorkerBalancer::new(dispatcher.published(), Rc::clone(&pool), seed);
        let handler = Rc::new(Self {
            dispatcher: Arc::clone(dispatcher),
            context: Rc::clone(context),
            pool,
            balancer: RefCell::new(balancer),
        });
        let ticking = Rc::downgrade(&handler);
        worker.on_tick(move || {
            let handler = ticking.upgrade();
            handler.map(|handler| handler.balancer().tick()).is_some()
        });
        handler
    }

    pub(crate) fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    pub(crate) fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    /// Must not be held over an `await`.
    pub(crate) fn balancer(&self) -> RefMut<'_, WorkerBalancer> {
        self.balancer.borrow_mut()
    }

    pub(crate) fn counters(&self) -> &CoreCounters {
        self.context.counters()
    }

    pub(crate) fn now(&self) -> Now {
        Now(self.context.worker().now_ms())
    }

    pub(crate) fn pick(
        &self,
        request: &RequestHead<'_, '_>,
        client: SocketAddr,
        exclude: &[NodeId],
    ) -> Option<PickedNode> {
        self.balancer().pick(request, client, exclude, self.now())
    }

    /// 503: no node may take the request.
    pub(crate) fn refuse_for_want_of_nodes(&self, reply: &mut Reply<'_>) {
        self.counters().inc(Counter::NoNode);
        let in_force = Rc::clone(self.balancer().sync());
        reply.plain(503, &in_force.settings.retry_after_line);
    }

    fn dispatch(&self) -> DispatchMode {
        self.balancer().sync().settings.dispatch
    }
}

impl Handler for DispatcherHandler {
    fn quick(&self, request: &RequestHead<'_, '_>, reply: &mut Reply<'_>) -> Quick {
        match self.dispatch() {
            DispatchMode::Redirect => {
                self.redirect(request, reply.client(), reply);
                Quick::Done
            }
            DispatchMode::Proxy | DispatchMode::Direct => Quick::Later,
        }
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
            // A request with a body.
            DispatchMode::Redirect => {
                let mut reply = exchange.reply.write();
                self.redirect(request, reply.client(), &mut reply);
                Ok(())
            }
            // Whose service became direct by a reload: proxied until the restart.
            DispatchMode::Proxy | DispatchMode::Direct => self.proxy(request, exchange).await,
        }
    }
}
