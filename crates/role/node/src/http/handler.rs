//! The node's side of the engine: turns requests into replies.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::Cache;
use skep_engine::{Context, Exchange, ExchangeError, Handler, Quick, Reply};
use skep_http::{Method, RequestHead};
use skep_proxy::{Group, WorkerGroup};
use skep_serve::monotonic_ms;

use crate::backend::files::catalog::Catalog;
use crate::backend::origin::Remotes;
use crate::http::compress::Selected;
use crate::http::respond::is_simple;
use crate::model::conditions::RouteInput;
use crate::model::resource::Resource;
use crate::model::route::{Backend, Route};
use crate::model::site::Site;
use crate::model::worker_index::{Entry, WorkerIndex};
use crate::peers::PeerClient;
use crate::{HEALTH_PATH, Node};

mod cached;
mod client;
mod compressed;
mod files;
mod get;
mod hand_over;
mod origin;
mod outgoing;
mod pages;
mod pool;
mod quick;
mod send;

use quick::{answer_from_memory, borrowed_key};

const ALLOW: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";

/// A node's handler on one worker.
pub struct NodeHandler {
    node: Arc<Node>,
    context: Rc<Context>,
    /// The client of other nodes, if this node reads from their memory.
    peer_client: Option<Rc<PeerClient>>,
    view: RefCell<CatalogView>,
    /// This worker's shares of the pools to which it has sent requests, by name.
    servers: RefCell<HashMap<String, Rc<WorkerGroup>>>,
    /// Encoders in use for responses that are passed on.
    passed_encoders: Rc<Cell<usize>>,
}

/// The current catalog, as last loaded by this worker, and the worker's index of it.
struct CatalogView {
    cache: Cache<Arc<arc_swap::ArcSwap<Catalog>>, Arc<Catalog>>,
    catalog: Arc<Catalog>,
    worker_index: Rc<WorkerIndex>,
    remotes: Rc<Remotes>,
}

impl NodeHandler {
    pub(crate) fn new(node: &Arc<Node>, context: &Rc<Context>) -> Rc<Self> {
        let mut cache = Cache::new(Arc::clone(&node.catalog));
        let catalog = Arc::clone(cache.load());
        let worker_index = Rc::new(WorkerIndex::new(
            catalog.sites().routes_len(),
            &node.store,
            &node.worker_indexes,
        ));
        let peer_client = node
            .cluster
            .get()
            .map(|cluster| Rc::new(PeerClient::new(cluster, context.worker(), context.counters())));
        let remotes = node.remotes(context, peer_client.as_ref(), &catalog);
        let view = RefCell::new(CatalogView { cache, catalog, worker_index, remotes });
        let (node, context, servers) = (Arc::clone(node), Rc::clone(context), RefCell::default());
        let passed_encoders = Rc::default();
        let handler = Rc::new(Self { node, context, peer_client, view, servers, passed_encoders });
        handler.release_when_off();
        handler
    }

    /// Releases this worker's memory each time that the node is switched off.
    fn release_when_off(self: &Rc<Self>) {
        let (handler, mut seen) = (Rc::downgrade(self), self.node.power.releases());
        self.context.worker().on_tick(move || {
            let Some(handler) = handler.upgrade() else { return false };
            let releases = handler.node.power.releases();
            if std::mem::replace(&mut seen, releases) != releases {
                let mut view = handler.view();
                let routes = view.catalog.sites().routes_len();
                let (store, indexes) = (&handler.node.store, &handler.node.worker_indexes);
                view.worker_index = Rc::new(WorkerIndex::new(routes, store, indexes));
                drop(view);
                skep_memory::return_unused();
            }
            true
        });
    }

    /// The current catalog, and the client of the origins of its routes.
    pub(crate) fn in_force(&self) -> (Arc<Catalog>, Rc<Remotes>) {
        let view = self.view();
        (Arc::clone(&view.catalog), Rc::clone(&view.remotes))
    }

    /// The current view: one atomic load unless there was a reload.
    fn view(&self) -> RefMut<'_, CatalogView> {
        let mut view = self.view.borrow_mut();
        let current = Arc::as_ptr(view.cache.load());
        if current != Arc::as_ptr(&view.catalog) {
            let catalog = Arc::clone(view.cache.load());
            view.worker_index = Rc::new(WorkerIndex::new(
                catalog.sites().routes_len(),
                &self.node.store,
                &self.node.worker_indexes,
            ));
            view.remotes = self.node.remotes(&self.context, self.peer_client.as_ref(), &catalog);
            view.catalog = catalog;
            let is_current = |own: &Rc<WorkerGroup>| self.node.pools.is_current(own.group());
            self.servers.borrow_mut().retain(|_, own| is_current(own));
        }
        view
    }

    /// This worker's share of a pool.
    fn servers(&self, pool: &Arc<Group>) -> Rc<WorkerGroup> {
        let mut servers = self.servers.borrow_mut();
        match servers.get(pool.name()) {
            Some(own) if Arc::ptr_eq(own.group(), pool) => Rc::clone(own),
            _ => {
                let own = WorkerGroup::new(pool, &self.context);
                servers.insert(pool.name().to_owned(), Rc::clone(&own));
                own
            }
        }
    }

    /// Records the size of the object that answered a request, for processes that select nodes.
    fn tell_served(
        &self,
        resource: &Resource,
        request: &RequestHead<'_, '_>,
        status: u16,
        now_ms: u64,
    ) {
        let has_bytes = matches!(status, 200 | 206) && request.method == Method::Get;
        let served = &self.node.served;
        if has_bytes && served.is_wanted() && resource.is_to_be_told(now_ms) {
            let selected = Selected::of(resource, request);
            let object = selected.object().map_or(&resource.variants.plain, |(_, object)| object);
            served.note(request, object.bytes());
        }
    }

    /// Answers a dispatcher's health check: 503 makes it stop sending requests.
    fn health(&self, reply: &mut Reply<'_>) {
        let leaving = self.node.leaving.load(Ordering::Relaxed);
        let (status, body): (u16, &[u8]) = match leaving || self.context.worker().is_draining() {
            true => (503, b"draining\n"),
            false => (200, b"ok\n"),
        };
        reply.start(status);
        reply.lines(b"Content-Type: text/plain\r\nCache-Control: no-store\r\n");
        reply.field_number("Content-Length", body.len() as u64);
        reply.end_head();
        reply.body_copy(body);
    }
}

impl Handler for NodeHandler {
    fn quick(&self, request: &RequestHead<'_, '_>, reply: &mut Reply<'_>) -> Quick {
        if !matches!(request.method, Method::Get | Method::Head) {
            return Quick::Later;
        }
        let view = self.view();
        let Some(site) = view.catalog.sites().find(&request.authority) else {
            return Quick::Later;
        };
        let Ok((route, read)) = site.route(request.path, RouteInput::of(request)) else {
            return Quick::Later;
        };
        if let Backend::Pool(pool) = &route.backend {
            return match site.moved(&read) {
                Some(_) => Quick::Later,
                None => {
                    self.answer_stored(&view.worker_index, (route, pool), &read, request, reply)
                }
            };
        }
        let Some(path) = read.key_as_sent() else { return Quick::Later };
        let interval_ms = view.catalog.interval_ms();
        let Some(key) = borrowed_key(route, request, path) else { return Quick::Later };
        let hit = view.worker_index.with(route.index, key, |resource, entry| {
            let now_ms = self.context.worker().now_ms();
            if !resource.is_current(now_ms, interval_ms) {
                return Quick::Later;
            }
            let answered = answer_from_memory((resource, entry), request, reply, now_ms);
            if answered == Quick::Done {
                let status = reply.summary().status;
                self.tell_served(resource, request, status, now_ms);
            }
            answered
        });
        match hit {
            Some(quick) => quick,
            None if path == HEALTH_PATH.as_bytes() => {
                self.health(reply);
                Quick::Done
            }
            None => Quick::Later,
        }
    }

    /// The size of an object in this worker's index. The size is unknown until a node has served
    /// the object once.
    fn expected_bytes(&self, request: &RequestHead<'_, '_>) -> Option<u64> {
        let is_whole = request.method == Method::Get && is_simple(request);
        let view = is_whole.then(|| self.view())?;
        let site = view.catalog.sites().find(&request.authority)?;
        let (route, read) = site.route(request.path, RouteInput::of(request)).ok()?;
        let key = borrowed_key(route, request, read.key_as_sent()?)?;
        let bytes = |resource: &Arc<Resource>, _: &Entry| {
            Selected::of(resource, request).object().map(|(_, object)| object.bytes())
        };
        view.worker_index.with(route.index, key, bytes)?
    }

    /// Without stored responses, requests would be parsed twice in vain.
    fn answers_quickly(&self) -> bool {
        self.view().catalog.sites().keeps_responses()
    }

    async fn slow(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), ExchangeError> {
        let (catalog, worker_index, remotes) = {
            let view = self.view();
            (Arc::clone(&view.catalog), Rc::clone(&view.worker_index), Rc::clone(&view.remotes))
        };
        let Some(site) = catalog.sites().find(&request.authority).map(Arc::clone) else {
            exchange.reply.write().plain(421, b"");
            return Ok(());
        };
        if !site.purges.is_in_step(monotonic_ms()) {
            site.purges.until_in_step().await;
        }
        let found = site.route(request.path, RouteInput::of(request));
        let found = found.map(|(route, path)| (Arc::clone(route), path));
        let route = found.as_ref().map_or_else(|_| site.default_route(), |(route, _)| route);
        let route = Arc::clone(route);
        let slow = SlowRequest { handler: self, catalog, worker_index, remotes, site, route };
        match request.method {
            Method::Get | Method::Head => slow.get(request, exchange, &found?.1).await,
            _ if request.path != b"*"
                && let Backend::Reply(reply) = &slow.route.backend =>
            {
                slow.reply(request, exchange, reply, &found?.1).await
            }
            _ if request.path != b"*"
                && let Some(pool) = slow.route.pool() =>
            {
                found?;
                slow.pass_what_is_no_file(request, exchange, pool).await
            }
            Method::Options => {
                let mut reply = exchange.reply.write();
                reply.start(204);
                reply.lines(ALLOW);
                reply.lines(&slow.route.lines);
                reply.end_head();
                Ok(())
            }
            _ => slow.error(request, exchange, 405, ALLOW).await,
        }
    }
}

/// A request that cannot be answered from the worker's index.
struct SlowRequest<'a> {
    handler: &'a NodeHandler,
    catalog: Arc<Catalog>,
    worker_index: Rc<WorkerIndex>,
    remotes: Rc<Remotes>,
    site: Arc<Site>,
    /// The route of the request's path.
    route: Arc<Route>,
}
