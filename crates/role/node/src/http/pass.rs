//! Passes uncacheable responses of origins on to one client.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use skep_engine::{ExchangeError, ReplySink};
use skep_http::{HttpDate, Version};
use skep_httpcache::{CacheStatus, ForwardReason};
use skep_origin::OriginReply;
use skep_telemetry::{CacheResult, Counter};

use crate::backend::origin::{NotKept, PassPermit, Passed, SlowClientPermit, lines};
use crate::limits::{PASS_SLOW_BYTES_PER_S, PASS_SLOW_GRACE_MS, STREAM_BYTES};
use crate::model::fault::fetch_error;
use crate::model::route::Route;

/// How the body of a passed response is delimited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// There is none (RFC 9110 6.4.1).
    None,
    Length(u64),
    Chunks,
    /// For clients that do not support chunked encoding.
    Close,
}

/// Passes a response on as it is received, to a client at `address`.
pub(crate) async fn pass(
    reply: &mut ReplySink<'_>,
    route: &Route,
    passed: Passed,
    address: IpAddr,
) -> Result<(), ExchangeError> {
    let Passed { reply: mut answer, place, why } = passed;
    let mut taker = PassedClient { place, address, behind_ms: 0, slow: None };
    let framing = write_head(reply, route, &answer, why);
    if framing == Framing::None || !reply.body_wanted() {
        return Ok(());
    }
    let mut buffer = vec![0; STREAM_BYTES];
    loop {
        let read = answer.body.next(&mut buffer).await.map_err(|error| {
            tracing::debug!(%error, "an origin's answer ended early");
            let (counter, reason) = fetch_error(error.fault.kind()).cut();
            reply.write().context().counters().inc(counter);
            ExchangeError::ReplyCutShort(reason)
        })?;
        let is_chunked = framing == Framing::Chunks;
        if read == 0 {
            if is_chunked {
                reply.write().raw(b"0\r\n\r\n");
            }
            return Ok(());
        }
        let mut out = reply.write();
        if is_chunked {
            out.raw(format!("{read:x}\r\n").as_bytes());
        }
        out.body_copy(&buffer[..read]);
        if is_chunked {
            out.raw(b"\r\n");
        }
        taker.take(reply).await?;
    }
}

/// The client of a passed response, which occupies one of its origin's connections.
struct PassedClient {
    place: PassPermit,
    address: IpAddr,
    /// How far it is behind [`PASS_SLOW_BYTES_PER_S`], in milliseconds.
    behind_ms: u64,
    /// Its permit as a slow client, once it is slow.
    slow: Option<SlowClientPermit>,
}

impl PassedClient {
    /// Sends the queued bytes. A client found to be slow is disconnected if its address already has
    /// too many slow clients.
    async fn take(&mut self, reply: &mut ReplySink<'_>) -> Result<(), ExchangeError> {
        if self.slow.is_some() {
            return reply.flush().await;
        }
        let (bytes, began) = (reply.queued_bytes(), Instant::now());
        let patience = Duration::from_millis(PASS_SLOW_GRACE_MS - self.behind_ms);
        let flushed = tokio::time::timeout(patience, reply.flush()).await;
        let waited_ms = began.elapsed().as_millis() as u64;
        let earned_ms = bytes * 1000 / PASS_SLOW_BYTES_PER_S;
        self.behind_ms = (self.behind_ms + waited_ms).saturating_sub(earned_ms);
        if let Ok(flushed) = flushed
            && self.behind_ms < PASS_SLOW_GRACE_MS
        {
            return flushed;
        }
        self.slow = self.place.slow(self.address);
        if self.slow.is_none() {
            reply.write().context().counters().inc(Counter::SlowPassesCut);
            return Err(ExchangeError::ReplyCutShort("too many slow ones of its address"));
        }
        reply.flush().await
    }
}

fn write_head(
    reply: &mut ReplySink<'_>,
    route: &Route,
    answer: &OriginReply,
    why: Option<NotKept>,
) -> Framing {
    let head = &answer.head;
    let status = head.whole_status();
    let framing = match (status, answer.body.left_bytes(), reply.version()) {
        (204 | 304, ..) => Framing::None,
        (_, Some(bytes), _) => Framing::Length(bytes),
        (_, None, Version::Http11) => Framing::Chunks,
        (_, None, Version::Http10) => Framing::Close,
    };
    if framing == Framing::Close {
        reply.end_by_close();
    }
    let mut out = reply.write();
    out.context().counters().inc(Counter::CacheStreamed);
    out.summary().cache = CacheResult::Miss;
    out.start(status);
    match framing {
        Framing::Length(bytes) => out.field_number("Content-Length", bytes),
        Framing::Chunks => out.lines(b"Transfer-Encoding: chunked\r\n"),
        Framing::Close | Framing::None => {}
    }
    let says = route.origin().is_some_and(|remote| remote.sets_cache_control);
    let is_success = (200..300).contains(&status);
    out.lines(&lines(head, route, says && is_success));
    out.lines(if is_success { &route.lines_success } else { &route.lines });
    if let Some(age_s) = head.meta.age_s {
        out.field_number("Age", age_s);
    }
    let status = CacheStatus {
        forwarded: Some(ForwardReason::UriMiss),
        detail: why.map(NotKept::token),
        ..CacheStatus::default()
    };
    out.lines(&status.line());
    out.field("Date", &HttpDate(head.meta.made_unix_s()).format());
    out.end_dated_head();
    framing
}
