//! How long a client may keep a copy of its response waiting: in all, not at a time, or one that takes some
//! bytes now and then could do so for hours.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::limits::COPY_WAIT_MAX;

pub(super) struct CopyWait {
    left: Duration,
    /// Since when the copy waits, and until when it may.
    waits: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Default for CopyWait {
    fn default() -> Self {
        Self { left: COPY_WAIT_MAX, waits: None }
    }
}

impl CopyWait {
    /// The copy waits. Ready when it has waited for too long.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let new = || (Instant::now(), Box::pin(sleep(self.left)));
        self.waits.get_or_insert_with(new).1.as_mut().poll(cx)
    }

    /// It does not wait any more.
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
            // What is not waited for costs nothing.
            copy_wait.pause();
        }
        poll_fn(|cx| copy_wait.poll_over(cx)).await;
    }
}
