//! The life of one client connection: turns, until somebody closes.
//!
//! A turn reads once, answers every complete request in what was read, and
//! writes once. It works inside one poll on the worker's buffers; a connection
//! that waits owns none. What a turn can't finish it hands to the async side:
//! a reply that the socket did not take, or a request that takes time.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use skep_http::{
    BodyFraming, FieldSlots, HeadLimits, HeadScanner, Reject, RequestHead, parse_request,
};
use skep_serve::{AcceptEvent, Cause, Conn, ConnError, Output, Pace, Refusal, Service};
use skep_telemetry::{CoreGauge, Counter};

use crate::closing::{closed_by, refusal_words, refused, rejected};
use crate::context::Context;
use crate::exchange::{Exchange, ExchangeError};
use crate::handler::{Handler, Quick};
use crate::limits::{OWN_AFTER, TURN_REQUESTS_MAX};
use crate::owed::{Owed, Unfinished};
use crate::reply::{Reply, Summary, body_wanted};

/// A handler on a worker: the service that listeners hand connections to.
pub struct Engine<H> {
    context: Rc<Context>,
    handler: Rc<H>,
    /// Requests may come by way of a dispatcher.
    is_behind_hop: bool,
}

impl<H: Handler> Engine<H> {
    /// Serves `handler` on the worker of `context`.
    pub fn new(context: Rc<Context>, handler: Rc<H>) -> Rc<Self> {
        Rc::new(Self { context, handler, is_behind_hop: false })
    }

    /// The same where requests also come by way of a dispatcher, which adds to
    /// them.
    pub fn behind_a_hop(context: Rc<Context>, handler: Rc<H>) -> Rc<Self> {
        Rc::new(Self { context, handler, is_behind_hop: true })
    }

    fn head_limits(&self) -> HeadLimits {
        let limits = self.context.settings().head;
        if self.is_behind_hop { limits.behind_a_hop() } else { limits }
    }
}

impl<H: Handler> Service for Engine<H> {
    async fn serve(self: Rc<Self>, conn: Conn) {
        let counters = self.context.counters();
        counters.gauge_inc(CoreGauge::ConnectionsOpen);
        let mut connection = Connection::new(&self, conn);
        let end = connection.run().await;
        counters.gauge_dec(CoreGauge::ConnectionsOpen);
        counters.inc(end.counter);
        if end.linger {
            connection.conn.linger().await;
        }
    }

    fn refusal(&self, refusal: Refusal) -> Vec<u8> {
        refusal_words(refusal, self.context.settings().retry_after_s)
    }

    fn observe(&self, event: AcceptEvent) {
        match event {
            AcceptEvent::Accepted => self.context.counters().inc(Counter::ConnectionsAccepted),
            AcceptEvent::Refused(refusal) => self.context.counters().inc(refused(refusal)),
            AcceptEvent::Failed => self.context.counters().inc(Counter::RefusedDescriptors),
        }
    }
}

/// How a connection ended.
#[derive(Clone, Copy)]
struct End {
    counter: Counter,
    /// The peer may still be sending; see [`Conn::linger`].
    linger: bool,
}

impl End {
    const CLIENT: Self = Self { counter: Counter::ClosedClient, linger: false };
    const REJECT: Self = Self { counter: Counter::ClosedReject, linger: true };
    const ERROR: Self = Self { counter: Counter::ClosedError, linger: false };

    /// We promised to close after this reply.
    fn after_reply(context: &Context) -> Self {
        let draining = context.worker().is_draining();
        let counter = if draining { Counter::ClosedDraining } else { Counter::ClosedClient };
        Self { counter, linger: true }
    }
}

/// What comes after the requests of one turn.
enum Next {
    /// Wait for more bytes.
    Read,
    /// There may be another complete request in `carry`.
    Again,
    /// The request at the start of `carry`, of so many bytes, takes time.
    Slow(usize),
    /// Close once everything is written.
    Close(End),
}

struct Connection<'e, H> {
    engine: &'e Engine<H>,
    conn: Conn,
    /// Bytes received and not yet answered: an unfinished head, or requests
    /// behind one that takes time. Empty, and without memory, at rest.
    carry: Vec<u8>,
    /// Whether `carry` was looked at since it last changed.
    carry_scanned: bool,
    scanner: HeadScanner,
    /// Replies that the socket has not taken yet.
    unsent: Option<Output>,
    opened_ms: u64,
    requests: u64,
    /// The request, by its number, whose head the deadline in force is for.
    head_awaited: u64,
}

impl<'e, H: Handler> Connection<'e, H> {
    fn new(engine: &'e Engine<H>, conn: Conn) -> Self {
        let opened_ms = conn.worker().now_ms();
        conn.expire_after(engine.context.settings().head_ms, Cause::Head);
        Self {
            engine,
            conn,
            carry: Vec::new(),
            carry_scanned: true,
            scanner: HeadScanner::default(),
            unsent: None,
            opened_ms,
            requests: 0,
            head_awaited: 0,
        }
    }

    async fn run(&mut self) -> End {
        loop {
            let next = match poll_fn(|cx| self.poll_turn(cx)).await {
                Ok(next) => next,
                Err(error) => return self.failed(&error),
            };
            if let Some(output) = self.unsent.take() {
                if let Err(error) = self.send(output).await {
                    return self.failed(&error);
                }
                self.rest();
            }
            match next {
                Next::Read | Next::Again => {}
                Next::Close(end) => return end,
                // Boxed: it is many times larger than a connection at rest.
                Next::Slow(head_len) => match Box::pin(self.slow(head_len)).await {
                    Ok(()) => self.rest(),
                    Err(end) => return end,
                },
            }
        }
    }

    /// One turn. Pending only when there is nothing to do but wait for bytes.
    fn poll_turn(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<Next, ConnError>> {
        loop {
            let mut output = self.engine.context.worker().take_output();
            let next = if self.carry_scanned {
                match self.poll_read_and_answer(cx, &mut output) {
                    Poll::Ready(next) => next?,
                    Poll::Pending => {
                        self.engine.context.worker().put_output(output);
                        return Poll::Pending;
                    }
                }
            } else {
                let carry = std::mem::take(&mut self.carry);
                self.answer_all(carry, &mut output)
            };
            let queued = output.len();
            let sent = self.conn.poll_send(cx, &mut output);
            self.engine.context.counters().add(Counter::SentBytes, queued - output.len());
            match sent {
                Poll::Ready(sent) => {
                    self.engine.context.worker().put_output(output);
                    sent?;
                }
                Poll::Pending => {
                    self.unsent = Some(output);
                    return Poll::Ready(Ok(next));
                }
            }
            match next {
                Next::Read => self.rest(),
                Next::Again => return self.yield_now(cx),
                other => return Poll::Ready(Ok(other)),
            }
        }
    }

    fn poll_read_and_answer(
        &mut self,
        cx: &TaskContext<'_>,
        output: &mut Output,
    ) -> Poll<Result<Next, ConnError>> {
        let worker = Rc::clone(self.engine.context.worker());
        worker.with_input(|input| {
            let n = ready!(self.conn.poll_recv(cx, input))?;
            if n == 0 {
                return Poll::Ready(Ok(Next::Close(End::CLIENT)));
            }
            self.engine.context.counters().add(Counter::ReceivedBytes, n as u64);
            let mut carry = std::mem::take(&mut self.carry);
            Poll::Ready(Ok(if carry.is_empty() {
                let (consumed, next) = self.answer(&input[..n], output);
                self.keep(input[consumed..n].to_vec(), &next);
                next
            } else {
                carry.extend_from_slice(&input[..n]);
                self.answer_all(carry, output)
            }))
        })
    }

    fn answer_all(&mut self, mut carry: Vec<u8>, output: &mut Output) -> Next {
        let (consumed, next) = self.answer(&carry, output);
        carry.drain(..consumed);
        self.keep(carry, &next);
        next
    }

    /// Remembers what of the input is left after a turn.
    fn keep(&mut self, rest: Vec<u8>, next: &Next) {
        self.carry_scanned = !matches!(next, Next::Again);
        self.carry = if rest.is_empty() { Vec::new() } else { rest };
    }

    /// Answers the requests at the start of `bytes`. Returns how many bytes
    /// they took and what comes next.
    fn answer(&mut self, bytes: &[u8], output: &mut Output) -> (usize, Next) {
        let context = &self.engine.context;
        let settings = context.settings();
        let limits = self.engine.head_limits();
        let answers_quickly = self.engine.handler.answers_quickly();
        let began = Instant::now();
        let mut consumed = 0;
        for _ in 0..TURN_REQUESTS_MAX {
            let left = &bytes[consumed..];
            if left.is_empty() {
                return (consumed, Next::Read);
            }
            let head_len = match self.scanner.scan(left, &limits) {
                Ok(Some(head_len)) => head_len,
                Ok(None) => return (consumed, Next::Read),
                Err(reject) => return (consumed, self.reject(reject, output)),
            };
            self.scanner = HeadScanner::default();
            if !answers_quickly {
                return (consumed, Next::Slow(head_len));
            }
            let mut slots = FieldSlots::new();
            let request = match parse_request(&mut slots, &left[..head_len], &limits) {
                Ok(request) => request,
                Err(reject) => return (consumed, self.reject(reject, output)),
            };
            let mut keep_alive = self.may_go_on(&request);
            if request.framing != BodyFraming::None {
                return (consumed, Next::Slow(head_len));
            }
            let mut summary = Summary::default();
            let mut reply = Reply::new(
                output,
                context,
                &mut summary,
                &mut keep_alive,
                request.version,
                body_wanted(&request),
                self.conn.peer(),
            );
            if self.engine.handler.quick(&request, &mut reply) == Quick::Later {
                return (consumed, Next::Slow(head_len));
            }
            self.requests += 1;
            consumed += head_len;
            self.finished(&request, &summary, began);
            if !keep_alive {
                return (consumed, Next::Close(End::after_reply(context)));
            }
            if output.len() >= settings.connection_bytes_max {
                break;
            }
        }
        (consumed, Next::Again)
    }

    /// Brings a request to its end that takes time. `carry` begins with its
    /// head. `Err` is the end of the connection.
    async fn slow(&mut self, head_len: usize) -> Result<(), End> {
        let began = Instant::now();
        let context = &self.engine.context;
        let mut head = std::mem::take(&mut self.carry);
        let rest = head.split_off(head_len);
        let limits = self.engine.head_limits();
        let mut slots = FieldSlots::new();
        let request = match parse_request(&mut slots, &head, &limits) {
            Ok(request) => request,
            Err(reject) => return Err(self.reject_now(reject).await),
        };
        self.requests += 1;
        self.conn.timer().clear();
        let Some(place) = context.begin_slow() else {
            return Err(self.overloaded().await);
        };
        let keep_alive = self.may_go_on(&request);
        let pace = self.pace();
        let made = Exchange::new(&self.conn, context, &request, rest, keep_alive, pace);
        let mut exchange = match made {
            Ok(exchange) => exchange,
            Err(reject) => return Err(self.reject_now(reject).await),
        };
        let answered = self.engine.handler.slow(&request, &mut exchange).await;
        let flushed = match answered {
            Ok(()) => exchange.reply.flush().await,
            Err(error) => Err(error),
        };
        if let Err(error) = flushed {
            let end = self.exchange_failed(&request, &mut exchange, &error, began).await;
            return Err(end);
        }
        exchange.reply.complete();
        self.finished(&request, &exchange.reply.summary, began);
        drop(place);
        if !exchange.reply.keep_alive || !exchange.body.drain().await {
            return Err(End::after_reply(context));
        }
        self.carry = exchange.body.take_rest();
        self.carry_scanned = self.carry.is_empty();
        Ok(())
    }

    /// A handler gave up: tells the client if nothing was said yet.
    async fn exchange_failed(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        error: &ExchangeError,
        began: Instant,
    ) -> End {
        let (status, end) = match error {
            ExchangeError::Client(ConnError::Expired(Cause::Body)) => {
                (408, End { counter: Counter::ClosedBodySlow, linger: true })
            }
            ExchangeError::Client(error) => (0, End { counter: closed_by(error), linger: false }),
            ExchangeError::Reject(reject) => (reject.status, End::REJECT),
            ExchangeError::BodyCutShort => (400, End::CLIENT),
            ExchangeError::ReplyCutShort(_) => (502, End::ERROR),
        };
        // A head that nobody has seen promised nothing yet.
        if status != 0 && exchange.reply.take_back() {
            if !matches!(error, ExchangeError::ReplyCutShort(_)) {
                self.engine.context.counters().inc(rejected(status));
            }
            self.conn.timer().clear();
            let mut reply = exchange.reply.write();
            reply.close();
            reply.plain(status, b"");
            let _ = exchange.reply.flush().await;
        }
        self.finished(request, &exchange.reply.summary, began);
        end
    }

    /// Whether another request may follow this one.
    fn may_go_on(&self, request: &RequestHead<'_, '_>) -> bool {
        let settings = self.engine.context.settings();
        let worker = self.engine.context.worker();
        let requests_max = settings.requests_per_connection_max;
        let age_ms = worker.now_ms().saturating_sub(self.opened_ms);
        request.keep_alive
            && !worker.is_draining()
            && (requests_max == 0 || self.requests + 1 < requests_max)
            && (settings.lifetime_ms == 0 || age_ms < settings.lifetime_ms)
    }

    /// How slowly the client may take its replies.
    fn pace(&self) -> Pace {
        let settings = self.engine.context.settings();
        if self.engine.is_behind_hop { settings.pace_behind_proxy } else { settings.pace }
    }

    /// Counts and logs a request whose reply is complete.
    fn finished(&self, request: &RequestHead<'_, '_>, summary: &Summary, began: Instant) {
        let context = &self.engine.context;
        let total_us = began.elapsed().as_micros() as u64;
        context.counters().inc(Counter::Requests);
        context.counters().request_time_us(total_us);
        context.counters().add(Counter::FieldsDropped, u64::from(request.fields.dropped()));
        if context.log_is_on() {
            context.log(self.conn.peer().ip(), request, summary, total_us);
        }
    }

    /// Refuses what can't be understood: answer, then close.
    fn reject(&self, reject: Reject, output: &mut Output) -> Next {
        let context = &self.engine.context;
        context.counters().inc(rejected(reject.status));
        tracing::debug!(peer = %self.conn.peer(), %reject, "request refused");
        let retry;
        let extra: &[u8] = if reject.status == 503 {
            retry = format!("Retry-After: {}\r\n", context.settings().retry_after_s);
            retry.as_bytes()
        } else {
            b""
        };
        let mut keep_alive = false;
        let mut summary = Summary::default();
        let version = skep_http::Version::Http11;
        let client = self.conn.peer();
        Reply::new(output, context, &mut summary, &mut keep_alive, version, true, client)
            .plain(reject.status, extra);
        Next::Close(End::REJECT)
    }

    async fn reject_now(&self, reject: Reject) -> End {
        let mut output = self.engine.context.worker().take_output();
        self.reject(reject, &mut output);
        match self.send(output).await {
            Ok(()) => End::REJECT,
            Err(error) => End { counter: closed_by(&error), linger: false },
        }
    }

    async fn overloaded(&self) -> End {
        self.engine.context.counters().inc(Counter::RefusedOverload);
        self.reject_now(Reject { status: 503, reason: "overloaded" }).await
    }

    /// The connection failed or timed out between requests.
    fn failed(&self, error: &ConnError) -> End {
        let end = End { counter: closed_by(error), linger: false };
        if matches!(error, ConnError::Expired(Cause::Head)) && !self.carry.is_empty() {
            let mut output = self.engine.context.worker().take_output();
            self.reject(Reject { status: 408, reason: "head-timeout" }, &mut output);
            // What an empty socket buffer takes at once; more would be to wait
            // for a client that is already too slow.
            let _ = output.with_bytes(|bytes| self.conn.send_now(bytes));
            self.engine.context.worker().put_output(output);
        }
        end
    }

    /// Sends what the socket did not take at once.
    async fn send(&self, mut output: Output) -> Result<(), ConnError> {
        let queued = output.len();
        let pace = self.pace();
        let counters = self.engine.context.counters();
        let (_unfinished, mut owed) = (Unfinished::new(counters), Owed::new(counters));
        let mut tell = |left| owed.set(left);
        let at_once = self.conn.send_telling(&mut output, &pace, &mut tell);
        let sent = match tokio::time::timeout(OWN_AFTER, at_once).await {
            Ok(sent) => sent,
            Err(_) => match output.own() {
                Ok(()) => self.conn.send_telling(&mut output, &pace, tell).await,
                Err(error) => Err(error.into()),
            },
        };
        counters.add(Counter::SentBytes, queued - output.len());
        self.engine.context.worker().put_output(output);
        sent
    }

    /// Sets the deadline of a connection that waits for bytes. That of a head
    /// stands until the head is there, however many reads it takes.
    fn rest(&mut self) {
        let settings = self.engine.context.settings();
        if self.carry.is_empty() {
            self.conn.expire_after(settings.idle_ms, Cause::Idle);
        } else if self.conn.timer().cause() != Cause::Head || self.head_awaited != self.requests {
            self.head_awaited = self.requests;
            self.conn.expire_after(settings.head_ms, Cause::Head);
        }
    }

    fn yield_now(&self, cx: &TaskContext<'_>) -> Poll<Result<Next, ConnError>> {
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
