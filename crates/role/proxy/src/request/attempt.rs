//! One attempt at one member: both directions concurrently, in one future without a timer, channel or
//! task of its own. A [`Leg`] encodes and decodes: one for each protocol of members.

use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use skep_engine::{ExchangeError, RequestBody};
use skep_serve::{Conn, TimeoutCause};

use crate::members::cause::Cause;
use crate::request::asked::Asked;
use crate::request::fault::{AttemptFault, left};
use crate::request::in_flight::InFlight;
use crate::request::recipient::Recipient;
use crate::request::times::Silence;

/// A request and its response in a protocol: converts the client's body to bytes for the member, and the
/// member's bytes to the client's reply.
pub(super) trait Leg {
    /// Moves as many bytes as possible to the member. Ready when all that the member waits for was sent,
    /// or when it accepts no more: its response may still be read then.
    fn poll_upload(
        &mut self,
        cx: &mut TaskContext<'_>,
        member: &Conn,
        body: Option<&mut RequestBody<'_>>,
        stall_ms: u64,
    ) -> Poll<Result<(), ExchangeError>>;

    /// Whether the member waits for nothing more of the request, or is sent no more of it.
    fn is_uploaded(&self) -> bool;

    /// Whether the member has requested more of the body since the last call.
    fn take_asked(&mut self) -> bool;

    /// Handles `bytes`, at least one, from the member.
    fn receive(
        &mut self,
        bytes: &[u8],
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) -> Result<(), Cause>;

    /// Called when the member sends nothing for now. Returns whether buffered data was passed to the
    /// client.
    fn pause(&mut self, reply: &mut Recipient<'_, '_>) -> Result<bool, Cause>;

    /// Handles the end of the member's side.
    fn end(&mut self, reply: &mut Recipient<'_, '_>, in_flight: &InFlight) -> Result<(), Cause>;

    /// Whether the response was read to its end.
    fn is_complete(&self) -> bool;

    /// Time without a byte for the client after which the member counts as failed, in milliseconds.
    fn timeout_ms(&self, silence: &Silence) -> u64;

    /// Adjusts a fault of the connection to the progress of the response.
    fn cause(&self, cause: Cause) -> Cause;
}

/// A request and its response, on one connection to a member.
pub(super) struct Attempt<'a, 'r, 'c, L> {
    pub(super) conn: &'a Conn,
    pub(super) asked: Asked<'a>,
    pub(super) recipient: &'a mut Recipient<'r, 'c>,
    pub(super) leg: &'a mut L,
    pub(super) in_flight: &'a mut InFlight,
    /// Time at which the member's first byte arrived.
    pub(super) first_byte: Option<Instant>,
    silence: Silence,
    /// Whether the member's deadline was set in the current wait for it.
    is_armed: bool,
}

impl<'a, 'r, 'c, L: Leg> Attempt<'a, 'r, 'c, L> {
    pub(super) fn new(
        conn: &'a Conn,
        asked: Asked<'a>,
        recipient: &'a mut Recipient<'r, 'c>,
        leg: &'a mut L,
        in_flight: &'a mut InFlight,
    ) -> Self {
        let silence = Silence::new(in_flight.target().settings(), asked.rules.times);
        Self { conn, asked, recipient, leg, in_flight, first_byte: None, silence, is_armed: false }
    }

    /// Ready when the response is complete, except for bytes that the client has not taken yet.
    pub(super) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), AttemptFault>> {
        self.poll_upload(cx)?;
        loop {
            ready!(self.recipient.poll_ready(cx));
            if self.leg.is_complete() || self.recipient.is_stopped() {
                return Poll::Ready(Ok(()));
            }
            match self.recipient.poll_flush(cx) {
                Poll::Ready(flushed) => flushed?,
                Poll::Pending if self.recipient.has_room_ahead(cx) => {}
                Poll::Pending => {
                    self.disarm();
                    return Poll::Pending;
                }
            }
            match self.poll_member(cx) {
                Poll::Ready(received) => received?,
                Poll::Pending if self.leg.pause(self.recipient)? => continue,
                Poll::Pending => {
                    self.arm();
                    return self.poll_left(cx).map(Err);
                }
            }
            if self.leg.take_asked() {
                self.poll_upload(cx)?;
            }
        }
    }

    fn poll_upload(&mut self, cx: &mut TaskContext<'_>) -> Result<(), ExchangeError> {
        if !self.leg.is_uploaded() {
            let body = self.recipient.body();
            let stall_ms = self.silence.inside_body_ms;
            // Pending is no reason to wait: the member may respond early.
            if let Poll::Ready(uploaded) = self.leg.poll_upload(cx, self.conn, body, stall_ms) {
                uploaded?;
            }
            // Progress of the upload counts as a sign of life; and it changed the deadline.
            self.is_armed = false;
        }
        Ok(())
    }

    /// Reads once from the member.
    fn poll_member(&mut self, cx: &TaskContext<'_>) -> Poll<Result<(), Cause>> {
        let conn = self.conn;
        conn.worker().with_input(|input| {
            let received = ready!(conn.poll_recv(cx, input));
            let n = received.map_err(|error| self.leg.cause(error.into()))?;
            let reply = &mut *self.recipient;
            if n == 0 {
                return Poll::Ready(self.leg.end(reply, self.in_flight));
            }
            self.first_byte.get_or_insert_with(Instant::now);
            let (was_begun, before) = (reply.is_begun(), reply.progress());
            let received = self.leg.receive(&input[..n], &self.asked, reply, self.in_flight);
            // The deadline of a head applies until the head is complete, however many reads it takes;
            // after the head, bytes that contain nothing for the client are no sign of life.
            let is_alive = reply.is_begun() && (!was_begun || reply.progress() != before);
            self.is_armed &= !is_alive;
            Poll::Ready(received)
        })
    }

    /// Ready when the client has disconnected, so that no one waits for the response. The client must
    /// have taken all of the response received so far.
    fn poll_left(&self, cx: &TaskContext<'_>) -> Poll<AttemptFault> {
        if !self.leg.is_uploaded() || !self.in_flight.target().settings().gives_up {
            return Poll::Pending;
        }
        self.recipient.poll_left(cx).map(|()| AttemptFault::Client(left()))
    }

    /// Starts to wait for the member. Not while the member still waits for the request, unless it has
    /// begun to respond.
    fn arm(&mut self) {
        if !self.is_armed && (self.leg.is_uploaded() || self.recipient.is_begun()) {
            self.is_armed = true;
            let timeout_ms = self.leg.timeout_ms(&self.silence);
            self.conn.expire_after(timeout_ms, TimeoutCause::Response);
        }
    }

    /// Starts to wait for the client, which has its own deadline.
    fn disarm(&mut self) {
        self.is_armed = false;
        self.conn.timer().clear();
    }
}
