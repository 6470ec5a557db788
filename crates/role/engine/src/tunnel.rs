//! Copies bytes in both directions after an upgrade, until both sides have finished.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use skep_serve::{Conn, ConnError, Output, Pace, TimeoutCause};

use crate::limits::TUNNEL_BYTES_MAX;

/// One side of a tunnel.
#[derive(Clone, Copy)]
pub struct TunnelEnd<'c> {
    pub conn: &'c Conn,
    /// The minimum rate at which it must take the other side's data.
    pub pace: Pace,
}

/// Copies between `a` and `b` until both directions have ended or one has failed. `from_a` and `from_b`
/// were read already and are sent first. The tunnel ends if neither side sends anything for `idle_ms`
/// (0: no limit), and if a side takes its data more slowly than its pace requires. Returns the number of
/// bytes from `a` to `b` and from `b` to `a`.
pub async fn tunnel(
    a: TunnelEnd<'_>,
    b: TunnelEnd<'_>,
    from_a: Vec<u8>,
    from_b: Vec<u8>,
    idle_ms: u64,
) -> Result<(u64, u64), ConnError> {
    let mut there = Direction::new(a.conn, b, &from_a);
    let mut back = Direction::new(b.conn, a, &from_b);
    drop((from_a, from_b));
    let mut seen = None;
    poll_fn(|cx| {
        let first = there.poll(cx)?;
        let second = back.poll(cx)?;
        if first.is_ready() && second.is_ready() {
            return Poll::Ready(Ok((there.bytes, back.bytes)));
        }
        let now = (there.bytes + back.bytes, there.is_full(), back.is_full());
        if seen.replace(now) != Some(now) {
            // A side with queued data has the deadline of its pace.
            for (conn, is_full) in [(a.conn, back.is_full()), (b.conn, there.is_full())] {
                if !is_full {
                    rearm(conn, idle_ms);
                }
            }
        }
        Poll::Pending
    })
    .await
}

fn rearm(conn: &Conn, idle_ms: u64) {
    match idle_ms {
        0 => conn.timer().clear(),
        // Not `TimeoutCause::Idle`: a drain does not cut a tunnel that is in use.
        _ => conn.expire_after(idle_ms, TimeoutCause::Lifetime),
    }
}

struct Direction<'c> {
    from: &'c Conn,
    to: TunnelEnd<'c>,
    output: Output,
    bytes: u64,
    finished_reading: bool,
    done: bool,
}

impl<'c> Direction<'c> {
    fn new(from: &'c Conn, to: TunnelEnd<'c>, first: &[u8]) -> Self {
        let mut output = Output::default();
        output.copy(first);
        let bytes = first.len() as u64;
        Self { from, to, output, bytes, finished_reading: false, done: false }
    }

    /// Whether it waits for its receiver.
    fn is_full(&self) -> bool {
        !self.output.is_empty()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnError>> {
        while !self.done {
            let TunnelEnd { conn: to, pace } = self.to;
            ready!(to.poll_send_paced(cx, &mut self.output, &pace))?;
            if self.finished_reading {
                // The other side may have closed already; its error reports that.
                let _ = to.finish_sending();
                self.done = true;
                break;
            }
            let (from, output) = (self.from, &mut self.output);
            let n = ready!(from.worker().with_input(|input| {
                let input = &mut input[..TUNNEL_BYTES_MAX];
                let received = from.poll_recv(cx, input);
                if let Poll::Ready(Ok(n)) = received {
                    output.copy(&input[..n]);
                }
                received
            }))?;
            self.bytes += n as u64;
            self.finished_reading = n == 0;
        }
        Poll::Ready(Ok(()))
    }
}
