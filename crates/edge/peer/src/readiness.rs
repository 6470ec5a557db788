//! When a descriptor has something to read, for tasks of a runtime, while its owner uses it freely.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub struct Readiness(AsyncFd<OwnedFd>);

impl Readiness {
    /// That of `owner`, in the tokio runtime that this is called in.
    ///
    /// # Errors
    /// The system has no descriptor for it.
    #[expect(unsafe_code, reason = "tokio leaves it to the caller that the descriptor stays open")]
    pub fn of(owner: &impl AsFd) -> io::Result<Self> {
        let copy = owner.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is the runtime's own and stays in it to its end: of what is made here only shared
        // references are handed out.
        let registered = unsafe { AsyncFd::register_with_interest(copy, Interest::READABLE) };
        Ok(Self(registered.map_err(io::Error::from)?))
    }

    /// Ready if something may have come since this was ready: all of it is to be read now, since nothing else
    /// tells of what is left. Ready, too, when the runtime ends.
    pub fn poll_taken(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_read_ready(context).map(|ready| {
            if let Ok(mut ready) = ready {
                ready.clear_ready();
            }
        })
    }
}
