//! A load from its beginning to its end, on one thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use skep_probe::ProbeUrl;
use skep_units::Rng;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, interval, sleep, sleep_until};

use crate::arrivals::{Arrival, Arrivals, begin_arrivals};
use crate::body_check::BodyCheck;
use crate::client::{ClientSettings, ConnectionCounts, LoadClient};
use crate::failure::RequestFailure;
use crate::limits::{PAUSE_MS, PROGRESS_MS};
use crate::plan::{LoadPace, LoadPlan, LoadSubject};
use crate::tally::{Answer, LoadTally};

/// A load cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The system does not let it.
    #[error("cannot run the load: {0}")]
    System(#[from] io::Error),
    /// The first request, before the load, has no right answer.
    #[error("{url}: {failure}{hint}")]
    Target {
        /// What was asked for.
        url: String,
        /// What came.
        failure: String,
        /// What to do about it.
        hint: String,
    },
}

/// How far a load is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadProgress {
    pub elapsed_ms: u64,
    /// Answers, warm-up included.
    pub succeeded: u64,
    pub failed: u64,
    pub bytes: u64,
}

/// Asks once for what the load is about, so that a target that is down or has other files is told at once.
///
/// # Errors
/// There is no right answer.
pub async fn check_target(plan: &LoadPlan) -> Result<(), LoadError> {
    LocalSet::new()
        .run_until(async {
            let load = Load::new(plan.clone());
            let object = load.smallest();
            let url = load.url(object)?;
            let mut client = LoadClient::new(Rc::clone(&load.settings));
            let asked = client.request(&url, Instant::now(), || load.check(object)).await;
            asked.map(|_| ()).map_err(|failure| load.target_error(&url, &failure))
        })
        .await
}

/// Runs a load until its end, or until `stop`; requests in progress then count for nothing. `progress` is called while it
/// goes on.
///
/// # Errors
/// The system does not let it; what the target answers is no error.
pub async fn run_load(
    plan: &LoadPlan,
    stop: impl Future<Output = ()>,
    mut progress: impl FnMut(LoadProgress),
) -> Result<LoadTally, LoadError> {
    let local = LocalSet::new();
    local
        .run_until(async {
            let load = Rc::new(Load::new(plan.clone()));
            let mut ticks = interval(Duration::from_millis(PROGRESS_MS));
            let mut play = std::pin::pin!(Rc::clone(&load).play());
            let mut stop = std::pin::pin!(stop);
            let is_stopped = loop {
                tokio::select! {
                    result = &mut play => {
                        result?;
                        break false;
                    }
                    () = &mut stop => break true,
                    _ = ticks.tick() => progress(load.progress()),
                }
            };
            Ok(load.finish(is_stopped))
        })
        .await
}

/// A load that runs.
struct Load {
    plan: LoadPlan,
    settings: Rc<ClientSettings>,
    begin: Instant,
    tally: Rc<RefCell<LoadTally>>,
    /// Requests that may still begin.
    left: RefCell<u64>,
    /// The hash of the first body.
    first_hash: RefCell<Option<[u8; 32]>>,
    /// Paths of files, made when they are first asked for.
    urls: RefCell<HashMap<usize, ProbeUrl>>,
}

impl Load {
    fn new(plan: LoadPlan) -> Self {
        let begin = Instant::now();
        let tally = Rc::new(RefCell::new(LoadTally::default()));
        let received = {
            let tally = Rc::clone(&tally);
            move |bytes| {
                let second = begin.elapsed().as_secs() as usize;
                tally.borrow_mut().second(second).bytes += bytes;
            }
        };
        let settings = ClientSettings {
            is_http10: plan.is_http10,
            per_connection: plan.per_connection,
            timeout_ms: plan.timeout_ms,
            addresses: RefCell::default(),
            counts: RefCell::new(ConnectionCounts::default()),
            received: Box::new(received),
        };
        let left = plan.requests_max.map_or(u64::MAX, |count| plan.share.of(count));
        Self {
            plan,
            settings: Rc::new(settings),
            begin,
            tally,
            left: RefCell::new(left),
            first_hash: RefCell::default(),
            urls: RefCell::default(),
        }
    }

    async fn play(self: Rc<Self>) -> Result<(), LoadError> {
        match self.plan.pace {
            LoadPace::Closed { .. } => self.play_closed().await,
            LoadPace::Open { per_second } => self.play_open(per_second).await?,
        }
        Ok(())
    }

    async fn play_closed(self: Rc<Self>) {
        let mut clients = JoinSet::new();
        for number in (0..self.plan.clients).filter(|it| self.plan.share.has(u64::from(*it))) {
            clients.spawn_local(Rc::clone(&self).client(number));
        }
        join_all(clients).await;
    }

    /// A client of the closed loop.
    async fn client(self: Rc<Self>, number: u32) {
        let LoadPace::Closed { think_ms, ramp } = self.plan.pace else { return };
        let duration_ms = self.plan.duration_ms;
        let (begin_ms, end_ms) = ramp.map_or((0, duration_ms), |ramp| ramp.times_ms(number));
        let end = self.begin + Duration::from_millis(end_ms.min(duration_ms));
        sleep_until(self.begin + Duration::from_millis(begin_ms)).await;
        let mut rng = Rng::new(self.plan.seed ^ (u64::from(number) + 1).rotate_left(40));
        let mut client = LoadClient::new(Rc::clone(&self.settings));
        while Instant::now() < end && self.take_turn() {
            let object = self.draw(&mut rng);
            let is_right = self.request(&mut client, object, Instant::now()).await;
            if !is_right {
                sleep(Duration::from_millis(PAUSE_MS)).await;
            }
            if think_ms > 0 {
                let think_s = -(1.0 - rng.unit()).ln() * think_ms as f64 / 1e3;
                sleep(Duration::from_secs_f64(think_s)).await;
            }
        }
    }

    /// Arrivals at planned times. While all connections are busy they wait, and their latencies count from the plan.
    async fn play_open(self: Rc<Self>, per_second: f64) -> Result<(), LoadError> {
        let connections = self.plan.share.of(u64::from(self.plan.clients)).max(1) as usize;
        let room = Arc::new(Semaphore::new(connections));
        let idle: Rc<RefCell<Vec<LoadClient>>> = Rc::default();
        let mut requests = JoinSet::new();
        let end_us = self.plan.duration_ms * 1_000;
        let share = self.plan.share;
        let planned = Arrivals::new(per_second, self.plan.seed).take_while(move |at| *at < end_us);
        let planned = (0..).zip(planned).map(|(number, at_us)| Arrival { number, at_us });
        let planned = planned.filter(move |it| share.has(it.number));
        let mut arrivals = begin_arrivals(planned, self.begin.into_std())?;
        while let Some(Arrival { number, at_us }) = arrivals.recv().await {
            let at = self.begin + Duration::from_micros(at_us);
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { break };
            if !self.take_turn() {
                break;
            }
            let object = self.draw(&mut Rng::new(self.plan.seed ^ (number + 1).rotate_left(24)));
            let kept = idle.borrow_mut().pop();
            let mut client = kept.unwrap_or_else(|| LoadClient::new(Rc::clone(&self.settings)));
            let (load, idle) = (Rc::clone(&self), Rc::clone(&idle));
            if load.is_measured(at) {
                load.tally.borrow_mut().began_late_by(at.elapsed().as_micros() as u64);
            }
            requests.spawn_local(async move {
                load.request(&mut client, object, at).await;
                idle.borrow_mut().push(client);
                drop(permit);
            });
            while requests.try_join_next().is_some() {}
        }
        join_all(requests).await;
        Ok(())
    }

    /// One request and what came of it; whether it was right.
    async fn request(&self, client: &mut LoadClient, object: usize, from: Instant) -> bool {
        let url = match self.url(object) {
            Ok(url) => url,
            Err(_) => return false,
        };
        let asked = client.request(&url, from, || self.check(object)).await;
        let asked = asked.and_then(|(answer, hash)| self.compare_hash(answer, hash));
        let mut tally = self.tally.borrow_mut();
        let second = tally.second(self.begin.elapsed().as_secs() as usize);
        match asked {
            Ok(_) => second.succeeded += 1,
            Err(_) => second.failed += 1,
        }
        if self.is_measured(from) {
            match &asked {
                Ok(answer) => tally.answered(*answer),
                Err(failure) => tally.failed_by(url.path(), failure),
            }
        }
        asked.is_ok()
    }

    fn compare_hash(
        &self,
        answer: Answer,
        hash: Option<[u8; 32]>,
    ) -> Result<Answer, RequestFailure> {
        let first = *self.first_hash.borrow_mut().get_or_insert(hash.unwrap_or_default());
        let must_be_same = matches!(self.plan.subject, LoadSubject::Page { has_same_bodies: true });
        match must_be_same && hash != Some(first) {
            true => Err(RequestFailure::OtherBody),
            false => Ok(answer),
        }
    }

    fn is_measured(&self, from: Instant) -> bool {
        let at_us = (from - self.begin).as_micros() as u64;
        self.plan.window_us().contains(&at_us)
    }

    fn take_turn(&self) -> bool {
        let mut left = self.left.borrow_mut();
        let has_turn = *left > 0;
        *left = left.saturating_sub(1);
        has_turn
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        match &self.plan.subject {
            LoadSubject::Files(workload) => workload.popularity().draw(rng),
            LoadSubject::Page { .. } => 0,
        }
    }

    /// The object that a first request costs least for.
    fn smallest(&self) -> usize {
        match &self.plan.subject {
            LoadSubject::Files(workload) => {
                (0..workload.sizes().len()).min_by_key(|it| workload.sizes()[*it]).unwrap_or(0)
            }
            LoadSubject::Page { .. } => 0,
        }
    }

    fn url(&self, object: usize) -> Result<ProbeUrl, LoadError> {
        let LoadSubject::Files(workload) = &self.plan.subject else {
            return Ok(self.plan.url.clone());
        };
        if let Some(url) = self.urls.borrow().get(&object) {
            return Ok(url.clone());
        }
        let folder = self.plan.url.path().trim_end_matches('/');
        let path = format!("{folder}{}", workload.path(object));
        let url = self.plan.url.join(&path).map_err(|error| LoadError::Target {
            url: self.plan.url.to_string(),
            failure: error.to_string(),
            hint: String::new(),
        })?;
        self.urls.borrow_mut().insert(object, url.clone());
        Ok(url)
    }

    fn check(&self, object: usize) -> BodyCheck {
        match &self.plan.subject {
            LoadSubject::Files(workload) => {
                BodyCheck::file(workload.pattern(object), workload.sizes()[object])
            }
            LoadSubject::Page { .. } => BodyCheck::hashed(),
        }
    }

    fn target_error(&self, url: &ProbeUrl, failure: &RequestFailure) -> LoadError {
        let is_of_files = matches!(
            failure,
            RequestFailure::Status(_)
                | RequestFailure::WrongByte(_)
                | RequestFailure::WrongLength { .. }
        );
        let hint = match &self.plan.subject {
            LoadSubject::Files(workload) if is_of_files => format!(
                ": expected the files of `skep bench data {} DIR`, with the same --scale and --seed",
                workload.kind().name()
            ),
            _ => String::new(),
        };
        LoadError::Target { url: url.to_string(), failure: failure.to_string(), hint }
    }

    fn progress(&self) -> LoadProgress {
        let tally = self.tally.borrow();
        let seconds = || tally.seconds.iter();
        LoadProgress {
            elapsed_ms: self.begin.elapsed().as_millis() as u64,
            succeeded: seconds().map(|second| second.succeeded).sum(),
            failed: seconds().map(|second| second.failed).sum(),
            bytes: seconds().map(|second| second.bytes).sum(),
        }
    }

    fn finish(&self, is_stopped: bool) -> LoadTally {
        let mut tally = self.tally.take();
        let window = self.plan.window_us();
        let elapsed_us = self.begin.elapsed().as_micros() as u64;
        let is_early = is_stopped || self.plan.requests_max.is_some();
        let end_us = if is_early { window.end.min(elapsed_us) } else { window.end };
        tally.measured_ms = end_us.saturating_sub(window.start).div_ceil(1_000);
        tally.is_stopped = is_stopped;
        let counts = self.settings.counts.borrow();
        (tally.connections, tally.reopened) = (counts.made, counts.reopened);
        tally
    }
}

async fn join_all(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}
