//! The order in which a cluster starts and stops.
//!
//! Nodes start first, so that the dispatcher's first checks succeed; the dispatcher stops first, so
//! that no request is sent to a stopped node.

use std::io::PipeWriter;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::Signal;
use skep_config::{Config, DispatchMode};
use skep_console::{ApiClient, NodeState};
use skep_guard::User;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use super::child::{ChildOrder, ChildSettings, Event, keep};
use super::environment::{Environment, write_key};
use super::folder::{ClusterFolder, Turn};
use super::limits::{DRAIN_MS, END_MS, EVENTS_MAX, READY_MS, READY_POLL_MS};
use super::plan::{self, DISPATCHER};
use super::ports::Ports;
use crate::arguments::UpArgs;
use crate::program::this_program;
use crate::signals::{Signals, announce};

/// Runs a cluster until a signal ends it.
pub(crate) fn run(args: &UpArgs) -> anyhow::Result<()> {
    let dir = args.dir.display();
    if !std::fs::metadata(&args.dir).with_context(|| format!("cannot serve {dir}"))?.is_dir() {
        bail!("cannot serve {dir}: it is not a folder");
    }
    if args.listen.port() != 0 && !args.dispatch.is_steered() {
        // Checked here, it is one sentence, before anything is started.
        drop(skep_serve::bind(args.listen, 1)?);
    }
    let environment = Environment::make(args)?;
    // Held until the end, so that a restarted child finds its port free.
    let (config, folder, _ports) = prepare(args, &environment)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, Cluster::new(&config, &folder, environment)?.live())
}

/// The config, the folder that contains it, and the ports that it uses.
fn prepare(
    args: &UpArgs,
    environment: &Environment,
) -> anyhow::Result<(Config, ClusterFolder, Ports)> {
    let user = User::serving(args.user.as_deref(), &[])?;
    let turn = Turn::take()?;
    let folder = turn.make_folder(&user)?;
    let mut ports = Ports::beside(&turn.running_configs());
    let places = environment.places(args);
    let made = plan::make(args, &mut ports, places, folder.path()).and_then(|config| {
        config.key_file.iter().try_for_each(|path| write_key(path))?;
        std::fs::write(folder.config(), config.to_toml()).context("cannot write the config")?;
        Ok(config)
    });
    // Before the folder is dropped, which takes the lock itself.
    drop(turn);
    Ok((made?, folder, ports))
}

/// The processes of a cluster.
struct Cluster<'a> {
    config: &'a Config,
    child_settings: Rc<ChildSettings>,
    events: mpsc::Receiver<Event>,
    nodes: ChildGroup,
    dispatcher: ChildGroup,
    client: ApiClient,
    /// Closed when this process ends in any way, which children detect.
    _leash: PipeWriter,
}

impl<'a> Cluster<'a> {
    fn new(
        config: &'a Config,
        folder: &ClusterFolder,
        environment: Environment,
    ) -> anyhow::Result<Self> {
        let (leash, held) = std::io::pipe().context("cannot make a pipe")?;
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        environment.notes().iter().for_each(|note| eprintln!("skep: {note}"));
        let (program, config_file) = (this_program(), folder.config());
        let settings =
            ChildSettings { program, environment, config: config_file, leash, events: sender };
        Ok(Self {
            config,
            child_settings: Rc::new(settings),
            events,
            nodes: ChildGroup::new(),
            dispatcher: ChildGroup::new(),
            client: ApiClient::socket(&config.socket_of(DISPATCHER)),
            _leash: held,
        })
    }

    async fn live(mut self) -> anyhow::Result<()> {
        let mut signals = Signals::listen()?;
        let started = tokio::select! {
            started = self.start() => started,
            _ = signals.next() => Err(anyhow::anyhow!("interrupted before the cluster was ready")),
        };
        let ended = match started {
            Ok(()) => self.serve(&mut signals).await,
            Err(error) => Err(error),
        };
        let end = Self::end(self.events, &self.dispatcher, &self.nodes);
        tokio::select! {
            () = end => {}
            _ = signals.next() => {}
        }
        // Only processes that have not ended by themselves are left.
        self.dispatcher.kill().await;
        self.nodes.kill().await;
        ended
    }

    async fn start(&mut self) -> anyhow::Result<()> {
        eprintln!("skep: starting {}", self.processes());
        let in_time = tokio::time::timeout(Duration::from_millis(READY_MS), async {
            for node in &self.config.nodes {
                self.nodes.add(&self.child_settings, &node.name);
            }
            let nodes = self.config.nodes.len();
            ready(&mut self.events, nodes).await?;
            let dispatchers = &self.config.dispatchers;
            dispatchers.iter().for_each(|it| self.dispatcher.add(&self.child_settings, &it.name));
            ready(&mut self.events, dispatchers.len()).await?;
            tokio::select! {
                () = healthy(&self.client, self.config) => Ok(()),
                died = ready(&mut self.events, usize::MAX) => died,
            }
        });
        let seconds = READY_MS / 1000;
        in_time.await.unwrap_or_else(|_| bail!("the cluster is not ready after {seconds} seconds"))
    }

    /// Prints that all nodes are up, then reports faults, until a signal arrives. A hangup of the terminal
    /// (SIGHUP) counts as one.
    async fn serve(&mut self, signals: &mut Signals) -> anyhow::Result<()> {
        self.announce()?;
        loop {
            tokio::select! {
                event = self.events.recv() => {
                    if let Some(event) = event {
                        eprintln!("skep: {}", report(&event));
                    }
                }
                _ = signals.next() => break,
            }
        }
        eprintln!("skep: ending the cluster; once more to end it now");
        Ok(())
    }

    /// The address and how to stop the cluster come last, where they are noticed.
    fn announce(&self) -> anyhow::Result<()> {
        let service = &self.config.services[0];
        if service.dispatch == DispatchMode::Redirect && service.listen[0].ip().is_unspecified() {
            eprintln!(
                "skep: redirects name 127.0.0.1, which only clients on this machine can follow; \
                 give --listen one address of this machine"
            );
        }
        if let Some(address) = self.config.admin.listen {
            eprintln!("skep: management API on http://{address}");
        }
        eprintln!("skep: `skep status`, `skep top`, `skep node list` in another terminal");
        announce(&format!("cluster ready on http://{}", service.listen[0]))?;
        eprintln!("skep: Ctrl-C ends it");
        Ok(())
    }

    /// The numbers of processes, in words.
    fn processes(&self) -> String {
        let nodes = self.config.nodes.len();
        let dispatchers = match self.config.dispatchers.len() {
            1 => "a dispatcher",
            _ => "an active dispatcher, one that stands by",
        };
        format!("{dispatchers} and {nodes} node{}", if nodes == 1 { "" } else { "s" })
    }

    /// Stops the dispatcher, then the nodes.
    async fn end(events: mpsc::Receiver<Event>, dispatcher: &ChildGroup, nodes: &ChildGroup) {
        // Events are no longer received, so that no child waits to report one.
        drop(events);
        dispatcher.end(Signal::TERM).await;
        // SIGINT, since no dispatcher is left that should notice a drain.
        nodes.end(Signal::INT).await;
    }
}

/// Processes that start and stop together.
struct ChildGroup {
    orders: watch::Sender<ChildOrder>,
}

impl ChildGroup {
    fn new() -> Self {
        Self { orders: watch::Sender::new(ChildOrder::Run) }
    }

    fn add(&self, settings: &Rc<ChildSettings>, name: &str) {
        keep(settings, name, self.orders.subscribe());
    }

    /// Stops them with `signal`, and waits as long as a drain may take.
    async fn end(&self, signal: Signal) {
        self.orders.send_replace(ChildOrder::End(signal));
        let patience = Duration::from_millis(DRAIN_MS + END_MS);
        let _ = tokio::time::timeout(patience, self.gone()).await;
    }

    /// Kills them at once.
    async fn kill(&self) {
        self.orders.send_replace(ChildOrder::Kill);
        self.gone().await;
    }

    async fn gone(&self) {
        // A runner holds its receiver as long as its process runs.
        self.orders.closed().await;
    }
}

/// Waits until `count` more children are ready; any other event is an error.
async fn ready(events: &mut mpsc::Receiver<Event>, count: usize) -> anyhow::Result<()> {
    for _ in 0..count {
        match events.recv().await {
            Some(Event::Ready { .. }) => {}
            Some(Event::Died { name, last_words, .. }) if !last_words.is_empty() => {
                bail!("{name} does not start: {last_words}")
            }
            Some(event) => bail!("{}", report(&event)),
            None => bail!("no child is left"),
        }
    }
    Ok(())
}

/// Waits until the dispatcher reports all nodes as up, and the clients' address accepts connections.
async fn healthy(client: &ApiClient, config: &Config) {
    loop {
        if let Ok(status) = client.status_async().await {
            let all = status.services.iter().flat_map(|service| &service.nodes);
            let up = all.filter(|node| node.state == NodeState::Up).count();
            if up == config.nodes.len() && answers(config.services[0].listen[0]).await {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(READY_POLL_MS)).await;
    }
}

/// Whether `address` accepts a connection. An unspecified address is not tried: its dispatcher listens once
/// it is ready.
async fn answers(address: SocketAddr) -> bool {
    let patience = Duration::from_millis(READY_POLL_MS * 4);
    let connected = tokio::time::timeout(patience, TcpStream::connect(address));
    address.ip().is_unspecified() || connected.await.is_ok_and(|connected| connected.is_ok())
}

fn report(event: &Event) -> String {
    match event {
        Event::Ready { name } => format!("{name} is back"),
        Event::Died { name, how, again_ms, .. } => {
            format!("{name} {how}; it is started again in {again_ms} ms")
        }
        Event::Stillborn { name, error } => format!("{name} cannot be started: {error}"),
    }
}
