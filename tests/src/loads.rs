//! Loads from several machines at once.

use skep_lab::load::{Report, Running};
use skep_testbed::Machine;

use crate::wait::{PATIENCE, poll_until};

/// Loads that run together.
pub struct Loads(Vec<Running>);

impl Loads {
    /// Starts a load on each of these machines.
    pub fn start<'a>(
        machines: impl IntoIterator<Item = &'a Machine>,
        begin: impl Fn(&Machine) -> Running,
    ) -> Self {
        Self(machines.into_iter().map(begin).collect())
    }

    /// Returns the number of successes so far.
    pub fn succeeded(&self) -> u64 {
        self.0.iter().map(|load| load.progress().succeeded).sum()
    }

    /// Returns the number of failures so far.
    pub fn failed(&self) -> u64 {
        self.0.iter().map(|load| load.progress().failed).sum()
    }

    /// Waits until this number of further requests have succeeded.
    #[track_caller]
    pub fn wait_for_more(&self, more: u64) {
        let goal = self.succeeded() + more;
        poll_until(PATIENCE, &format!("{more} more good replies"), || {
            self.succeeded() >= goal || self.0.iter().all(Running::is_finished)
        });
        assert!(self.succeeded() >= goal, "the load has ended, {} failed", self.failed());
    }

    /// Waits until each of `count` downloads has received bytes since the call, or has failed.
    #[track_caller]
    pub fn wait_flowing(&self, count: u64) {
        self.0.iter().for_each(Running::mark);
        let flowing = || self.0.iter().map(|load| load.progress().flowing).sum::<u64>();
        poll_until(PATIENCE, "bytes in every download", || flowing() + self.failed() >= count);
    }

    /// Waits until all loads end by themselves.
    #[track_caller]
    pub fn finish(self) -> Vec<Report> {
        poll_until(5 * PATIENCE, "the end of loads", || self.0.iter().all(Running::is_finished));
        self.stop()
    }

    /// Stops all loads.
    #[track_caller]
    pub fn stop(self) -> Vec<Report> {
        self.0.into_iter().map(|load| load.stop().expect("a load that ran")).collect()
    }
}
