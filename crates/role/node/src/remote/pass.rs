//! Answers of origins that are not kept, on their way to one client.

use skep_engine::{ExchangeError, ReplySink};
use skep_http::Version;
use skep_origin::OriginReply;
use skep_telemetry::{CacheResult, Counter};

use super::{Passed, kept};
use crate::limits::STREAM_BYTES;
use crate::site::Site;

/// How the body of a passed answer is delimited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// There is none (RFC 9110 6.4.1).
    None,
    Length(u64),
    Chunks,
    /// For clients that know no chunks.
    Close,
}

/// Passes an answer on as it comes in.
pub(crate) async fn pass(
    reply: &mut ReplySink<'_>,
    site: &Site,
    passed: Passed,
) -> Result<(), ExchangeError> {
    let Passed { reply: mut answer, .. } = passed;
    let framing = write_head(reply, site, &answer);
    if framing == Framing::None || !reply.body_wanted() {
        return Ok(());
    }
    let mut buffer = vec![0; STREAM_BYTES];
    loop {
        let read = answer.body.next(&mut buffer).await.map_err(|error| {
            tracing::debug!(%error, "an origin's answer ended early");
            ExchangeError::ReplyCutShort("the origin's answer ended early")
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
        reply.flush().await?;
    }
}

fn write_head(reply: &mut ReplySink<'_>, site: &Site, answer: &OriginReply) -> Framing {
    let version = reply.version();
    let head = &answer.head;
    let mut out = reply.write();
    out.context().counters().inc(Counter::CacheStreamed);
    out.summary().cache = CacheResult::Miss;
    let status = head.whole_status();
    let framing = match (status, answer.body.left_bytes(), version) {
        (204 | 304, ..) => Framing::None,
        (_, Some(bytes), _) => Framing::Length(bytes),
        (_, None, Version::Http11) => Framing::Chunks,
        (_, None, Version::Http10) => Framing::Close,
    };
    out.start(status);
    match framing {
        Framing::Length(bytes) => out.field_number("Content-Length", bytes),
        Framing::Chunks => out.lines(b"Transfer-Encoding: chunked\r\n"),
        Framing::Close => out.close(),
        Framing::None => {}
    }
    let says = site.remote.as_ref().is_some_and(|remote| remote.sets_cache_control);
    let is_success = (200..300).contains(&status);
    out.lines(&kept::lines(head, says && is_success));
    out.lines(if is_success { &site.lines_success } else { &site.lines });
    if let Some(age_s) = head.age_s {
        out.field_number("Age", age_s);
    }
    out.lines(b"Cache-Status: skep; fwd=uri-miss\r\n");
    out.end_head();
    framing
}
