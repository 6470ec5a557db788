//! Many concurrent long downloads, each slow on purpose: connections that must survive all events.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use skep_workload::Pattern;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::http::{Body, Connection};
use super::report::{Failure, Tally};
use super::watch::{Watch, us};
use super::{Load, Target};

/// Reads per second of each download.
const READS_PER_SECOND: u64 = 2;

/// Minimum and maximum bytes of a read; the maximum is used without a rate.
const READ_BYTES_MIN: u64 = 2 * 1024;
const READ_BYTES_MAX: u64 = 64 * 1024;

/// Minimum size of the kernel's receive buffer, in bytes: a few frames.
const RECEIVE_BYTES_MIN: u64 = 8 * 1024;

/// Many long downloads that are started together.
#[derive(Clone, Debug)]
pub struct Downloads {
    /// What to fetch.
    pub target: Target,
    /// Number of concurrent downloads.
    pub count: usize,
    /// Rate of each, in bytes per second; 0: as fast as possible.
    pub rate_bytes_s: u64,
    /// The expected body.
    pub pattern: Option<Pattern>,
    /// Timeout for the connection and for each byte, in milliseconds.
    pub silence_ms: u64,
    /// Timeout of the whole load, in milliseconds.
    pub deadline_ms: u64,
    /// Client addresses, used in turn; if empty, the kernel chooses.
    pub sources: Vec<IpAddr>,
}

impl Downloads {
    /// `count` downloads at 16 KiB/s, with timeouts of 10 s for each byte and 60 s in total.
    pub fn new(target: Target, count: usize) -> Self {
        Self {
            target,
            count,
            rate_bytes_s: 16 * 1024,
            pattern: None,
            silence_ms: 10_000,
            deadline_ms: 60_000,
            sources: Vec::new(),
        }
    }

    async fn one(self, index: usize, watch: Watch) -> Tally {
        let mut tally = Tally::new();
        tally.begun();
        watch.begun();
        let limit = Duration::from_millis(self.deadline_ms);
        tokio::select! {
            ended = timeout(limit, self.fetch(index, &watch, &mut tally)) => {
                let result = ended.unwrap_or(Err(Failure::Timeout("over the deadline")));
                watch.ended(result.is_ok());
                tally.ended(result);
            }
            () = watch.stopped() => tally.stopped(),
        }
        tally
    }

    async fn fetch(&self, index: usize, watch: &Watch, tally: &mut Tally) -> Result<(), Failure> {
        let begin = Instant::now();
        let open = Connection::open(self.target.address, self.source(index), self.room());
        let mut connection = self.patiently(tally, "no connection", open).await?;
        tally.connected();
        let ask = connection.ask(&self.target, true);
        let head = self.patiently(tally, "no response", ask).await?;
        tally.answered(us(begin.elapsed()), head.node.clone());

        let mut body = Body::new(&head, self.pattern);
        let mut buffer = vec![0; self.read_bytes() as usize];
        let (first, mut round) = (tokio::time::Instant::now(), 0);
        while body.left() > 0 {
            let read = connection.read(&mut body, &mut buffer);
            let count = self.patiently(tally, "no byte for too long", read).await?;
            tally.received(count);
            watch.received(count);
            watch.sign();
            watch.flows(&mut round);
            if let Some(due_us) = (body.received * 1_000_000).checked_div(self.rate_bytes_s) {
                sleep_until(first + Duration::from_micros(due_us)).await;
            }
        }
        self.patiently(tally, "the connection stays open", connection.end()).await
    }

    /// Runs a step within its timeout.
    async fn patiently<T>(
        &self,
        tally: &mut Tally,
        what: &'static str,
        step: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let _waiting = Waiting { since: Instant::now(), tally };
        let limit = Duration::from_millis(self.silence_ms);
        timeout(limit, step).await.unwrap_or(Err(Failure::Timeout(what)))
    }

    fn source(&self, index: usize) -> Option<IpAddr> {
        self.sources.get(index % self.sources.len().max(1)).copied()
    }

    fn read_bytes(&self) -> u64 {
        match self.rate_bytes_s {
            0 => READ_BYTES_MAX,
            rate => (rate / READS_PER_SECOND).clamp(READ_BYTES_MIN, READ_BYTES_MAX),
        }
    }

    /// The receive buffer: small, so that bytes are always in flight rather than already in the kernel.
    fn room(&self) -> u32 {
        match self.rate_bytes_s {
            0 => 0,
            _ => self.read_bytes().max(RECEIVE_BYTES_MIN) as u32,
        }
    }
}

impl Load for Downloads {
    fn in_flight(&self) -> usize {
        self.count
    }

    async fn play(self, watch: Watch) -> Tally {
        let mut downloads = JoinSet::new();
        for index in 0..self.count {
            downloads.spawn(self.clone().one(index, watch.clone()));
        }
        super::sum(downloads).await
    }
}

/// Records a wait when it ends, even if it is abandoned.
struct Waiting<'a> {
    since: Instant,
    tally: &'a mut Tally,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.tally.waited(us(self.since.elapsed()));
    }
}
