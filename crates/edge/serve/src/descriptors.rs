//! File descriptors: their limit, and a reserve for when it is reached.

use std::fs::File;
use std::sync::{PoisonError, RwLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open descriptors to the hard one and returns it.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// Write-locked while a reserve is lent. Otherwise another worker's accept could take the descriptor
/// meanwhile; then no connection could be refused until some connection is closed.
static LENT: RwLock<()> = RwLock::new(());

/// Runs a non-blocking accept that does not take a lent descriptor.
pub(crate) fn without_reserve<R>(accept: impl FnOnce() -> R) -> R {
    let _not_lent = LENT.read().unwrap_or_else(PoisonError::into_inner);
    accept()
}

/// A descriptor kept open for the moment when none is left: closing it lets the server accept a
/// waiting connection and refuse it with a reply, instead of leaving it in the kernel's queue.
#[derive(Debug)]
pub struct DescriptorReserve(Option<File>);

impl DescriptorReserve {
    /// Opens the reserve descriptor.
    pub fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Runs `job` with one more free descriptor, then takes it back.
    pub fn lend<R>(&mut self, job: impl FnOnce() -> R) -> R {
        let _lent = LENT.write().unwrap_or_else(PoisonError::into_inner);
        self.0 = None;
        let result = job();
        self.0 = File::open("/dev/null").ok();
        result
    }
}

impl Default for DescriptorReserve {
    fn default() -> Self {
        Self::new()
    }
}
