//! One slow request: reading its body and writing its reply.
//!
//! Invariants: bytes received after a body are returned only once the body has been read to its
//! end, and only once; they never include a byte of the body. The kernel gets no byte of a reply
//! before its head is complete, and no interim response after one.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use skep_http::{BodyDecoder, BodyFraming, Reject, RequestHead, Version};
use skep_serve::{Conn, ConnError, Output, Pace, TimeoutCause};
use skep_telemetry::Counter;

use crate::context::Context;
use crate::limits::{DRAIN_BYTES_MAX, DRAIN_MS_MAX};
use crate::owed::Owed;
use crate::reply::{Reply, ReplyState, Stage};
use crate::settings::EngineSettings;

/// Why a request could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The client's connection failed or was too slow.
    #[error("client: {0}")]
    Client(#[from] ConnError),
    /// The client's body is malformed.
    #[error("request body refused: {0}")]
    Reject(#[from] Reject),
    /// The client closed before its body was complete.
    #[error("the client closed inside its request body")]
    BodyCutShort,
    /// The reply cannot be completed; the connection must be closed, so that the client detects that
    /// bytes are missing.
    #[error("reply cut short: {0}")]
    ReplyCutShort(&'static str),
}

/// The state that the two halves of an exchange share.
pub(crate) struct Shared {
    /// The progress of the reply.
    stage: Cell<Stage>,
    /// Deadline for more of the body, by the worker's clock in milliseconds: in force whenever the
    /// client need not take data first.
    body_deadline_ms: Cell<u64>,
    /// Bytes of interim responses that the kernel has not taken yet.
    interim_bytes: Cell<u64>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            stage: Cell::new(Stage::Silent),
            body_deadline_ms: Cell::new(u64::MAX),
            interim_bytes: Cell::new(0),
        }
    }
}

/// The two halves of a request in progress. They are separate so that a proxy can read from one
/// while it writes to the other.
pub struct Exchange<'c> {
    /// The rest of the client's request.
    pub body: RequestBody<'c>,
    /// The reply to the client.
    pub reply: ReplySink<'c>,
}

impl<'c> Exchange<'c> {
    /// `rest` follows the head of `request`. `shared` belongs to a reply that was not begun.
    pub(crate) fn new(
        conn: &'c Conn,
        context: &'c Rc<Context>,
        request: &RequestHead<'_, '_>,
        rest: Vec<u8>,
        keep_alive: bool,
        pace: Pace,
        shared: &'c Shared,
    ) -> Result<Self, Reject> {
        let Shared { stage, body_deadline_ms, interim_bytes } = shared;
        assert_eq!(stage.get(), Stage::Silent, "a request is answered once");
        let settings = context.settings();
        let decoder = BodyDecoder::new(request.framing, &settings.body)?;
        let body = RequestBody {
            conn,
            context,
            settings,
            decoder,
            framing: request.framing,
            rest,
            rest_at: 0,
            is_rest_taken: false,
            continue_owed: request.expect_continue,
            stage,
            deadline_ms: body_deadline_ms,
            interim_bytes,
            rate: Rate::Unasked,
            time_ms_max: u64::MAX,
            deadline_max_ms: u64::MAX,
            received: 0,
            forfeited_ms: 0,
        };
        // A client that waits for 100 may or may not send its body after a final response; only
        // closing the connection makes the following bytes unambiguous.
        let keep_alive = keep_alive && !request.expect_continue;
        let reply = ReplySink {
            conn,
            context,
            pace,
            output: Output::default(),
            owed: Owed::new(context.counters()),
            state: ReplyState { times_head: true, ..ReplyState::new(request, keep_alive) },
            stage,
            body_deadline_ms,
            is_until_close: false,
            interim_bytes,
        };
        Ok(Self { body, reply })
    }

    /// The client's connection, for tunnels and for properties of the peer.
    pub fn conn(&self) -> &'c Conn {
        self.reply.conn
    }

    pub fn context(&self) -> &'c Rc<Context> {
        self.reply.context
    }
}

/// The body of a request, read as it is received.
pub struct RequestBody<'c> {
    conn: &'c Conn,
    context: &'c Rc<Context>,
    settings: Rc<EngineSettings>,
    decoder: BodyDecoder,
    framing: BodyFraming,
    /// Bytes received after the head; later, after the body.
    rest: Vec<u8>,
    rest_at: usize,
    is_rest_taken: bool,
    continue_owed: bool,
    /// The progress of the reply.
    stage: &'c Cell<Stage>,
    /// See [`Shared`].
    deadline_ms: &'c Cell<u64>,
    /// See [`Shared`].
    interim_bytes: &'c Cell<u64>,
    rate: Rate,
    /// Time limit for it, counted from the first wait for it.
    time_ms_max: u64,
    /// The latest deadline, however much of it is received.
    deadline_max_ms: u64,
    received: u64,
    /// Time that its average rate would have allowed if the rate applied only to the body as a whole.
    forfeited_ms: u64,
}

/// The measurement of the client's rate.
#[derive(Clone, Copy, Debug)]
enum Rate {
    /// Nothing has waited for the body yet.
    Unasked,
    /// Measured since this time.
    Since(u64),
    /// The body is not being read: the rate was measured from the first time to the second.
    Paused { since_ms: u64, at_ms: u64 },
}

impl RequestBody<'_> {
    /// How the client delimits it.
    pub fn framing(&self) -> BodyFraming {
        self.framing
    }

    /// Whether the body was read to its end.
    pub fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// Limits the body to `bytes_max`, if that is less than the general limit. Call it before the
    /// body is read.
    ///
    /// # Errors
    /// The body is announced as longer.
    pub fn limit(&mut self, bytes_max: u64) -> Result<(), Reject> {
        let mut limits = self.settings.body;
        limits.body_bytes_max = limits.body_bytes_max.min(bytes_max);
        self.decoder = BodyDecoder::new(self.framing, &limits)?;
        Ok(())
    }

    /// Limits the time for the body to `ms`, counted from the first wait for it; pauses do not count.
    /// Call it before the body is read.
    pub fn limit_time(&mut self, ms: u64) {
        self.time_ms_max = ms;
    }

    /// Keeps the trailers of a chunked body. Call it before the body is read.
    pub fn keep_trailers(&mut self) {
        self.decoder.keep_trailers();
    }

    /// The trailers of a body that was read to its end, if they were kept: complete field lines.
    pub fn take_trailers(&mut self) -> Vec<u8> {
        self.decoder.take_trailers()
    }

    /// Appends the next bytes of the payload to `sink`: at least one, or returns false at the end.
    /// Sends `100 Continue` if the client waits for it.
    pub fn poll_read(
        &mut self,
        cx: &mut TaskContext<'_>,
        sink: &mut Vec<u8>,
    ) -> Poll<Result<bool, ExchangeError>> {
        loop {
            if self.decoder.is_done() {
                return Poll::Ready(Ok(false));
            }
            let before = sink.len();
            self.decode_rest(sink)?;
            if sink.len() > before {
                return Poll::Ready(Ok(true));
            }
            if self.decoder.is_done() {
                return Poll::Ready(Ok(false));
            }
            ready!(self.poll_fill(cx, sink))?;
            if sink.len() > before {
                return Poll::Ready(Ok(true));
            }
        }
    }

    /// [`RequestBody::poll_read`], awaited.
    pub async fn read(&mut self, sink: &mut Vec<u8>) -> Result<bool, ExchangeError> {
        std::future::poll_fn(|cx| self.poll_read(cx, sink)).await
    }

    /// Stops the measurement of the client's rate until the next read, since the consumer of the body
    /// is slower than the client.
    pub fn pause(&mut self) {
        if let Rate::Since(since_ms) = self.rate
            && !self.is_done()
        {
            self.rate = Rate::Paused { since_ms, at_ms: self.context.worker().now_ms() };
            self.wait_until(u64::MAX);
        }
    }

    /// Takes the bytes received after the request, for a tunnel. The reply must be the last one of
    /// the connection.
    pub fn take_rest(&mut self) -> Vec<u8> {
        assert!(self.is_done(), "only behind a body are bytes no body's (CVE-2025-4366)");
        assert!(!self.is_rest_taken, "what came behind the request was given away");
        self.is_rest_taken = true;
        let mut rest = std::mem::take(&mut self.rest);
        rest.drain(..self.rest_at);
        rest
    }

    /// Reads and discards the rest, within bounds, so that the connection can be reused. False: it
    /// must be closed.
    pub(crate) async fn drain(&mut self) -> bool {
        assert!(!self.is_done(), "there is something to drain");
        assert_eq!(self.stage.get(), Stage::Complete, "drained is what was answered");
        if self.continue_owed {
            // The client was not told to send the body, and need not.
            return false;
        }
        let deadline_ms = self.context.worker().now_ms() + DRAIN_MS_MAX;
        self.deadline_max_ms = deadline_ms;
        self.wait_until(deadline_ms);
        let mut sink = Vec::new();
        let mut thrown_away = 0;
        while thrown_away < DRAIN_BYTES_MAX && self.context.worker().now_ms() < deadline_ms {
            match self.read(&mut sink).await {
                Ok(true) => thrown_away += std::mem::take(&mut sink).len(),
                Ok(false) => return true,
                Err(_) => return false,
            }
        }
        false
    }

    fn decode_rest(&mut self, sink: &mut Vec<u8>) -> Result<(), Reject> {
        self.rest_at += decode(&mut self.decoder, &self.rest[self.rest_at..], sink)?;
        if self.rest_at == self.rest.len() {
            // Freed, since the body may take long.
            self.rest = Vec::new();
            self.rest_at = 0;
        }
        Ok(())
    }

    /// Reads once from the socket and decodes directly from the worker's buffer; only bytes of later
    /// requests are kept.
    fn poll_fill(
        &mut self,
        cx: &mut TaskContext<'_>,
        sink: &mut Vec<u8>,
    ) -> Poll<Result<(), ExchangeError>> {
        assert!(self.rest.is_empty(), "what came first is decoded first");
        self.begin();
        let conn = self.conn;
        conn.worker().clone().with_input(|input| {
            let n = ready!(conn.poll_recv(cx, input))?;
            if n == 0 {
                return Poll::Ready(Err(ExchangeError::BodyCutShort));
            }
            self.received += n as u64;
            self.context.counters().add(Counter::ReceivedBytes, n as u64);
            let behind = decode(&mut self.decoder, &input[..n], sink)?;
            self.set_deadline();
            assert!(behind == n || self.is_done(), "what is kept stands behind the body");
            self.rest.extend_from_slice(&input[behind..n]);
            Poll::Ready(Ok(()))
        })
    }

    fn begin(&mut self) {
        let now_ms = self.context.worker().now_ms();
        match self.rate {
            Rate::Since(_) => {}
            Rate::Unasked => {
                self.rate = Rate::Since(now_ms);
                let last_ms = now_ms.saturating_add(self.time_ms_max);
                self.deadline_max_ms = self.deadline_max_ms.min(last_ms);
                self.set_deadline();
            }
            Rate::Paused { since_ms, at_ms } => {
                let paused_ms = now_ms.saturating_sub(at_ms);
                self.rate = Rate::Since(since_ms + paused_ms);
                self.deadline_max_ms = self.deadline_max_ms.saturating_add(paused_ms);
                self.set_deadline();
            }
        }
        // After the beginning of a reply it would become a part of that.
        let is_answered = self.stage.get() >= Stage::Out || self.interim_bytes.get() > 0;
        if std::mem::take(&mut self.continue_owed) && self.received == 0 && !is_answered {
            // A few bytes into an empty socket buffer; if they do not fit, the client sends its body
            // after its own timeout.
            let _ = self.conn.send_now(b"HTTP/1.1 100 Continue\r\n\r\n");
            self.context.counters().inc(Counter::Responses1xx);
        }
    }

    /// Sets the time at which the body so far will have been slower than allowed. A client that has
    /// sent all of it has no deadline.
    fn set_deadline(&mut self) {
        if self.is_done() {
            return self.wait_until(u64::MAX);
        }
        let Rate::Since(started) = self.rate else {
            unreachable!("a rate counts while somebody waits, not {:?}", self.rate)
        };
        let rate = self.settings.body_min_bytes_per_s;
        let silent_from =
            self.context.worker().now_ms().saturating_add(self.settings.body_grace_ms);
        let deadline_ms = match self.received.saturating_mul(1000).checked_div(rate) {
            Some(earned_ms) => {
                let own = started.saturating_add(self.settings.body_grace_ms);
                let own = own.saturating_add(earned_ms).saturating_sub(self.forfeited_ms);
                // Otherwise a few fast megabytes would allow hours of silence.
                let last = silent_from.saturating_add(self.settings.body_average_ms);
                self.forfeited_ms += own.saturating_sub(last);
                own.min(last)
            }
            // Without a minimum rate, silence ends the body.
            None => silent_from.saturating_add(self.settings.idle_ms),
        };
        self.wait_until(deadline_ms.min(self.deadline_max_ms));
    }

    /// Ends the connection at this time unless more was received.
    fn wait_until(&self, deadline_ms: u64) {
        self.deadline_ms.set(deadline_ms);
        set_body_deadline(self.conn, deadline_ms);
    }
}

/// `u64::MAX`: no deadline.
fn set_body_deadline(conn: &Conn, deadline_ms: u64) {
    match deadline_ms {
        u64::MAX => conn.timer().clear(),
        _ => conn.timer().set(deadline_ms, TimeoutCause::Body),
    }
}

/// Decodes from the start of `input` and appends the payload to `sink`. Returns the number of bytes
/// that belong to the body: all, unless it is complete.
fn decode(decoder: &mut BodyDecoder, input: &[u8], sink: &mut Vec<u8>) -> Result<usize, Reject> {
    let mut at = 0;
    while at < input.len() && !decoder.is_done() {
        let decoded = decoder.decode(&input[at..])?;
        assert!(decoded.consumed > 0, "a body that is not done takes bytes");
        sink.extend_from_slice(&input[at..][decoded.data]);
        at += decoded.consumed;
    }
    Ok(at)
}

/// The destination of the reply.
pub struct ReplySink<'c> {
    conn: &'c Conn,
    context: &'c Rc<Context>,
    pace: Pace,
    /// Taken from the worker when there is something to write: requests mostly wait.
    output: Output,
    owed: Owed<'c>,
    pub(crate) state: ReplyState,
    stage: &'c Cell<Stage>,
    /// See [`Shared`].
    body_deadline_ms: &'c Cell<u64>,
    /// Whether closing the connection resets it.
    is_until_close: bool,
    /// See [`Shared`]: they are at the front of the output.
    interim_bytes: &'c Cell<u64>,
}

impl ReplySink<'_> {
    /// The end of the connection will delimit the reply's body (RFC 9112 6.3, 8): until the body is
    /// complete, closing the connection resets it. Call it before anything is sent.
    pub fn end_by_close(&mut self) {
        assert!(self.stage.get() < Stage::Out, "the client knows how the body ends");
        self.state.keep_alive = false;
        self.is_until_close = true;
        self.conn.reset_on_close(true);
    }

    /// Sends the rest of the reply: an orderly close then shows that the reply is complete.
    pub(crate) async fn finish(&mut self) -> Result<(), ExchangeError> {
        let stage = self.stage.get();
        assert!(matches!(stage, Stage::Held | Stage::Out), "what was answered has a head");
        self.flush().await?;
        assert_eq!((self.stage.get(), self.output.len()), (Stage::Out, 0), "the kernel has all");
        self.stage.set(Stage::Complete);
        self.allow_orderly_close();
        Ok(())
    }

    fn allow_orderly_close(&mut self) {
        if std::mem::take(&mut self.is_until_close) {
            self.conn.reset_on_close(false);
        }
    }

    /// Appends the complete head of an interim response (1xx), which precedes the reply. Not for
    /// clients of HTTP/1.0, which do not support them (RFC 9110 15.2).
    pub fn interim(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        assert_eq!(self.stage.get(), Stage::Silent, "an interim response precedes the reply");
        assert_eq!(self.state.version, Version::Http11, "the client knows interim responses");
        self.context.counters().inc(Counter::Responses1xx);
        self.output().inline(write);
        self.interim_bytes.set(self.output.len());
    }

    /// Appends to the reply; nothing is sent before a flush.
    pub fn write(&mut self) -> Reply<'_> {
        self.output();
        let client = self.conn.peer();
        Reply::new(&mut self.output, self.context, &mut self.state, self.stage, client)
    }

    fn output(&mut self) -> &mut Output {
        if !self.output.has_memory() {
            self.output = self.context.worker().take_output();
            assert!(self.output.is_empty(), "who takes an output has it to itself");
        }
        &mut self.output
    }

    /// Whether a reply has begun.
    pub fn is_begun(&self) -> bool {
        let is_begun = self.stage.get() > Stage::Silent;
        assert_eq!(is_begun, self.state.summary.status != 0, "the status is the head's");
        is_begun
    }

    /// Discards what was appended, so that another reply can be written. False: part of it may have
    /// been sent to the client.
    pub fn take_back(&mut self) -> bool {
        match self.stage.get() {
            // The output contains only what precedes the reply.
            Stage::Silent => return true,
            Stage::Head | Stage::Held if self.interim_bytes.get() == 0 => {}
            _ => return false,
        }
        self.allow_orderly_close();
        self.output.clear();
        self.owed.set(0);
        self.stage.set(Stage::Silent);
        self.state.summary.status = 0;
        self.state.summary.body_bytes = 0;
        true
    }

    /// The client's HTTP version.
    pub fn version(&self) -> Version {
        self.state.version
    }

    /// Whether body bytes are sent (not for HEAD).
    pub fn body_wanted(&self) -> bool {
        self.state.body_wanted
    }

    /// Announces that `bytes` will be appended, which count as load until they are sent. Bytes
    /// appended without announcement count while they are queued.
    pub fn announce(&mut self, bytes: u64) {
        self.owed.announce(bytes);
    }

    /// Number of bytes appended and not yet sent.
    pub fn queued_bytes(&self) -> u64 {
        self.output.len()
    }

    /// Removes the shared (uncopied) bytes that were appended last and not sent; returns their
    /// number. The head stays.
    pub fn take_back_unsent(&mut self) -> u64 {
        let bytes = self.output.take_back();
        self.state.summary.body_bytes = self.state.summary.body_bytes.saturating_sub(bytes);
        bytes
    }

    /// The minimum rate at which the client must take it.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Sends what was appended; ready when the kernel has taken all of it.
    pub fn poll_flush(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), ExchangeError>> {
        let queued = self.output.len();
        let stage = self.stage.get();
        let is_whole = stage >= Stage::Held || queued == self.interim_bytes.get();
        assert!(is_whole, "a head is sent whole, not at {stage:?}");
        let sent = self.conn.poll_send_paced(cx, &mut self.output, &self.pace);
        let taken = queued - self.output.len();
        let of_interim = taken.min(self.interim_bytes.get());
        self.interim_bytes.update(|left| left - of_interim);
        if taken > of_interim {
            self.stage.set(Stage::Out);
        }
        self.context.counters().add(Counter::SentBytes, taken);
        self.owed.paid(taken, self.output.len());
        if sent.is_ready() {
            // The client has taken the output, so the deadline of the body applies again.
            set_body_deadline(self.conn, self.body_deadline_ms.get());
        }
        sent.map_err(ExchangeError::from)
    }

    /// [`ReplySink::poll_flush`], awaited.
    pub async fn flush(&mut self) -> Result<(), ExchangeError> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_flush(cx)).await
    }
}

impl Drop for ReplySink<'_> {
    fn drop(&mut self) {
        self.context.worker().put_output(std::mem::take(&mut self.output));
    }
}
