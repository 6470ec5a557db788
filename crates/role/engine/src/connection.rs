//! The life of one client connection: turns, until either side closes it.
//!
//! A turn reads once, answers every complete request in the bytes read, and writes once. It runs
//! inside one poll on the worker's buffers; a waiting connection owns no buffer. A turn leaves to
//! the async side what it cannot finish: a reply that the socket did not take, or a slow request.
//!
//! A connection is in exactly one [`State`], and only [`Connection::enter`] changes it. Invariants:
//! nothing is read or parsed while output of an earlier reply is unsent, while a slow request is in
//! progress, or after an error reply.

use std::cell::Cell;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use skep_http::{
    BodyFraming, FieldSlots, HeadLimits, HeadScanner, Reject, RequestHead, parse_request,
};
use skep_serve::{
    AcceptEvent, Conn, ConnError, ConnectionHandler, ConnectionRefusal, Output, Pace, TimeoutCause,
};
use skep_telemetry::Counter;

use crate::closing::{End, refusal_words, refused, rejected};
use crate::context::Context;
use crate::handler::{Answered, Destination, Handler, Quick};
use crate::limits::{OWN_AFTER, TURN_REQUESTS_MAX};
use crate::owed::{Open, Owed, Unfinished};
use crate::reply::{Reply, ReplyState, Stage};
use crate::state::State;
use crate::summary::Summary;

/// A handler on a worker: the service to which listeners pass connections.
pub struct Engine<H> {
    pub(crate) context: Rc<Context>,
    pub(crate) handler: Rc<H>,
    /// Whether requests may come through a dispatcher.
    is_behind_hop: bool,
}

impl<H: Handler> Engine<H> {
    /// Serves `handler` on the worker of `context`.
    pub fn new(context: Rc<Context>, handler: Rc<H>) -> Rc<Self> {
        Rc::new(Self { context, handler, is_behind_hop: false })
    }

    /// The same if requests may also come from a dispatcher, which adds fields to them.
    pub fn behind_a_hop(context: Rc<Context>, handler: Rc<H>) -> Rc<Self> {
        Rc::new(Self { context, handler, is_behind_hop: true })
    }

    pub(crate) fn head_limits(&self) -> HeadLimits {
        let limits = self.context.settings().head;
        if self.is_behind_hop { limits.behind_a_hop() } else { limits }
    }
}

/// The state of a connection that another node has handed off to this one.
pub struct Arrival {
    /// Bytes that were read there and not answered.
    pub received: Vec<u8>,
    /// Number of times that it has moved between nodes, including this one.
    pub moves: u8,
    /// The node that accepted it.
    pub accepted_by: Arc<str>,
}

impl<H: Handler> Engine<H> {
    /// Serves a connection that another node has accepted. Its first request is answered here.
    pub fn take_over(self: Rc<Self>, conn: Conn, arrival: Arrival) -> impl Future<Output = ()> {
        self.context.counters().inc(Counter::ConnectionsTakenOver);
        self.serve_to_end(conn, Some(Box::new(arrival)))
    }

    /// The arrival is boxed: few connections have one.
    async fn serve_to_end(self: Rc<Self>, conn: Conn, arrival: Option<Box<Arrival>>) {
        let open = Open::new(self.context.counters());
        let mut connection = Connection::new(&self, &conn, arrival);
        let end = connection.run().await;
        open.close(end.counter);
        if end.linger {
            conn.linger().await;
        }
    }
}

impl<H: Handler> ConnectionHandler for Engine<H> {
    fn serve(self: Rc<Self>, conn: Conn) -> impl Future<Output = ()> {
        self.serve_to_end(conn, None)
    }

    fn refusal(&self, refusal: ConnectionRefusal) -> Vec<u8> {
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

/// The next step after the requests of one turn.
enum Next {
    /// Wait for more bytes: the rest is the beginning of a head, or empty.
    Read(HeadScanner),
    /// The rest may contain another complete request.
    Again,
    /// The request at the start of the remaining bytes, with a head of this length, is slow.
    Slow(usize),
    /// The same, and another node should answer it.
    Depart(usize, Destination),
    /// Close once everything is written.
    Close(End),
}

/// Values that are the same for all requests of one turn.
struct Turn {
    limits: HeadLimits,
    answers_quickly: bool,
    began: Instant,
}

pub(crate) struct Connection<'e, H> {
    pub(crate) engine: &'e Engine<H>,
    pub(crate) conn: &'e Conn,
    pub(crate) state: State,
    opened_ms: u64,
    /// Number of requests answered, including the one in progress.
    pub(crate) requests: u64,
    /// Whether the next request is answered here, whichever node should answer it.
    pub(crate) answers_next: bool,
    /// Its origin, if another node accepted it.
    pub(crate) provenance: Option<Box<Provenance>>,
}

/// The origin of a connection that another node accepted.
pub(crate) struct Provenance {
    pub(crate) accepted_by: Arc<str>,
    pub(crate) moves: u8,
}

impl<'e, H: Handler> Connection<'e, H> {
    fn new(engine: &'e Engine<H>, conn: &'e Conn, arrival: Option<Box<Arrival>>) -> Self {
        let opened_ms = conn.worker().now_ms();
        let mut new = Self {
            engine,
            conn,
            state: State::New,
            opened_ms,
            requests: 0,
            answers_next: arrival.is_some(),
            provenance: None,
        };
        if let Some(arrival) = arrival {
            let Arrival { received, moves, accepted_by } = *arrival;
            new.state = State::behind_request(received);
            new.provenance = Some(Box::new(Provenance { accepted_by, moves }));
        }
        new.set_deadline();
        tracing::trace!(peer = %conn.peer(), state = ?new.state, "connection");
        new
    }

    async fn run(&mut self) -> End {
        loop {
            match &self.state {
                State::Closing(end) => return *end,
                // Boxed: the future is many times larger than an idle connection.
                State::Slow { .. } => Box::pin(self.slow()).await,
                State::Departing { .. } => Box::pin(self.depart()).await,
                _ => {
                    if let Err(error) = self.turn().await {
                        self.turn_failed(&error);
                    }
                }
            }
        }
    }

    fn turn_failed(&mut self, error: &ConnError) {
        match (error, &self.state) {
            (ConnError::Expired(TimeoutCause::Evacuate), State::Resting) => self.evacuate(),
            _ => {
                let end = self.failed(error);
                self.enter(State::Closing(end));
            }
        }
    }

    /// Enters another state; returns the former one.
    pub(crate) fn enter(&mut self, next: State) -> State {
        assert!(self.state.may_become(&next), "{:?} can't become {next:?}", self.state);
        assert!(next.is_sound(), "{next:?} is none");
        tracing::trace!(
            peer = %self.conn.peer(), requests = self.requests, state = ?next, "connection"
        );
        let awaited = next.awaited_head();
        let former = std::mem::replace(&mut self.state, next);
        // The deadline of a head applies until the head is complete, however many reads it takes.
        if awaited.is_none() || awaited != former.awaited_head() {
            self.set_deadline();
        }
        former
    }

    /// Sets the deadline of the state: there is one only while the connection waits for the client.
    pub(crate) fn set_deadline(&self) {
        let settings = self.engine.context.settings();
        match self.state {
            State::New | State::HalfHead { .. } => {
                self.conn.expire_after(settings.head_ms, TimeoutCause::Head);
            }
            State::Resting => self.conn.expire_after(settings.idle_ms, TimeoutCause::Idle),
            // The connection may stay, and its idle time then continues.
            State::Departing { head_len: 0, .. } => {}
            _ => self.conn.timer().clear(),
        }
    }

    /// Runs one turn, to the last byte of its replies: nothing else is read before the client has
    /// taken them.
    async fn turn(&mut self) -> Result<(), ConnError> {
        if let Some(unsent) = poll_fn(|cx| self.poll_turn(cx)).await? {
            // Boxed: it is rare, and large compared with an idle connection.
            Box::pin(self.send(unsent)).await?;
            self.set_deadline();
        }
        Ok(())
    }

    /// Ready when there is something to do other than wait for bytes: the state determines what,
    /// once the output that the socket did not take was sent.
    fn poll_turn(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<Option<Output>, ConnError>> {
        loop {
            let worker = self.engine.context.worker();
            let mut output = worker.take_output();
            assert!(output.is_empty(), "who takes an output has it to itself");
            match self.poll_answer(cx, &mut output) {
                Poll::Ready(Ok(())) => {}
                nothing => {
                    worker.put_output(output);
                    return nothing.map_ok(|()| None);
                }
            }
            let queued = output.len();
            let sent = self.conn.poll_send(cx, &mut output);
            self.engine.context.counters().add(Counter::SentBytes, queued - output.len());
            let Poll::Ready(sent) = sent else {
                return Poll::Ready(Ok(Some(output)));
            };
            worker.put_output(output);
            sent?;
            match self.state {
                State::Resting | State::HalfHead { .. } => {}
                State::Pipelined(_) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                _ => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Answers requests in the bytes already received, or otherwise in those of one read.
    fn poll_answer(
        &mut self,
        cx: &TaskContext<'_>,
        output: &mut Output,
    ) -> Poll<Result<(), ConnError>> {
        if let State::Pipelined(received) = &mut self.state {
            let received = std::mem::take(received);
            self.answer_owned(received, HeadScanner::default(), output);
            return Poll::Ready(Ok(()));
        }
        let worker = Rc::clone(self.engine.context.worker());
        worker.with_input(|input| {
            let n = ready!(self.conn.poll_recv(cx, input))?;
            self.engine.context.counters().add(Counter::ReceivedBytes, n as u64);
            match &mut self.state {
                State::New | State::Resting | State::HalfHead { .. } if n == 0 => {
                    self.enter(State::Closing(End::CLIENT));
                }
                State::New | State::Resting => {
                    let (consumed, next) = self.answer(&input[..n], HeadScanner::default(), output);
                    self.settle(input[consumed..n].to_vec(), next);
                }
                State::HalfHead { received, scanner, .. } => {
                    let (mut received, scanner) = (std::mem::take(received), *scanner);
                    received.extend_from_slice(&input[..n]);
                    self.answer_owned(received, scanner, output);
                }
                busy => unreachable!("nothing is read by a connection that is {busy:?}"),
            }
            Poll::Ready(Ok(()))
        })
    }

    fn answer_owned(&mut self, mut bytes: Vec<u8>, scanner: HeadScanner, output: &mut Output) {
        let (consumed, next) = self.answer(&bytes, scanner, output);
        bytes.drain(..consumed);
        self.settle(bytes, next);
    }

    /// Handles the input that remains after a turn.
    fn settle(&mut self, rest: Vec<u8>, next: Next) {
        self.enter(match next {
            Next::Read(_) if rest.is_empty() => State::Resting,
            Next::Read(scanner) => {
                State::HalfHead { number: self.requests, received: rest, scanner }
            }
            Next::Again => State::Pipelined(rest),
            Next::Slow(head_len) => State::Slow { received: rest, head_len },
            Next::Depart(head_len, to) => State::Departing { received: rest, head_len, to },
            Next::Close(end) => State::Closing(end),
        });
    }

    /// Answers the requests at the start of `bytes`, of which `scanner` has scanned a prefix.
    /// Returns the number of bytes consumed, and the next step.
    fn answer(
        &mut self,
        bytes: &[u8],
        mut scanner: HeadScanner,
        output: &mut Output,
    ) -> (usize, Next) {
        let turn = Turn {
            limits: self.engine.head_limits(),
            answers_quickly: self.engine.handler.answers_quickly(),
            began: Instant::now(),
        };
        let connection_bytes_max = self.engine.context.settings().connection_bytes_max;
        let mut consumed = 0;
        for _ in 0..TURN_REQUESTS_MAX {
            let left = &bytes[consumed..];
            if left.is_empty() {
                return (consumed, Next::Read(HeadScanner::default()));
            }
            let head_len = match scanner.scan(left, &turn.limits) {
                Ok(Some(head_len)) => head_len,
                Ok(None) => return (consumed, Next::Read(scanner)),
                Err(reject) => return (consumed, Next::Close(self.reject(reject, output))),
            };
            scanner = HeadScanner::default();
            if let ControlFlow::Break(next) = self.answer_one(&left[..head_len], &turn, output) {
                return (consumed, next);
            }
            consumed += head_len;
            if output.len() >= connection_bytes_max {
                break;
            }
        }
        (consumed, Next::Again)
    }

    /// Answers the request of `head` if it is quick. Breaks if no further request may be parsed
    /// now.
    fn answer_one(&mut self, head: &[u8], turn: &Turn, output: &mut Output) -> ControlFlow<Next> {
        if !turn.answers_quickly {
            return ControlFlow::Break(Next::Slow(head.len()));
        }
        let mut slots = FieldSlots::new();
        let request = match parse_request(&mut slots, head, &turn.limits) {
            Ok(request) => request,
            Err(reject) => return ControlFlow::Break(Next::Close(self.reject(reject, output))),
        };
        if output.is_empty()
            && let Some(to) = self.destination(&request)
        {
            return ControlFlow::Break(Next::Depart(head.len(), to));
        }
        if request.framing != BodyFraming::None {
            return ControlFlow::Break(Next::Slow(head.len()));
        }
        let context = &self.engine.context;
        let queued = output.len();
        let stage = Cell::new(Stage::Silent);
        let mut state = ReplyState::new(&request, self.may_go_on(&request));
        let mut reply = Reply::new(output, context, &mut state, &stage, self.conn.peer());
        if self.engine.handler.quick(&request, &mut reply) == Quick::Later {
            let said = (stage.get(), output.len() - queued);
            assert_eq!(said, (Stage::Silent, 0), "who answers later has said nothing");
            return ControlFlow::Break(Next::Slow(head.len()));
        }
        assert_eq!(stage.get(), Stage::Held, "a quick reply is whole");
        self.count_request();
        self.finished(&request, &state.summary, (turn.began, Some(true)));
        if !state.keep_alive {
            return ControlFlow::Break(Next::Close(End::after_reply(context)));
        }
        ControlFlow::Continue(())
    }

    /// Whether another request may follow this one, which is not counted yet.
    pub(crate) fn may_go_on(&self, request: &RequestHead<'_, '_>) -> bool {
        let settings = self.engine.context.settings();
        let worker = self.engine.context.worker();
        let requests_max = settings.requests_per_connection_max;
        let age_ms = worker.now_ms().saturating_sub(self.opened_ms);
        request.keep_alive
            && !worker.is_draining()
            && (requests_max == 0 || self.requests + 1 < requests_max)
            && (settings.lifetime_ms == 0 || age_ms < settings.lifetime_ms)
    }

    /// The minimum rate at which the client must take its replies.
    pub(crate) fn pace(&self) -> Pace {
        let settings = self.engine.context.settings();
        if self.engine.is_behind_hop { settings.pace_behind_proxy } else { settings.pace }
    }

    pub(crate) fn count_request(&mut self) {
        self.requests += 1;
        self.answers_next = false;
    }

    /// Counts and logs a request whose reply is complete.
    pub(crate) fn finished(
        &self,
        request: &RequestHead<'_, '_>,
        summary: &Summary,
        (began, is_whole): (Instant, Option<bool>),
    ) {
        let context = &self.engine.context;
        let total_us = began.elapsed().as_micros() as u64;
        let head_us = |at: Instant| at.saturating_duration_since(began).as_micros() as u64;
        let first_byte_us = summary.head_at.map_or(total_us, head_us);
        let conn = self.conn;
        self.engine.handler.answered(&Answered {
            conn,
            summary,
            is_whole,
            first_byte_us,
            total_us,
        });
        context.counters().inc(Counter::Requests);
        context.counters().request_time_us(total_us);
        context.counters().add(Counter::FieldsDropped, u64::from(request.fields.dropped()));
        if context.log_is_on() {
            let accepted_by = self.provenance.as_ref().map(|it| &*it.accepted_by);
            context.log(self.conn.peer().ip(), accepted_by, request, summary, total_us);
        }
    }

    /// Rejects invalid bytes: answers with an error, then closes.
    pub(crate) fn reject(&self, reject: Reject, output: &mut Output) -> End {
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
        let (mut state, stage) = (ReplyState::refusal(), Cell::new(Stage::Silent));
        Reply::new(output, context, &mut state, &stage, self.conn.peer())
            .plain(reject.status, extra);
        End::REJECT
    }

    /// Handles a connection that failed or timed out in a turn.
    fn failed(&self, error: &ConnError) -> End {
        let is_late = matches!(error, ConnError::Expired(TimeoutCause::Head));
        if is_late && matches!(self.state, State::HalfHead { .. }) {
            let mut output = self.engine.context.worker().take_output();
            self.reject(Reject { status: 408, reason: "head-timeout" }, &mut output);
            // Only what an empty socket buffer takes at once: waiting would prolong the connection
            // of a client that is already too slow.
            let _ = output.with_bytes(|bytes| self.conn.send_now(bytes));
            self.engine.context.worker().put_output(output);
        }
        End::failed(error)
    }

    /// Sends the output that the socket did not take at once.
    pub(crate) async fn send(&self, mut output: Output) -> Result<(), ConnError> {
        assert!(!output.is_empty(), "nobody waits for nothing");
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
}
