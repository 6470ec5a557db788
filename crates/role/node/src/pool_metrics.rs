//! Metrics of pools and their servers.

use std::sync::{Arc, Weak};

use skep_proxy::{Group, Groups, MemberMetric, register_failures, register_members};
use skep_spool::BodyBuffers;
use skep_telemetry::{Labels, Registry};

use crate::Node;
use crate::model::agents::AgentReport;
use crate::model::file_names::FileCounts;
use crate::model::sessions::SessionsByNetwork;

const SERVER_METRICS: &[MemberMetric] = &[
    ("skep_pool_server_up", "1 while the server may get new requests, else 0.", |it| {
        f64::from(it.share_permille > 0)
    }),
    ("skep_pool_server_weight", "Weight of a server.", |it| f64::from(it.weight)),
    ("skep_pool_server_outstanding_requests", "Requests without a complete response.", |it| {
        f64::from(it.outstanding_requests)
    }),
    (
        "skep_pool_server_slots",
        "Requests and tunnels that this node may have at the server now.",
        |it| f64::from(it.slots),
    ),
    ("skep_pool_server_requests_elsewhere", REQUESTS_ELSEWHERE, |it| f64::from(it.elsewhere)),
    ("skep_pool_server_tunnels", "Upgraded connections to a server.", |it| f64::from(it.tunnels)),
    ("skep_pool_server_requests_total", "Requests sent to a server since it was added.", |it| {
        it.requests as f64
    }),
    ("skep_pool_server_bytes_total", "Bytes of a server's response bodies.", |it| it.bytes as f64),
    (
        "skep_pool_server_latency_seconds",
        "Moving average of the response time of a server.",
        |it| it.latency_us as f64 / 1e6,
    ),
    ("skep_pool_server_pings_total", "AJP connections probed by CPING before a request.", |it| {
        it.gateway.pings as f64
    }),
    ("skep_pool_server_pings_failed_total", "CPINGs without an answer.", |it| {
        it.gateway.pings_failed as f64
    }),
    ("skep_pool_server_fields_dropped_total", FIELDS_DROPPED, |it| {
        it.gateway.fields_dropped as f64
    }),
    ("skep_pool_server_stderr_lines_dropped_total", STDERR_LINES_DROPPED, |it| {
        it.gateway.stderr_lines_dropped as f64
    }),
    ("skep_pool_server_stderr_bytes_dropped_total", STDERR_BYTES_DROPPED, |it| {
        it.gateway.stderr_bytes_dropped as f64
    }),
];

const REQUESTS_ELSEWHERE: &str =
    "Requests and tunnels of all other nodes at the server, as last reported by the coordinator.";

const FIELDS_DROPPED: &str =
    "Request fields not passed to FastCGI because their names could be read as other fields.";

const STDERR_LINES_DROPPED: &str =
    "Lines of standard error not logged because there were too many in a second.";

const STDERR_BYTES_DROPPED: &str =
    "Bytes of standard error not logged because a line or reply had too many.";

/// Registers the metrics of the pools of `node`. Call it once.
pub fn register_pools(registry: &Registry, node: &Arc<Node>) {
    let node = Arc::downgrade(node);
    register_files(registry, &node);
    register_buffers(registry, &node);
    register_agents(registry, &node);
    register_sessions(registry, &node);
    let pools: Groups = Arc::new(move || node.upgrade().map(|it| it.pools()).unwrap_or_default());
    register_members(registry, SERVER_METRICS, ["pool", "server"], &pools);
    let failures = "skep_pool_server_failures_total";
    let help = "Requests to a server without a complete response, by cause.";
    register_failures(registry, (failures, help), ["pool", "server"], &pools);
    of_pools(
        registry,
        &pools,
        "skep_pool_queued_requests",
        "Requests that wait for a server.",
        |it| it.queued().0 as f64,
    );
    of_pools(
        registry,
        &pools,
        "skep_pool_refused_total",
        "Requests answered with 503 because no server was up or had room in time.",
        |it| it.queued().1 as f64,
    );
    of_pools(
        registry,
        &pools,
        "skep_pool_sessions_lost_total",
        "Requests of a session that were answered by another server than its own.",
        |it| it.sessions_lost() as f64,
    );
}

/// Registers the sessions of pools.
fn register_sessions(registry: &Registry, node: &Weak<Node>) {
    let node = Weak::clone(node);
    let read = move || -> Vec<(Labels, f64)> {
        let sessions = node.upgrade().map(|it| it.sessions()).unwrap_or_default();
        let of_pool = |(pool, networks): (String, SessionsByNetwork)| {
            networks.into_iter().map(move |(network, sketch)| {
                let pool = ("pool".to_owned(), pool.clone());
                (vec![pool, ("network".to_owned(), network)], sketch.estimate() as f64)
            })
        };
        sessions.into_iter().flat_map(of_pool).collect()
    };
    let help =
        "Sessions with a request at this node in the last 30 minutes, by network of the client.";
    registry.register_samples("skep_pool_sessions", help, Box::new(read));
}

/// Registers the values that servers report in their status.
fn register_agents(registry: &Registry, node: &Weak<Node>) {
    let samples = |name: &str, help: &str, of: fn(&AgentReport) -> Vec<(Labels, f64)>| {
        let node = Weak::clone(node);
        let read = move || node.upgrade().map(|it| agent_samples(&it, of)).unwrap_or_default();
        registry.register_samples(name, help, Box::new(read));
    };
    samples(
        "skep_pool_server_agent_up",
        "1 if the server answered the last query of its status, else 0.",
        |report| vec![(Vec::new(), f64::from(u8::from(report.error.is_none())))],
    );
    samples(
        "skep_pool_server_agent_value",
        "A value of the server's status, by name; absent while the server does not answer.",
        |report| {
            let fresh = report.values.iter().filter(|_| report.error.is_none());
            fresh.map(|(name, value)| (label("name", name), *value)).collect()
        },
    );
    samples(
        "skep_pool_server_agent_sessions",
        "Sessions of an application on the server, by context path.",
        |report| {
            let fresh = report.sessions.iter().filter(|_| report.error.is_none());
            fresh.map(|(context, count)| (label("context", context), *count as f64)).collect()
        },
    );
    samples(
        "skep_pool_server_agent_info",
        "1, with the version that the server reports.",
        |report| report.version.iter().map(|version| (label("version", version), 1.0)).collect(),
    );
}

fn label(name: &str, value: &str) -> Labels {
    vec![(name.to_owned(), value.to_owned())]
}

fn agent_samples(
    node: &Node,
    of: impl Fn(&AgentReport) -> Vec<(Labels, f64)>,
) -> Vec<(Labels, f64)> {
    let mut samples = Vec::new();
    for (pool, agents) in node.pools.agents() {
        for (server, report) in agents.all() {
            for (more, value) in of(&report) {
                let mut labels =
                    vec![("pool".to_owned(), pool.clone()), ("server".to_owned(), server.clone())];
                labels.extend(more);
                samples.push((labels, value));
            }
        }
    }
    samples
}

/// Registers the outcomes for files that applications named.
fn register_files(registry: &Registry, node: &Weak<Node>) {
    let node = Weak::clone(node);
    let read = move || -> Vec<(Labels, f64)> {
        let counts = node.upgrade().map(|it| it.pools.file_counts()).unwrap_or_default();
        let of_pool = |(pool, counts): (String, Arc<FileCounts>)| {
            counts.by_result().into_iter().map(move |(result, count)| {
                let pool = ("pool".to_owned(), pool.clone());
                (vec![pool, ("result".to_owned(), result.to_owned())], count as f64)
            })
        };
        counts.into_iter().flat_map(of_pool).collect()
    };
    let help = "Files that an application named in place of a body, by result.";
    registry.register_samples("skep_pool_files_total", help, Box::new(read));
}

/// Registers the bodies that wait for slow clients.
fn register_buffers(registry: &Registry, node: &Weak<Node>) {
    let register = |name: &str, help: &str, value: fn(&BodyBuffers) -> f64| {
        let node = Weak::clone(node);
        let read = move || node.upgrade().map_or(0.0, |it| value(it.pools.buffers()));
        registry.register(name, &[], help, Box::new(read));
    };
    let memory = "Memory used by bodies of pools that wait for slow clients.";
    register("skep_spool_memory_bytes", memory, |it| it.memory_bytes() as f64);
    register(
        "skep_spool_file_bytes",
        "Bytes in files used by bodies of pools that wait for slow clients.",
        |it| it.spool_bytes() as f64,
    );
    let written = "Bytes of bodies of pools written to files.";
    register("skep_spool_written_bytes_total", written, |it| it.spooled_bytes() as f64);
    let node = Weak::clone(node);
    let read = move || -> Vec<(Labels, f64)> {
        let counts = node.upgrade().map(|it| it.pools.buffers().shortages()).unwrap_or_default();
        let sample = |(reason, count): (&str, u64)| {
            (vec![("reason".to_owned(), reason.to_owned())], count as f64)
        };
        counts.into_iter().map(sample).collect()
    };
    let help =
        "Bodies that got no more room, so that a slow client holds a slot of a server, by reason.";
    registry.register_samples("skep_spool_short_total", help, Box::new(read));
}

fn of_pools(
    registry: &Registry,
    pools: &Groups,
    name: &str,
    help: &str,
    value: impl Fn(&Group) -> f64 + Send + Sync + 'static,
) {
    let pools = Arc::clone(pools);
    let sample = move |pool: &Arc<Group>| -> (Labels, f64) {
        (vec![("pool".to_owned(), pool.name().to_owned())], value(pool))
    };
    let read = move || pools().iter().map(&sample).collect();
    registry.register_samples(name, help, Box::new(read));
}
