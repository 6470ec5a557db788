//! The recipient of a response: a client, or a cache that sees it first and may take it, or copy it for all
//! waiting requests. A cache may also send a request without a client.
//!
//! ```text
//!   head --> tap? --pass--> client, with further lines <--.
//!             | take                                      | the tap stops, or gives up what its
//!             |----copy---> both: client; tap: body, end -|     client holds up for too long
//!             v                                           |
//!            tap: body, end <-----------------------------' the client leaves
//! ```
//!
//! Invariants: a client is sent no byte of a response that a tap has taken. A client and a tap that copies
//! get the same bytes; a fault of one does not end the response for the other.

use std::borrow::Cow;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use skep_engine::{Context, Exchange, ExchangeError, ReplySink, RequestBody, Summary};
use skep_http::forward::{ForwardReply, write_response};
use skep_http::{ResponseFraming, ResponseHead, Version};
use skep_serve::Worker;

use crate::request::asked::Asked;
use crate::request::coding::CodedReply;
use crate::request::copy_wait::CopyWait;
use crate::request::read_ahead::ClientBody;

/// Observes the final response before the client does, and may take it. Without a client, a tap is the only
/// recipient.
pub trait Tap {
    /// Called with the head of the final response, once for each request, since nothing is retried after a
    /// head.
    fn head(&mut self, head: &ResponseHead<'_, '_>) -> Tapped;

    /// Called if a response that is not passed begins a session: `lines` are for the client, if it is sent
    /// another reply instead.
    fn begin_session(&mut self, _lines: &[u8]) {}

    /// A piece of the body of a response that was taken or is copied.
    fn body(&mut self, data: &[u8]) -> TapBody;

    /// Called when a response that was taken or copied is complete according to the protocol.
    fn end(&mut self);

    /// Called when the copy has waited too long for the client: it ends.
    fn held_up(&mut self) {}

    /// Ready when the effects of the head are complete, so that the response may be sent to the client.
    fn poll_ready(&mut self, _cx: &mut TaskContext<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Whether the request continues after its client has disconnected, because other requests wait.
    fn outlives_client(&self) -> bool;

    /// Whether the request may wait for the member of its session: not while other requests, which any
    /// member may answer, wait for it.
    fn may_wait_for_session(&self) -> bool {
        true
    }
}

/// How a response is handled.
#[derive(Debug)]
pub enum Tapped {
    /// The client is sent it, with these additional lines.
    Pass(Vec<u8>),
    /// The same, and the tap gets the body, too.
    Copy(Vec<u8>),
    /// The tap takes it; the client is sent nothing.
    Take,
    /// It is not needed: the requester continues, while the rest is read for a moment.
    Stop,
}

/// How the rest of a response that was taken or is copied is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapBody {
    /// The tap needs it.
    Go,
    /// The tap does not need it; if the tap has taken the response, nothing does.
    Stop,
}

/// Both ends of a client's connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub client: SocketAddr,
    pub local: SocketAddr,
}

pub(super) struct Recipient<'a, 'c> {
    exchange: Option<&'a mut Exchange<'c>>,
    tap: Option<&'a mut (dyn Tap + 'a)>,
    context: Rc<Context>,
    ends: Ends,
    state: TapState,
    /// For a response that is passed or copied.
    client_body: ClientBody,
    /// For a response that is copied.
    copy_wait: CopyWait,
    /// The reason why the client gets no more of a response that the tap continues to receive.
    client_fault: Option<ExchangeError>,
    /// Number of bytes passed to the tap.
    tapped_bytes: u64,
    /// Number of bytes given to the encoder for the client.
    coded_bytes: u64,
    /// For a request without a client.
    summary: Summary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TapState {
    /// No head was received yet.
    Waits,
    /// The tap gets the response.
    Taken,
    Stopped,
    /// The client is sent the response.
    Passed,
    /// Both get it.
    Copied,
}

impl<'a, 'c> Recipient<'a, 'c> {
    /// A client, with or without a tap.
    pub(super) fn of_client(
        exchange: &'a mut Exchange<'c>,
        tap: Option<&'a mut (dyn Tap + 'a)>,
    ) -> Self {
        let conn = exchange.conn();
        let ends = Ends { client: conn.peer(), local: conn.local() };
        Self::new(Rc::clone(exchange.context()), ends, Some(exchange), tap)
    }

    /// A tap only; `ends` are those of the client on whose behalf it asks.
    pub(super) fn of_tap(context: &Rc<Context>, ends: Ends, tap: &'a mut (dyn Tap + 'a)) -> Self {
        Self::new(Rc::clone(context), ends, None, Some(tap))
    }

    fn new(
        context: Rc<Context>,
        ends: Ends,
        exchange: Option<&'a mut Exchange<'c>>,
        tap: Option<&'a mut (dyn Tap + 'a)>,
    ) -> Self {
        let (state, summary) = (TapState::Waits, Summary::default());
        Self {
            exchange,
            tap,
            context,
            ends,
            state,
            client_body: ClientBody::default(),
            copy_wait: CopyWait::default(),
            client_fault: None,
            tapped_bytes: 0,
            coded_bytes: 0,
            summary,
        }
    }

    pub(super) fn ends(&self) -> Ends {
        self.ends
    }

    pub(super) fn worker(&self) -> &Rc<Worker> {
        self.context.worker()
    }

    /// The body of the client's request.
    pub(super) fn body(&mut self) -> Option<&mut RequestBody<'c>> {
        self.exchange.as_mut().map(|exchange| &mut exchange.body)
    }

    /// The client, if there is one: needed for tunnels.
    pub(super) fn client(&mut self) -> Option<&mut Exchange<'c>> {
        self.exchange.as_deref_mut()
    }

    fn reply(&mut self) -> Option<&mut ReplySink<'c>> {
        self.exchange.as_mut().map(|exchange| &mut exchange.reply)
    }

    /// Whether the request may wait for the member of its session.
    pub(super) fn may_wait_for_session(&self) -> bool {
        self.tap.as_ref().is_none_or(|tap| tap.may_wait_for_session())
    }

    /// Records values for the log.
    pub(super) fn note(&mut self, note: impl FnOnce(&mut Summary)) {
        match &mut self.exchange {
            Some(exchange) => note(exchange.reply.write().summary()),
            None => note(&mut self.summary),
        }
    }

    /// Ready when no one waits for the response any more.
    pub(super) fn poll_left(&self, cx: &TaskContext<'_>) -> Poll<()> {
        match &self.exchange {
            Some(exchange) if self.state == TapState::Passed || !self.outlives_client() => {
                exchange.conn().poll_closed(cx)
            }
            _ => Poll::Pending,
        }
    }

    fn outlives_client(&self) -> bool {
        self.tap.as_ref().is_some_and(|tap| tap.outlives_client())
    }

    /// Whether part of the response was passed on.
    pub(super) fn is_begun(&self) -> bool {
        let of_client = self.exchange.as_ref().is_some_and(|exchange| exchange.reply.is_begun());
        of_client || matches!(self.state, TapState::Taken | TapState::Stopped)
    }

    /// Discards the response so far. False: part of it was already passed on.
    pub(super) fn take_back(&mut self) -> bool {
        match (self.state, self.reply()) {
            (TapState::Taken | TapState::Stopped, _) => false,
            (_, Some(reply)) => {
                let is_back = reply.take_back();
                if is_back {
                    self.client_body = ClientBody::default();
                }
                is_back
            }
            (_, None) => true,
        }
    }

    /// Ready when the response may be sent to the client.
    pub(super) fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.tap.as_mut().map_or(Poll::Ready(()), |tap| tap.poll_ready(cx))
    }

    /// Whether the rest of the response is not needed.
    pub(super) fn is_stopped(&self) -> bool {
        self.state == TapState::Stopped
    }

    /// Bytes queued for the client.
    pub(super) fn queued_bytes(&self) -> u64 {
        self.exchange.as_ref().map_or(0, |exchange| exchange.reply.queued_bytes())
    }

    /// A number that changes when bytes are passed on.
    pub(super) fn progress(&self) -> u64 {
        self.queued_bytes() + self.tapped_bytes + self.coded_bytes + self.client_body.progress()
    }

    /// Sends the bytes queued for the client, including those read ahead. Ready when all are sent, or when
    /// the client has failed and the tap continues.
    pub(super) fn poll_flush(
        &mut self,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Result<(), ExchangeError>> {
        if self.client_fault.is_some() {
            return Poll::Ready(Ok(()));
        }
        let sent = ready!(self.poll_send(cx));
        self.copy_wait.pause();
        Poll::Ready(match sent {
            Err(fault) if self.state == TapState::Copied && self.outlives_client() => {
                self.state = TapState::Taken;
                self.client_fault = Some(fault);
                Ok(())
            }
            sent => sent,
        })
    }

    fn poll_send(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), ExchangeError>> {
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(Ok(())) };
        loop {
            if exchange.reply.queued_bytes() > 0 {
                let flushed = exchange.reply.poll_flush(cx);
                if flushed.is_pending() {
                    self.client_body.settle(cx);
                }
                ready!(flushed)?;
            }
            if !ready!(self.client_body.poll_next(cx, &mut exchange.reply.write()))? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Whether there is room for one more read from the member while the client is behind. A copy waits
    /// only briefly for room; then it is abandoned, and only the client is waited for.
    pub(super) fn has_room_ahead(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let is_copied = self.state == TapState::Copied;
        let has_room =
            (is_copied || self.state == TapState::Passed) && self.client_body.has_room(cx);
        if has_room {
            self.copy_wait.pause();
        } else if is_copied && self.copy_wait.poll_over(cx).is_ready() {
            self.state = TapState::Passed;
            if let Some(tap) = &mut self.tap {
                tap.held_up();
            }
        }
        has_room
    }

    /// Sends the bytes read ahead, once the member has sent everything.
    pub(super) async fn send_rest(&mut self) -> Result<(), ExchangeError> {
        if self.client_body.is_behind() {
            poll_fn(|cx| self.poll_flush(cx)).await?;
        }
        self.client_fault.take().map_or(Ok(()), Err)
    }

    /// Passes the head of the final response to the tap.
    pub(super) fn tapped(&mut self, head: &ResponseHead<'_, '_>) -> Tapped {
        let tapped = match &mut self.tap {
            Some(tap) => tap.head(head),
            None => Tapped::Pass(Vec::new()),
        };
        self.state = match &tapped {
            // There is no client to pass it to.
            Tapped::Pass(_) if self.exchange.is_none() => TapState::Stopped,
            Tapped::Pass(_) => TapState::Passed,
            Tapped::Copy(_) if self.exchange.is_some() => TapState::Copied,
            Tapped::Copy(_) | Tapped::Take => TapState::Taken,
            Tapped::Stop => TapState::Stopped,
        };
        tapped
    }

    /// Informs the tap of a session that the response begins.
    pub(super) fn begin_session(&mut self, lines: &[u8]) {
        if let Some(tap) = &mut self.tap {
            tap.begin_session(lines);
        }
    }

    /// Whether the client is not sent the response: the tap has it, or nothing does.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.state, TapState::Taken | TapState::Stopped)
    }

    /// Passes a piece of the body to the tap, if it gets the body.
    pub(super) fn tap_body(&mut self, data: &[u8]) {
        let stopped = match self.state {
            TapState::Taken => TapState::Stopped,
            TapState::Copied => TapState::Passed,
            TapState::Waits | TapState::Stopped | TapState::Passed => return,
        };
        let Some(tap) = &mut self.tap else { return };
        self.tapped_bytes += data.len() as u64;
        if tap.body(data) == TapBody::Stop {
            self.state = stopped;
        }
    }

    /// Informs the tap of the end of the body, if it gets the body.
    pub(super) fn end_tap(&mut self) {
        if matches!(self.state, TapState::Taken | TapState::Copied)
            && let Some(tap) = &mut self.tap
        {
            tap.end();
        }
    }

    pub(super) fn client_body(&mut self) -> &mut ClientBody {
        &mut self.client_body
    }

    /// Counts bytes of the body given to the encoder, which may output them later.
    pub(super) fn count_coded(&mut self, bytes: usize) {
        self.coded_bytes += bytes as u64;
    }

    /// Passes bytes of the body on.
    pub(super) fn pass_body(&mut self, data: &[u8]) {
        if let Some(exchange) = &mut self.exchange {
            self.client_body.pass(data, &mut exchange.reply.write());
        }
    }

    /// Passes the end of the body on; `trailers` are complete field lines.
    pub(super) fn finish_body(&mut self, trailers: &[u8]) {
        if let Some(exchange) = &mut self.exchange {
            self.client_body.finish(trailers, &mut exchange.reply.write());
        }
    }

    /// Whether the body may be encoded for the client.
    pub(super) fn is_codable(&mut self) -> bool {
        self.reply().is_some_and(|reply| reply.version() == Version::Http11)
    }

    /// Appends the rebuilt head and returns how the body is framed for the client.
    pub(super) fn pass_head(
        &mut self,
        head: &ResponseHead<'_, '_>,
        asked: &Asked<'_>,
        [name_line, session_lines, tap_lines]: [&[u8]; 3],
        coded: Option<&CodedReply>,
    ) -> ResponseFraming {
        const NAME_FIELD: &str = "x-skep-node";
        let Some(reply) = self.reply() else { return ResponseFraming::None };
        // The member may have sent the field itself.
        let is_named = !name_line.is_empty() && head.fields.get(NAME_FIELD).is_some();
        let name_line = if is_named { b"" } else { name_line };
        let version = reply.version();
        let date = reply.write().context().date();
        let (trailers, rules) = (asked.trailers, asked.rules);
        let mut framing = ResponseFraming::None;
        let (coded_lines, without) = match coded {
            Some(coded) => (&*coded.lines, [rules.without, &coded.without].concat().into()),
            None => (&b""[..], Cow::Borrowed(rules.without)),
        };
        let mut head = *head;
        head.framing = framing_of(&head, coded);
        reply.write().foreign_head(head.status, |out, keep_alive| {
            let [common, own] = rules.extra;
            let extra = [name_line, session_lines, common, own, tap_lines, coded_lines];
            let (without, extra) = (&*without, &extra[..]);
            let how = ForwardReply { version, keep_alive, date: &date, trailers, without, extra };
            framing = write_response(out, &head, &how);
        });
        if framing == ResponseFraming::UntilClose {
            reply.end_by_close();
        }
        framing
    }

    /// Passes the head of a 101 on.
    pub(super) fn switch(&mut self, head: &ResponseHead<'_, '_>, asked: &Asked<'_>) {
        self.pass_head(head, asked, [b""; 3], None);
        if let Some(reply) = self.reply() {
            reply.write().close();
        }
    }

    /// Passes the head of an interim response on. A client of HTTP/1.0 must not be sent any (RFC 9110
    /// 15.2).
    pub(super) fn interim(&mut self, head: &ResponseHead<'_, '_>, asked: &Asked<'_>) {
        let Some(reply) = self.reply().filter(|reply| reply.version() == Version::Http11) else {
            return;
        };
        let date = reply.write().context().date();
        let (version, without) = (Version::Http11, asked.rules.without);
        let how = ForwardReply {
            version,
            keep_alive: true,
            date: &date,
            trailers: false,
            without,
            extra: &[],
        };
        reply.interim(|out| {
            write_response(out, head, &how);
        });
    }
}

/// How the body is delimited: the length of an encoded body is not known in advance.
fn framing_of(head: &ResponseHead<'_, '_>, coded: Option<&CodedReply>) -> ResponseFraming {
    match head.framing {
        ResponseFraming::Length(_) if coded.is_some_and(|coded| coded.body.is_some()) => {
            ResponseFraming::Chunked
        }
        framing => framing,
    }
}
