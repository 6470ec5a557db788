//! Asks the origins, one after the other, until one responds.
//!
//! A GET is retried only while no response was returned: at the same origin if a kept connection
//! turns out to be dead, which is not a fault of the origin; after any other failure at the next
//! origin; at the same one again only if its connection broke and there is no other. There are no
//! retries after the head: the reader knows which bytes it has and which it lacks.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::ready;

use skep_http::limits::{INTERIM_RESPONSES_MAX, RESPONSE_HEAD};
use skep_http::{FieldSlots, HeadScanner, Method, parse_response};
use skep_serve::{Conn, ConnError, TimeoutCause, unix_ms};
use skep_upstream::PooledConn;

use super::{Origin, Origins};
use crate::avoid;
use crate::body::{Body, Start};
use crate::error::{Fault, FaultKind, OriginError};
use crate::head::Head;
use crate::limits::OriginLimits;
use crate::request::{self, Ask};
use crate::url::OriginUrl;

/// A response whose body is yet to be read.
pub struct OriginReply {
    /// The origin that responded.
    pub origin: Arc<str>,
    /// The head of the response.
    pub head: Head,
    /// The bytes that its head announces. If it is dropped before its end, the connection is
    /// closed.
    pub body: Body,
}

impl Origins {
    /// Sends the request `ask`. Any status is a response; one that blames the origin (500, 502,
    /// 503, 504) is returned only if no other origin is left to ask.
    ///
    /// A 200 to a range request is the whole object, from byte 0: the origin does not support
    /// ranges, or the object has another version than the pinned one.
    ///
    /// # Errors
    /// No origin responded; contains the failure of the last one.
    pub async fn open(self: &Rc<Self>, ask: &Ask<'_>) -> Result<OriginReply, OriginError> {
        self.counters.count_asked();
        let reply = self.open_as_asked(ask).await?;
        // An empty object has no first byte, so 416 is correct (RFC 9110 14.1.2), but the caller
        // needs the object.
        let from_start = ask.range.as_ref().is_some_and(|range| range.start == 0);
        if reply.head.meta.status == 416 && reply.head.total_bytes == Some(0) && from_start {
            return self.open_as_asked(&Ask { range: None, ..ask.clone() }).await;
        }
        Ok(reply)
    }

    async fn open_as_asked(self: &Rc<Self>, ask: &Ask<'_>) -> Result<OriginReply, OriginError> {
        let mut tried = Vec::new();
        let mut place = self.pick(&tried).unwrap_or(0);
        if let Err(fault) = request::check(ask) {
            self.note_fault(place, &fault);
            return Err(self.error(place, fault));
        }
        loop {
            let is_retry = !tried.is_empty();
            tried.push(place);
            let outcome = self.ask(place, ask, is_retry).await;
            self.note(place, &outcome);
            let next = match tried.len() < self.limits.attempts_max as usize {
                true => self.pick_after(&tried, place, &outcome),
                false => None,
            };
            match (next, outcome) {
                (Some(next), _) => place = next,
                (None, Ok(reply)) => return Ok(reply),
                (None, Err(fault)) => return Err(self.error(place, fault)),
            }
        }
    }

    /// Makes one attempt at one origin: on a kept connection, and on a new one if that is dead.
    async fn ask(
        self: &Rc<Self>,
        place: usize,
        ask: &Ask<'_>,
        is_retry: bool,
    ) -> Result<OriginReply, Fault> {
        let Origin { url, addresses } = &self.origins[place];
        let OriginLimits { names_fresh_ms, connect_timeout_ms, .. } = self.limits;
        self.counters.count_request(is_retry);
        let now_ms = self.worker.now_ms();
        let known = addresses.get(url, now_ms, names_fresh_ms, connect_timeout_ms).await?;
        self.pool.room(&known, self.limits.busy_wait_ms).await;
        if let Some(lease) = known.iter().find_map(|address| self.pool.reuse(*address)) {
            self.counters.count_reused();
            match self.exchange(place, lease, ask).await {
                Err(Failed { fault: Fault::Broken, is_silent: true }) => {}
                done => return done.map_err(|failed| failed.fault),
            }
            self.counters.count_request(true);
        }
        let mut last = Fault::Busy("no address".to_owned());
        for address in known {
            match self.pool.dial(address).await {
                Ok(lease) => {
                    let done = self.exchange(place, lease, ask).await;
                    return done.map_err(|failed| failed.fault);
                }
                Err(error) => last = error.into(),
            }
        }
        if last.blames_origin() {
            addresses.doubt(url);
        }
        Err(last)
    }

    /// Sends the request over `lease` and reads the head of the response.
    async fn exchange(
        self: &Rc<Self>,
        place: usize,
        lease: PooledConn,
        ask: &Ask<'_>,
    ) -> Result<OriginReply, Failed> {
        let url = &self.origins[place].url;
        let requested_unix_ms = unix_ms();
        self.send(&lease.conn, url, ask).await.map_err(|error| Failed::silent(&error))?;
        lease.conn.expire_after(self.limits.first_byte_timeout_ms, TimeoutCause::Response);
        let (mut received, head_len) = read_head(&lease.conn).await?;
        let times = (requested_unix_ms, unix_ms());
        let carry = received.split_off(head_len);
        let mut slots = FieldSlots::new();
        let parsed = parse_response(&mut slots, &received, Method::Get, &RESPONSE_HEAD)?;
        let head = Head::new(&parsed, ask, times)?;
        let start = Start { framing: parsed.framing, keeps_connection: parsed.keep_alive, carry };
        let body = Body::new(self, place, lease, &head, start)?;
        Ok(OriginReply { origin: Arc::clone(url.text()), head, body })
    }

    async fn send(&self, conn: &Conn, url: &OriginUrl, ask: &Ask<'_>) -> Result<(), ConnError> {
        let mut output = self.worker.take_output();
        output.inline(|out| request::write(out, url, ask));
        let sent = conn.send(&mut output, self.limits.first_byte_timeout_ms).await;
        self.worker.put_output(output);
        sent
    }

    fn pick(&self, tried: &[usize]) -> Option<usize> {
        avoid::pick(&self.health.borrow(), tried, self.worker.now_ms())
    }

    /// The origin to ask after a failure of `place`; `None`: the failure is final.
    fn pick_after(
        &self,
        tried: &[usize],
        place: usize,
        outcome: &Result<OriginReply, Fault>,
    ) -> Option<usize> {
        match outcome {
            Ok(reply) if !is_failure(reply.head.meta.status) => None,
            Ok(_) => self.pick(tried),
            Err(Fault::Broken) => self.pick(tried).or(Some(place)),
            Err(_) => self.pick(tried),
        }
    }

    fn note(&self, place: usize, outcome: &Result<OriginReply, Fault>) {
        match outcome {
            Err(fault) => self.note_fault(place, fault),
            Ok(reply) if is_failure(reply.head.meta.status) => {
                self.counters.count_failure(FaultKind::Status);
                // A 500 may concern this path only.
                if reply.head.meta.status != 500 {
                    self.avoid(place);
                }
            }
            Ok(_) => self.health.borrow_mut()[place].succeed(),
        }
    }
}

/// Whether a status indicates that another origin may succeed.
fn is_failure(status: u16) -> bool {
    matches!(status, 500 | 502 | 503 | 504)
}

/// Why there is no response on a connection.
struct Failed {
    fault: Fault,
    /// Whether the origin sent nothing at all.
    is_silent: bool,
}

impl Failed {
    fn silent(error: &ConnError) -> Self {
        Self { fault: Fault::before_head(error), is_silent: true }
    }
}

impl<F: Into<Fault>> From<F> for Failed {
    fn from(fault: F) -> Self {
        Self { fault: fault.into(), is_silent: false }
    }
}

/// Reads until the head of the final response is complete; returns the bytes from its beginning on,
/// and its length.
async fn read_head(conn: &Conn) -> Result<(Vec<u8>, usize), Failed> {
    let mut received = Vec::new();
    let mut scanner = HeadScanner::response();
    let mut interim_responses = 0;
    loop {
        match scanner.scan(&received, &RESPONSE_HEAD)? {
            Some(len) if is_interim(&received[..len])? => {
                interim_responses += 1;
                if interim_responses > INTERIM_RESPONSES_MAX {
                    return Err(Fault::Malformed("interim-responses").into());
                }
                received.drain(..len);
                scanner = HeadScanner::response();
            }
            Some(len) => return Ok((received, len)),
            None => {
                let is_silent = received.is_empty() && interim_responses == 0;
                let n = append(conn, &mut received)
                    .await
                    .map_err(|error| Failed { fault: Fault::before_head(&error), is_silent })?;
                if n == 0 {
                    return Err(Failed { fault: Fault::Broken, is_silent });
                }
            }
        }
    }
}

/// Reads once, and appends the bytes.
async fn append(conn: &Conn, received: &mut Vec<u8>) -> Result<usize, ConnError> {
    poll_fn(|cx| {
        conn.worker().with_input(|input| {
            let n = ready!(conn.poll_recv(cx, input))?;
            received.extend_from_slice(&input[..n]);
            std::task::Poll::Ready(Ok(n))
        })
    })
    .await
}

/// Whether the final response is yet to come (RFC 9110 15.2). A protocol switch was not requested.
fn is_interim(head: &[u8]) -> Result<bool, Fault> {
    let mut slots = FieldSlots::new();
    match parse_response(&mut slots, head, Method::Get, &RESPONSE_HEAD)?.status {
        101 => Err(Fault::Malformed("unasked-switch")),
        status => Ok(status < 200),
    }
}
