//! Bounds the time for which a client may delay a copy of its response: in total, since a client that takes
//! a few bytes now and then could otherwise do so for hours.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::limits::COPY_WAIT_MAX;

pub(super) struct CopyWait {
    left: Duration,
    /// The time since which the copy waits, and the deadline.
    waits: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Default for CopyWait {
    fn default() -> Self {
        Self { left: COPY_WAIT_MAX, waits: None }
    }
}

impl CopyWait {
    /// Starts or continues a wait. Ready when the copy has waited too long.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let new = || (Instant::now(), Box::pin(sleep(self.left)));
        self.waits.get_or_insert_with(new).1.as_mut().poll(cx)
    }

    /// Ends the current wait.
    pub(super) fn pause(&mut self) {
        if let Some((since, _)) = self.waits.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn waits_add_up() {
        let mut copy_wait = CopyWait::default();
        for quarters in [3, 2, 1, 0] {
            let since = Instant::now().checked_sub(COPY_WAIT_MAX / 4).unwrap();
            copy_wait.waits = Some((since, Box::pin(sleep(COPY_WAIT_MAX))));
            copy_wait.pause();
            assert!(copy_wait.left <= COPY_WAIT_MAX / 4 * quarters);
            // Time without a wait does not count.
            copy_wait.pause();
        }
        poll_fn(|cx| copy_wait.poll_over(cx)).await;
    }
}
