//! A fake process, and bytes on sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use skep_console::{
    ClusterRequests, ClusterSeries, Console, ConsoleConfig, ConsoleError, ConsoleHandle, Control,
    ControlError, Explained, NewArm, NewExplain, NewNode, NewServerTest, NodeLocalStatus,
    NodePools, NodeSource, NodeState, NodeStatus, PolicyComparison, PoolStatus, ProcessStatus,
    PurgeOutcome, Purged, PurgedNode, Reloaded, RequestStatus, Role, ServerCommand, ServerOrdered,
    ServerStatus, ServerTest, ServiceStatus, Token, Traffic, TrafficSeries,
};
use skep_testclient::{RawClient, request_bytes, request_with_body};

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A process with one service and two nodes, which carries out its orders and records them.
pub struct Fake {
    pub calls: Mutex<Vec<String>>,
    pub nodes: Mutex<Vec<NodeStatus>>,
    pub policy: Mutex<String>,
    pub draining: Mutex<bool>,
}

impl Fake {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            calls: Mutex::default(),
            nodes: Mutex::new(vec![node("node-1", 8081), node("node-2", 8082)]),
            policy: Mutex::new("round-robin".into()),
            draining: Mutex::new(false),
        })
    }

    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn change(
        &self,
        what: String,
        name: &str,
        job: impl FnOnce(&mut NodeStatus),
    ) -> Result<(), ControlError> {
        self.calls.lock().unwrap().push(what);
        match self.nodes.lock().unwrap().iter_mut().find(|node| node.name == name) {
            Some(node) => job(node),
            None => {
                return Err(ControlError::NotFound {
                    what: format!("no node {name:?}"),
                    did_you_mean: Some("node-1".into()),
                });
            }
        }
        Ok(())
    }
}

pub fn node(name: &str, port: u16) -> NodeStatus {
    NodeStatus {
        name: name.into(),
        service: "web".into(),
        address: ([127, 0, 0, 1], port).into(),
        public_address: format!("127.0.0.1:{port}"),
        state: NodeState::Up,
        reason: None,
        since_ms: 1_000,
        source: NodeSource::Config,
        weight: 1,
        share_permille: 1000,
        outstanding_requests: 0,
        outstanding_bytes: 0,
        connections: 0,
        tunnels: 0,
        requests_total: 10,
        failures_total: 0,
        bytes_total: 1_000,
        latency_us: 400,
    }
}

pub fn server(name: &str) -> ServerStatus {
    ServerStatus {
        name: name.into(),
        pool: "app".into(),
        address: std::net::SocketAddr::from(([127, 0, 0, 1], 9000)).into(),
        state: NodeState::Up,
        source: NodeSource::Config,
        reason: None,
        since_ms: 1_000,
        weight: 1,
        share_permille: 1000,
        connections: 0,
        slots: 5,
        connections_max: 5,
        tunnels: 0,
        requests_total: 10,
        failures_total: 0,
        failures_by_cause: Default::default(),
        bytes_total: 1_000,
        latency_us: 400,
        agent: None,
        seen_by: Vec::new(),
    }
}

impl Control for Fake {
    fn status(&self) -> ProcessStatus {
        ProcessStatus {
            cluster: "skep".into(),
            name: "gate".into(),
            roles: vec![Role::Dispatcher, Role::Node],
            version: "0.1.0".into(),
            pid: 1,
            started_unix_s: 1,
            uptime_ms: 1,
            draining: *self.draining.lock().unwrap(),
            config_generation: 1,
            traffic: Traffic::default(),
            node: Some(NodeLocalStatus {
                address: ([127, 0, 0, 1], 8080).into(),
                cache_bytes: 1,
                cache_bytes_max: 2,
                cache_segments: 1,
                cache_hits_total: 1,
                cache_lookups_total: 2,
                sites: vec!["*".into()],
            }),
            direct: None,
            cache: None,
            loads: Vec::new(),
            pools: vec![PoolStatus {
                name: "app".into(),
                policy: "random".into(),
                queued_requests: 0,
                refused_total: 0,
                sessions_lost_total: 0,
                versions_differ: false,
                sessions: None,
                cluster_sessions: None,
                servers: vec![server("node-1")],
                nodes: Vec::new(),
                missing: Vec::new(),
            }],
            services: vec![ServiceStatus {
                name: "web".into(),
                listen: vec![([127, 0, 0, 1], 80).into()],
                dispatch: "proxy".into(),
                policy: self.policy.lock().unwrap().clone(),
                arms: Vec::new(),
                nodes: self.nodes.lock().unwrap().clone(),
            }],
        }
    }

    fn drain_node(&self, service: Option<&str>, name: &str) -> Result<(), ControlError> {
        let what = format!("drain {name} of {service:?}");
        self.change(what, name, |node| node.state = NodeState::Draining)
    }

    fn test_server(
        &self,
        pool: &str,
        name: &str,
        test: &NewServerTest,
    ) -> Result<ServerTest, ControlError> {
        self.calls.lock().unwrap().push(format!("test {name} of pool {pool}"));
        Ok(ServerTest {
            name: name.to_owned(),
            address: "10.0.0.1:3000".parse().unwrap(),
            target: test.target.clone(),
            check: None,
            connected_us: Some(1),
            head_us: None,
            ended_us: 2,
            status: None,
            fields: Vec::new(),
            body_bytes: 0,
            body: String::new(),
            is_cut: false,
            error: Some("connection reset".to_owned()),
        })
    }

    fn pools_of_nodes(&self) -> Vec<NodePools> {
        let pools = self.status().pools;
        vec![NodePools { node: "node-1".into(), missing: None, pools }]
    }

    fn requests(&self) -> Vec<RequestStatus> {
        Vec::new()
    }

    fn series(&self, step_s: u64) -> Result<TrafficSeries, ControlError> {
        Ok(TrafficSeries { step_s, kept_s: 3_600, points: Vec::new() })
    }

    fn pools(&self) -> Vec<PoolStatus> {
        self.status().pools
    }

    fn requests_of_nodes(&self) -> ClusterRequests {
        ClusterRequests::default()
    }

    fn series_of_nodes(&self, step_s: u64) -> Result<ClusterSeries, ControlError> {
        let (nodes, missing, points) = (Vec::new(), Vec::new(), Vec::new());
        Ok(ClusterSeries { step_s, kept_s: 3_600, nodes, missing, points })
    }

    fn order_server(
        &self,
        pool: &str,
        name: &str,
        command: &ServerCommand,
    ) -> Result<ServerOrdered, ControlError> {
        let what = match command {
            ServerCommand::Add(_) => {
                self.calls.lock().unwrap().push(format!("add {name} to pool {pool}"));
                return Ok(ServerOrdered { complete: true, nodes: Vec::new() });
            }
            ServerCommand::Remove { timeout_ms } => {
                format!("remove {name} of pool {pool} in {timeout_ms} ms")
            }
            ServerCommand::Drain => format!("drain {name} of pool {pool}"),
            ServerCommand::Resume => format!("resume {name} of pool {pool}"),
            ServerCommand::Weight(weight) => format!("weight {name} of pool {pool} is {weight}"),
        };
        self.change(what, name, |_| ())?;
        Ok(ServerOrdered { complete: true, nodes: Vec::new() })
    }

    fn resume_node(&self, service: Option<&str>, name: &str) -> Result<(), ControlError> {
        let what = format!("resume {name} of {service:?}");
        self.change(what, name, |node| node.state = NodeState::Up)
    }

    fn add_node(&self, new: &NewNode) -> Result<(), ControlError> {
        self.calls.lock().unwrap().push(format!("add {}", new.name));
        let mut nodes = self.nodes.lock().unwrap();
        if nodes.iter().any(|node| node.name == new.name) {
            return Err(ControlError::Conflict { what: "it exists".into() });
        }
        nodes.push(NodeStatus { weight: new.weight, ..node(&new.name, new.address.port()) });
        Ok(())
    }

    fn remove_node(
        &self,
        service: Option<&str>,
        name: &str,
        timeout_ms: u64,
    ) -> Result<(), ControlError> {
        let what = format!("remove {name} of {service:?} within {timeout_ms}");
        self.change(what, name, |node| node.state = NodeState::Removing)
    }

    fn set_weight(
        &self,
        service: Option<&str>,
        name: &str,
        weight: u32,
    ) -> Result<(), ControlError> {
        if weight == 0 {
            return Err(ControlError::Invalid { what: "weight 0".into(), did_you_mean: None });
        }
        let what = format!("weight {name} of {service:?} is {weight}");
        self.change(what, name, |node| node.weight = weight)
    }

    fn set_policy(&self, service: &str, policy: &str) -> Result<(), ControlError> {
        self.calls.lock().unwrap().push(format!("policy of {service} is {policy}"));
        if policy == "round-robbin" {
            let did_you_mean = Some("round-robin".into());
            return Err(ControlError::Invalid { what: "no such policy".into(), did_you_mean });
        }
        policy.clone_into(&mut self.policy.lock().unwrap());
        Ok(())
    }

    fn start_comparison(&self, service: &str, arms: &[NewArm]) -> Result<(), ControlError> {
        let arms = arms.iter().map(|arm| format!("{}={}", arm.name, arm.policy));
        let arms = arms.collect::<Vec<_>>().join(" ");
        self.calls.lock().unwrap().push(format!("compare {arms} in {service}"));
        Ok(())
    }

    fn stop_comparison(&self, service: &str) -> Result<PolicyComparison, ControlError> {
        self.calls.lock().unwrap().push(format!("compare no more in {service}"));
        self.comparison(service)
    }

    fn comparison(&self, service: &str) -> Result<PolicyComparison, ControlError> {
        let service = service.to_owned();
        Ok(PolicyComparison {
            service,
            counted_ms: 1,
            table_full: false,
            by_hash: false,
            arms: Vec::new(),
        })
    }

    fn explain(&self, asked: &NewExplain) -> Result<Explained, ControlError> {
        self.calls.lock().unwrap().push(format!("explain {}", asked.url));
        Ok(Explained { complete: true, nodes: Vec::new() })
    }

    fn purge(
        &self,
        what: &[String],
        _is_soft: bool,
        timeout_ms: u64,
    ) -> Result<Purged, ControlError> {
        self.calls.lock().unwrap().push(format!("purge {} within {timeout_ms}", what.join(" ")));
        let (outcome, ms) = (PurgeOutcome::Acknowledged, Some(1));
        let nodes = vec![PurgedNode { name: "node-1".into(), outcome, ms }];
        Ok(Purged { stamp: 1, complete: true, nodes })
    }

    fn reload(&self) -> Result<Reloaded, ControlError> {
        self.calls.lock().unwrap().push("reload".into());
        let restart_needed = vec!["machine.groups".to_owned()];
        Ok(Reloaded { config_generation: 2, restart_needed })
    }

    fn config_toml(&self) -> String {
        "cluster = \"skep\"\n".into()
    }

    fn metrics_text(&self) -> String {
        "skep_requests_total 1\n".into()
    }
}

/// Starts a console as a process does: addresses first, then the socket.
pub fn start(
    config: ConsoleConfig,
    control: Arc<dyn Control>,
) -> Result<ConsoleHandle, ConsoleError> {
    let mut console = Console::bind(config)?;
    console.open_socket()?;
    Ok(console.serve(control)?.expect("it listens somewhere"))
}

/// A console over a fake process, on all three listeners.
pub struct Under {
    pub fake: Arc<Fake>,
    pub handle: ConsoleHandle,
    pub folder: tempfile::TempDir,
}

impl Under {
    pub fn test(token: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = ConsoleConfig {
            socket: Some(folder.path().join("gate.sock")),
            listen: Some(([127, 0, 0, 1], 0).into()),
            token: token.map(|token| Token::parse(token).unwrap()),
            metrics_listen: Some(([127, 0, 0, 1], 0).into()),
            networks: Vec::new(),
        };
        let fake = Fake::new();
        let control: Arc<dyn Control> = fake.clone();
        let handle = start(config, control).unwrap();
        Self { fake, handle, folder }
    }

    pub fn api(&self) -> SocketAddr {
        self.handle.api_address().unwrap()
    }

    pub fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("gate.sock")
    }
}

/// A parsed reply.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub fields: BTreeMap<String, String>,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    #[track_caller]
    pub fn assert_problem(&self, status: u16, word: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.fields["content-type"], "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["type"], format!("urn:skep:problem:{word}"), "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{self:?}");
    }
}

/// A request with `Connection: close` and the given fields.
pub fn request(method: &str, target: &str, fields: &[(&str, &str)], body: &str) -> String {
    let fields = [&[("Connection", "close")], fields].concat();
    let bytes = match body {
        "" => request_bytes(method, target, &fields),
        body => request_with_body(method, target, &fields, body),
    };
    String::from_utf8(bytes).unwrap()
}

/// Sends bytes over TCP, and reads the reply and the close.
pub fn over_tcp(address: SocketAddr, bytes: &str) -> Reply {
    exchange(RawClient::connect(address), bytes)
}

/// The same over a unix socket.
pub fn over_socket(path: &Path, bytes: &str) -> Reply {
    exchange(RawClient::try_connect_local(path).unwrap(), bytes)
}

fn exchange<S: Read + Write>(mut client: RawClient<S>, bytes: &str) -> Reply {
    // The server may refuse and close before it has received everything.
    client.send(bytes);
    let method = bytes.split(' ').next().unwrap_or_default();
    let reply = client.try_response_to(method).unwrap_or_else(|error| panic!("{bytes}: {error}"));
    client.assert_closed();
    let fields = reply.headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
    let body = String::from_utf8(reply.body).unwrap();
    Reply { status: reply.status, fields: fields.collect(), body }
}
