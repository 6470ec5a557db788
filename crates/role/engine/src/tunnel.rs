//! Copies bytes in both directions after an upgrade, until both sides have finished.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use skep_serve::{Conn, ConnError, Output, TimeoutCause};

use crate::limits::TUNNEL_BYTES_MAX;

/// Copies between `a` and `b` until both directions ended or one failed.
/// `from_a` and `from_b` were read already and go first. A side that neither
/// sends nor takes anything for `idle_ms` ends the tunnel; 0 waits for ever.
/// Returns the bytes that went from `a` to `b` and from `b` to `a`.
pub async fn tunnel(
    a: &Conn,
    b: &Conn,
    from_a: Vec<u8>,
    from_b: Vec<u8>,
    idle_ms: u64,
) -> Result<(u64, u64), ConnError> {
    let mut there = Direction::new(a, b, &from_a);
    let mut back = Direction::new(b, a, &from_b);
    drop((from_a, from_b));
    let mut moved = u64::MAX;
    poll_fn(|cx| {
        let first = there.poll(cx)?;
        let second = back.poll(cx)?;
        if first.is_ready() && second.is_ready() {
            return Poll::Ready(Ok((there.bytes, back.bytes)));
        }
        if moved != there.bytes + back.bytes {
            moved = there.bytes + back.bytes;
            rearm(a, idle_ms);
            rearm(b, idle_ms);
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
    to: &'c Conn,
    output: Output,
    bytes: u64,
    finished_reading: bool,
    done: bool,
}

impl<'c> Direction<'c> {
    fn new(from: &'c Conn, to: &'c Conn, first: &[u8]) -> Self {
        let mut output = Output::default();
        output.copy(first);
        let bytes = first.len() as u64;
        Self { from, to, output, bytes, finished_reading: false, done: false }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnError>> {
        while !self.done {
            ready!(self.to.poll_send(cx, &mut self.output))?;
            if self.finished_reading {
                // The other side may have gone already; its error says so.
                let _ = self.to.finish_sending();
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
