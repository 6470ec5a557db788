//! An engine on one worker, and its observable state.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use skep_serve::{
    AcceptEvent, Admission, AdmissionLimits, Conn, ConnectionHandler, ConnectionRefusal, Worker,
    Workers, accept_loop, bind,
};
use skep_telemetry::{AccessLog, CoreCounters, CoreGauge, Counter, Format, LogTarget};

use super::client::Client;
use super::script::{Scripted, Seen, Shared};
use super::traces::States;
use crate::{Context, Engine, EngineSettings};

thread_local! {
    /// The engine of this worker.
    static ENGINE: RefCell<Option<Rc<Engine<Scripted>>>> = const { RefCell::new(None) };
}

/// Time after which a test fails instead of hanging.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Counters of how connections ended.
const CLOSED: [Counter; 11] = [
    Counter::ClosedClient,
    Counter::ClosedIdle,
    Counter::ClosedLifetime,
    Counter::ClosedHeadTimeout,
    Counter::ClosedBodySlow,
    Counter::ClosedWriteStall,
    Counter::ClosedSendSlow,
    Counter::ClosedReject,
    Counter::ClosedError,
    Counter::ClosedDraining,
    Counter::ClosedMoved,
];

/// A listening engine. Dropping it checks that no connection leaves anything behind, so clients
/// must be closed before.
pub(super) struct Rig {
    pub(super) address: SocketAddr,
    pub(super) shared: Arc<Shared>,
    counters: Arc<CoreCounters>,
    states: States,
    /// Number of connections that ended with a panic.
    panics: Arc<AtomicUsize>,
    workers: Option<Workers>,
    /// Number of the worker's tasks while there is no connection.
    tasks: usize,
    /// Number of connections that are expected to end with a panic.
    pub(super) panics_expected: usize,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(EngineSettings::default())
    }

    pub(super) fn with(settings: EngineSettings) -> Self {
        Self::start(settings, true)
    }

    /// An engine whose handler declares that it never answers quickly, as a proxy does.
    pub(super) fn slow() -> Self {
        Self::start(EngineSettings::default(), false)
    }

    pub(super) fn start(settings: EngineSettings, answers_quickly: bool) -> Self {
        let workers = Workers::start(1).unwrap();
        let group = bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = group.address();
        let socket = group.into_sockets().pop().unwrap();
        let counters = Arc::new(CoreCounters::default());
        let log =
            AccessLog::start(LogTarget::Off, Format::Combined, Arc::clone(&counters)).unwrap();
        let (shared, states) = (Arc::new(Shared::default()), States::default());
        let panics = Arc::<AtomicUsize>::default();
        let job = {
            let (counters, shared, states) =
                (Arc::clone(&counters), Arc::clone(&shared), states.clone());
            let (panics, log) = (Arc::clone(&panics), log.handle());
            move |worker: &Rc<Worker>| {
                let traced = tracing::subscriber::set_default(states);
                let settings = Arc::new(ArcSwap::from_pointee(settings));
                let context = Context::new(worker, settings, counters, &log);
                let handler = Rc::new(Scripted { shared, answers_quickly });
                let engine = Engine::new(context, handler);
                ENGINE.set(Some(Rc::clone(&engine)));
                let watched = Rc::new(Watched { engine, panics });
                let listener = tokio::net::TcpListener::from_std(socket).unwrap();
                let accepting = accept_loop(Rc::clone(worker), listener, watched, admission());
                tokio::task::spawn_local(async move {
                    let _traced = traced;
                    accepting.await;
                    std::future::pending::<()>().await;
                });
            }
        };
        workers.handles()[0].run(job);
        let mut rig = Self {
            address,
            shared,
            counters,
            states,
            panics,
            workers: Some(workers),
            tasks: 0,
            panics_expected: 0,
        };
        rig.on_worker(|_| ());
        rig.tasks = rig.workers.as_ref().unwrap().handles()[0].tasks();
        rig
    }

    pub(super) fn client(&self) -> Client {
        let client = Client::connect(self.address);
        wait_until(|| !self.states.of(&client.name).is_empty(), || "it is accepted".into());
        client
    }

    /// The requests that the handler received, in order.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.seen()
    }

    /// Their targets.
    pub(super) fn targets(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.target).collect()
    }

    /// Waits until the last request is at `step`.
    pub(super) fn until_step(&self, step: &str) {
        let is_there = || self.seen().last().is_some_and(|seen| seen.step == step);
        wait_until(is_there, || format!("{step}, but {:?}", self.seen()));
    }

    /// All states of the connection of `client`.
    pub(super) fn states(&self, client: &Client) -> Vec<String> {
        self.states.of(&client.name)
    }

    /// Waits until the connection of `client` is in `state`.
    pub(super) fn until_state(&self, client: &Client, state: &str) {
        let is_in = || self.states(client).last().is_some_and(|last| last == state);
        wait_until(is_in, || format!("{state}, but {:?}", self.states(client)));
    }

    pub(super) fn get(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    pub(super) fn gauge(&self, gauge: CoreGauge) -> u64 {
        self.counters.gauge(gauge)
    }

    /// Waits until the worker has read `bytes` bytes in all.
    pub(super) fn until_received(&self, bytes: u64) {
        let received = || self.get(Counter::ReceivedBytes);
        wait_until(|| received() >= bytes, || format!("{bytes}, but {}", received()));
        assert_eq!(received(), bytes);
    }

    /// Lets `ms` milliseconds pass for all connections that have a timer now.
    pub(super) fn pass(&self, ms: u64) {
        self.on_worker(move |worker| worker.deadlines().sweep(worker.now_ms() + ms));
    }

    pub(super) fn drain(&self) {
        self.workers.as_ref().unwrap().drain();
    }

    /// Runs `job` on the worker and waits for its result.
    pub(super) fn on_worker<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Rc<Worker>) -> T + Send + 'static,
    ) -> T {
        let (sender, result) = mpsc::sync_channel(1);
        let handle = &self.workers.as_ref().unwrap().handles()[0];
        assert!(handle.run(move |worker| sender.send(job(worker)).unwrap()));
        result.recv_timeout(PATIENCE).unwrap()
    }

    /// The same with the engine on that worker.
    pub(super) fn on_engine(
        &self,
        job: impl FnOnce(&Rc<Worker>, &Rc<Engine<Scripted>>) + Send + 'static,
    ) {
        self.on_worker(move |worker| {
            let engine = ENGINE.with_borrow(|engine| engine.clone().unwrap());
            job(worker, &engine);
        });
    }

    /// Waits until all connections have ended, and no state of them is left.
    pub(super) fn assert_at_rest(&self) {
        let tasks = || self.workers.as_ref().unwrap().handles()[0].tasks();
        // Fewer once a drain has begun: the task that waits for it has ended.
        wait_until(|| tasks() <= self.tasks, || format!("{} tasks, but {}", self.tasks, tasks()));
        let timers = || self.on_worker(|worker| worker.deadlines().len());
        wait_until(|| timers() == 0, || format!("no timer, but {}", timers()));
        let gauges = CoreGauge::ALL.iter().map(|gauge| (gauge, self.gauge(*gauge)));
        assert!(gauges.clone().all(|(_, left)| left == 0), "{:?}", gauges.collect::<Vec<_>>());
        let closed: u64 = CLOSED.iter().map(|counter| self.get(*counter)).sum();
        let begun = [Counter::ConnectionsAccepted, Counter::ConnectionsTakenOver];
        let begun: u64 = begun.iter().map(|counter| self.get(*counter)).sum();
        assert_eq!(closed, begun, "each is closed once");
        assert_eq!(self.panics.load(SeqCst), self.panics_expected, "panics");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_at_rest();
        }
        if let Some(workers) = self.workers.take() {
            workers.stop();
        }
    }
}

/// Waits until `is_so`; on a timeout fails, with the actual value.
pub(super) fn wait_until(is_so: impl Fn() -> bool, what: impl Fn() -> String) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {}", what());
        std::thread::sleep(Duration::from_micros(100));
    }
}

pub(super) fn admission() -> Arc<Admission> {
    Admission::new(AdmissionLimits {
        connections_max: 1_000,
        per_address_max: 1_000,
        ipv6_prefix_bits: 64,
    })
}

/// The engine; counts those of its connections that panic.
struct Watched {
    engine: Rc<Engine<Scripted>>,
    panics: Arc<AtomicUsize>,
}

impl ConnectionHandler for Watched {
    fn serve(self: Rc<Self>, conn: Conn) -> impl Future<Output = ()> + 'static {
        let served = Rc::clone(&self.engine).serve(conn);
        async move {
            let _end = Watching(&self.panics);
            served.await;
        }
    }

    fn refusal(&self, refusal: ConnectionRefusal) -> Vec<u8> {
        self.engine.refusal(refusal)
    }

    fn observe(&self, event: AcceptEvent) {
        self.engine.observe(event);
    }
}

struct Watching<'p>(&'p AtomicUsize);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fetch_add(1, SeqCst);
        }
    }
}
