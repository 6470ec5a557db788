//! Writing a reply: head, `Date`, `Connection`, body.
//!
//! Appends to an [`Output`] and allocates nothing beyond it. A head begins with
//! [`Reply::start`] or with bytes that were prepared when the object was cached
//! ([`Reply::prebuilt`]); what changes from reply to reply comes behind.

use std::net::SocketAddr;
use std::sync::Arc;

use skep_http::{RequestHead, Version, encode};
use skep_serve::{Output, SharedSlice};
use skep_telemetry::{CacheResult, Counter};

use crate::context::Context;

/// What the log says about a reply.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Status; 0 while no reply was begun.
    pub status: u16,
    /// Bytes of the body that were put into the output.
    pub body_bytes: u64,
    pub cache: CacheResult,
    /// The node that answered, if not this process.
    pub node: Option<Arc<str>>,
    /// Waiting for a node, in microseconds.
    pub queue_us: u64,
    /// Connecting to the node, in microseconds.
    pub connect_us: u64,
    /// From sending to the node until its first byte, in microseconds.
    pub first_byte_us: u64,
}

/// A reply in the making.
pub struct Reply<'o> {
    output: &'o mut Output,
    context: &'o Context,
    summary: &'o mut Summary,
    keep_alive: &'o mut bool,
    version: Version,
    /// HEAD: the head is all there is.
    body_wanted: bool,
    client: SocketAddr,
}

impl<'o> Reply<'o> {
    pub(crate) fn new(
        output: &'o mut Output,
        context: &'o Context,
        summary: &'o mut Summary,
        keep_alive: &'o mut bool,
        version: Version,
        body_wanted: bool,
        client: SocketAddr,
    ) -> Self {
        Self { output, context, summary, keep_alive, version, body_wanted, client }
    }

    pub fn context(&self) -> &'o Context {
        self.context
    }

    pub fn client(&self) -> SocketAddr {
        self.client
    }

    /// What the log will say.
    pub fn summary(&mut self) -> &mut Summary {
        self.summary
    }

    /// Whether body bytes are sent (not for HEAD).
    pub fn body_wanted(&self) -> bool {
        self.body_wanted
    }

    /// Whether the connection is to stay open after this reply.
    pub fn keep_alive(&self) -> bool {
        *self.keep_alive
    }

    /// Makes this the connection's last reply. Before the end of the head.
    pub fn close(&mut self) {
        *self.keep_alive = false;
    }

    /// Begins a head: status line and `Server`.
    pub fn start(&mut self, status: u16) {
        self.begin(status);
        self.output.inline(|out| {
            encode::write_status_line(out, status);
            out.extend_from_slice(b"Server: skep\r\n");
        });
    }

    /// Begins a head with prepared bytes: status line and whole field lines.
    pub fn prebuilt(&mut self, status: u16, lines: &[u8]) {
        self.begin(status);
        self.output.copy(lines);
    }

    /// Appends one field.
    pub fn field(&mut self, name: &str, value: &[u8]) {
        self.output.inline(|out| encode::write_field(out, name, value));
    }

    /// Appends one field with a number.
    pub fn field_number(&mut self, name: &str, value: u64) {
        self.output.inline(|out| {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            encode::write_u64(out, value);
            out.extend_from_slice(b"\r\n");
        });
    }

    /// Appends whole field lines.
    pub fn lines(&mut self, lines: &[u8]) {
        self.output.copy(lines);
    }

    /// Ends the head: `Date`, `Connection` where the version needs it, CRLF.
    pub fn end_head(&mut self) {
        let context = self.context;
        self.output.inline(|out| context.write_date(out));
        self.end_dated_head();
    }

    /// The same for a head that says its `Date` itself: who made the reply did, and
    /// its age counts from there (RFC 9111 4.2.3).
    pub fn end_dated_head(&mut self) {
        let (keep_alive, version) = (*self.keep_alive, self.version);
        self.output.inline(|out| {
            match (version, keep_alive) {
                (Version::Http11, true) => {}
                (Version::Http10, true) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
                (_, false) => out.extend_from_slice(b"Connection: close\r\n"),
            }
            out.extend_from_slice(b"\r\n");
        });
    }

    /// Appends bytes of the body, copied.
    pub fn body_copy(&mut self, bytes: &[u8]) {
        if self.body_wanted {
            self.summary.body_bytes += bytes.len() as u64;
            self.output.copy(bytes);
        }
    }

    /// Appends the bytes of `slice` to the body, uncopied.
    pub fn body_shared(&mut self, slice: SharedSlice) {
        if self.body_wanted {
            self.summary.body_bytes += u64::from(slice.len());
            self.output.share(slice);
        }
    }

    /// Appends framing that is not payload (chunk lines); for those who write
    /// a body in pieces.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.output.copy(bytes);
    }

    /// Hands the output to `write`, which appends a whole head by itself.
    pub fn foreign_head(&mut self, status: u16, write: impl FnOnce(&mut Vec<u8>, bool)) {
        self.begin(status);
        let keep_alive = *self.keep_alive;
        self.output.inline(|out| write(out, keep_alive));
    }

    /// A whole reply whose body is `body`.
    pub fn whole(&mut self, status: u16, content_type: &str, body: &[u8]) {
        self.start(status);
        self.field("Content-Type", content_type.as_bytes());
        self.field_number("Content-Length", body.len() as u64);
        self.end_head();
        self.body_copy(body);
    }

    /// A whole reply that says only what `status` means.
    pub fn plain(&mut self, status: u16, extra_lines: &[u8]) {
        self.start(status);
        self.lines(extra_lines);
        if status == 304 || status == 204 {
            return self.end_head();
        }
        let reason = encode::reason_phrase(status);
        self.field("Content-Type", b"text/plain; charset=utf-8");
        // "404 Not Found\n": three digits, a space, the phrase, a line end.
        self.field_number("Content-Length", reason.len() as u64 + 5);
        self.end_head();
        let digits = [
            b'0' + (status / 100) as u8,
            b'0' + (status / 10 % 10) as u8,
            b'0' + (status % 10) as u8,
        ];
        self.body_copy(&digits);
        self.body_copy(b" ");
        self.body_copy(reason.as_bytes());
        self.body_copy(b"\n");
    }

    fn begin(&mut self, status: u16) {
        self.summary.status = status;
        let class = match status {
            100..=199 => Counter::Responses1xx,
            200..=299 => Counter::Responses2xx,
            300..=399 => Counter::Responses3xx,
            400..=499 => Counter::Responses4xx,
            _ => Counter::Responses5xx,
        };
        self.context.counters().inc(class);
    }
}

/// Whether a reply to `request` has a body at all.
pub(crate) fn body_wanted(request: &RequestHead<'_, '_>) -> bool {
    request.method != skep_http::Method::Head
}
