//! File descriptors: as many as allowed, and one spare for when they run out.

use std::fs::File;

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

/// A descriptor kept open for the moment when none is left: closing it lets
/// the server accept a waiting connection and refuse it in words, instead of
/// leaving it to hang in the kernel's queue.
#[derive(Debug)]
pub struct DescriptorReserve(Option<File>);

impl DescriptorReserve {
    /// Takes the spare descriptor.
    pub fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Runs `job` with one descriptor more than before, then takes it back.
    pub fn lend<R>(&mut self, job: impl FnOnce() -> R) -> R {
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
