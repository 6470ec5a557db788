//! The process under attack, and the resources that it holds while idle.

use std::cell::{Cell, RefCell};

use skep_tests::liar::Liar;
use skep_tests::{FreePort, PATIENCE, RawClient, Site, Skep, poll_until};

/// Allowed growth of memory from one round to the next, in bytes: what an allocator keeps, and heads in the
/// cache. Half of what one flood sends.
const MEMORY_SLACK: u64 = 32 * 1024 * 1024;

/// The same if cases run one after the other.
const MEMORY_SLACK_TIGHT: u64 = 8 * 1024 * 1024;

/// Timeouts after which peers that lie or stall are disconnected, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For clients that send or read nothing.
    client_ms: u64,
    /// For a peer that stalls within an answer.
    stall_ms: u64,
    /// For a peer that does not answer.
    pub(crate) response_ms: u64,
}

/// Short enough to be waited for many times in sequence.
pub(crate) const BRISK: Patience = Patience { client_ms: 400, stall_ms: 400, response_ms: 1_500 };

/// Long enough for a hundred concurrent clients beside tests with hundreds of threads: the timeout of a head
/// starts with the accept, and the next head may have to wait for the processor.
pub(crate) const LEAVING: Patience =
    Patience { client_ms: 5_000, stall_ms: 1_500, response_ms: 4_000 };

/// Long enough for hundreds of concurrent clients and correct servers that wait for the processor.
pub(crate) const PATIENT: Patience =
    Patience { client_ms: 5_000, stall_ms: 600, response_ms: 10_000 };

impl Patience {
    /// Returns lines of a config.
    fn timeouts(self) -> String {
        let Self { client_ms, .. } = self;
        format!(
            "[timeouts]\nhead_ms = {client_ms}\nbody_grace_ms = {client_ms}\n\
             write_stall_ms = {client_ms}\nsend_average_ms = {client_ms}\nidle_ms = \"1s\"\n\
             [machine]\nthreads = 2\n"
        )
    }
}

/// The resources of an idle process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    tasks: u64,
    /// Open descriptors except for memory files, whose number grows as the cache fills.
    open: Vec<String>,
    /// Memory and memory files, minus the content of the cache.
    taken_bytes: u64,
}

pub(crate) struct Victim {
    pub(crate) skep: Skep,
    liar: Liar,
    metrics: FreePort,
    _folder: Site,
    _client_port: Option<FreePort>,
}

impl Victim {
    /// Starts a node whose origin is `liar`.
    pub(crate) fn node(liar: Liar, patience: Patience) -> Self {
        let metrics = FreePort::claim();
        let settings = format!(
            "{}{}[site.fetch]\nstall_timeout_ms = {}\nresponse_timeout_ms = {}\n\
             connections_max = 512\n\
             [cache]\nsize_bytes_max = \"32MiB\"\n[metrics]\nlisten = \"{}\"\n",
            liar.line(),
            patience.timeouts(),
            patience.stall_ms,
            patience.response_ms,
            metrics.address()
        );
        let skep = Skep::node_of(&settings);
        Self { skep, liar, metrics, _folder: Site::new(), _client_port: None }
    }

    /// Starts a node whose application server is `liar`.
    pub(crate) fn application(liar: Liar, patience: Patience) -> Self {
        let metrics = FreePort::claim();
        let settings = format!(
            "pool = \"app\"\n{}[metrics]\nlisten = \"{}\"\n\
             [[pool]]\nname = \"app\"\nidle_ms = \"500ms\"\nresponse_timeout_ms = {}\n\
             stall_timeout_ms = {}\n\
             health = {{ interval_ms = \"1s\", timeout_ms = \"1s\", fall = 100, \
             passive_failures_max = 1000 }}\n\
             [[pool.server]]\nname = \"s1\"\naddress = \"{}\"\nconnections_max = 1024\n",
            patience.timeouts(),
            metrics.address(),
            patience.response_ms,
            patience.response_ms,
            liar.address(),
        );
        let skep = Skep::node_of(&settings);
        Self { skep, liar, metrics, _folder: Site::new(), _client_port: None }
    }

    /// Starts a dispatcher whose only node is `liar`.
    pub(crate) fn dispatcher(liar: Liar, patience: Patience) -> Self {
        let (metrics, port, folder) = (FreePort::claim(), FreePort::claim(), Site::new());
        let text = format!(
            "state_dir = \"{}\"\n[admin]\nlisten = \"off\"\n[metrics]\nlisten = \"{}\"\n\
             [[dispatcher]]\nname = \"d1\"\n[[node]]\nname = \"n1\"\naddress = \"{}\"\n\
             [[service]]\nname = \"web\"\nlisten = \"{}\"\nresponse_timeout_ms = {}\nupstream_idle_ms = \"500ms\"\n\
             health = {{ interval_ms = \"1s\", timeout_ms = \"1s\", fall = 100, \
             passive_failures_max = 1000 }}\n{}[[site]]\nroot = \"{0}\"\n",
            folder.root().display(),
            metrics.address(),
            liar.address(),
            port.address(),
            patience.response_ms,
            patience.timeouts()
        );
        folder.write("skep.toml", text);
        let skep = Skep::run(&folder.path("skep.toml"), &["--as", "d1"], port.address());
        let it = Self { skep, liar, metrics, _folder: folder, _client_port: Some(port) };
        poll_until(PATIENCE, "the node is up", || {
            it.metric("skep_node_up{service=\"web\",node=\"n1\"}") == Some(1)
        });
        it
    }

    /// Returns the server that lies to it.
    pub(crate) fn liar(&self) -> &Liar {
        &self.liar
    }

    /// Waits until it is idle, and returns the resources that it holds then.
    ///
    /// # Panics
    /// With the leaked resources, if it does not become idle.
    #[track_caller]
    pub(crate) fn rest(&self, behind: &str) -> Rest {
        // Pooled connections are no leak: both sides close them.
        self.liar.hang_up();
        let left = Cell::new(Vec::new());
        let look = || {
            let text = self.metrics_text();
            let bytes = |name: &str| value(&text, name).unwrap_or(0);
            let held = HELD.iter().filter(|name| bytes(name) > 0);
            let mut found: Vec<String> = held.map(|name| (*name).to_owned()).collect();
            let pinned = bytes("skep_cache_pinned_bytes");
            if pinned > 0 {
                found.push(format!("{pinned} pinned bytes"));
            }
            if self.skep.connections() > 0 {
                found.push("connections in the kernel".to_owned());
            }
            let is_clean = found.is_empty();
            left.set(found);
            is_clean
        };
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            poll_until(PATIENCE, "nobody is there", look);
        }));
        assert!(waited.is_ok(), "behind {behind} it still has: {:?}", left.take());
        let cached = self.metric("skep_cache_alive_bytes").unwrap_or(0);
        let tasks = self.metric("skep_tasks").expect("a gauge");
        // The connection of the metrics request counts too until its end is noticed.
        poll_until(PATIENCE, "the metrics' connections are closed", || {
            self.skep.connections_to(self.metrics.address()) == 0
        });
        Rest {
            tasks,
            open: self.skep.open_but_memory(),
            taken_bytes: self.skep.memory_bytes().saturating_sub(cached),
        }
    }

    /// Waits until it holds no more than `before`.
    #[track_caller]
    pub(crate) fn assert_rests(&self, before: &Rest, behind: &str) {
        self.assert_within(before, MEMORY_SLACK, behind);
    }

    /// Like [`Self::assert_rests`], where little may have changed: after one case, or repeated cases.
    #[track_caller]
    pub(crate) fn assert_rests_tightly(&self, before: &Rest, behind: &str) {
        self.assert_within(before, MEMORY_SLACK_TIGHT, behind);
    }

    #[track_caller]
    fn assert_within(&self, before: &Rest, memory_slack: u64, behind: &str) {
        let now = RefCell::new(self.rest(behind));
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            poll_until(PATIENCE, "it holds no more than before", || {
                now.replace(self.rest(behind));
                now.borrow().is_within(before, memory_slack)
            });
        }));
        assert!(waited.is_ok(), "behind {behind}: {:?}, before it {before:?}", now.into_inner());
    }

    pub(crate) fn connect(&self) -> RawClient {
        self.skep.connect()
    }

    fn metric(&self, name: &str) -> Option<u64> {
        value(&self.metrics_text(), name)
    }

    fn metrics_text(&self) -> String {
        RawClient::connect(self.metrics.address()).get("/metrics").text()
    }
}

/// Metrics that must be 0 when idle.
const HELD: &[&str] = &[
    "skep_connections_open",
    "skep_requests_in_flight",
    "skep_bytes_outstanding",
    "skep_node_outstanding_requests{service=\"web\",node=\"n1\"}",
    "skep_node_outstanding_bytes{service=\"web\",node=\"n1\"}",
    "skep_node_tunnels{service=\"web\",node=\"n1\"}",
    "skep_pool_server_outstanding_requests{pool=\"app\",server=\"s1\"}",
    "skep_pool_server_tunnels{pool=\"app\",server=\"s1\"}",
    "skep_pool_queued_requests{pool=\"app\"}",
    "skep_spool_memory_bytes",
    "skep_spool_file_bytes",
];

impl Rest {
    fn is_within(&self, before: &Self, memory_slack: u64) -> bool {
        self.tasks <= before.tasks
            && self.open.len() <= before.open.len()
            && self.taken_bytes <= before.taken_bytes + memory_slack
    }
}

/// Returns the value of one sample; `name` includes its labels.
fn value(text: &str, name: &str) -> Option<u64> {
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok();
    text.lines().find_map(of).map(|value| value as u64)
}
