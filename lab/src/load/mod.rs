//! Clients for tests and experiments: they load a service and report what its users would have seen.
//!
//! - [`Downloads`]: long connections, each byte of which is checked.
//! - [`Requests`]: a stream of short requests that shows gaps.
//! - [`PartReaders`]: readers of parts of one large object.
//! - [`Mix`]: requests for many objects in a given order, with how they were
//!   answered over time.
//! - [`PlannedLoad`]: requests at planned times, each with its response time.
//!
//! A load runs on its own thread, in a machine; the test observes and stops it through [`Running`], and gets
//! its results as a [`Report`]. A load is bounded in number and time by its plan. It makes no assertions: the
//! test does, on the report.

mod content;
mod downloads;
mod http;
mod mix;
mod parts;
mod pattern;
mod planned;
mod report;
mod requests;
mod watch;

use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use rustix::process::{Resource, getrlimit, setrlimit};
use skep_testbed::{Machine, TestbedError};
use tokio::task::JoinSet;

pub use content::{Changing, Content, Issue, unix_ms};
pub use downloads::Downloads;
pub use mix::{Mix, MixObject, MixReport, MixRunning, Second, Sources};
pub use parts::PartReaders;
pub use pattern::write_pattern;
pub use planned::{PlannedLoad, PlannedReport, PlannedResponse, RunningPlan};
pub use report::{Report, Times};
pub use requests::Requests;
pub use skep_workload::Pattern;
pub use watch::Progress;

use crate::limits::IN_FLIGHT_MAX;
use report::Tally;
use watch::Watch;

/// The target of requests.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: SocketAddr,
    /// The name in `Host`.
    pub host: String,
    /// The path, beginning with a slash.
    pub path: String,
}

impl Target {
    /// `path` at `address`, with the address as the host.
    pub fn new(address: SocketAddr, path: &str) -> Self {
        Self { address, host: address.to_string(), path: path.to_owned() }
    }
}

/// A load, as seen by the code that runs it.
trait Load: Send + 'static {
    /// Number of concurrent sockets.
    fn in_flight(&self) -> usize;

    /// Runs to the end, or until the watch requests a stop.
    fn play(self, watch: Watch) -> impl Future<Output = Tally>;
}

/// A running load; stopped on drop.
pub struct Running {
    watch: Watch,
    thread: Option<JoinHandle<io::Result<io::Result<Report>>>>,
}

impl Downloads {
    /// Starts the load in a machine.
    pub fn start_in(self, machine: &Machine) -> Result<Running, TestbedError> {
        start(self, machine)
    }

    /// Runs the load on this thread, in its network namespace.
    pub fn run(self) -> Result<Report, TestbedError> {
        run(self)
    }
}

impl PartReaders {
    /// Starts the load in a machine.
    pub fn start_in(self, machine: &Machine) -> Result<Running, TestbedError> {
        start(self, machine)
    }

    /// Runs the load on this thread, in its network namespace.
    pub fn run(self) -> Result<Report, TestbedError> {
        run(self)
    }
}

impl Requests {
    /// Starts the load in a machine.
    pub fn start_in(self, machine: &Machine) -> Result<Running, TestbedError> {
        start(self, machine)
    }

    /// Runs the load on this thread, in its network namespace.
    pub fn run(self) -> Result<Report, TestbedError> {
        run(self)
    }
}

impl Running {
    /// The progress so far.
    pub fn progress(&self) -> Progress {
        self.watch.progress()
    }

    /// Resets the count [`Progress::flowing`].
    pub fn mark(&self) {
        self.watch.mark();
    }

    /// Whether the load has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the load.
    pub fn finish(mut self) -> Result<Report, TestbedError> {
        let ended = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(entered)) => entered.flatten(),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Err(io::Error::other("it was waited for twice")),
        };
        ended.map_err(failed("cannot run a load"))
    }

    /// Stops the load: downloads in progress are abandoned, and requests in progress are completed; neither
    /// count as failures.
    pub fn stop(self) -> Result<Report, TestbedError> {
        self.watch.stop();
        self.finish()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.watch.stop();
    }
}

fn start(load: impl Load, machine: &Machine) -> Result<Running, TestbedError> {
    prepare(&load)?;
    let watch = Watch::new();
    let thread = machine.spawn({
        let watch = watch.clone();
        move || play(load, watch)
    })?;
    Ok(Running { watch, thread: Some(thread) })
}

fn run(load: impl Load) -> Result<Report, TestbedError> {
    prepare(&load)?;
    play(load, Watch::new()).map_err(failed("cannot run a load"))
}

/// Checks that this many sockets are possible, after raising the kernel's limit as far as permitted.
fn prepare(load: &impl Load) -> Result<(), TestbedError> {
    files_for(load.in_flight())
}

fn files_for(in_flight: usize) -> Result<(), TestbedError> {
    if !(1..=IN_FLIGHT_MAX).contains(&in_flight) {
        let said = format!("a load of {in_flight} at once: expected 1 to {IN_FLIGHT_MAX}");
        return Err(TestbedError::Unusable(said));
    }
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).map_err(failed("cannot open more files"))
}

fn play(load: impl Load, watch: Watch) -> io::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tally = runtime.block_on(load.play(watch.clone()));
    let (elapsed_ms, longest_gap_ms) = watch.finish();
    Ok(tally.finish(elapsed_ms, longest_gap_ms))
}

/// Converts an error of the system, with what was attempted.
fn failed<E: Into<io::Error>>(what: &str) -> impl FnOnce(E) -> TestbedError {
    move |error| TestbedError::Io { what: what.to_owned(), source: error.into() }
}

/// Waits for all tasks of a load, and adds up their counts.
async fn sum(mut tasks: JoinSet<Tally>) -> Tally {
    let mut sum = Tally::new();
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(tally) => sum.add(tally),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    sum
}
