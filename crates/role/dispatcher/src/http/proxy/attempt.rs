//! One attempt at one node: both directions at once, in one future without a timer, a channel or a
//! task of its own.

use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use skep_engine::Exchange;
use skep_serve::{Conn, TimeoutCause};

use crate::http::proxy::download::{Asked, Download};
use crate::http::proxy::fault::{AttemptFault, NodeFault};
use crate::http::proxy::in_flight::InFlight;
use crate::http::proxy::upload::Upload;

/// A request and its response, on one connection to a node.
pub(super) struct Attempt<'a, 'c, 'h> {
    pub(super) conn: &'a Conn,
    pub(super) asked: Asked<'a>,
    pub(super) exchange: &'a mut Exchange<'c>,
    pub(super) upload: &'a mut Upload,
    pub(super) in_flight: &'a mut InFlight<'h>,
    pub(super) download: Download,
    /// When the node's first byte arrived.
    pub(super) first_byte: Option<Instant>,
    timeout_ms: u64,
    /// Whether the node's deadline was set when this wait for it began.
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
        let timeout_ms = in_flight.target().settings().response_timeout_ms;
        Self {
            conn,
            asked,
            exchange,
            upload,
            in_flight,
            download: Download::new(),
            first_byte: None,
            timeout_ms,
            is_armed: false,
        }
    }

    /// Ready when the response is complete, except for the bytes that the client has not taken yet.
    pub(super) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), AttemptFault>> {
        if !self.upload.is_over() {
            let body = &mut self.exchange.body;
            // Pending is no reason to wait: the node may answer early.
            if let Poll::Ready(uploaded) = self.upload.poll(cx, self.conn, body, self.timeout_ms) {
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
            match self.poll_node(cx) {
                Poll::Ready(received) => received?,
                Poll::Pending => {
                    self.arm();
                    return Poll::Pending;
                }
            }
            if self.download.is_complete() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads once from the node.
    fn poll_node(&mut self, cx: &TaskContext<'_>) -> Poll<Result<(), NodeFault>> {
        let conn = self.conn;
        conn.worker().with_input(|input| {
            let n = ready!(conn.poll_recv(cx, input))?;
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

    /// From now on the attempt waits for the node. Not while the node still waits for the request,
    /// unless it began to answer.
    fn arm(&mut self) {
        if !self.is_armed && (self.upload.is_over() || self.exchange.reply.is_begun()) {
            self.is_armed = true;
            self.conn.expire_after(self.timeout_ms, TimeoutCause::Response);
        }
    }

    /// From now on the attempt waits for the client, which has a deadline of its own.
    fn disarm(&mut self) {
        self.is_armed = false;
        self.conn.timer().clear();
    }
}
