//! A stream of short requests, on new connections or on persistent ones: shows when a service is unavailable,
//! and for how long.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use skep_workload::Pattern;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Interval, interval, timeout};

use super::http::{Body, Connection};
use super::report::{Failure, Tally};
use super::watch::{Watch, us};
use super::{Load, Target};
use crate::limits::SLOW_MS;

/// Bytes per read.
const READ_BYTES: usize = 16 * 1024;

/// A stream of short requests.
#[derive(Clone, Debug)]
pub struct Requests {
    /// What to ask for.
    pub target: Target,
    /// Maximum number of requests in flight.
    pub workers: usize,
    /// Requests started per second, independent of their results, as long as a worker is free: this is what
    /// measures a gap. `None`: each worker sends the next request as soon as it has its answer.
    pub per_second: Option<u32>,
    /// Requests per connection; 1: a new connection for each.
    pub per_connection: u64,
    /// Number of requests in total.
    pub count: u64,
    /// Time after which no more requests are started, in milliseconds.
    pub duration_ms: u64,
    /// Timeout of a request including its connection, in milliseconds.
    pub timeout_ms: u64,
    /// The expected body.
    pub pattern: Option<Pattern>,
    /// Client addresses, used by workers in turn; if empty, the kernel chooses.
    pub sources: Vec<IpAddr>,
}

/// The state that the workers of one load share.
struct Shared {
    plan: Requests,
    watch: Watch,
    left: AtomicU64,
    pace: Option<Mutex<Interval>>,
    end: Instant,
}

/// A worker and its connection.
struct Worker {
    shared: Arc<Shared>,
    source: Option<IpAddr>,
    kept: Option<Connection>,
    /// Number of requests sent on it.
    used: u64,
    tally: Tally,
    buffer: Vec<u8>,
}

impl Requests {
    /// `count` requests, each on a new connection, by 16 workers as fast as possible, with timeouts of 5 s
    /// for each and 60 s in total.
    pub fn new(target: Target, count: u64) -> Self {
        Self {
            target,
            workers: 16,
            per_second: None,
            per_connection: 1,
            count,
            duration_ms: 60_000,
            timeout_ms: 5_000,
            pattern: None,
            sources: Vec::new(),
        }
    }
}

impl Load for Requests {
    fn in_flight(&self) -> usize {
        self.workers
    }

    async fn play(self, watch: Watch) -> Tally {
        let pace = self.per_second.map(|per_second| {
            let period = Duration::from_secs(1) / per_second.max(1);
            Mutex::new(interval(period.max(Duration::from_nanos(1))))
        });
        let end = Instant::now() + Duration::from_millis(self.duration_ms);
        let left = AtomicU64::new(self.count);
        let shared = Arc::new(Shared { plan: self, watch, left, pace, end });
        let mut workers = JoinSet::new();
        for index in 0..shared.plan.workers {
            workers.spawn(Worker::new(Arc::clone(&shared), index).work());
        }
        super::sum(workers).await
    }
}

impl Shared {
    /// Waits until the next request is due; returns false if there is none.
    async fn turn(&self) -> bool {
        let tick = async {
            if let Some(pace) = &self.pace {
                pace.lock().await.tick().await;
            }
        };
        tokio::select! {
            () = self.watch.stopped() => return false,
            () = tick => {}
        }
        let take = |left: u64| left.checked_sub(1);
        !self.watch.is_stopped()
            && Instant::now() < self.end
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl Worker {
    fn new(shared: Arc<Shared>, index: usize) -> Self {
        let sources = &shared.plan.sources;
        let source = sources.get(index % sources.len().max(1)).copied();
        let (tally, buffer) = (Tally::new(), vec![0; READ_BYTES]);
        Self { shared, source, kept: None, used: 0, tally, buffer }
    }

    async fn work(mut self) -> Tally {
        let limit = Duration::from_millis(self.shared.plan.timeout_ms);
        while self.shared.turn().await {
            let (begin, begun_ms) = (Instant::now(), self.shared.watch.elapsed_ms());
            self.tally.begun();
            self.shared.watch.begun();
            let late = Err(Failure::Timeout("no complete response in time"));
            let result = timeout(limit, self.request()).await.unwrap_or(late);
            let time_us = us(begin.elapsed());
            self.tally.waited(time_us);
            if result.is_err() || time_us >= SLOW_MS * 1000 {
                self.tally.troubled(begun_ms);
            }
            self.shared.watch.ended(result.is_ok());
            let result = result.map(|node| {
                self.shared.watch.sign();
                self.tally.answered(time_us, node);
            });
            self.tally.ended(result);
        }
        self.tally
    }

    /// Performs one request; a persistent connection that is found closed is replaced once. Returns the node
    /// that answered.
    async fn request(&mut self) -> Result<Option<String>, Failure> {
        if let Some(connection) = self.kept.take() {
            match self.ask(connection).await {
                Err(Unanswered(failure @ (Failure::NoResponse | Failure::Reset))) => {
                    self.tally.reopened(matches!(failure, Failure::Reset));
                }
                Err(Unanswered(failure) | Answered(failure)) => return Err(failure),
                Ok(node) => return Ok(node),
            }
        }
        let connection = Connection::open(self.shared.plan.target.address, self.source, 0).await?;
        self.tally.connected();
        self.used = 0;
        self.ask(connection).await.map_err(|(Unanswered(failure) | Answered(failure))| failure)
    }

    async fn ask(&mut self, mut connection: Connection) -> Result<Option<String>, Ending> {
        let plan = &self.shared.plan;
        self.used += 1;
        let is_last = self.used >= plan.per_connection;
        let head = connection.ask(&plan.target, is_last).await.map_err(Unanswered)?;
        let mut body = Body::new(&head, plan.pattern);
        while body.left() > 0 {
            let count = connection.read(&mut body, &mut self.buffer).await.map_err(Answered)?;
            self.tally.received(count);
            self.shared.watch.received(count);
        }
        if is_last || head.closes {
            connection.end().await.map_err(Answered)?;
        } else if connection.has_surplus() {
            return Err(Answered(Failure::Malformed("bytes after the end of the response")));
        } else {
            self.kept = Some(connection);
        }
        Ok(head.node)
    }
}

use Ending::{Answered, Unanswered};

/// How far a failed request got.
enum Ending {
    /// No byte of a response was received: it may be sent again.
    Unanswered(Failure),
    /// Part of the response was received.
    Answered(Failure),
}
