//! Direct dispatch with `store = "etcd"`: a real etcd with three members, of which one dies, then all.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use skep_testbed::Machine;
use skep_tests::direct::{DirectCluster, HEARTBEAT_PORT, Loads, Setup, figure};
use skep_tests::{PATIENCE, RawClient, Skep, poll_until, skip};

/// Number of etcd members.
const MEMBERS: usize = 3;

/// Short requests per second of each client.
const PER_SECOND: u32 = 100;

/// A cluster and the etcd of its dispatchers, on the machine `origin`.
struct WithEtcd {
    members: BTreeMap<usize, Skep>,
    cluster: DirectCluster,
}

impl WithEtcd {
    /// Starts all etcd members, but no process of the cluster; `None`, reported loudly, if that is impossible
    /// here.
    fn prepare() -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            skip("no `etcd` here: apt-get install etcd-server");
            return None;
        }
        let mut setup = Setup::default();
        setup.topology.origin = true;
        let cluster = DirectCluster::prepare(setup)?;
        let mut with_etcd = Self { members: BTreeMap::new(), cluster };
        let endpoints: Vec<String> =
            (0..MEMBERS).map(|at| format!("\"{}\"", with_etcd.address(client_port(at)))).collect();
        let store = format!(
            "store = \"etcd\"\netcd.lease_ms = \"2s\"\netcd.endpoints = [{}]",
            endpoints.join(", ")
        );
        with_etcd.cluster.reconfigure(|setup| setup.lines = store);
        (0..MEMBERS).for_each(|at| with_etcd.start_member(at));
        poll_until(PATIENCE, "etcd answers", || with_etcd.get("epoch").is_ok());
        Some(with_etcd)
    }

    /// Like [`Self::prepare`], with the cluster serving.
    fn start() -> Option<Self> {
        let with_etcd = Self::prepare()?;
        with_etcd.cluster.run_all();
        with_etcd.cluster.wait_serving();
        Some(with_etcd)
    }

    fn start_member(&mut self, at: usize) {
        let name = |at| format!("m{at}");
        let url = |port| format!("http://{}", self.address(port));
        let peers: Vec<String> =
            (0..MEMBERS).map(|at| format!("{}={}", name(at), url(peer_port(at)))).collect();
        let (client, peer) = (url(client_port(at)), url(peer_port(at)));
        let mut etcd = self.cluster.machine("origin").command("etcd");
        etcd.arg("--data-dir").arg(self.cluster.path(&name(at))).args(["--name", &name(at)]);
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &peers.join(","), "--logger", "zap"]);
        self.members.insert(at, Skep::start_command(&mut etcd));
    }

    fn address(&self, port: u16) -> String {
        format!("{}:{port}", self.cluster.machine("origin").ipv4())
    }

    /// Returns the value of a key of the cluster, through the JSON gateway of a running member.
    fn get(&self, key: &str) -> Result<Option<String>, String> {
        let key = encode(&format!("/skep/lab/{key}"));
        let reply = self.ask("range", &format!("{{\"key\":\"{key}\"}}"))?;
        Ok(reply["kvs"][0]["value"].as_str().map(decode))
    }

    /// Writes a value, like an operator's mistake or another program.
    fn put(&self, key: &str, value: &str) {
        let (key, value) = (encode(&format!("/skep/lab/{key}")), encode(value));
        let body = format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}");
        self.ask("put", &body).unwrap();
    }

    /// Returns a reply of a running member's JSON gateway.
    fn ask(&self, what: &str, body: &str) -> Result<serde_json::Value, String> {
        let member = self.members.keys().next().ok_or("all members are dead")?;
        let address = self.address(client_port(*member)).parse().unwrap();
        let request = format!(
            "POST /v3/kv/{what} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let asked = self.cluster.machine("origin").run(|| {
            let mut client = RawClient::try_connect(address)?;
            client.send(request);
            client.try_response()
        });
        let response = asked.unwrap().map_err(|error| error.to_string())?;
        let text = response.text();
        let reply: serde_json::Value = serde_json::from_str(&text).map_err(|_| text.clone())?;
        if response.status == 200 { Ok(reply) } else { Err(text) }
    }

    /// Waits until etcd has the epoch of this dispatcher, and its name as the active one; returns the epoch.
    #[track_caller]
    fn wait_recorded(&self, active: &str) -> u64 {
        let epoch = self.cluster.status(active)["epoch"].as_u64().unwrap();
        let mut found = (Ok(None), Ok(None));
        poll_until(PATIENCE, &format!("epoch {epoch} of {active} in etcd"), || {
            found = (self.get("epoch"), self.get("kv/active"));
            found == (Ok(Some(epoch.to_string())), Ok(Some(format!("{active} {epoch}"))))
        });
        epoch
    }

    /// Waits until a dispatcher's `skep status` shows these words for the store.
    #[track_caller]
    fn wait_store(&self, dispatcher: &str, words: &str) {
        poll_until(PATIENCE, &format!("{words:?} from {dispatcher}"), || {
            self.cluster.control(dispatcher, &["status"]).contains(words)
        });
        let answering = self.cluster.metric(dispatcher, "skep_direct_store_endpoints_answering");
        assert!(words.starts_with(&format!("store: {answering} of 3")), "{answering}: {words}");
    }

    fn requests(&self) -> Loads {
        let ask = |client: &Machine| self.cluster.stream(PER_SECOND).start_in(client).unwrap();
        let requests = Loads::start(self.cluster.bed().clients(), ask);
        requests.wait_for_more(50);
        requests
    }
}

/// Ends a stream in which no request may have failed.
#[track_caller]
fn finish(requests: Loads, what: &str) {
    let reports = requests.stop();
    for report in &reports {
        assert_eq!((report.failed, report.resets), (0, 0), "{what}: {report:?}");
    }
    let done: u64 = reports.iter().map(|report| report.succeeded).sum();
    let gap_ms = reports.iter().map(|report| report.longest_gap_ms).max().unwrap();
    figure(&format!("{what}: no good reply for {gap_ms} ms, {done} requests, none failed"));
}

#[test]
fn a_member_of_etcd_dies_with_the_active_dispatcher() {
    let Some(mut it) = WithEtcd::start() else { return };
    let (active, standby) = (it.cluster.wait_active(), it.cluster.standby());
    let before = it.wait_recorded(&active);
    it.wait_store(&active, "store: 3 of 3 endpoints answer");
    it.wait_store(&standby, "store: 3 of 3 endpoints answer");

    let requests = it.requests();
    it.members.remove(&0);
    it.cluster.machine(&active).kill().unwrap();
    poll_until(PATIENCE, "takeover", || it.cluster.holders().contains(&standby));
    requests.wait_for_more(200);
    let after = it.wait_recorded(&standby);
    assert!(after > before, "{after} after {before}");
    it.wait_store(&standby, "store: 2 of 3 endpoints answer");
    it.cluster.wait_log(&standby, "a part of the store does not answer");
    it.start_member(0);
    it.wait_store(&standby, "store: 3 of 3 endpoints answer");
    finish(requests, "one of three members of etcd and the active dispatcher's machine killed");
}

#[test]
fn all_of_etcd_goes_and_comes_back() {
    let Some(mut it) = WithEtcd::start() else { return };
    let (active, standby) = (it.cluster.wait_active(), it.cluster.standby());
    let before = it.wait_recorded(&active);
    let requests = it.requests();
    it.members.clear();
    for dispatcher in [&active, &standby] {
        it.wait_store(dispatcher, "store: 0 of 3 endpoints answer");
        it.cluster.wait_log(dispatcher, "the store does not answer");
    }
    requests.wait_for_more(50);
    assert_eq!(it.cluster.wait_active(), active);
    it.cluster.machine(&active).kill().unwrap();
    poll_until(PATIENCE, "takeover", || it.cluster.holders().contains(&standby));
    requests.wait_for_more(200);

    (0..MEMBERS).for_each(|at| it.start_member(at));
    it.wait_store(&standby, "store: 3 of 3 endpoints answer");
    it.cluster.wait_log(&standby, "the store answers: 3 of 3");
    let after = it.wait_recorded(&standby);
    assert!(after > before, "{after} after {before}");
    assert_eq!(it.cluster.wait_active(), standby);
    finish(requests, "takeover with all of etcd gone, which then came back");
}

#[test]
fn epochs_outlive_the_loss_of_all_dispatchers() {
    let Some(it) = WithEtcd::start() else { return };
    let names = ["dispatcher-1", "dispatcher-2"];
    let before = it.wait_recorded(&it.cluster.wait_active());
    // Nodes also remember the epoch; it must not come from them.
    for name in names.into_iter().chain(["node-1", "node-2", "node-3"]) {
        it.cluster.kill(name);
    }
    for name in names {
        std::fs::remove_file(it.cluster.path(&format!("state/{name}.redb"))).unwrap();
        it.cluster.machine(name).kill().unwrap();
        it.cluster.machine(name).boot().unwrap();
    }
    it.cluster.run_all();
    it.cluster.wait_serving();
    let after = it.wait_recorded(&it.cluster.wait_active());
    assert!(after > before, "{after} after {before}");
    figure(&format!("all dispatchers and their files lost: epoch {after} after {before}"));
}

#[test]
fn records_that_are_none_keep_nobody_from_serving_and_are_replaced() {
    let Some(it) = WithEtcd::prepare() else { return };
    it.put("epoch", "no number");
    it.put("kv/active", "\u{1} nobody at all");
    it.cluster.run_all();
    it.cluster.wait_serving();
    let active = it.cluster.wait_active();
    let before = it.wait_recorded(&active);
    // Once more, while it is active.
    let standby = it.cluster.standby();
    it.put("epoch", "18446744073709551616");
    it.put("kv/active", "");
    it.cluster.kill(&active);
    poll_until(PATIENCE, "takeover", || it.cluster.status(&standby)["stage"] == "active");
    let after = it.wait_recorded(&standby);
    assert!(after > before, "{after} after {before}");
}

/// The active dispatcher is cut off from all machines except etcd: another one takes over, and the first
/// stays a standby while the other holds the lease, although it receives no heartbeats.
#[test]
fn the_loser_of_a_split_stays_a_standby() {
    let Some(it) = WithEtcd::start() else { return };
    let (loser, winner) = (it.cluster.wait_active(), it.cluster.standby());
    it.wait_recorded(&loser);
    let nft = |arguments: &[&str]| it.cluster.tool(&loser, "nft", arguments);
    nft(&["add table ip split"]);
    for hook in ["input", "output"] {
        nft(&[&format!("add chain ip split {hook} {{ type filter hook {hook} priority 0; }}")]);
        nft(&[&format!("add rule ip split {hook} udp dport {HEARTBEAT_PORT} drop")]);
    }
    poll_until(PATIENCE, "takeover", || it.cluster.status(&winner)["stage"] == "active");
    it.wait_recorded(&winner);
    it.cluster.wait_log(&loser, "not active any more: the store names another dispatcher");
    // Twice the lease, during which it would make a claim every 25 ms.
    let claims = || it.cluster.log(&loser).matches("INFO active with epoch").count();
    let begun = Instant::now();
    poll_until(PATIENCE, "four seconds", || {
        assert_eq!((it.cluster.status(&loser)["stage"].as_str(), claims()), (Some("standby"), 1));
        begun.elapsed().as_secs() >= 4
    });
    nft(&["delete table ip split"]);
    it.cluster.wait_log(&loser, &format!("heartbeat from dispatcher {winner}"));
    assert_eq!(it.cluster.wait_active(), winner);
}

fn client_port(at: usize) -> u16 {
    2379 + 10 * at as u16
}

fn peer_port(at: usize) -> u16 {
    client_port(at) + 1
}

/// Digits of base64 (RFC 4648, section 4).
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes text in base64, as etcd's gateway requires.
fn encode(text: &str) -> String {
    let group = |bytes: &[u8]| {
        let number = (0..3).fold(0, |sum, at| sum << 8 | usize::from(*bytes.get(at).unwrap_or(&0)));
        let digit = |at: usize| match at <= bytes.len() {
            true => char::from(DIGITS[number >> (18 - 6 * at) & 63]),
            false => '=',
        };
        (0..4).map(digit).collect::<String>()
    };
    text.as_bytes().chunks(3).map(group).collect()
}

fn decode(text: &str) -> String {
    let value = |byte: u8| DIGITS.iter().position(|&digit| digit == byte);
    let group = |digits: &[u8]| {
        let number = digits.iter().fold(0, |sum, &byte| sum << 6 | value(byte).unwrap_or(0));
        let count = digits.iter().filter(|&&byte| byte != b'=').count() - 1;
        (0..count).map(|at| (number >> (16 - 8 * at)) as u8).collect::<Vec<u8>>()
    };
    String::from_utf8(text.as_bytes().chunks(4).flat_map(group).collect()).unwrap()
}

#[test]
fn base64_goes_there_and_back() {
    assert_eq!(encode("/skep/lab/epoch"), "L3NrZXAvbGFiL2Vwb2No");
    for text in ["8", "17", "dispatcher-1 8", ""] {
        assert_eq!(decode(&encode(text)), text);
    }
}
