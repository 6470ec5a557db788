//! Replies without a resource: errors, listings, redirects, fixed replies.

use std::fs::File;
use std::sync::Arc;

use skep_engine::{Exchange, ExchangeError, Reply};
use skep_http::negotiate::prefers_json;
use skep_http::path::Path;
use skep_http::{Known, RequestHead, encode};
use skep_segments::FetchError;
use skep_telemetry::{CacheResult, Counter};

use super::SlowRequest;
use super::files::script_of;
use super::send::{ResponseSource, SendOutcome, SendPurpose};
use crate::backend::files::catalog::Located;
use crate::disk::pool::pool;
use crate::http::client_pace::ClientPace;
use crate::http::listing::Listing;
use crate::limits::ATTEMPTS_MAX;
use crate::model::reply_backend::ReplyBackend;
use crate::model::resource::Resource;
use crate::model::route::{Backend, Route};
use crate::model::site::Page;

/// A reply generated for one client.
pub(super) struct Made<'a> {
    status: u16,
    content_type: &'a str,
    /// Additional field lines.
    lines: Vec<u8>,
    body: Vec<u8>,
}

impl SlowRequest<'_> {
    pub(super) async fn failed(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        error: FetchError,
    ) -> Result<(), ExchangeError> {
        self.failed_with(request, exchange, error, error.cache_status()).await
    }

    /// The same, with these additional field lines.
    pub(super) async fn failed_with(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        error: FetchError,
        mut lines: Vec<u8>,
    ) -> Result<(), ExchangeError> {
        if !error.is_answer() {
            self.handler.context.counters().inc(error.counter());
        }
        let status = error.status();
        if matches!(error, FetchError::File(_)) && status == 500 {
            tracing::warn!(target = request.target, %error, "a file could not be read");
        }
        if status == 503 {
            lines.extend_from_slice(&self.retry_after());
        }
        self.error(request, exchange, status, &lines).await
    }

    /// Sends an error reply: the operator's page if there is one, otherwise a line of text.
    pub(super) async fn error(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        status: u16,
        extra_lines: &[u8],
    ) -> Result<(), ExchangeError> {
        if let Some(Page { route, key }) = self.site.error_page(status)
            && Box::pin(self.page(request, exchange, status, (route, key))).await?
        {
            return Ok(());
        }
        let lines = [extra_lines, &*self.route.lines].concat();
        exchange.reply.write().plain(status, &lines);
        Ok(())
    }

    /// Sends the resource at the key `page` of a route, with `status`; false: it is
    /// unavailable.
    pub(super) async fn page(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        status: u16,
        (route, page): (&Arc<Route>, &[u8]),
    ) -> Result<bool, ExchangeError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some((resource, file)) = self.page_of(route, page).await else { break };
            let ready = ResponseSource { resource, file, cache_result: CacheResult::Hit };
            match self.send(request, exchange, ready, SendPurpose::Page(status)).await? {
                SendOutcome::Done => return Ok(true),
                SendOutcome::Changed(_) => {}
                SendOutcome::Failed(_) => break,
            }
        }
        Ok(false)
    }

    async fn page_of(
        &self,
        route: &Arc<Route>,
        page: &[u8],
    ) -> Option<(Arc<Resource>, Option<File>)> {
        match &route.backend {
            // Applications send their own error pages.
            Backend::Pool(_) | Backend::Reply(_) => None,
            Backend::Origin(origin) => Some((self.kept(route, origin, page).await?, None)),
            Backend::Folder(folder) => match self.located(route, folder, page).await.ok()? {
                // The source of a script is never sent.
                Located::Resource(resource, _) if script_of(folder, &resource).is_some() => None,
                Located::Resource(resource, file) => Some((resource, file)),
                Located::NeedsSlash | Located::Directory => None,
            },
        }
    }

    pub(super) async fn list(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        path: &[u8],
    ) -> Result<(), ExchangeError> {
        let (route, listed) = (Arc::clone(&self.route), path.to_vec());
        let listing = match pool(move || Listing::read(&route, &listed)).await {
            Ok(listing) => listing,
            Err(error) => return self.failed(request, exchange, error.into()).await,
        };
        let (content_type, body) = match prefers_json(request.fields.known(Known::Accept)) {
            true => ("application/json", listing.json()),
            false => ("text/html; charset=utf-8", listing.html(path)),
        };
        drop(listing);
        let lines = [b"Cache-Control: no-cache\r\nVary: Accept\r\n", &*self.route.lines].concat();
        self.send_made(request, exchange, Made { status: 200, content_type, lines, body }).await
    }

    /// Answers with the route's fixed reply.
    pub(super) async fn reply(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        fixed: &ReplyBackend,
        path: &Path<'_>,
    ) -> Result<(), ExchangeError> {
        let (status, is_success) = (fixed.status, fixed.status < 300);
        let mut lines =
            if is_success { &self.route.lines_success } else { &self.route.lines }.to_vec();
        if let Some(location) = fixed.location(path, request) {
            encode::write_field(&mut lines, "Location", &location);
        }
        match &fixed.body {
            Some(body) => {
                let own = self.route.content_type.as_deref();
                let (content_type, body) = (own.unwrap_or(&fixed.content_type), body.to_vec());
                self.send_made(request, exchange, Made { status, content_type, lines, body }).await
            }
            None if status >= 400 => self.error(request, exchange, status, b"").await,
            None => {
                let mut reply = exchange.reply.write();
                reply.start(status);
                if status != 204 {
                    reply.lines(b"Content-Length: 0\r\n");
                }
                reply.lines(&lines);
                reply.end_head();
                Ok(())
            }
        }
    }

    /// Sends a body generated for this client. It counts as memory held by replies: each address
    /// has its share, and a slow client is disconnected when others need the memory.
    pub(super) async fn send_made(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        made: Made<'_>,
    ) -> Result<(), ExchangeError> {
        let Made { status, content_type, lines, body } = made;
        let (store, bytes) = (&self.handler.node.store, body.len() as u64);
        let share = self.handler.node.pins.share(self.client(request, exchange), bytes);
        let Some(_share) = share.filter(|_| store.may_pin()) else {
            self.handler.context.counters().inc(Counter::PinsRefused);
            return self.error(request, exchange, 503, &self.retry_after()).await;
        };
        let _held = store.ledger().hold(bytes);
        let mut reply = exchange.reply.write();
        reply.start(status);
        reply.field("Content-Type", content_type.as_bytes());
        reply.field_number("Content-Length", bytes);
        reply.lines(&lines);
        reply.end_head();
        reply.body_copy(&body);
        drop(body);
        loop {
            match tokio::time::timeout(ClientPace::PATIENCE, exchange.reply.flush()).await {
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

    pub(super) fn add_slash(
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
        redirect(&mut exchange.reply.write(), 301, &location, &self.route.lines);
        Ok(())
    }

    pub(super) fn retry_after(&self) -> Vec<u8> {
        let seconds = self.handler.context.settings().retry_after_s;
        format!("Retry-After: {seconds}\r\n").into_bytes()
    }
}

pub(super) fn redirect(reply: &mut Reply<'_>, status: u16, location: &[u8], lines: &[u8]) {
    reply.start(status);
    reply.field("Location", location);
    reply.lines(b"Content-Length: 0\r\n");
    reply.lines(lines);
    reply.end_head();
}
