//! The exchange with a member that is not an HTTP server: an application server behind AJP or FastCGI.
//!
//! ```text
//!   client's body -> pending -> codec -> packets -> member
//!   client <- passage <- head, body <- codec <- bytes <- member
//!                  log <- stderr <----'   '--> asks for more of the body (AJP)
//! ```
//! Invariants:
//! - The client's body is read only while the member waits for it, and one read at a time: at most that
//!   and `UPLOAD_BYTES_WAITING` are queued for the member.
//! - A body that the client breaks off gets no end: the connection to the member is closed.
//! - Its response head passes the same parser as that of an HTTP server.

mod call;
pub(super) mod codec;

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use skep_engine::{ExchangeError, RequestBody};
use skep_http::forward::Forward;
use skep_http::gateway::GatewayHead;
use skep_http::limits::RESPONSE_HEAD;
use skep_http::{BodyFraming, FieldSlots, RequestHead, parse_response};
use skep_serve::{Conn, Output, Pace, Worker};

use crate::limits::UPLOAD_BYTES_WAITING;
use crate::members::cause::Cause;
use crate::members::settings::GroupSettings;
use crate::request::asked::Asked;
use crate::request::attempt::Leg;
use crate::request::collected_body::{CollectedBody, pause};
use crate::request::in_flight::InFlight;
use crate::request::passage::Passage;
use crate::request::recipient::{Ends, Recipient};
use crate::request::times::Silence;
use crate::request::unread_response::{AfterResponse, UnreadResponse};
use crate::request::{ForwardError, Refused};
use codec::{GatewayCodec, GatewayEvent, Unsendable};

/// A request to an application server, and its reply; used for all attempts.
pub(super) struct GatewayLeg {
    worker: Rc<Worker>,
    settings: Arc<GroupSettings>,
    /// Whether the member is informed that it is draining.
    is_draining: bool,
    framing: BodyFraming,
    codec: GatewayCodec,
    output: Output,
    body: CollectedBody,
    /// Bytes taken from it that are in no packet yet: from `pending_at` on.
    pending: Vec<u8>,
    pending_at: usize,
    is_body_read: bool,
    /// The kernel took some bytes, or the member sent some.
    is_begun: bool,
    /// Part of the body is in packets only.
    is_packed: bool,
    /// The member accepts no more.
    is_refused: bool,
    is_asked: bool,
    stage: GatewayStage,
    passage: Passage,
    is_reusable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GatewayStage {
    Head,
    Body,
    Complete,
}

impl GatewayLeg {
    /// The request `head`, with the collected part of its body, for the members of `settings`, whose
    /// protocol is not HTTP. `framing` is that of the request to them.
    ///
    /// # Errors
    /// The protocol cannot express the request.
    pub(super) fn new(
        settings: Arc<GroupSettings>,
        head: &RequestHead<'_, '_>,
        recipient: &Recipient<'_, '_>,
        forward: &Forward<'_>,
        (body, framing): (CollectedBody, BodyFraming),
    ) -> Result<Self, ForwardError> {
        let worker = Rc::clone(recipient.worker());
        let mut output = worker.take_output();
        let of = (&*settings, false);
        let codec = start(&mut output, head, forward, recipient.ends(), framing, of)
            .inspect_err(|_| output.clear());
        let codec = match codec {
            Ok(codec) => codec,
            Err(error) => {
                worker.put_output(output);
                return Err(error);
            }
        };
        Ok(Self {
            worker,
            settings,
            is_draining: false,
            framing,
            codec,
            output,
            body,
            is_body_read: head.framing == BodyFraming::None,
            pending: Vec::new(),
            pending_at: 0,
            is_begun: false,
            is_packed: false,
            is_refused: false,
            is_asked: false,
            stage: GatewayStage::Head,
            passage: Passage::default(),
            is_reusable: false,
        })
    }

    /// Whether any part of the request may have reached the member, or any byte was received from it.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Number of request fields, and of bytes of standard error, that are dropped. Call it once per
    /// attempt.
    pub(super) fn dropped(&self) -> (u64, u64) {
        (self.codec.dropped_fields(), self.codec.stderr_dropped_bytes())
    }

    /// How the connection is treated.
    pub(super) fn after_response(&self) -> AfterResponse {
        match self.stage {
            GatewayStage::Complete if self.is_reusable && self.output.is_empty() => {
                AfterResponse::Idle
            }
            // The member has the whole request, and the rest of the reply is not needed.
            GatewayStage::Body if self.is_body_read && self.is_uploaded() => {
                AfterResponse::Unread(UnreadResponse::of_gateway(self.codec.clone()))
            }
            _ => AfterResponse::Close,
        }
    }

    /// Whether the member has the whole request, or has not asked for the rest of it.
    pub(super) fn is_complete(&self) -> bool {
        self.output.is_empty() && (self.is_body_read || !self.codec.is_awaited())
    }

    /// Starts again under `settings` if they have changed: a secret, the packet size or parameters may
    /// have changed while the request waited. The same if the member is draining. Does nothing if part of
    /// the body is packed already.
    ///
    /// # Errors
    /// The protocol cannot express the request under these settings.
    pub(super) fn adopt(
        &mut self,
        (settings, is_draining): (Arc<GroupSettings>, bool),
        head: &RequestHead<'_, '_>,
        forward: &Forward<'_>,
        ends: Ends,
    ) -> Result<(), ForwardError> {
        let is_same = Arc::ptr_eq(&settings, &self.settings) && is_draining == self.is_draining;
        if is_same || self.is_begun || self.is_packed {
            return Ok(());
        }
        (self.settings, self.is_draining) = (settings, is_draining);
        self.start_anew(head, forward, ends)
    }

    /// Restores the request for another connection. Possible only if it was not begun, or has no body.
    ///
    /// # Panics
    /// If part of a body was sent.
    pub(super) fn restart(
        &mut self,
        head: &RequestHead<'_, '_>,
        forward: &Forward<'_>,
        ends: Ends,
    ) {
        self.is_refused = false;
        self.is_asked = false;
        if !self.is_begun {
            return;
        }
        assert!(head.framing == BodyFraming::None, "a body that was begun is not there any more");
        let started = self.start_anew(head, forward, ends);
        // It was possible before.
        assert!(started.is_ok(), "the same request under the same settings");
    }

    /// Discards what was packed, sent and received.
    fn start_anew(
        &mut self,
        head: &RequestHead<'_, '_>,
        forward: &Forward<'_>,
        ends: Ends,
    ) -> Result<(), ForwardError> {
        self.output.clear();
        self.is_begun = false;
        self.stage = GatewayStage::Head;
        self.passage = Passage::default();
        self.is_reusable = false;
        let of = (&*self.settings, self.is_draining);
        self.codec = start(&mut self.output, head, forward, ends, self.framing, of)?;
        Ok(())
    }

    /// Packs the available data that the member waits for.
    fn fill(
        &mut self,
        cx: &mut TaskContext<'_>,
        mut body: Option<&mut RequestBody<'_>>,
    ) -> Result<(), ExchangeError> {
        while self.codec.is_awaited() && self.output.len() < UPLOAD_BYTES_WAITING {
            let ready = &self.pending[self.pending_at..];
            let bytes = ready.len().min(self.codec.wanted());
            if bytes > 0 {
                let (codec, output) = (&mut self.codec, &mut self.output);
                output.inline(|out| codec.write_body(out, &ready[..bytes]));
                self.is_packed = true;
                self.pending_at += bytes;
                continue;
            }
            if self.is_body_read {
                let codec = &mut self.codec;
                self.output.inline(|out| codec.write_end(out));
                continue;
            }
            self.pending.clear();
            self.pending_at = 0;
            let Some(body) = body.as_deref_mut() else { break };
            match self.body.poll_read(cx, body, &mut self.pending) {
                Poll::Ready(is_more) => self.is_body_read = !is_more? || self.body.is_taken(body),
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    fn begin(
        &mut self,
        GatewayHead { bytes, .. }: &GatewayHead,
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) -> Result<(), Cause> {
        let mut slots = FieldSlots::new();
        let head = parse_response(&mut slots, bytes, asked.method, &RESPONSE_HEAD)?;
        self.passage.begin(&head, asked, reply, in_flight)?;
        self.stage = GatewayStage::Body;
        Ok(())
    }
}

impl Leg for GatewayLeg {
    fn poll_upload(
        &mut self,
        cx: &mut TaskContext<'_>,
        member: &Conn,
        mut body: Option<&mut RequestBody<'_>>,
        stall_ms: u64,
    ) -> Poll<Result<(), ExchangeError>> {
        loop {
            self.fill(cx, body.as_deref_mut())?;
            if self.output.is_empty() {
                if self.codec.is_awaited() {
                    // The client's own deadline determines whether it is too slow.
                    return Poll::Pending;
                }
                break;
            }
            let before = self.output.len();
            let sent = member.poll_send_paced(cx, &mut self.output, &Pace::stall(stall_ms));
            self.is_begun |= self.output.len() < before;
            match sent {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => {
                    self.is_refused = true;
                    break;
                }
                Poll::Pending => {
                    pause(body);
                    return Poll::Pending;
                }
            }
        }
        // Nothing is read before the member asks; the client is not to blame.
        pause(body);
        Poll::Ready(Ok(()))
    }

    fn is_uploaded(&self) -> bool {
        self.is_refused || (self.output.is_empty() && !self.codec.is_awaited())
    }

    fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.is_asked)
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) -> Result<(), Cause> {
        self.is_begun = true;
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let received = self.codec.receive(rest);
            let (consumed, event) = received.inspect_err(|_| {
                log_rest(&mut self.codec, in_flight);
            })?;
            at += consumed;
            match event {
                None => {
                    // The client has all of the reply: no one waits for further output of the application,
                    // and its connection is closed.
                    if self.passage.is_only_head() {
                        log_rest(&mut self.codec, in_flight);
                        self.stage = GatewayStage::Complete;
                    }
                    return Ok(());
                }
                Some(GatewayEvent::Head(head)) => self.begin(&head, asked, reply, in_flight)?,
                Some(GatewayEvent::Body(range)) => {
                    self.passage.body(&rest[range], reply, in_flight)?;
                }
                Some(GatewayEvent::Wants) => self.is_asked = true,
                Some(GatewayEvent::Stderr(line)) => in_flight.log_stderr(&line),
                // All output is sent as soon as the client takes it.
                Some(GatewayEvent::Flush) => {}
                Some(GatewayEvent::End) => {
                    self.is_reusable = self.codec.is_reusable(bytes.len() - at);
                    self.passage.finish(&[], reply)?;
                    self.stage = GatewayStage::Complete;
                    return Ok(());
                }
            }
        }
    }

    fn pause(&mut self, reply: &mut Recipient<'_, '_>) -> Result<bool, Cause> {
        self.passage.pause(reply)
    }

    fn end(&mut self, _: &mut Recipient<'_, '_>, in_flight: &InFlight) -> Result<(), Cause> {
        log_rest(&mut self.codec, in_flight);
        self.codec.close().map_err(|cause| self.cause(cause))
    }

    fn is_complete(&self) -> bool {
        self.stage == GatewayStage::Complete
    }

    fn timeout_ms(&self, silence: &Silence) -> u64 {
        match self.stage {
            GatewayStage::Head => silence.before_head_ms,
            GatewayStage::Body | GatewayStage::Complete => self.passage.silence_ms_max(silence),
        }
    }

    fn cause(&self, cause: Cause) -> Cause {
        match self.stage {
            GatewayStage::Head => cause,
            GatewayStage::Body | GatewayStage::Complete => cause.inside_reply(),
        }
    }
}

impl Drop for GatewayLeg {
    fn drop(&mut self) {
        self.worker.put_output(std::mem::take(&mut self.output));
    }
}

/// Writes the head of the request to `output`.
fn start(
    output: &mut Output,
    head: &RequestHead<'_, '_>,
    forward: &Forward<'_>,
    ends: Ends,
    framing: BodyFraming,
    (settings, is_draining): (&GroupSettings, bool),
) -> Result<GatewayCodec, ForwardError> {
    call::with_request(head, forward, ends, framing, |request| {
        let mut started = Err(Unsendable::new(500, String::new()));
        output.inline(|out| {
            started = GatewayCodec::start(out, request, &settings.protocol, is_draining);
        });
        started.map_err(|Unsendable { status, detail, reason }| {
            tracing::debug!("request refused with {status}: {reason}");
            ForwardError::Refused(Refused { detail, ..Refused::plain(status) })
        })
    })
}

fn log_rest(codec: &mut GatewayCodec, in_flight: &InFlight) {
    if let Some(line) = codec.stderr_rest() {
        in_flight.log_stderr(&line);
    }
}
