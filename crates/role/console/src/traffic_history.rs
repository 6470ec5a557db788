//! Requests of a process over time: all of them, and those to pool servers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use skep_telemetry::{Counter, Registry, Series, SeriesPoint, SeriesStep};

use crate::control::ControlError;
use crate::model::{TrafficPoint, TrafficSeries};

/// Requests, those to pools, those of them that failed, responses 5xx, bytes sent.
type Counts = [u64; 5];

#[derive(Debug)]
pub struct TrafficHistory {
    started: Instant,
    started_unix: Duration,
    state: Mutex<State>,
}

/// Requests at one server of a pool since it was added.
#[derive(Clone, Debug)]
pub struct PoolServerTotals {
    pub pool: String,
    pub server: String,
    pub requests: u64,
    /// Those of the requests that failed.
    pub failures: u64,
}

#[derive(Debug, Default)]
struct State {
    series: Series<5>,
    /// The totals as last read; those of servers by pool and name, since servers are added and removed.
    last: Counts,
    servers: BTreeMap<(String, String), (u64, u64)>,
    last_unix_s: u64,
}

impl TrafficHistory {
    /// An empty history.
    #[expect(clippy::new_without_default, reason = "it begins at the time of the call")]
    pub fn new() -> Self {
        let started_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let state = State { last_unix_s: started_unix.as_secs(), ..State::default() };
        Self { started: Instant::now(), started_unix, state: Mutex::new(state) }
    }

    /// Counts the totals in `registry`, and those that `servers` returns, until the history is dropped.
    pub async fn count(
        history: Weak<Self>,
        registry: Arc<Registry>,
        servers: impl Fn() -> Vec<PoolServerTotals>,
    ) {
        while let Some(pause) = history.upgrade().map(|it| it.pause()) {
            tokio::time::sleep(pause).await;
            if let Some(history) = history.upgrade() {
                history.look(&registry, servers());
            }
        }
    }

    /// The counts, in steps of `step_s`.
    ///
    /// # Errors
    /// There are no such steps.
    pub fn show(&self, step_s: u64) -> Result<TrafficSeries, ControlError> {
        let step = SeriesStep::ALL.into_iter().find(|step| step.seconds() == step_s);
        let Some(step) = step else {
            let [fine, coarse] = SeriesStep::ALL.map(SeriesStep::seconds);
            let what = format!("expected step_s of {fine} or {coarse}, found {step_s}");
            return Err(ControlError::Invalid { what, did_you_mean: None });
        };
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let point = |SeriesPoint { at_unix_s, counts }: SeriesPoint<5>| {
            let [requests, to_pools, pool_failures, responses_5xx, sent_bytes] = counts;
            TrafficPoint { at_unix_s, requests, to_pools, pool_failures, responses_5xx, sent_bytes }
        };
        // Nothing is known after the last reading.
        let points = state.series.points(step, state.last_unix_s).map(point).collect();
        Ok(TrafficSeries { step_s, kept_s: step_s * step.points_max() as u64, points })
    }

    /// The wall clock at the start, plus the time since then: it never goes backwards.
    fn now_unix(&self) -> Duration {
        self.started_unix + self.started.elapsed()
    }

    /// Time until the next fine step.
    fn pause(&self) -> Duration {
        let (now, step_s) = (self.now_unix(), SeriesStep::Fine.seconds());
        Duration::from_secs((now.as_secs() / step_s + 1) * step_s).saturating_sub(now)
    }

    /// Counts the changes since the last call.
    fn look(&self, registry: &Registry, servers: Vec<PoolServerTotals>) {
        let totals = registry.snapshot().totals;
        let now_unix_s = self.now_unix().as_secs();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counted_by_server = BTreeMap::new();
        let (mut to_pools, mut pool_failures) = (0, 0);
        for PoolServerTotals { pool, server, requests, failures } in servers {
            let (key, counted) = ((pool, server), (requests, failures));
            // Less than before: another server with this name.
            let known = state.servers.get(&key).copied();
            let known = known.filter(|known| known.0 <= counted.0 && known.1 <= counted.1);
            let before = known.unwrap_or_default();
            to_pools += counted.0 - before.0;
            pool_failures += counted.1 - before.1;
            counted_by_server.insert(key, counted);
        }
        state.servers = counted_by_server;
        let requests = totals.get(Counter::Requests);
        let responses_5xx = totals.get(Counter::Responses5xx);
        let sent_bytes = totals.get(Counter::SentBytes);
        let read = [requests, 0, 0, responses_5xx, sent_bytes];
        let before = std::mem::replace(&mut state.last, read);
        let since = |at: usize| read[at].saturating_sub(before[at]);
        let counts = [since(0), to_pools, pool_failures, since(3), since(4)];
        // The step that has just ended.
        let from_unix_s = now_unix_s.saturating_sub(SeriesStep::Fine.seconds());
        state.series.add(from_unix_s, counts);
        state.last_unix_s = now_unix_s;
    }
}
