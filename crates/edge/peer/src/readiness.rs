//! Readiness of a descriptor for reading, for tasks of a runtime, while its owner uses the descriptor freely.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub struct Readiness(AsyncFd<OwnedFd>);

impl Readiness {
    /// Registers `owner` with the tokio runtime in which this is called.
    ///
    /// # Errors
    /// No descriptor is available for the copy.
    #[expect(unsafe_code, reason = "tokio leaves it to the caller that the descriptor stays open")]
    pub fn of(owner: &impl AsFd) -> io::Result<Self> {
        let copy = owner.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is a copy owned by the runtime's registration for its whole life; only
        // shared references to it are given out.
        let registered = unsafe { AsyncFd::register_with_interest(copy, Interest::READABLE) };
        Ok(Self(registered.map_err(io::Error::from)?))
    }

    /// Ready if data may have arrived since the last time that it was ready: the caller must then read
    /// everything, since nothing else reports what is left. Also ready when the runtime ends.
    pub fn poll_taken(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_read_ready(context).map(|ready| {
            if let Ok(mut ready) = ready {
                ready.clear_ready();
            }
        })
    }
}
