//! Sends a resource: 200, 206, 304, 412 or 416, and the bytes.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use skep_engine::{Exchange, ExchangeError, ReplySink};
use skep_http::{Method, RequestHead, multipart};
use skep_segments::{FetchError, Segment};
use skep_serve::{monotonic_ms, unix_ms};
use skep_telemetry::CacheResult;
use skep_units::SEGMENT_BYTES;

use super::SlowRequest;
use crate::disk::DiskError;
use crate::http::client_pace::ClientPace;
use crate::http::compress::Selected;
use crate::http::named_file::NamedFile;
use crate::http::respond::{ReplyLines, ResponsePlan, StoredStatus, cache_lines, plan, write_head};
use crate::http::stream::{Client, ObjectStream, ReplyError};
use crate::http::upstream::Upstream;
use crate::limits::COMPRESSED_ATTEMPTS_MAX;
use crate::model::changes::SeenVersion;
use crate::model::object::Object;
use crate::model::resource::Resource;

/// The resource that answers a request.
pub(super) struct ResponseSource {
    pub(super) resource: Arc<Resource>,
    /// The open plain file, if it had to be opened.
    pub(super) file: Option<File>,
    /// The cache result of its look-up.
    pub(super) cache_result: CacheResult,
}

/// Why a resource is sent.
#[derive(Clone)]
pub(super) enum SendPurpose<'a> {
    /// The client requested it by this path or target, which leads to it again: nothing with precedence
    /// over files, such as a redirect, applies.
    Asked(&'a [u8]),
    /// It replaces an unavailable resource, with this status. A reply with a status other than 200 is
    /// sent whole and unconditionally. Its own path may lead elsewhere.
    Page(u16),
    /// It is a stored pool response to this request.
    Stored(StoredStatus<'a>),
    /// The same, found under this primary key, which leads to it as long as this version of the responses
    /// stored under the key is current.
    Found(&'a [u8], Option<SeenVersion>),
    /// An application named it in place of a body.
    Named(&'a NamedFile),
}

/// How an attempt to send a resource ended: with all of it sent, or before anything was written.
pub(super) enum SendOutcome {
    Done,
    /// There is now another version, or none: repeat the look-up. With the reason why its bytes could not
    /// be sent: [`FetchError::Abandoned`] if they were purged.
    Changed(FetchError),
    /// The version is still current, but its bytes are unavailable.
    Failed(FetchError),
}

impl SendPurpose<'_> {
    /// Fields of a reply with status `sent` and `object` of `resource`.
    fn lines<'o>(
        &self,
        object: &'o Object,
        (resource, sent): (&'o Resource, u16),
        result: CacheResult,
    ) -> ReplyLines<'o>
    where
        Self: 'o,
    {
        let cache = match self {
            Self::Named(named) => return named.lines(object),
            Self::Stored(how) => Cow::Owned(how.lines((resource, sent), result, monotonic_ms())),
            Self::Found(key, _) => {
                let cache = resource.route.pool_cache();
                let key = cache.and_then(|cache| cache.shown_key(key));
                let how = StoredStatus { key, ..StoredStatus::default() };
                Cow::Owned(how.lines((resource, sent), result, monotonic_ms()))
            }
            Self::Asked(_) | Self::Page(_) => cache_lines(resource, result, monotonic_ms()),
        };
        ReplyLines::of(object, &resource.route, cache)
    }

    /// Whether conditions and ranges of the request apply to the resource sent. An application has
    /// already acted on a method that is not safe.
    fn is_conditional(&self, method: Method<'_>) -> bool {
        !matches!(self, Self::Named(_)) || matches!(method, Method::Get | Method::Head)
    }
}

impl SlowRequest<'_> {
    /// Sends a resource.
    pub(super) async fn send(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        ready: ResponseSource,
        purpose: SendPurpose<'_>,
    ) -> Result<SendOutcome, ExchangeError> {
        let ResponseSource { resource, file, cache_result } = ready;
        let (resource, file) = (&resource, file.map(Arc::new));
        resource.mark_used();
        for _ in 0..COMPRESSED_ATTEMPTS_MAX {
            let selected = self.selected(request, exchange, resource, &purpose).await;
            let Some(selected) = selected else { break };
            let from = (resource, file.clone(), cache_result);
            let why = purpose.clone();
            let sent = self.send_variant(request, exchange, from, &selected, why).await?;
            match (sent, selected) {
                // There is no memory for this client, or none at all: the variant itself is still valid.
                (SendOutcome::Failed(FetchError::NoMemory), Selected::Compressed(..)) => break,
                // Its bytes were evicted everywhere.
                (SendOutcome::Failed(_), Selected::Compressed(slot, _)) => {
                    self.drop_lost(resource, slot);
                }
                (sent, _) => return Ok(sent),
            }
        }
        let plain = Selected::plain(resource);
        let from = (resource, file, cache_result);
        self.send_variant(request, exchange, from, &plain, purpose).await
    }

    async fn send_variant(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        (resource, file, cache_result): (&Arc<Resource>, Option<Arc<File>>, CacheResult),
        selected: &Selected<'_>,
        purpose: SendPurpose<'_>,
    ) -> Result<SendOutcome, ExchangeError> {
        let (slot, object) = selected.object().unwrap_or((0, &resource.variants.plain));
        let status = match purpose {
            SendPurpose::Page(status) if status != 200 => status,
            _ => object.status(),
        };
        let plan = match status {
            200 if purpose.is_conditional(request.method) => {
                plan(request, object, unix_ms() / 1000)
            }
            _ => ResponsePlan::Whole,
        };
        let file = file.filter(|_| slot == 0);
        let client = self.client(request, exchange);
        let mut source = self.source(resource, object, file, cache_result, client);
        // A resource that is not settled is not cached, even if it is empty.
        let mut cache = if object.is_settled { cache_result } else { CacheResult::Stream };
        let wants_bytes = plan.needs_bytes() && object.bytes() > 0 && exchange.reply.body_wanted();
        let mut first = None; // Weak: the reply of a slow client releases the segment.
        if wants_bytes {
            match source.prepare(plan.first_byte()).await {
                Ok(prepared) => (first, cache) = prepared,
                Err(error) => return Ok(self.source_failed(resource, object, error)),
            }
        }
        if resource.is_purged() {
            // It was purged while its bytes were fetched: no reply begins with it any more.
            resource.drop_purged(&self.handler.node.store);
            return Ok(SendOutcome::Changed(FetchError::Abandoned));
        }
        let mut reply = exchange.reply.write();
        reply.summary().cache = cache;
        let lines = purpose.lines(object, (resource, plan.status(status)), cache);
        let boundary = write_head(&mut reply, object, &plan, status, &lines);
        // Before the body is sent, which may take long.
        self.handler.tell_served(resource, request, plan.status(status), monotonic_ms());
        let of = (&**object, &*lines.content_type);
        let sent = send_body(&mut source, &mut exchange.reply, of, &plan, boundary).await;
        match sent {
            Ok(()) => {}
            Err(ReplyError::Client(error)) => return Err(error),
            // The client has received nothing: send another version, or an error with the reason.
            Err(ReplyError::Source(error)) if exchange.reply.take_back() => {
                return Ok(self.source_failed(resource, object, error));
            }
            Err(ReplyError::Source(error)) => return Err(self.cut_short(resource, object, error)),
        }
        self.remember(purpose, (resource, slot, object), first);
        Ok(SendOutcome::Done)
    }

    /// Stores the resource in the worker's index if all of its bytes are in memory.
    fn remember(
        &self,
        purpose: SendPurpose<'_>,
        (resource, slot, object): (&Arc<Resource>, usize, &Object),
        first: Option<Weak<Segment>>,
    ) {
        let is_at_hand = object.bytes() == 0 || first.is_some();
        if !is_at_hand || object.bytes() > SEGMENT_BYTES || !resource.is_settled() {
            return;
        }
        let (index, first) = (&self.worker_index, first.unwrap_or_default());
        match purpose {
            SendPurpose::Asked(path) => index.remember(path, resource, slot, first),
            SendPurpose::Found(key, Some(version)) => {
                index.remember_stored((key, version), resource, (slot, first));
            }
            _ => {}
        }
    }

    /// The source of an object's bytes: memory, and the backend of `resource`.
    fn source<'a>(
        &'a self,
        resource: &'a Arc<Resource>,
        object: &'a Arc<Object>,
        file: Option<Arc<File>>,
        cache_result: CacheResult,
        address: IpAddr,
    ) -> ObjectStream<'a> {
        ObjectStream {
            store: &self.handler.node.store,
            route: &resource.route,
            object,
            counters: self.handler.context.counters(),
            upstream: Upstream::of(
                resource,
                object,
                &self.remotes,
                self.handler.peer_client.as_deref(),
            ),
            cache_result,
            file,
            prepared: None,
            client: Client { address, pins: &self.handler.node.pins },
            pace: ClientPace::default(),
            ahead: VecDeque::new(),
            entered: None,
        }
    }

    fn source_failed(
        &self,
        resource: &Arc<Resource>,
        object: &Object,
        error: FetchError,
    ) -> SendOutcome {
        if object.is_compressed() {
            return SendOutcome::Failed(error);
        }
        let is_gone = match error {
            FetchError::File(DiskError::Changed | DiskError::NotFound) => true,
            FetchError::Peer | FetchError::NodeAway | FetchError::Abandoned => {
                resource.remote().is_none()
            }
            // A pool response is in memory or nowhere.
            FetchError::NoMemory | FetchError::NoConnection => false,
            _ if resource.remote().is_some() && resource.route.origin().is_none() => true,
            // The reader of an origin has retired the resource if necessary.
            _ => false,
        };
        if is_gone {
            self.catalog.retire(resource);
        }
        if resource.is_retired() { SendOutcome::Changed(error) } else { SendOutcome::Failed(error) }
    }

    /// Ends a reply that has begun but lacks the rest of its bytes.
    fn cut_short(
        &self,
        resource: &Arc<Resource>,
        object: &Object,
        error: FetchError,
    ) -> ExchangeError {
        self.source_failed(resource, object, error);
        let (counter, reason) = error.cut();
        self.handler.context.counters().inc(counter);
        ExchangeError::ReplyCutShort(reason)
    }
}

async fn send_body(
    source: &mut ObjectStream<'_>,
    reply: &mut ReplySink<'_>,
    (object, content_type): (&Object, &str),
    plan: &ResponsePlan,
    boundary: Option<multipart::Boundary>,
) -> Result<(), ReplyError> {
    match (plan, boundary) {
        (ResponsePlan::Whole, _) => source.send(reply, 0..object.bytes()).await,
        (ResponsePlan::Part(part), _) => source.send(reply, part.clone()).await,
        (ResponsePlan::Parts(parts), Some(boundary)) if reply.body_wanted() => {
            let mut head = Vec::with_capacity(256);
            for part in parts {
                head.clear();
                let bytes = object.bytes();
                multipart::write_part_head(&mut head, &boundary, content_type, part, bytes);
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
