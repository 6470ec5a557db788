//! One attempt at one member: both directions at once, in one future without a timer, a channel or a
//! task of its own.

use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use skep_engine::Exchange;
use skep_serve::{Conn, TimeoutCause};

use crate::members::cause::Cause;
use crate::request::download::{Asked, Download};
use crate::request::fault::{AttemptFault, left};
use crate::request::in_flight::InFlight;
use crate::request::upload::Upload;

/// A request and its response, on one connection to a member.
pub(super) struct Attempt<'a, 'c, 'h> {
    pub(super) conn: &'a Conn,
    pub(super) asked: Asked<'a>,
    pub(super) exchange: &'a mut Exchange<'c>,
    pub(super) upload: &'a mut Upload,
    pub(super) in_flight: &'a mut InFlight<'h>,
    pub(super) download: Download,
    /// When the member's first byte arrived.
    pub(super) first_byte: Option<Instant>,
    /// Whether the member's deadline was set when this wait for it began.
    is_armed: bool,
}

impl<'a, 'c, 'h> Attempt<'a, 'c, 'h> {
    pub(super) fn new(
        conn: &'a Conn,
        asked: Asked<'a>,
        exchange: &'a mut Exchange<'c>,
        upload: &'a mut Upload,
        in_flight: &'a mut InFlight<'h>,
    ) -> Self {
        Self {
            conn,
            asked,
            exchange,
            upload,
            in_flight,
            download: Download::new(),
            first_byte: None,
            is_armed: false,
        }
    }

    /// Ready when the response is complete, except for the bytes that the client has not taken yet.
    pub(super) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), AttemptFault>> {
        if !self.upload.is_over() {
            let body = &mut self.exchange.body;
            let stall_ms = self.in_flight.target().settings().stall_timeout_ms;
            // Pending is no reason to wait: the member may answer early.
            if let Poll::Ready(uploaded) = self.upload.poll(cx, self.conn, body, stall_ms) {
                uploaded?;
            }
            // What moved up counts as life; and it changed the deadline.
            self.is_armed = false;
        }
        loop {
            if self.exchange.reply.queued_bytes() > 0 {
                let flushed = self.exchange.reply.poll_flush(cx);
                if flushed.is_pending() {
                    self.disarm();
                }
                ready!(flushed)?;
            }
            match self.poll_member(cx) {
                Poll::Ready(received) => received?,
                Poll::Pending => {
                    self.arm();
                    return self.poll_left(cx).map(Err);
                }
            }
            if self.download.is_complete() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads once from the member.
    fn poll_member(&mut self, cx: &TaskContext<'_>) -> Poll<Result<(), Cause>> {
        let conn = self.conn;
        conn.worker().with_input(|input| {
            let received = ready!(conn.poll_recv(cx, input));
            let n = received.map_err(|error| self.download.cause(error.into()))?;
            let reply = &mut self.exchange.reply;
            if n == 0 {
                return Poll::Ready(self.download.end(reply));
            }
            self.first_byte.get_or_insert_with(Instant::now);
            let received = self.download.receive(&input[..n], &self.asked, reply, self.in_flight);
            // The deadline of a head stands until it is there, however many reads it takes.
            self.is_armed &= !reply.is_begun();
            Poll::Ready(received)
        })
    }

    /// Ready when the client has left: nobody waits for the response any more.
    fn poll_left(&self, cx: &TaskContext<'_>) -> Poll<AttemptFault> {
        let may_leave = !self.exchange.reply.is_begun() || self.download.is_event_stream();
        if !may_leave || !self.upload.is_over() || !self.in_flight.target().settings().gives_up {
            return Poll::Pending;
        }
        self.exchange.conn().poll_closed(cx).map(|()| AttemptFault::Client(left()))
    }

    /// From now on the attempt waits for the member. Not while the member still waits for the
    /// request, unless it began to answer.
    fn arm(&mut self) {
        if !self.is_armed && (self.upload.is_over() || self.exchange.reply.is_begun()) {
            self.is_armed = true;
            let timeout_ms = self.download.timeout_ms(self.in_flight.target().settings());
            self.conn.expire_after(timeout_ms, TimeoutCause::Response);
        }
    }

    /// From now on the attempt waits for the client, which has a deadline of its own.
    fn disarm(&mut self) {
        self.is_armed = false;
        self.conn.timer().clear();
    }
}
