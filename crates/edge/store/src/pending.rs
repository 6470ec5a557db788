//! The outcome of a call, which may still be pending.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::limits::CALL_TIMEOUT_MS;

/// The outcome of a call: it can be awaited in any runtime, waited for by a plain thread, or polled. Dropping
/// it does not cancel the call.
#[derive(Debug)]
#[must_use = "the outcome of the call, error or not, is in here"]
pub struct Pending<T> {
    outcome: oneshot::Receiver<Result<T, StoreError>>,
    deadline: Instant,
}

impl<T> Pending<T> {
    /// The two ends of a call; its deadline is `CALL_TIMEOUT_MS` from now.
    pub(crate) fn new() -> (oneshot::Sender<Result<T, StoreError>>, Self) {
        let (sender, outcome) = oneshot::channel();
        let deadline = Instant::now() + Duration::from_millis(CALL_TIMEOUT_MS);
        (sender, Self { outcome, deadline })
    }

    /// A call that has failed before it was queued.
    pub(crate) fn failed(error: StoreError) -> Self {
        let (sender, pending) = Self::new();
        // The receiver exists.
        let _ = sender.send(Err(error));
        pending
    }

    /// The deadline of the call.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the outcome if it is available. Must not be called again afterwards.
    pub fn try_take(&mut self) -> Option<Result<T, StoreError>> {
        match self.outcome.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(StoreError::Closed)),
        }
    }

    /// Blocks this thread until the outcome is available, at most until the call's deadline. Not for threads
    /// that serve.
    pub fn wait(self) -> Result<T, StoreError> {
        let deadline = self.deadline;
        wait_until(deadline, self).unwrap_or(Err(StoreError::Timeout))
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = Pin::new(&mut self.outcome).poll(context);
        outcome.map(|outcome| outcome.unwrap_or(Err(StoreError::Closed)))
    }
}

/// Blocks this thread on `future`, at most until `deadline`.
pub(crate) fn wait_until<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
