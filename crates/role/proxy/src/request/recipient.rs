//! The recipient of a response: a client, or a cache that sees it first, and may take it or copy it for all
//! who wait for it. A cache may ask without any client.
//!
//! ```text
//!   head --> tap? --pass--> client, with further lines <--.
//!             | take                                      | the tap stops, or gives up what its
//!             |----copy---> both: client; tap: body, end -|     client holds up for too long
//!             v                                           |
//!            tap: body, end <-----------------------------' the client leaves
//! ```
//!
//! Invariants: no client has seen any byte of a response that a tap has taken. A client and a tap that
//! copies get the same bytes; a fault of one does not end the response for the other.

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

/// Sees the final response before the client does, and may take it. Without a client, it is all
/// that there is.
pub trait Tap {
    /// The head of the final response came. Once for each request, since nothing is tried again
    /// behind a head.
    fn head(&mut self, head: &ResponseHead<'_, '_>) -> Tapped;

    /// A response that is not passed begins a session: lines for the client, if it gets a reply of
    /// its own in its place.
    fn begin_session(&mut self, _lines: &[u8]) {}

    /// A piece of the body of a response that was taken or is copied.
    fn body(&mut self, data: &[u8]) -> TapBody;

    /// A response that was taken or copied is complete, by the protocol's own end.
    fn end(&mut self);

    /// The copy has waited for the client for too long: it is over.
    fn held_up(&mut self) {}

    /// Ready when what was made of the head may go to the client.
    fn poll_ready(&mut self, _cx: &mut TaskContext<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Whether the request goes on although its client has left: others wait.
    fn outlives_client(&self) -> bool;

    /// Whether the request may wait for the member of its session: not while others wait for it, whom any
    /// member may answer.
    fn may_wait_for_session(&self) -> bool {
        true
    }
}

/// What becomes of a response.
#[derive(Debug)]
pub enum Tapped {
    /// The client gets it, with these further lines.
    Pass(Vec<u8>),
    /// The same; the tap gets the body, too.
    Copy(Vec<u8>),
    /// The tap takes it.
    Take,
    /// Nobody wants it: the requester goes on, while the rest is read for a moment.
    Stop,
}

/// What becomes of the rest of a response that was taken or is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapBody {
    /// The tap wants it.
    Go,
    /// It does not; if it has taken the response, nobody does.
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
    /// Of a response that is passed or copied.
    client_body: ClientBody,
    /// Of one that is copied.
    copy_wait: CopyWait,
    /// Why the client gets no more of what the tap goes on with.
    client_fault: Option<ExchangeError>,
    /// Bytes that the tap has got.
    tapped_bytes: u64,
    /// Bytes that were encoded for the client, or will be with more.
    coded_bytes: u64,
    /// Of a request without a client.
    summary: Summary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TapState {
    /// No head came yet.
    Waits,
    /// The tap has the response.
    Taken,
    Stopped,
    /// The client gets the response.
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

    /// A tap alone; `ends` are those of the client in whose place it asks.
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

    /// The client, for what only one can have: tunnels.
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

    /// Records something for the log.
    pub(super) fn note(&mut self, note: impl FnOnce(&mut Summary)) {
        match &mut self.exchange {
            Some(exchange) => note(exchange.reply.write().summary()),
            None => note(&mut self.summary),
        }
    }

    /// Ready when nobody waits for the response any more.
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

    /// Whether some of the response was passed on.
    pub(super) fn is_begun(&self) -> bool {
        let of_client = self.exchange.as_ref().is_some_and(|exchange| exchange.reply.is_begun());
        of_client || matches!(self.state, TapState::Taken | TapState::Stopped)
    }

    /// Discards the response so far. False: somebody has seen some of it.
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

    /// Ready when the client may see of the response.
    pub(super) fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.tap.as_mut().map_or(Poll::Ready(()), |tap| tap.poll_ready(cx))
    }

    /// Whether nobody wants the rest of the response.
    pub(super) fn is_stopped(&self) -> bool {
        self.state == TapState::Stopped
    }

    /// Bytes that the client is still to take.
    pub(super) fn queued_bytes(&self) -> u64 {
        self.exchange.as_ref().map_or(0, |exchange| exchange.reply.queued_bytes())
    }

    /// A number that changes when something is passed on.
    pub(super) fn progress(&self) -> u64 {
        self.queued_bytes() + self.tapped_bytes + self.coded_bytes + self.client_body.progress()
    }

    /// Sends what the client is still to take, what was read ahead included. Ready when it has all; or
    /// when it has failed, and the tap goes on.
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

    /// Whether one more read of the member finds room while the client is behind. A copy waits for room for
    /// a moment only: then it is given up, and the client is waited for alone.
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

    /// Sends what was read ahead, when the member has sent all.
    pub(super) async fn send_rest(&mut self) -> Result<(), ExchangeError> {
        if self.client_body.is_behind() {
            poll_fn(|cx| self.poll_flush(cx)).await?;
        }
        self.client_fault.take().map_or(Ok(()), Err)
    }

    /// Shows the tap the head of the final response.
    pub(super) fn tapped(&mut self, head: &ResponseHead<'_, '_>) -> Tapped {
        let tapped = match &mut self.tap {
            Some(tap) => tap.head(head),
            None => Tapped::Pass(Vec::new()),
        };
        self.state = match &tapped {
            // Without a client there is nobody to pass it to.
            Tapped::Pass(_) if self.exchange.is_none() => TapState::Stopped,
            Tapped::Pass(_) => TapState::Passed,
            Tapped::Copy(_) if self.exchange.is_some() => TapState::Copied,
            Tapped::Copy(_) | Tapped::Take => TapState::Taken,
            Tapped::Stop => TapState::Stopped,
        };
        tapped
    }

    /// Tells the tap of a session that the response begins.
    pub(super) fn begin_session(&mut self, lines: &[u8]) {
        if let Some(tap) = &mut self.tap {
            tap.begin_session(lines);
        }
    }

    /// Whether the tap has the response, or nobody.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.state, TapState::Taken | TapState::Stopped)
    }

    /// Gives the tap a piece of the body, if it gets any of it.
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

    /// Tells the tap that it has all, if it has.
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

    /// Counts bytes of the body that are passed on encoded, together with what follows perhaps.
    pub(super) fn count_coded(&mut self, bytes: usize) {
        self.coded_bytes += bytes as u64;
    }

    /// Passes bytes of the body on.
    pub(super) fn pass_body(&mut self, data: &[u8]) {
        if let Some(exchange) = &mut self.exchange {
            self.client_body.pass(data, &mut exchange.reply.write());
        }
    }

    /// Passes the end of the body on; `trailers` are whole lines.
    pub(super) fn finish_body(&mut self, trailers: &[u8]) {
        if let Some(exchange) = &mut self.exchange {
            self.client_body.finish(trailers, &mut exchange.reply.write());
        }
    }

    /// Whether the client may get the body in other bytes than the member sent it in.
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
        // The member may have said it itself.
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

    /// Passes the head of an interim response on. A client of HTTP/1.0 must not get any
    /// (RFC 9110 15.2).
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

/// How the body is delimited: of what is encoded nobody knows the length before.
fn framing_of(head: &ResponseHead<'_, '_>, coded: Option<&CodedReply>) -> ResponseFraming {
    match head.framing {
        ResponseFraming::Length(_) if coded.is_some_and(|coded| coded.body.is_some()) => {
            ResponseFraming::Chunked
        }
        framing => framing,
    }
}
