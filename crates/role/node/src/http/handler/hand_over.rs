//! Files that an application names in place of a body: this node sends them as it sends its own files.
//!
//! ```text
//!   client --> pool --> X-Accel-Redirect, X-Sendfile --> folder of the route --> client
//!                            '--> the cache of the pool sees what may not be stored
//! ```
//! Invariant: no name of a file reaches a client.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use skep_engine::{Exchange, ExchangeError};
use skep_http::forward::write_kept_fields;
use skep_http::limits::NODE_RESPONSE_HEAD;
use skep_http::{
    FieldSlots, HeadLimits, Method, RequestHead, ResponseHead, encode, parse_response,
};
use skep_httpcache::{CacheStatus, ForwardReason, TARGETED_FIELDS};
use skep_proxy::{ForwardError, Tap, TapBody, Tapped};
use skep_segments::FetchError;
use skep_serve::monotonic_ms;
use skep_telemetry::CacheResult;

use super::SlowRequest;
use super::send::{ResponseSource, SendOutcome, SendPurpose};
use crate::backend::files::catalog::Located;
use crate::disk::DiskError;
use crate::http::named_file::{NamedFile, is_of_body};
use crate::limits::ATTEMPTS_MAX;
use crate::model::file_names::FileResult;
use crate::model::pool_backend::PoolBackend;
use crate::model::route::Route;

/// Observes responses for one that names a file, which is not sent to the client; all others are passed
/// to the cache of the pool, if it observes responses.
pub(super) struct HandOver<'a, 't> {
    pool: &'a PoolBackend,
    cache: Option<&'t mut (dyn Tap + 't)>,
    /// The Cache-Status line, if no cache observes the response.
    line: Vec<u8>,
    named: Option<NamedFile>,
}

impl<'a, 't> HandOver<'a, 't> {
    pub(super) fn new(
        pool: &'a PoolBackend,
        cache: Option<&'t mut (dyn Tap + 't)>,
        line: &[u8],
    ) -> Self {
        Self { pool, cache, line: line.to_vec(), named: None }
    }

    /// The file that this node has to send, once invalidations are complete. A response that broke off
    /// counts from its head on.
    pub(super) async fn into_named(
        mut self,
        exchanged: &Result<(), ForwardError>,
    ) -> Option<NamedFile> {
        let is_of_client = |error: &ForwardError| match error {
            ForwardError::Exchange(error) => !matches!(error, ExchangeError::ReplyCutShort(_)),
            ForwardError::Refused(_) => false,
        };
        let named = self.named.take().filter(|_| !exchanged.as_ref().is_err_and(is_of_client))?;
        // An exchange that failed after the head did not wait for the invalidations that the head
        // causes.
        poll_fn(|cx| self.poll_ready(cx)).await;
        Some(named)
    }
}

impl Tap for HandOver<'_, '_> {
    fn head(&mut self, head: &ResponseHead<'_, '_>) -> Tapped {
        let Some(key) = self.pool.file_names.as_ref().and_then(|names| names.named(head)) else {
            let line = &mut self.line;
            let pass = || Tapped::Pass(std::mem::take(line));
            return self.cache.as_mut().map_or_else(pass, |cache| cache.head(head));
        };
        let shown = self.cache.as_mut().map(|cache| show_unstorable(head, *cache));
        let line = match shown {
            None => std::mem::take(&mut self.line),
            Some(Tapped::Pass(line) | Tapped::Copy(line)) => line,
            Some(Tapped::Take | Tapped::Stop) => {
                let forwarded = Some(ForwardReason::Bypass);
                CacheStatus { forwarded, ..CacheStatus::default() }.line()
            }
        };
        self.named = Some(NamedFile::of(head, key, (self.pool, line)));
        // The body of the response is not needed.
        Tapped::Stop
    }

    fn begin_session(&mut self, lines: &[u8]) {
        if let Some(named) = &mut self.named {
            named.begin_session(lines);
        }
    }

    fn body(&mut self, data: &[u8]) -> TapBody {
        match &mut self.cache {
            Some(cache) => cache.body(data),
            None => TapBody::Stop,
        }
    }

    fn end(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.end();
        }
    }

    fn held_up(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.held_up();
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.cache.as_mut().map_or(Poll::Ready(()), |cache| cache.poll_ready(cx))
    }

    fn outlives_client(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.outlives_client())
    }

    fn may_wait_for_session(&self) -> bool {
        self.cache.as_ref().is_none_or(|cache| cache.may_wait_for_session())
    }
}

impl SlowRequest<'_> {
    /// Answers with the file that an application has named.
    pub(super) async fn send_named(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        pool: &PoolBackend,
        named: &NamedFile,
    ) -> Result<(), ExchangeError> {
        let error = match (&named.key, &self.route.named_files) {
            (Ok(key), Some(route)) => {
                match self.try_send_named(request, exchange, (route, key), named).await? {
                    None => {
                        count(pool, FileResult::Sent);
                        return Ok(());
                    }
                    Some(error) => error,
                }
            }
            (Err(fault), _) => {
                self.tell_named(pool, named, FileResult::Refused, fault);
                let lines = named.lines_without_file(&named.cache);
                return self.error(request, exchange, 502, &lines).await;
            }
            (Ok(_), None) => DiskError::NotFound.into(),
        };
        let result = if error.is_answer() { FileResult::Missing } else { FileResult::Failed };
        self.tell_named(pool, named, result, &error);
        let cache = if error.is_answer() { named.cache.clone() } else { error.cache_status() };
        self.failed_with(request, exchange, error, named.lines_without_file(&cache)).await
    }

    /// Sends the file at `key`; or returns why nothing was sent.
    async fn try_send_named(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        (route, key): (&Arc<Route>, &[u8]),
        named: &NamedFile,
    ) -> Result<Option<FetchError>, ExchangeError> {
        // The file may change faster than it can be read.
        let mut failed = DiskError::Changed.into();
        for _ in 0..ATTEMPTS_MAX {
            failed = match self.catalog.locate_or_wait(route, key).await {
                Ok(Located::Resource(resource, file)) => {
                    let ready = ResponseSource { resource, file, cache_result: CacheResult::Hit };
                    match self.send(request, exchange, ready, SendPurpose::Named(named)).await? {
                        SendOutcome::Done => return Ok(None),
                        SendOutcome::Changed(_) => continue,
                        SendOutcome::Failed(error) => error,
                    }
                }
                Ok(Located::NeedsSlash | Located::Directory) => DiskError::NotFound.into(),
                Err(error) => error.into(),
            };
            break;
        }
        Ok(Some(failed))
    }

    /// Counts a file that was not sent, and logs it, at most once per second.
    fn tell_named(
        &self,
        pool: &PoolBackend,
        named: &NamedFile,
        result: FileResult,
        why: &dyn std::fmt::Display,
    ) {
        count(pool, result);
        let counts = pool.file_names.as_ref().map(|names| &names.counts);
        if counts.is_some_and(|counts| counts.may_tell(monotonic_ms())) {
            let (pool, told) = (pool.group.name(), &named.told);
            tracing::warn!("pool {pool}: the application names the file \"{told}\": {why}");
        }
    }
}

fn count(pool: &PoolBackend, result: FileResult) {
    if let Some(names) = &pool.file_names {
        names.counts.count(result);
    }
}

/// Passes the head of a response whose body is a file to a cache, as one that may not be stored. Its
/// invalidations stay in effect.
fn show_unstorable(head: &ResponseHead<'_, '_>, cache: &mut dyn Tap) -> Tapped {
    let mut bytes = Vec::new();
    encode::write_status_line(&mut bytes, head.status);
    write_kept_fields(&mut bytes, head, |name| {
        let of_caches = ["cache-control", "expires", "pragma"];
        let mut left_out = of_caches.iter().chain(&TARGETED_FIELDS);
        is_of_body(name) || left_out.any(|it| name.eq_ignore_ascii_case(it.as_bytes()))
    });
    // One field replaces the one that names the file, and it may be longer.
    const LINE: &[u8] = b"Cache-Control: no-store\r\n";
    const LIMITS: HeadLimits = HeadLimits {
        head_bytes_max: NODE_RESPONSE_HEAD.head_bytes_max + 2 * LINE.len(),
        ..NODE_RESPONSE_HEAD
    };
    bytes.extend_from_slice(&[LINE, b"\r\n"].concat());
    let mut slots = FieldSlots::new();
    match parse_response(&mut slots, &bytes, Method::Get, &LIMITS) {
        Ok(head) => cache.head(&head),
        Err(reject) => {
            tracing::error!(%reject, "the head of a response that names a file was not rebuilt");
            Tapped::Stop
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;
    use crate::model::pool_backend::PoolBackend;

    /// A cache with an invalidation, which is pending until `is_told` is set.
    struct Invalidating<'a> {
        seen: &'a Cell<usize>,
        is_told: &'a Cell<bool>,
    }

    impl Tap for Invalidating<'_> {
        fn head(&mut self, head: &ResponseHead<'_, '_>) -> Tapped {
            assert_eq!(head.fields.get("location"), Some(&b"/other"[..]));
            assert_eq!(head.fields.get("cache-control"), Some(&b"no-store"[..]));
            self.seen.set(self.seen.get() + 1);
            Tapped::Pass(Vec::new())
        }

        fn body(&mut self, _: &[u8]) -> TapBody {
            panic!("the body is nobody's")
        }

        fn end(&mut self) {}

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<()> {
            if self.is_told.get() { Poll::Ready(()) } else { Poll::Pending }
        }

        fn outlives_client(&self) -> bool {
            false
        }
    }

    /// Passes a head with these lines to a hand-over; its file is sent when the invalidation is
    /// complete.
    fn assert_waits(lines: &str, exchanged: &Result<(), ForwardError>) {
        let pool = PoolBackend::of_forward("sendfile_root = '/'");
        let (seen, is_told) = (Cell::new(0), Cell::new(false));
        let mut cache = Invalidating { seen: &seen, is_told: &is_told };
        let mut tap = HandOver::new(&pool, Some(&mut cache), b"");
        let text = format!("HTTP/1.1 200 OK\r\nLocation: /other\r\nX-Sendfile: /a\r\n{lines}\r\n");
        let mut slots = FieldSlots::new();
        let head = parse_response(&mut slots, text.as_bytes(), Method::Post, &NODE_RESPONSE_HEAD);
        assert!(
            matches!(tap.head(&head.unwrap()), Tapped::Stop),
            "the file does not wait for the rest"
        );
        assert_eq!(seen.get(), 1);
        let mut named = pin!(tap.into_named(exchanged));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(named.as_mut().poll(&mut cx).is_pending());
        is_told.set(true);
        assert!(matches!(named.as_mut().poll(&mut cx), Poll::Ready(Some(_))));
    }

    #[test]
    fn a_file_goes_out_when_what_its_response_makes_stale_is_told() {
        assert_waits("Content-Length: 5\r\n", &Ok(()));
        assert_waits("Transfer-Encoding: chunked\r\n", &Ok(()));
        // The same if the response breaks off after its head.
        let broken = ExchangeError::ReplyCutShort("it broke");
        assert_waits("Content-Length: 5\r\n", &Err(ForwardError::Exchange(broken)));
        // The maximum number of fields in a head, all of which are kept.
        let many = "X-A: 1\r\n".repeat(NODE_RESPONSE_HEAD.fields_max - 2);
        assert_waits(&many, &Ok(()));
    }
}
