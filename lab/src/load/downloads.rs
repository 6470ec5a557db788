//! Many long downloads at once, each slow on purpose: connections that must
//! survive whatever happens on the way.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use skep_workload::Pattern;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::http::{Body, Connection};
use super::report::{Failure, Tally};
use super::watch::{Watch, us};
use super::{Load, Target};

/// Reads of each download in a second.
const READS_PER_SECOND: u64 = 2;

/// Least and most bytes of a read, and what is used at no particular rate.
const READ_BYTES_MIN: u64 = 2 * 1024;
const READ_BYTES_MAX: u64 = 64 * 1024;

/// Least room in the kernel for what was not read yet: a few frames.
const RECEIVE_BYTES_MIN: u64 = 8 * 1024;

/// Many long downloads, all begun at once.
#[derive(Clone, Debug)]
pub struct Downloads {
    /// What to fetch.
    pub target: Target,
    /// How many at once.
    pub count: usize,
    /// Rate of each, in bytes per second; 0 for as fast as they come.
    pub rate_bytes_s: u64,
    /// What the body must be.
    pub pattern: Option<Pattern>,
    /// Longest wait for a connection and for each byte, in milliseconds.
    pub silence_ms: u64,
    /// Time for all, in milliseconds.
    pub deadline_ms: u64,
    /// Client addresses, taken in turn; none for the kernel's choice.
    pub sources: Vec<IpAddr>,
}

impl Downloads {
    /// So many downloads at 16 KiB/s, with 10 s for each byte and 60 s for all.
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

    /// A step, within the time that it may take.
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

    /// Little, so that bytes are on their way all the time and not waiting in
    /// the kernel already.
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

/// Counts a wait when it ends, also by being given up.
struct Waiting<'a> {
    since: Instant,
    tally: &'a mut Tally,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.tally.waited(us(self.since.elapsed()));
    }
}
