//! Load generation: threads that send the next request when the last reply has ended (closed loop), and
//! verify every reply.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use skep_testclient::{ClientError, HOST, RawClient, Response, request_bytes};

use crate::source::SourceAddress;
use crate::wait::{PATIENCE, poll_until};

type Check = Arc<dyn Fn(&Response) -> Result<(), String> + Send + Sync>;

/// The requests of a load and the expected replies. Requests use the targets in turn.
#[derive(Clone)]
pub struct Load {
    address: SocketAddr,
    source: Option<SourceAddress>,
    targets: Vec<(Vec<u8>, Check)>,
    threads: usize,
    keep_alive: bool,
    requests_max: u64,
    follow: bool,
}

/// The results of a load.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Number of requests with the expected reply.
    pub ok: u64,
    /// Numbers of other requests, by the kind of failure.
    pub failed: BTreeMap<String, u64>,
    /// Time from the first request to the last reply.
    pub elapsed: Duration,
}

/// A running load. Stops when dropped.
#[derive(Debug)]
pub struct RunningLoad {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<BTreeMap<String, u64>>>,
    start: Instant,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    started: AtomicU64,
    ok: AtomicU64,
    failed: AtomicU64,
}

impl Load {
    /// A load on `address`: 4 threads, keep-alive, until stopped.
    pub fn on(address: SocketAddr) -> Self {
        Self {
            address,
            source: None,
            targets: Vec::new(),
            threads: 4,
            keep_alive: true,
            requests_max: u64::MAX,
            follow: false,
        }
    }

    /// Adds a GET of `target`, which must return `body` with 200.
    #[must_use]
    pub fn get(self, target: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        self.get_checked(target, move |response| match response {
            Response { status: 200, .. } if response.body == body => Ok(()),
            Response { status: 200, .. } => Err("wrong body".into()),
            Response { status, .. } => Err(format!("status {status}")),
        })
    }

    /// Adds a GET of `target` whose reply `check` verifies; its error is the key under which the failure is
    /// counted.
    #[must_use]
    pub fn get_checked(
        mut self,
        target: &str,
        check: impl Fn(&Response) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.targets.push((request_bytes("GET", target, &[HOST]), Arc::new(check)));
        self
    }

    /// Sets the number of threads, each with one connection at a time.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Uses a new connection for each request.
    #[must_use]
    pub fn without_keep_alive(self) -> Self {
        Self { keep_alive: false, ..self }
    }

    /// Follows one redirect (302 or 307 to `http://ADDRESS:PORT/...`), and verifies the reply after it.
    #[must_use]
    pub fn following_redirects(self) -> Self {
        Self { follow: true, ..self }
    }

    /// Connects from this address.
    #[must_use]
    pub fn from(self, source: SourceAddress) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Sends this number of requests, over all threads, and waits until they end.
    pub fn run(self, requests: u64) -> LoadReport {
        let running = Self { requests_max: requests, ..self }.start();
        running.join()
    }

    /// Starts sending, until stopped.
    pub fn start(self) -> RunningLoad {
        assert!(!self.targets.is_empty(), "a load has something to ask for");
        let shared = Arc::new(Shared::default());
        let start = Instant::now();
        let threads = (0..self.threads)
            .map(|_| {
                let (load, shared) = (self.clone(), Arc::clone(&shared));
                thread::spawn(move || load.work(&shared))
            })
            .collect();
        RunningLoad { shared, threads, start }
    }

    fn work(&self, shared: &Shared) -> BTreeMap<String, u64> {
        let mut failed = BTreeMap::new();
        let mut client = None;
        while !shared.stop.load(Ordering::Relaxed) {
            let number = shared.started.fetch_add(1, Ordering::Relaxed);
            if number >= self.requests_max {
                break;
            }
            let (request, check) = &self.targets[(number % self.targets.len() as u64) as usize];
            let outcome = self.exchange(&mut client, request);
            let outcome = outcome.map_err(|error| error.kind()).and_then(|r| check(&r));
            match outcome {
                Ok(()) => {
                    shared.ok.fetch_add(1, Ordering::Relaxed);
                }
                Err(word) => {
                    shared.failed.fetch_add(1, Ordering::Relaxed);
                    *failed.entry(word).or_default() += 1;
                    client = None;
                }
            }
        }
        failed
    }

    fn exchange(
        &self,
        kept: &mut Option<RawClient>,
        request: &[u8],
    ) -> Result<Response, ClientError> {
        let mut client = match kept.take() {
            Some(client) => client,
            None => match &self.source {
                Some(source) => source.try_connect(self.address)?,
                None => RawClient::try_connect(self.address)?,
            },
        };
        client.send(request);
        let response = client.try_response()?;
        if self.keep_alive && !response.says_close() {
            *kept = Some(client);
        }
        match response.status {
            302 | 307 if self.follow => follow(&response),
            _ => Ok(response),
        }
    }
}

fn follow(response: &Response) -> Result<Response, ClientError> {
    let bad = || ClientError::Malformed(format!("Location of {}", response.head_text()));
    let rest = response.header("location").and_then(|l| l.strip_prefix("http://"));
    let (authority, _) = rest.and_then(|rest| rest.split_once('/')).ok_or_else(bad)?;
    let target = rest.and_then(|rest| rest.get(authority.len()..)).ok_or_else(bad)?;
    let mut client = RawClient::try_connect(authority.parse().map_err(|_| bad())?)?;
    client.send(request_bytes("GET", target, &[HOST, ("Connection", "close")]));
    client.try_response()
}

impl RunningLoad {
    /// Returns the number of successful requests so far.
    pub fn ok(&self) -> u64 {
        self.shared.ok.load(Ordering::Relaxed)
    }

    /// Returns the number of failed requests so far.
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Waits until `more` further requests have succeeded: anything done before the call has then been under
    /// load.
    #[track_caller]
    pub fn wait_for_more(&self, more: u64) {
        let goal = self.ok() + more;
        poll_until(PATIENCE, &format!("{more} more good replies"), || self.ok() >= goal);
    }

    /// Stops the load after the requests in progress.
    pub fn stop(self) -> LoadReport {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    fn join(mut self) -> LoadReport {
        let mut report = LoadReport::default();
        for thread in std::mem::take(&mut self.threads) {
            for (word, count) in thread.join().expect("a load thread doesn't panic") {
                *report.failed.entry(word).or_default() += count;
            }
        }
        report.elapsed = self.start.elapsed();
        report.ok = self.ok();
        report
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl LoadReport {
    /// Returns the number of failed requests.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Returns the number of successful requests per second.
    pub fn rate(&self) -> f64 {
        self.ok as f64 / self.elapsed.as_secs_f64()
    }

    /// Asserts that no request failed and some succeeded.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.failed.is_empty() && self.ok > 0, "{self}");
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ok, failures, rate) = (self.ok, self.failures(), self.rate());
        write!(f, "{ok} ok, {failures} failed {:?}, {rate:.0} per second", self.failed)
    }
}
