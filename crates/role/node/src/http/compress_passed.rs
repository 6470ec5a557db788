//! Compression of responses that are passed on without being stored, if the route allows it.
//!
//! The worker encodes each piece as it is received, at a low level; for a response of unknown length
//! all encoded data is flushed at once.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use skep_coding::Encoder;
use skep_http::negotiate::{AcceptEncoding, Encoding};
use skep_http::{Method, RequestHead, ResponseHead, encode};
use skep_proxy::{BodyCoder, CodedReply, CoderFailed, ReplyCoding};
use skep_telemetry::{CoreCounters, Counter};

use crate::http::compress::{counters_of, is_cross_site};
use crate::limits::{PASSED_ENCODERS_MAX, PASSED_LEVEL_MAX};
use crate::model::compression::Compression;

/// How responses to one request are compressed.
pub(crate) struct PassedCompression<'a> {
    rules: &'a Compression,
    /// `None`: the client is sent unencoded bytes.
    coding: Option<Encoding>,
    /// Number of encoders in use on this worker.
    places: &'a Rc<Cell<usize>>,
    counters: &'a Arc<CoreCounters>,
}

impl<'a> PassedCompression<'a> {
    pub(crate) fn new(
        rules: &'a Compression,
        request: &RequestHead<'_, '_>,
        places: &'a Rc<Cell<usize>>,
        counters: &'a Arc<CoreCounters>,
    ) -> Self {
        let is_wanted = request.method != Method::Head && !is_cross_site(request);
        let coding = AcceptEncoding::parse(request).choose_among(&rules.codings);
        Self { rules, coding: coding.filter(|_| is_wanted), places, counters }
    }

    fn encoder(&self, coding: Encoding) -> Option<PassedEncoder> {
        let encoders = self.places.get();
        if encoders >= PASSED_ENCODERS_MAX {
            self.counters.inc(Counter::CompressionsBusy);
            return None;
        }
        let level = self.rules.level(coding).min(PASSED_LEVEL_MAX);
        let encoder = Encoder::new(coding, level, None).ok()?;
        self.places.set(encoders + 1);
        let (places, counters) = (Rc::clone(self.places), Arc::clone(self.counters));
        counters.inc(counters_of(coding)[0]);
        Some(PassedEncoder { encoder: Some(encoder), coding, places, counters })
    }
}

impl fmt::Debug for PassedCompression<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassedCompression").field("coding", &self.coding).finish_non_exhaustive()
    }
}

impl ReplyCoding for PassedCompression<'_> {
    fn of(&self, head: &ResponseHead<'_, '_>) -> Option<CodedReply> {
        if !self.rules.suits_passed(head) {
            return None;
        }
        let mut lines = Vec::new();
        // Added even if the application sends Vary, whose lines may be replaced later.
        encode::write_field(&mut lines, "Vary", b"Accept-Encoding");
        let encoder = self.coding.and_then(|coding| self.encoder(coding));
        let Some(encoder) = encoder else {
            return Some(CodedReply { without: Vec::new(), lines, body: None });
        };
        encode::write_field(&mut lines, "Content-Encoding", encoder.coding.as_str().as_bytes());
        // Neither a range nor identical bytes can be requested later.
        let mut without = vec!["accept-ranges".to_owned()];
        if let Some(tag) = head.fields.get("etag").filter(|tag| tag.starts_with(b"\"")) {
            without.push("etag".to_owned());
            encode::write_field(&mut lines, "ETag", &[b"W/", tag].concat());
        }
        Some(CodedReply { without, lines, body: Some(Box::new(encoder)) })
    }
}

/// The encoder of one response.
struct PassedEncoder {
    /// `None`: the stream has ended.
    encoder: Option<Encoder>,
    coding: Encoding,
    places: Rc<Cell<usize>>,
    counters: Arc<CoreCounters>,
}

impl PassedEncoder {
    fn count(&self, input: usize, output: usize) {
        let [_, of_input, of_output] = counters_of(self.coding);
        self.counters.add(of_input, input as u64);
        self.counters.add(of_output, output as u64);
    }
}

impl BodyCoder for PassedEncoder {
    fn push(&mut self, data: &[u8], flushes: bool, out: &mut Vec<u8>) -> Result<(), CoderFailed> {
        let encoder = self.encoder.as_mut().ok_or(CoderFailed)?;
        let pushed = encoder.push(data).and_then(|()| match flushes {
            true => encoder.flush(),
            false => Ok(()),
        });
        pushed.map_err(failed)?;
        let ready = encoder.take();
        self.count(data.len(), ready.len());
        out.extend(ready);
        Ok(())
    }

    fn finish(mut self: Box<Self>, out: &mut Vec<u8>) -> Result<(), CoderFailed> {
        let rest = self.encoder.take().ok_or(CoderFailed)?.finish().map_err(failed)?;
        self.count(0, rest.len());
        out.extend(rest);
        Ok(())
    }
}

impl Drop for PassedEncoder {
    fn drop(&mut self) {
        self.places.set(self.places.get() - 1);
    }
}

fn failed(error: std::io::Error) -> CoderFailed {
    tracing::warn!(%error, "a response could not be compressed any further: it is cut short");
    CoderFailed
}
