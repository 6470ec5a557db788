//! The body of an origin's response, read as it arrives and checked to the byte.
//!
//! Invariants:
//! - `Ok(0)` means that the body is complete: by its framing, by the range in its head, and
//!   because no bytes followed it.
//! - After an error every further call fails. The bytes returned before are correct, so the
//!   reader may continue from there with another request.
//! - The connection is returned to the pool with the last byte, or is closed.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use skep_http::limits::RESPONSE_BODY;
use skep_http::{BodyDecoder, Reject, ResponseFraming};
use skep_serve::{Conn, ConnError, TimeoutCause};
use skep_upstream::PooledConn;

use crate::error::{Fault, OriginError};
use crate::head::Head;
use crate::limits::{PACE_BYTES, PACE_STALLS, SKIP_BYTES};
use crate::origins::Origins;

/// A body that is being received.
pub struct Body {
    origins: Rc<Origins>,
    /// Index of the origin that sends it.
    place: usize,
    /// `None` once the body has ended, successfully or not.
    lease: Option<PooledConn>,
    decoder: BodyDecoder,
    /// Bytes received with the head, and the number of them that were read.
    carry: Vec<u8>,
    carry_taken: usize,
    start: u64,
    /// Number of bytes returned.
    taken: u64,
    /// Number of bytes announced, if known.
    expected: Option<u64>,
    keeps_connection: bool,
    /// The required minimum pace, if any.
    pace: Option<Pace>,
    failed: Option<Fault>,
}

/// Progress of the current [`PACE_BYTES`] of a body.
#[derive(Default)]
struct Pace {
    bytes: u64,
    /// Time without any byte to read, in milliseconds.
    waited_ms: u64,
}

/// How the head delimits a body, and the bytes of the body received with it.
pub(crate) struct Start {
    pub(crate) framing: ResponseFraming,
    pub(crate) keeps_connection: bool,
    pub(crate) carry: Vec<u8>,
}

impl Body {
    pub(crate) fn new(
        origins: &Rc<Origins>,
        place: usize,
        lease: PooledConn,
        head: &Head,
        start: Start,
    ) -> Result<Self, Fault> {
        let mut body = Self {
            origins: Rc::clone(origins),
            place,
            lease: Some(lease),
            decoder: BodyDecoder::new(start.framing, &RESPONSE_BODY)?,
            carry: start.carry,
            carry_taken: 0,
            start: head.start,
            taken: 0,
            expected: head.end.map(|end| end - head.start),
            keeps_connection: start.keeps_connection,
            pace: None,
            failed: None,
        };
        if body.decoder.is_done() {
            body.finish(body.carry.is_empty())?;
        }
        Ok(body)
    }

    /// Requires a minimum pace from now on, below which the body counts as stalled, because a
    /// request waits for all of it. Otherwise a body may trickle, as a stream of events does.
    pub fn hurry(&mut self) {
        self.pace = Some(Pace::default());
    }

    /// Reads the next bytes into the front of `buffer`, which must not be empty; 0: the body is
    /// complete. May be dropped while it waits, without losing bytes.
    ///
    /// # Errors
    /// The origin stalled, or the bytes do not match what it announced.
    pub async fn next(&mut self, buffer: &mut [u8]) -> Result<usize, OriginError> {
        assert!(!buffer.is_empty(), "no room for a body");
        let fault = match (&self.failed, &self.lease) {
            (Some(fault), _) => fault.clone(),
            (None, None) => return Ok(0),
            (None, Some(_)) => match self.read(buffer).await {
                Ok(n) => return Ok(n),
                Err(fault) => {
                    self.origins.note_fault(self.place, &fault);
                    self.lease = None;
                    self.failed = Some(fault.clone());
                    fault
                }
            },
        };
        Err(self.origins.error(self.place, fault))
    }

    /// Discards the bytes before `offset` of the object, for an origin that sent the whole object
    /// in response to a range request.
    ///
    /// # Errors
    /// As [`Body::next`]; and [`Fault::Short`] if the body ends before `offset`.
    pub async fn skip_to(&mut self, offset: u64) -> Result<(), OriginError> {
        assert!(offset >= self.position(), "a body does not go back");
        let mut scratch = vec![0; SKIP_BYTES];
        while self.position() < offset {
            let wanted = (offset - self.position()).min(SKIP_BYTES as u64) as usize;
            if self.next(&mut scratch[..wanted]).await? == 0 {
                let fault = Fault::Short { at: self.taken, expected: Some(offset - self.start) };
                return Err(self.origins.error(self.place, fault));
            }
        }
        Ok(())
    }

    /// Offset of the next byte in the object.
    pub fn position(&self) -> u64 {
        self.start + self.taken
    }

    /// Number of remaining bytes, if known.
    pub fn left_bytes(&self) -> Option<u64> {
        self.expected.map(|expected| expected - self.taken)
    }

    async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        loop {
            let received = self.receive(buffer).await?;
            if received == 0 {
                return self.end_of_stream().map(|()| 0);
            }
            let (consumed, decoded) = self.decode(&mut buffer[..received])?;
            self.count(decoded)?;
            if self.decoder.is_done() {
                let is_at_end = consumed == received && self.carry_taken == self.carry.len();
                self.finish(is_at_end)?;
                return Ok(decoded);
            }
            // Chunk lines contain no bytes of the body.
            if decoded > 0 {
                return Ok(decoded);
            }
        }
    }

    /// Reads bytes in wire form; 0: the end of the stream.
    async fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        let carried = &self.carry[self.carry_taken..];
        if !carried.is_empty() {
            let n = carried.len().min(buffer.len());
            buffer[..n].copy_from_slice(&carried[..n]);
            self.carry_taken += n;
            return Ok(n);
        }
        let Some(lease) = &self.lease else { return Ok(0) };
        let (worker, stall_ms) = (self.origins.worker(), self.origins.limits().progress_timeout_ms);
        let limit_ms = self.pace.as_ref().map_or(stall_ms, |pace| pace.limit_ms(stall_ms));
        // Measured from now, since the reader may have been slow.
        lease.conn.expire_after(limit_ms, TimeoutCause::Response);
        let began_ms = worker.now_ms();
        let received = lease.conn.recv(buffer).await.map_err(|error| match error {
            ConnError::Io(_) => Fault::Short { at: self.taken, expected: self.expected },
            ConnError::Expired(_) => Fault::Stalled { at: self.taken },
        })?;
        if let Some(pace) = &mut self.pace {
            pace.note(received as u64, worker.now_ms().saturating_sub(began_ms));
        }
        Ok(received)
    }

    /// Moves the body's bytes to the front; returns the number of bytes consumed, and of bytes of
    /// the body.
    fn decode(&mut self, buffer: &mut [u8]) -> Result<(usize, usize), Reject> {
        let (mut consumed, mut decoded) = (0, 0);
        while consumed < buffer.len() && !self.decoder.is_done() {
            let piece = self.decoder.decode(&buffer[consumed..])?;
            let data = consumed + piece.data.start..consumed + piece.data.end;
            let bytes = data.len();
            if data.start != decoded {
                buffer.copy_within(data, decoded);
            }
            decoded += bytes;
            consumed += piece.consumed;
        }
        Ok((consumed, decoded))
    }

    fn count(&mut self, bytes: usize) -> Result<(), Fault> {
        if let Some(expected) = self.expected
            && expected - self.taken < bytes as u64
        {
            return Err(Fault::Long { expected });
        }
        self.taken += bytes as u64;
        self.origins.count_body(bytes as u64);
        Ok(())
    }

    fn end_of_stream(&mut self) -> Result<(), Fault> {
        self.keeps_connection = false;
        let short = Fault::Short { at: self.taken, expected: self.expected };
        self.decoder.finish().map_err(|_| short)?;
        self.finish(true)
    }

    /// Handles the end of the body by its framing. `is_at_end`: no further bytes were received.
    fn finish(&mut self, is_at_end: bool) -> Result<(), Fault> {
        if let Some(expected) = self.expected {
            if self.taken < expected {
                return Err(Fault::Short { at: self.taken, expected: Some(expected) });
            }
            let is_behind = |lease: &PooledConn| has_bytes(&lease.conn);
            if !is_at_end || self.lease.as_ref().is_some_and(is_behind) {
                // RFC 9112 6.3 allows a client to ignore further bytes. A cache should not: an
                // origin that counts wrongly may have sent half of an object.
                return Err(Fault::Long { expected });
            }
        }
        if let Some(lease) = self.lease.take()
            && self.keeps_connection
            && is_at_end
        {
            self.origins.give_back(lease);
        }
        Ok(())
    }
}

impl Pace {
    /// Time limit for the next bytes; no wait is longer than `stall_ms`.
    fn limit_ms(&self, stall_ms: u64) -> u64 {
        stall_ms.min(stall_ms.saturating_mul(PACE_STALLS).saturating_sub(self.waited_ms))
    }

    fn note(&mut self, bytes: u64, waited_ms: u64) {
        self.bytes += bytes;
        self.waited_ms += waited_ms;
        if self.bytes >= PACE_BYTES {
            *self = Self::default();
        }
    }
}

/// Whether bytes can be read at this moment; false at the end of the stream.
fn has_bytes(conn: &Conn) -> bool {
    let polled = conn.poll_recv(&Context::from_waker(Waker::noop()), &mut [0]);
    matches!(polled, Poll::Ready(Ok(n)) if n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_trickles_has_less_and_less_time_until_enough_has_come() {
        let mut pace = Pace::default();
        assert_eq!(pace.limit_ms(10), 10);
        (0..11).for_each(|_| pace.note(1, 5));
        assert_eq!(pace.limit_ms(10), 5);
        pace.note(1, 5);
        assert_eq!(pace.limit_ms(10), 0);
        pace.note(PACE_BYTES, 0);
        assert_eq!(pace.limit_ms(10), 10, "the next ones have time of their own");
    }
}
