//! Writing a reply: head, `Date`, `Connection`, body.
//!
//! Appends to an [`Output`] and allocates nothing beyond it. A head begins with [`Reply::start`] or
//! with bytes that were prepared when the object was cached ([`Reply::prebuilt`]); the fields that
//! differ from reply to reply follow.
//!
//! Invariants: a reply has one head, followed by its body; the status in the log is that of the
//! head. A client would read any violation as a reply to another of its requests.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Instant;

use skep_http::{RequestHead, Version, encode};
use skep_serve::{Output, SharedSlice};
use skep_telemetry::Counter;

use crate::context::Context;
use crate::summary::Summary;

/// The progress of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Nothing is written.
    Silent,
    /// In its head.
    Head,
    /// After its head. The kernel has none of it, so it can be discarded.
    Held,
    /// The kernel has part of it, which the client may have received.
    Out,
    /// The kernel has all of it.
    Complete,
}

/// The state of a reply, besides its bytes.
pub(crate) struct ReplyState {
    pub(crate) summary: Summary,
    pub(crate) keep_alive: bool,
    pub(crate) version: Version,
    /// False for HEAD: only the head is sent.
    pub(crate) body_wanted: bool,
    /// Whether to record the time of the head: not for a reply that is complete at once.
    pub(crate) times_head: bool,
}

impl ReplyState {
    /// The state before any reply to `request` is written.
    pub(crate) fn new(request: &RequestHead<'_, '_>, keep_alive: bool) -> Self {
        Self {
            summary: Summary::default(),
            keep_alive,
            version: request.version,
            body_wanted: request.method != skep_http::Method::Head,
            times_head: false,
        }
    }

    /// The same for bytes that are not a valid request: the reply is the connection's last.
    pub(crate) fn refusal() -> Self {
        let summary = Summary::default();
        let version = Version::Http11;
        Self { summary, keep_alive: false, version, body_wanted: true, times_head: false }
    }
}

/// A reply being written.
pub struct Reply<'o> {
    output: &'o mut Output,
    context: &'o Context,
    state: &'o mut ReplyState,
    stage: &'o Cell<Stage>,
    client: SocketAddr,
}

impl<'o> Reply<'o> {
    pub(crate) fn new(
        output: &'o mut Output,
        context: &'o Context,
        state: &'o mut ReplyState,
        stage: &'o Cell<Stage>,
        client: SocketAddr,
    ) -> Self {
        Self { output, context, state, stage, client }
    }

    pub fn context(&self) -> &'o Context {
        self.context
    }

    pub fn client(&self) -> SocketAddr {
        self.client
    }

    /// The entry for the log.
    pub fn summary(&mut self) -> &mut Summary {
        &mut self.state.summary
    }

    /// Whether body bytes are sent (not for HEAD).
    pub fn body_wanted(&self) -> bool {
        self.state.body_wanted
    }

    /// Whether the connection stays open after this reply.
    pub fn keep_alive(&self) -> bool {
        self.state.keep_alive
    }

    /// Makes this the connection's last reply. After the end of the head no `Connection` field is
    /// sent: the head itself must imply the close, as that of a 101 does.
    pub fn close(&mut self) {
        self.state.keep_alive = false;
    }

    /// Begins a head: status line and `Server`.
    pub fn start(&mut self, status: u16) {
        self.begin(status);
        self.output.inline(|out| {
            encode::write_status_line(out, status);
            out.extend_from_slice(b"Server: skep\r\n");
        });
    }

    /// Begins a head with prepared bytes: status line and complete field lines.
    pub fn prebuilt(&mut self, status: u16, lines: &[u8]) {
        self.begin(status);
        self.output.copy(lines);
    }

    /// Appends one field.
    pub fn field(&mut self, name: &str, value: &[u8]) {
        self.assert_in_head();
        self.output.inline(|out| encode::write_field(out, name, value));
    }

    /// Appends one field with a number.
    pub fn field_number(&mut self, name: &str, value: u64) {
        self.assert_in_head();
        self.output.inline(|out| {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            encode::write_u64(out, value);
            out.extend_from_slice(b"\r\n");
        });
    }

    /// Appends complete field lines.
    pub fn lines(&mut self, lines: &[u8]) {
        self.assert_in_head();
        self.output.copy(lines);
    }

    /// Ends the head: `Date`, `Connection` if the version requires it, CRLF.
    pub fn end_head(&mut self) {
        let context = self.context;
        self.output.inline(|out| context.write_date(out));
        self.end_dated_head();
    }

    /// The same for a head with its own `Date`: that is of the server that generated the reply, and
    /// the age is relative to it (RFC 9111 4.2.3).
    pub fn end_dated_head(&mut self) {
        self.assert_in_head();
        self.stage.set(Stage::Held);
        self.time_head();
        let (keep_alive, version) = (self.state.keep_alive, self.state.version);
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
        if self.state.body_wanted {
            self.add_body(bytes.len() as u64);
            self.output.copy(bytes);
        }
    }

    /// Appends the bytes of `slice` to the body, uncopied.
    pub fn body_shared(&mut self, slice: SharedSlice) {
        if self.state.body_wanted {
            self.add_body(u64::from(slice.len()));
            self.output.share(slice);
        }
    }

    /// Appends framing that is not payload (chunk lines), for bodies written in pieces.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.assert_in_body(bytes.len() as u64);
        self.output.copy(bytes);
    }

    /// Passes the output to `write`, which appends a complete head itself.
    pub fn foreign_head(&mut self, status: u16, write: impl FnOnce(&mut Vec<u8>, bool)) {
        self.begin(status);
        let keep_alive = self.state.keep_alive;
        self.output.inline(|out| write(out, keep_alive));
        self.stage.set(Stage::Held);
        self.time_head();
    }

    /// Writes a complete reply with `body`.
    pub fn whole(&mut self, status: u16, content_type: &str, body: &[u8]) {
        self.start(status);
        self.field("Content-Type", content_type.as_bytes());
        self.field_number("Content-Length", body.len() as u64);
        self.end_head();
        self.body_copy(body);
    }

    /// Writes a complete reply with the reason phrase of `status` as its body.
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
        let stage = self.stage.replace(Stage::Head);
        assert_eq!(stage, Stage::Silent, "a reply has one head");
        self.state.summary.status = status;
        self.context.counters().inc(Counter::response(status));
    }

    fn time_head(&mut self) {
        if self.state.times_head {
            self.state.summary.head_at = Some(Instant::now());
        }
    }

    fn assert_in_head(&self) {
        assert_eq!(self.stage.get(), Stage::Head, "fields stand in a head");
    }

    fn add_body(&mut self, bytes: u64) {
        self.assert_in_body(bytes);
        self.state.summary.body_bytes += bytes;
    }

    /// Bytes after a reply without a body would be read as the next reply (RFC 9112 6.3).
    fn assert_in_body(&self, bytes: u64) {
        let is_behind_head = matches!(self.stage.get(), Stage::Held | Stage::Out);
        assert!(is_behind_head, "a body stands behind a head, not at {:?}", self.stage.get());
        let status = self.state.summary.status;
        let has_body = self.state.body_wanted && status >= 200 && !matches!(status, 204 | 304);
        assert!(has_body || bytes == 0, "this {status} has no body");
    }
}
