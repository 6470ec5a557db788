//! Runs a load from beginning to end, on one thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use skep_probe::{ProbeUrl, ProbeUrlError, clean};
use skep_units::Rng;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, interval, sleep, sleep_until};

use crate::arrivals::{Arrival, Arrivals, begin_arrivals};
use crate::body_check::BodyCheck;
use crate::client::{ClientSettings, ConnectionCounts, LoadClient};
use crate::failure::RequestFailure;
use crate::form::RequestForm;
use crate::limits::{PAUSE_MS, PROGRESS_MS};
use crate::plan::{LoadPace, LoadPlan, LoadSubject};
use crate::tally::{Answer, LoadTally};

/// A load cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// An error of the system.
    #[error("cannot run the load: {0}")]
    System(#[from] io::Error),
    /// The first request, before the load, did not get a correct response.
    #[error("{url}: {failure}{hint}")]
    Target {
        /// The URL requested.
        url: String,
        /// What was received.
        failure: String,
        /// What to do about it.
        hint: String,
    },
}

/// The progress of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadProgress {
    pub elapsed_ms: u64,
    /// Correct responses, including the warm-up.
    pub succeeded: u64,
    pub failed: u64,
    pub bytes: u64,
}

/// Sends one request of the load, so that a target that is down or has other files is reported at once.
///
/// # Errors
/// The response is not correct.
pub async fn check_target(plan: &LoadPlan) -> Result<(), LoadError> {
    LocalSet::new()
        .run_until(async {
            let load = Load::new(plan.clone());
            let object = load.smallest();
            let url = load.url(object)?;
            let mut client = LoadClient::new(Rc::clone(&load.settings));
            let form = load.form(object);
            let asked = client.request((&url, &form), Instant::now(), || load.check(object)).await;
            match (asked, &plan.subject) {
                // The object may have been removed since the log was written.
                (Err(RequestFailure::Status(_)), LoadSubject::Log(_)) | (Ok(_), _) => Ok(()),
                (Err(failure), _) => Err(load.target_error(&url, &failure)),
            }
        })
        .await
}

/// Runs a load until its end, or until `stop`; requests then in progress are not counted. `progress` is
/// called during the run.
///
/// # Errors
/// An error of the system; errors of the target are results.
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
    /// Number of requests that may still begin.
    left: RefCell<u64>,
    /// The hash of the first body.
    first_hash: RefCell<Option<[u8; 32]>>,
    /// URLs of files, created when first requested.
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
            LoadPace::Open { per_second } => {
                let times = Arrivals::new(per_second, self.plan.seed);
                self.play_open(times).await?;
            }
            LoadPace::Logged { speed } => {
                let LoadSubject::Log(trace) = &self.plan.subject else { return Ok(()) };
                let times = trace.times_us(0, self.plan.seed);
                let times: Vec<u64> = times.map(|us| (us as f64 / speed) as u64).collect();
                self.play_open(times.into_iter()).await?;
            }
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

    /// Runs a client of the closed loop.
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

    /// Sends requests at planned times. While all connections are busy, arrivals wait, and latencies are
    /// measured from the planned times.
    async fn play_open(
        self: Rc<Self>,
        times_us: impl Iterator<Item = u64> + Send + 'static,
    ) -> Result<(), LoadError> {
        let connections = self.plan.share.of(u64::from(self.plan.clients)).max(1) as usize;
        let room = Arc::new(Semaphore::new(connections));
        let idle: Rc<RefCell<Vec<LoadClient>>> = Rc::default();
        let mut requests = JoinSet::new();
        let end_us = self.plan.duration_ms * 1_000;
        let share = self.plan.share;
        let planned = (0..).zip(times_us.take_while(move |at| *at < end_us));
        let planned = planned.map(|(number, at_us)| Arrival { number, at_us });
        let planned = planned.filter(move |it| share.has(it.number));
        let mut arrivals = begin_arrivals(planned, self.begin.into_std())?;
        while let Some(Arrival { number, at_us }) = arrivals.recv().await {
            let at = self.begin + Duration::from_micros(at_us);
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { break };
            if !self.take_turn() {
                break;
            }
            let object = self.planned(number);
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

    /// Sends one request and counts its result; returns whether it was correct.
    async fn request(&self, client: &mut LoadClient, object: usize, from: Instant) -> bool {
        let url = match self.url(object) {
            Ok(url) => url,
            Err(error) => {
                let failure = RequestFailure::Http(clean(&error.to_string()));
                self.tally.borrow_mut().failed_by(self.plan.url.path(), &failure);
                return false;
            }
        };
        let form = self.form(object);
        let asked = client.request((&url, &form), from, || self.check(object)).await;
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
            LoadSubject::Page { .. } | LoadSubject::Log(_) => 0,
        }
    }

    /// The object requested by the arrival with this number; for a log, its request with that number.
    fn planned(&self, number: u64) -> usize {
        match &self.plan.subject {
            LoadSubject::Log(_) => number as usize,
            _ => self.draw(&mut Rng::new(self.plan.seed ^ (number + 1).rotate_left(24))),
        }
    }

    /// The object whose request costs the least.
    fn smallest(&self) -> usize {
        match &self.plan.subject {
            LoadSubject::Files(workload) => {
                (0..workload.sizes().len()).min_by_key(|it| workload.sizes()[*it]).unwrap_or(0)
            }
            LoadSubject::Page { .. } => 0,
            LoadSubject::Log(trace) => {
                let right = trace.requests().iter().position(|it| it.status == 200);
                right.unwrap_or(0)
            }
        }
    }

    fn url(&self, object: usize) -> Result<ProbeUrl, LoadError> {
        let workload = match &self.plan.subject {
            LoadSubject::Files(workload) => workload,
            LoadSubject::Page { .. } => return Ok(self.plan.url.clone()),
            LoadSubject::Log(trace) => {
                let request = trace.requests()[object];
                return self.logged_url(&trace.objects()[request.object as usize].path);
            }
        };
        if let Some(url) = self.urls.borrow().get(&object) {
            return Ok(url.clone());
        }
        let folder = self.plan.url.path().trim_end_matches('/');
        let path = format!("{folder}{}", workload.path(object));
        let url = self.plan.url.join(&path).map_err(|error| self.url_error(&error))?;
        self.urls.borrow_mut().insert(object, url.clone());
        Ok(url)
    }

    /// The URL at this site, whatever the path: a path that begins with two slashes must not lead to another
    /// host.
    fn logged_url(&self, path: &str) -> Result<ProbeUrl, LoadError> {
        let (authority, folder) = (self.plan.url.authority(), self.plan.url.path());
        let url = format!("http://{authority}{}{path}", folder.trim_end_matches('/'));
        ProbeUrl::parse(&url).map_err(|error| self.url_error(&error))
    }

    fn url_error(&self, error: &ProbeUrlError) -> LoadError {
        let url = self.plan.url.to_string();
        LoadError::Target { url, failure: error.to_string(), hint: String::new() }
    }

    fn form(&self, object: usize) -> RequestForm {
        match &self.plan.subject {
            LoadSubject::Log(trace) => RequestForm::as_logged(&trace.requests()[object]),
            _ => RequestForm::default(),
        }
    }

    fn check(&self, object: usize) -> BodyCheck {
        match &self.plan.subject {
            LoadSubject::Files(workload) => {
                BodyCheck::file(workload.pattern(object), workload.sizes()[object])
            }
            LoadSubject::Page { .. } => BodyCheck::hashed(),
            LoadSubject::Log(_) => BodyCheck::Unknown,
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
