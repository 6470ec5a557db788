//! Requests to replies: the node's side of the engine.

use std::borrow::Cow;
use std::cell::{RefCell, RefMut};
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::Cache;
use skep_engine::{Context, Exchange, ExchangeError, Handler, Quick, Reply};
use skep_http::negotiate::{AcceptEncoding, prefers_json};
use skep_http::path::{self, Path};
use skep_http::{Known, Method, RequestHead, multipart};
use skep_serve::{monotonic_ms, unix_ms};
use skep_telemetry::{CacheResult, Counter};
use skep_units::SEGMENT_BYTES;

use crate::catalog::{Catalog, Located};
use crate::cluster::PeerClient;
use crate::disk::DiskError;
use crate::fetch_error::FetchError;
use crate::limits::{ATTEMPTS_MAX, COPY_BYTES_MAX, QUICK_BYTES_MAX};
use crate::listing::Listing;
use crate::object::{CACHE_STATUS_HIT, Object};
use crate::remote::Remotes;
use crate::resource::Resource;
use crate::respond::{Plan, end_head, is_simple, plan, write_head};
use crate::segment::Segment;
use crate::site::Site;
use crate::stream::{SendError, Source, pool};
use crate::worker_index::{Entry, WorkerIndex};
use crate::{HEALTH_PATH, Node};

mod bytes;
mod elsewhere;
mod remote;

use remote::borrowed_key;

const ALLOW: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";

/// A node's handler on one worker.
pub struct NodeHandler {
    node: Arc<Node>,
    context: Rc<Context>,
    /// The client of other nodes, if this one gets from their memory.
    peer_client: Option<Rc<PeerClient>>,
    view: RefCell<View>,
}

/// The catalog in force, as this worker last saw it, and its index into it.
struct View {
    cache: Cache<Arc<arc_swap::ArcSwap<Catalog>>, Arc<Catalog>>,
    catalog: Arc<Catalog>,
    worker_index: Rc<WorkerIndex>,
    remotes: Rc<Remotes>,
}

impl NodeHandler {
    pub(crate) fn new(node: &Arc<Node>, context: &Rc<Context>) -> Rc<Self> {
        let mut cache = Cache::new(Arc::clone(&node.catalog));
        let catalog = Arc::clone(cache.load());
        let worker_index =
            Rc::new(WorkerIndex::new(catalog.sites().len(), &node.store, &node.worker_indexes));
        let peer_client = node
            .cluster
            .get()
            .map(|cluster| Rc::new(PeerClient::new(cluster, context.worker(), context.counters())));
        let remotes = node.remotes(context, peer_client.as_ref(), &catalog);
        let view = RefCell::new(View { cache, catalog, worker_index, remotes });
        Rc::new(Self { node: Arc::clone(node), context: Rc::clone(context), peer_client, view })
    }

    /// The way to the origins of the sites in force.
    pub(crate) fn remotes(&self) -> Rc<Remotes> {
        Rc::clone(&self.view().remotes)
    }

    /// The view in force: one atomic load when there was no reload.
    fn view(&self) -> RefMut<'_, View> {
        let mut view = self.view.borrow_mut();
        let current = Arc::as_ptr(view.cache.load());
        if current != Arc::as_ptr(&view.catalog) {
            let catalog = Arc::clone(view.cache.load());
            view.worker_index = Rc::new(WorkerIndex::new(
                catalog.sites().len(),
                &self.node.store,
                &self.node.worker_indexes,
            ));
            view.remotes = self.node.remotes(&self.context, self.peer_client.as_ref(), &catalog);
            view.catalog = catalog;
        }
        view
    }

    /// Health as dispatchers ask for it: 503 tells them to send no more.
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
        let Ok(read) = path::read(request.path, site.reading()) else { return Quick::Later };
        let Some(path) = read.key_as_sent() else { return Quick::Later };
        let interval_ms = view.catalog.interval_ms();
        let Some(key) = borrowed_key(site, request, path) else { return Quick::Later };
        let hit = view.worker_index.with(site.index, key, |resource, entry| {
            let now_ms = self.context.worker().now_ms();
            if !resource.is_current(now_ms, interval_ms) {
                return Quick::Later;
            }
            answer_from_memory((resource, entry), request, reply, now_ms)
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
        let serving = Serving { handler: self, catalog, worker_index, remotes, site };
        match request.method {
            Method::Get | Method::Head => serving.get(request, exchange).await,
            Method::Options => {
                let mut reply = exchange.reply.write();
                reply.start(204);
                reply.lines(ALLOW);
                reply.lines(&serving.site.lines);
                reply.end_head();
                Ok(())
            }
            _ => serving.error(request, exchange, 405, ALLOW).await,
        }
    }
}

/// A hit: everything that a reply needs is in memory.
fn answer_from_memory(
    (resource, entry): (&Arc<Resource>, &Entry),
    request: &RequestHead<'_, '_>,
    reply: &mut Reply<'_>,
    now_ms: u64,
) -> Quick {
    let variants = &resource.variants;
    let encoding = match variants.is_varied() {
        true => AcceptEncoding::parse(request).choose(variants.available()),
        false => None,
    };
    let (slot, object) = variants.get(encoding);
    let status = object.status();
    let plan = match is_simple(request) || status != 200 {
        true => Plan::Whole,
        false => plan(request, object, unix_ms() / 1000),
    };
    let range = match &plan {
        Plan::Whole => 0..object.bytes(),
        Plan::Part(part) => part.clone(),
        Plan::Parts(_) => return Quick::Later,
        _ => 0..0,
    };
    let mut segment = None;
    if reply.body_wanted() && !range.is_empty() {
        if range.end - range.start > QUICK_BYTES_MAX || object.bytes() > SEGMENT_BYTES {
            return Quick::Later;
        }
        let is_whole =
            |found: &Arc<Segment>| found.is_complete() && u64::from(found.len()) == object.bytes();
        segment = entry.segments[slot].upgrade().filter(is_whole);
        if segment.is_none() {
            return Quick::Later;
        }
    }
    resource.mark_used();
    reply.context().counters().inc(Counter::CacheHit);
    reply.summary().cache = CacheResult::Hit;
    match plan {
        Plan::Whole => {
            reply.prebuilt(status, &object.hit_head);
            if let Some(freshness) = resource.freshness() {
                reply.field_number("Age", freshness.age_s(now_ms));
            }
            end_head(reply, object);
        }
        ref plan => {
            let lines = cache_lines(resource, CacheResult::Hit, now_ms);
            let _ = write_head(reply, object, plan, 200, &lines);
        }
    }
    if let Some(segment) = segment {
        skep_cache::Entry::touch(&*segment);
        write_body(reply, &segment, range.start as u32, range.end as u32);
    }
    Quick::Done
}

/// Writes bytes `start..end` of a segment that has them.
fn write_body(reply: &mut Reply<'_>, segment: &Arc<Segment>, start: u32, end: u32) {
    if let Some(bytes) = segment.heap_bytes().filter(|bytes| bytes.len() <= COPY_BYTES_MAX) {
        return reply.body_copy(&bytes[start as usize..end as usize]);
    }
    let mut at = start;
    while let Some(slice) = segment.slice(at, end) {
        at += slice.len();
        reply.body_shared(slice);
    }
    assert_eq!(at, end, "a reply has the bytes that its head says");
}

/// One request that needs more than a look into memory.
struct Serving<'a> {
    handler: &'a NodeHandler,
    catalog: Arc<Catalog>,
    worker_index: Rc<WorkerIndex>,
    remotes: Rc<Remotes>,
    site: Arc<Site>,
}

impl Serving<'_> {
    async fn get(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), ExchangeError> {
        let read = path::read(request.path, self.site.reading())?;
        let path = read.key();
        if read.behind(HEALTH_PATH.as_bytes()) == Some(b"") {
            self.handler.health(&mut exchange.reply.write());
            return Ok(());
        }
        if let Some((status, location)) = self.site.moved(&read) {
            redirect(&mut exchange.reply.write(), status, &location, &self.site.lines);
            return Ok(());
        }
        if let Some(remote) = &self.site.remote {
            return self.get_remote(request, exchange, remote, path).await;
        }
        for _ in 0..ATTEMPTS_MAX {
            let located = self.locate(path).await;
            let failed = match located {
                Ok(Located::Resource(resource, file)) => {
                    let ready = Ready { resource, file, cache_result: CacheResult::Hit };
                    match self.send(request, exchange, ready, As::Asked(path)).await? {
                        Sent::Done => return Ok(()),
                        Sent::Changed => continue,
                        Sent::Failed(error) => error,
                    }
                }
                Ok(Located::NeedsSlash) => return self.add_slash(request, exchange, &read),
                Ok(Located::Directory) => return self.list(request, exchange, path).await,
                Err(error) => error,
            };
            if failed != DiskError::Changed.into() {
                return self.failed(request, exchange, failed).await;
            }
        }
        // It changes faster than it can be read.
        self.failed(request, exchange, DiskError::Changed.into()).await
    }

    async fn failed(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        error: FetchError,
    ) -> Result<(), ExchangeError> {
        if error == DiskError::NotFound.into()
            && let Some(page) = self.site.spa_fallback.clone()
        {
            return self.page(request, exchange, 200, 404, &page, b"").await;
        }
        if !error.is_answer() {
            self.handler.context.counters().inc(error.counter());
        }
        let status = error.status();
        if status == 500 {
            tracing::warn!(target = request.target, %error, "a file could not be read");
        }
        let mut lines = error.cache_status();
        if status == 503 {
            lines.extend_from_slice(&self.retry_after());
        }
        self.error(request, exchange, status, &lines).await
    }

    async fn locate(&self, path: &[u8]) -> Result<Located, FetchError> {
        if let Some(remote) = &self.site.remote {
            let kept = self.kept(remote, path).await.ok_or(DiskError::NotFound)?;
            return Ok(Located::Resource(kept, None));
        }
        let own = self.catalog.locate_or_wait(&self.site, path).await;
        self.or_elsewhere(path, own).await
    }

    /// Sends a file.
    async fn send(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        ready: Ready,
        as_what: As<'_>,
    ) -> Result<Sent, ExchangeError> {
        let Ready { resource, file, cache_result } = ready;
        let resource = &resource;
        resource.mark_used();
        let variants = &resource.variants;
        let encoding = match variants.is_varied() {
            true => AcceptEncoding::parse(request).choose(variants.available()),
            false => None,
        };
        let (slot, object) = variants.get(encoding);
        let status = match as_what {
            As::Asked(_) | As::Page(200) => object.status(),
            As::Page(status) => status,
        };
        let plan = match status {
            200 => plan(request, object, unix_ms() / 1000),
            _ => Plan::Whole,
        };
        let file = file.filter(|_| slot == 0).map(Arc::new);
        let client = self.client(request, exchange);
        let mut source = self.source(resource, object, file, cache_result, client);
        // What is not settled is in no cache, even if there are no bytes of it.
        let mut cache = if object.is_settled { cache_result } else { CacheResult::Stream };
        let wants_bytes = plan.needs_bytes() && object.bytes() > 0 && exchange.reply.body_wanted();
        let mut first = None; // Named, not held: a slow client's reply lets go of it.
        if wants_bytes {
            match source.prepare(plan.first_byte()).await {
                Ok(prepared) => (first, cache) = prepared,
                Err(error) => return Ok(self.source_failed(resource, error)),
            }
        }
        if resource.is_purged() {
            // While its bytes were got: no reply begins with it any more.
            resource.drop_purged(&self.handler.node.store);
            return Ok(Sent::Changed);
        }
        let mut reply = exchange.reply.write();
        reply.summary().cache = cache;
        let lines = cache_lines(resource, cache, monotonic_ms());
        let boundary = write_head(&mut reply, object, &plan, status, &lines);
        let sent = send_body(&mut source, &mut exchange.reply, object, &plan, boundary).await;
        match sent {
            Ok(()) => {}
            Err(SendError::Client(error)) => return Err(error),
            // Nobody has seen of it: another version may do, or an error says why.
            Err(SendError::Source(error)) if exchange.reply.take_back() => {
                return Ok(self.source_failed(resource, error));
            }
            Err(SendError::Source(error)) => return Err(self.cut_short(resource, error)),
        }
        let is_at_hand = object.bytes() == 0 || first.is_some();
        if let As::Asked(path) = as_what
            && object.bytes() <= SEGMENT_BYTES
            && is_at_hand
            && resource.is_settled()
        {
            self.worker_index.remember(path, resource, slot, first.unwrap_or_default());
        }
        Ok(Sent::Done)
    }

    /// The client of other nodes, if a resource may come from them instead of its
    /// origin.
    fn peer_client(&self, resource: &Resource) -> Option<&PeerClient> {
        let is_theirs = self.site.is_shared || resource.is_elsewhere();
        self.handler.peer_client.as_deref().filter(|_| is_theirs)
    }

    fn source_failed(&self, resource: &Arc<Resource>, error: FetchError) -> Sent {
        let is_gone = match error {
            FetchError::File(DiskError::Changed | DiskError::NotFound) => true,
            FetchError::Peer | FetchError::Abandoned => resource.remote().is_none(),
            // Whoever read from an origin has retired it if it is to be.
            _ => false,
        };
        if is_gone {
            self.catalog.retire(resource);
        }
        if resource.is_retired() { Sent::Changed } else { Sent::Failed(error) }
    }

    /// A reply that has begun and lacks the rest of its bytes.
    fn cut_short(&self, resource: &Arc<Resource>, error: FetchError) -> ExchangeError {
        self.source_failed(resource, error);
        let (counter, reason) = error.cut();
        self.handler.context.counters().inc(counter);
        ExchangeError::ReplyCutShort(reason)
    }

    fn add_slash(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        path: &Path<'_>,
    ) -> Result<(), ExchangeError> {
        let mut location = path.target().to_vec();
        location.push(b'/');
        if let Some(query) = request.query {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        redirect(&mut exchange.reply.write(), 301, &location, &self.site.lines);
        Ok(())
    }

    async fn list(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        path: &[u8],
    ) -> Result<(), ExchangeError> {
        let (site, listed) = (Arc::clone(&self.site), path.to_vec());
        let listing = match pool(move || Listing::read(&site, &listed)).await {
            Ok(listing) => listing,
            Err(error) => return self.failed(request, exchange, error.into()).await,
        };
        let (content_type, body) = match prefers_json(request.known(Known::Accept)) {
            true => ("application/json", listing.json()),
            false => ("text/html; charset=utf-8", listing.html(path)),
        };
        drop(listing);
        self.send_made(request, exchange, content_type, body).await
    }

    /// An error reply: the operator's page if there is one, else a line.
    async fn error(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        status: u16,
        extra_lines: &[u8],
    ) -> Result<(), ExchangeError> {
        if let Some(page) = self.site.error_pages.get(&status).cloned() {
            return self.page(request, exchange, status, status, &page, extra_lines).await;
        }
        let lines = [extra_lines, &*self.site.lines].concat();
        exchange.reply.write().plain(status, &lines);
        Ok(())
    }

    /// Sends the file at `page` with `status`; if it can't be had, a line that
    /// says `missing`.
    async fn page(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        status: u16,
        missing: u16,
        page: &[u8],
        extra_lines: &[u8],
    ) -> Result<(), ExchangeError> {
        for _ in 0..ATTEMPTS_MAX {
            let Ok(Located::Resource(resource, file)) = self.locate(page).await else { break };
            let ready = Ready { resource, file, cache_result: CacheResult::Hit };
            match self.send(request, exchange, ready, As::Page(status)).await? {
                Sent::Done => return Ok(()),
                Sent::Changed => {}
                Sent::Failed(_) => break,
            }
        }
        let lines = [extra_lines, &*self.site.lines].concat();
        exchange.reply.write().plain(missing, &lines);
        Ok(())
    }

    fn retry_after(&self) -> Vec<u8> {
        let seconds = self.handler.context.settings().retry_after_s;
        format!("Retry-After: {seconds}\r\n").into_bytes()
    }
}

/// What a request is answered with.
struct Ready {
    resource: Arc<Resource>,
    /// The open plain file, if it had to be opened.
    file: Option<File>,
    /// What the cache did to find it.
    cache_result: CacheResult,
}

/// Why a file is sent.
#[derive(Clone, Copy)]
enum As<'a> {
    /// It is what was asked for, by this path or target, which leads to it again. Nothing
    /// that comes before a look at files, such as a redirect, stands in the way.
    Asked(&'a [u8]),
    /// It stands for what is not to be had, with this status. Any but 200 is sent whole
    /// and unconditionally. Its own path may lead elsewhere.
    Page(u16),
}

/// How an attempt to send a file ended: with all of it, or before anything was
/// written.
enum Sent {
    Done,
    /// There is another version by now, or none: look again.
    Changed,
    /// The version is still the right one, its bytes are not to be had.
    Failed(FetchError),
}

async fn send_body(
    source: &mut Source<'_>,
    reply: &mut skep_engine::ReplySink<'_>,
    object: &Object,
    plan: &Plan,
    boundary: Option<multipart::Boundary>,
) -> Result<(), SendError> {
    match (plan, boundary) {
        (Plan::Whole, _) => source.send(reply, 0..object.bytes()).await,
        (Plan::Part(part), _) => source.send(reply, part.clone()).await,
        (Plan::Parts(parts), Some(boundary)) if reply.body_wanted() => {
            let mut head = Vec::with_capacity(256);
            for part in parts {
                head.clear();
                let bytes = object.bytes();
                multipart::write_part_head(&mut head, &boundary, &object.content_type, part, bytes);
                reply.write().body_copy(&head);
                source.send(reply, part.clone()).await?;
            }
            head.clear();
            multipart::write_end(&mut head, &boundary);
            reply.write().body_copy(&head);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Lines on what the cache did, and how old that is.
fn cache_lines(resource: &Resource, result: CacheResult, now_ms: u64) -> Cow<'static, [u8]> {
    match resource.freshness() {
        None => Cow::Borrowed(cache_status(result)),
        Some(freshness) => {
            let age = format!("Age: {}\r\n", freshness.age_s(now_ms));
            Cow::Owned([age.as_bytes(), cache_status(result)].concat())
        }
    }
}

/// What the cache did, in the words of RFC 9211.
fn cache_status(result: CacheResult) -> &'static [u8] {
    match result {
        CacheResult::Hit => CACHE_STATUS_HIT,
        CacheResult::Fill => b"Cache-Status: skep; fwd=uri-miss; stored\r\n",
        CacheResult::Miss => b"Cache-Status: skep; fwd=uri-miss; collapsed\r\n",
        CacheResult::Revalidated => b"Cache-Status: skep; fwd=stale; fwd-status=304\r\n",
        // For the client the cluster is one cache.
        CacheResult::Peer => b"Cache-Status: skep; hit; detail=peer\r\n",
        _ => b"Cache-Status: skep; fwd=bypass\r\n",
    }
}

fn redirect(reply: &mut Reply<'_>, status: u16, location: &[u8], lines: &[u8]) {
    reply.start(status);
    reply.field("Location", location);
    reply.lines(b"Content-Length: 0\r\n");
    reply.lines(lines);
    reply.end_head();
}
