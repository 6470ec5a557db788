//! Requests for many objects in a given order, by a fixed number of clients that each send the next request
//! as soon as they have their answer: the load for measuring caches.
//!
//! A mix runs until it is stopped; [`MixRunning::measure`] resets its counts, so everything before is
//! warm-up. All clients share one order: whichever is free takes the next object, so that the servers of two
//! runs get requests for the same objects in nearly the same order.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use skep_testbed::{Machine, TestbedError};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::content::{Content, Issue, unix_ms};
use super::http::{Body, BodySource, Connection, Head};
use super::report::{Failure, Times};
use super::watch::{Watch, us};
use super::{Target, failed, files_for};
use crate::limits::EXAMPLES_MAX;

/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;

/// Pause of a client after a failure, in milliseconds, so that it does not spin.
const PAUSE_MS: u64 = 20;

/// Many objects that are requested in an order.
#[derive(Clone, Debug)]
pub struct Mix {
    pub address: SocketAddr,
    /// All objects.
    pub objects: Arc<[MixObject]>,
    /// Indexes of `objects`; the order is repeated.
    pub order: Arc<[u32]>,
    /// Number of clients, each with a connection.
    pub clients: usize,
    /// Requests per connection; 1: a new connection for each.
    pub per_connection: u64,
    /// Whether every byte is compared; otherwise only their number is.
    pub compares: bool,
    /// Timeout of a request including its connection, in milliseconds.
    pub timeout_ms: u64,
}

/// An object and its expected content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixObject {
    pub path: String,
    pub content: Content,
}

/// The results of the measured part of a mix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MixReport {
    /// Length of the measurement, in milliseconds.
    pub elapsed_ms: u64,
    /// Right answers: status 200, and all bytes as expected.
    pub succeeded: u64,
    /// All other requests.
    pub failed: u64,
    /// Failed requests with bytes or lengths that are not those of the object, or of the version that the
    /// reply names.
    pub wrong: u64,
    /// Failed requests without a complete answer in time.
    pub hung: u64,
    /// Failed requests whose connection was reset or refused.
    pub reset: u64,
    /// Right answers with a version that had been replaced before the request was sent.
    pub stale: u64,
    /// Maximum time since the replacement, in milliseconds.
    pub stalest_ms: u64,
    /// Persistent connections that were found closed and replaced.
    pub reopened: u64,
    /// Right answers by source.
    pub requests: Sources,
    /// Bytes of right answers by source.
    pub bytes: Sources,
    /// From sending the request, including a new connection, to the response's head.
    pub first_byte_us: Times,
    /// The results by second.
    pub seconds: Vec<Second>,
    /// Failures by kind.
    pub failures: BTreeMap<String, u64>,
    /// Descriptions of the first failures.
    pub examples: Vec<String>,
}

/// One second of a mix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Right answers by source.
    pub requests: Sources,
    /// Their bytes.
    pub bytes: Sources,
    /// Wrong or missing answers.
    pub failed: u64,
}

/// A number by the source of bodies, as stated by servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The memory of the node that answered.
    pub local: u64,
    /// Another node's memory.
    pub peer: u64,
    pub origin: u64,
    /// The source is not stated.
    pub unknown: u64,
}

impl Sources {
    /// The sum over all sources.
    pub fn sum(&self) -> u64 {
        self.local + self.peer + self.origin + self.unknown
    }

    fn of(&mut self, source: BodySource) -> &mut u64 {
        match source {
            BodySource::Local => &mut self.local,
            BodySource::Peer => &mut self.peer,
            BodySource::Origin => &mut self.origin,
            BodySource::Unknown => &mut self.unknown,
        }
    }
}

/// A running mix; stopped on drop.
pub struct MixRunning {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<io::Result<()>>>>,
}

/// The state that clients share.
struct Shared {
    plan: Mix,
    watch: Watch,
    /// Requests started so far: the position in the order.
    turn: AtomicU64,
    /// Whether no more requests are to be started.
    is_finishing: AtomicBool,
    counts: Mutex<Counts>,
}

/// The counts of the measurement in progress.
struct Counts {
    begin: Instant,
    report: MixReport,
    first_byte_us: Histogram<u64>,
}

impl Mix {
    /// Starts the mix in a machine.
    pub fn start_in(self, machine: &Machine) -> Result<MixRunning, TestbedError> {
        if self.objects.is_empty() || self.order.is_empty() {
            return Err(TestbedError::Unusable("a mix of no objects".to_owned()));
        }
        files_for(self.clients)?;
        let (watch, counts) = (Watch::new(), Mutex::new(Counts::new()));
        let (turn, is_finishing) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { plan: self, watch, turn, is_finishing, counts });
        let thread = machine.spawn({
            let shared = Arc::clone(&shared);
            move || shared.play()
        })?;
        Ok(MixRunning { shared, thread: Some(thread) })
    }
}

impl MixRunning {
    /// The number of requests started so far, including the warm-up.
    pub fn begun(&self) -> u64 {
        self.shared.turn.load(Ordering::Relaxed)
    }

    /// Starts the measurement: resets all counts.
    pub fn measure(&self) {
        *lock(&self.shared.counts) = Counts::new();
    }

    /// Right answers since `measure`.
    pub fn succeeded(&self) -> u64 {
        lock(&self.shared.counts).report.succeeded
    }

    /// The results since `measure`.
    pub fn report(&self) -> MixReport {
        lock(&self.shared.counts).report()
    }

    /// Stops the mix; requests in progress are abandoned and not counted.
    pub fn stop(mut self) -> Result<MixReport, TestbedError> {
        let report = self.report();
        self.shared.watch.stop();
        self.join()?;
        Ok(report)
    }

    /// Starts no more requests, and waits for those in progress: all are included in the report.
    pub fn finish(mut self) -> Result<MixReport, TestbedError> {
        self.shared.is_finishing.store(true, Ordering::Relaxed);
        self.join()?;
        Ok(self.report())
    }

    fn join(&mut self) -> Result<(), TestbedError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(entered)) => entered.flatten().map_err(failed("cannot run a mix"))?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => {}
        }
        Ok(())
    }
}

impl Drop for MixRunning {
    fn drop(&mut self) {
        self.shared.watch.stop();
    }
}

impl Shared {
    fn play(self: Arc<Self>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut clients = JoinSet::new();
            for _ in 0..self.plan.clients {
                clients.spawn(Client::new(Arc::clone(&self)).work());
            }
            while let Some(ended) = clients.join_next().await {
                if let Err(error) = ended {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
        });
        Ok(())
    }

    /// The next object of the order.
    fn next(&self) -> &MixObject {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let place = self.plan.order[(turn % self.plan.order.len() as u64) as usize];
        &self.plan.objects[place as usize]
    }
}

/// One client and its connection.
struct Client {
    shared: Arc<Shared>,
    kept: Option<Connection>,
    /// Number of requests sent on it.
    used: u64,
    /// Its port, or that of the last one; 0 if no connection could be established.
    port: u16,
    buffer: Vec<u8>,
}

/// A right answer.
struct VerifiedResponse {
    source: BodySource,
    bytes: u64,
    first_byte_us: u64,
    stale_ms: u64,
}

impl Client {
    fn new(shared: Arc<Shared>) -> Self {
        Self { shared, kept: None, used: 0, port: 0, buffer: vec![0; READ_BYTES] }
    }

    async fn work(mut self) {
        let shared = Arc::clone(&self.shared);
        let limit = Duration::from_millis(shared.plan.timeout_ms);
        while !shared.watch.is_stopped() && !shared.is_finishing.load(Ordering::Relaxed) {
            let object = shared.next();
            let late = Err(Failure::Timeout("no complete response in time"));
            let ended = tokio::select! {
                ended = timeout(limit, self.request(object)) => ended.unwrap_or(late),
                () = shared.watch.stopped() => return,
            };
            let is_failure = ended.is_err();
            lock(&shared.counts).count(ended.map_err(|failure| (failure, object, self.port)));
            if is_failure {
                self.kept = None;
                sleep(Duration::from_millis(PAUSE_MS)).await;
            }
        }
    }

    /// Performs one request; a persistent connection that is found closed is replaced once.
    async fn request(&mut self, object: &MixObject) -> Result<VerifiedResponse, Failure> {
        let target = Target::new(self.shared.plan.address, &object.path);
        let begin = Instant::now();
        if let Some(connection) = self.kept.take() {
            match self.ask(connection, &target, object, begin).await {
                Err((Failure::NoResponse | Failure::Reset, false)) => {
                    lock(&self.shared.counts).report.reopened += 1;
                }
                ended => return ended.map_err(|(failure, _)| failure),
            }
        }
        self.port = 0;
        let connection = Connection::open(target.address, None, 0).await?;
        self.port = connection.port();
        self.used = 0;
        self.ask(connection, &target, object, begin).await.map_err(|(failure, _)| failure)
    }

    /// Sends the request and reads the response; a failure is returned with whether there was a response.
    async fn ask(
        &mut self,
        mut connection: Connection,
        target: &Target,
        object: &MixObject,
        begin: Instant,
    ) -> Result<VerifiedResponse, (Failure, bool)> {
        self.used += 1;
        let is_last = self.used >= self.shared.plan.per_connection;
        let asked = connection.ask(target, is_last).await;
        let head = asked.map_err(|failure| (failure, false))?;
        let first_byte_us = us(begin.elapsed());
        let answered = |failure| (failure, true);
        let (issue, stale_ms) = object.said(&head, begin).map_err(answered)?;
        let pattern = self.shared.plan.compares.then_some(issue.pattern);
        let mut body = Body::new(&head, pattern);
        while body.left() > 0 {
            connection.read(&mut body, &mut self.buffer).await.map_err(answered)?;
        }
        if is_last || head.closes {
            connection.end().await.map_err(answered)?;
        } else if connection.has_surplus() {
            return Err((Failure::Malformed("bytes after the end of the response"), true));
        } else {
            self.kept = Some(connection);
        }
        Ok(VerifiedResponse { source: head.source, bytes: issue.bytes, first_byte_us, stale_ms })
    }
}

const WRONG_LENGTH: &str = "a response with another length than the object's";
const WRONG_VERSION: &str = "a response of a version that never was";

impl MixObject {
    /// What a reply has to be by its head, and for how long that had been replaced
    /// when it was asked for, in milliseconds.
    pub(super) fn said(&self, head: &Head, begin: Instant) -> Result<(Issue, u64), Failure> {
        let (issue, stale_ms) = match self.content {
            Content::Always(issue) => (issue, 0),
            Content::Changing(object) => {
                let now_ms = unix_ms();
                let version = head.etag.as_ref().and_then(|tag| object.version_of(tag));
                let version = version.filter(|&version| version <= object.version_at(now_ms));
                let version = version.ok_or(Failure::Malformed(WRONG_VERSION))?;
                let begin_ms = now_ms - us(begin.elapsed()) / 1000;
                (object.issue(version), begin_ms.saturating_sub(object.ends_at_ms(version)))
            }
        };
        match head.body_bytes == issue.bytes {
            true => Ok((issue, stale_ms)),
            false => Err(Failure::Malformed(WRONG_LENGTH)),
        }
    }
}

impl Counts {
    fn new() -> Self {
        #[expect(clippy::expect_used, reason = "3 is a number of digits that it takes")]
        let first_byte_us = Histogram::new(3).expect("three significant digits");
        Self { begin: Instant::now(), report: MixReport::default(), first_byte_us }
    }

    fn count(&mut self, ended: Result<VerifiedResponse, (Failure, &MixObject, u16)>) {
        let index = self.begin.elapsed().as_secs() as usize;
        let (report, seconds) = (&mut self.report, index + 1);
        if report.seconds.len() < seconds {
            report.seconds.resize(seconds, Second::default());
        }
        let second = &mut report.seconds[index];
        match ended {
            Ok(VerifiedResponse { source, bytes, first_byte_us, stale_ms }) => {
                report.succeeded += 1;
                report.stale += u64::from(stale_ms > 0);
                report.stalest_ms = report.stalest_ms.max(stale_ms);
                for (requests, sum) in [
                    (&mut report.requests, &mut report.bytes),
                    (&mut second.requests, &mut second.bytes),
                ] {
                    *requests.of(source) += 1;
                    *sum.of(source) += bytes;
                }
                // The histogram resizes itself; a value that still does not fit is not a plausible time.
                let _ = self.first_byte_us.record(first_byte_us);
            }
            Err((failure, object, port)) => {
                report.failed += 1;
                second.failed += 1;
                *report.failures.entry(failure.kind()).or_default() += 1;
                let is_wrong = match &failure {
                    Failure::WrongByte(_) => true,
                    Failure::Malformed(what) => [WRONG_LENGTH, WRONG_VERSION].contains(what),
                    _ => false,
                };
                report.wrong += u64::from(is_wrong);
                report.hung += u64::from(matches!(failure, Failure::Timeout(_)));
                let is_reset = matches!(failure, Failure::Reset | Failure::Refused);
                report.reset += u64::from(is_reset);
                if report.examples.len() < EXAMPLES_MAX {
                    let path = &object.path;
                    let example = format!("second {index}: {path}, from port {port}: {failure}");
                    report.examples.push(example);
                }
            }
        }
    }

    fn report(&self) -> MixReport {
        let times = &self.first_byte_us;
        let first_byte_us = Times {
            p50: times.value_at_quantile(0.5),
            p99: times.value_at_quantile(0.99),
            max: times.max(),
        };
        let elapsed_ms = us(self.begin.elapsed()) / 1000;
        MixReport { elapsed_ms, first_byte_us, ..self.report.clone() }
    }
}

/// Locks the counts, even after a panic of another thread: they are consistent after each step.
fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}
