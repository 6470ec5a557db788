//! The complete output of each command.
#![allow(clippy::unwrap_used, reason = "tests")]

use skep_console::{
    NetworkSessions, NodeLocalStatus, NodePools, PoolSessions, PoolStatus, Role, ServerStatus,
    Traffic, TrafficPoint, TrafficSeries,
};

use super::*;

pub(crate) fn node(name: &str, state: NodeState) -> NodeStatus {
    NodeStatus {
        name: name.into(),
        service: "web".into(),
        address: ([127, 0, 0, 1], 30_001).into(),
        public_address: "127.0.0.1:30001".into(),
        state,
        reason: (state == NodeState::Down).then(|| "connection refused".to_owned()),
        since_ms: 65_000,
        source: NodeSource::Config,
        weight: 1,
        share_permille: 1000,
        outstanding_requests: 3,
        outstanding_bytes: 0,
        connections: 4,
        tunnels: 1,
        requests_total: 20_000,
        failures_total: 2,
        bytes_total: 1 << 30,
        latency_us: 410,
    }
}

/// A load report of the node `name`.
pub(crate) fn report(name: &str, age_ms: u64) -> NodeReport {
    NodeReport {
        name: name.into(),
        age_ms,
        is_stale: age_ms > 500,
        cpu_permille: 125,
        memory_bytes: 300 << 20,
        connections: 64,
        requests_in_flight: 3,
        bytes_outstanding: 5 << 20,
        sent_bytes_s: 80 << 20,
        filled_bytes_s: 1 << 20,
        hit_permille: 970,
    }
}

pub(crate) fn process() -> ProcessStatus {
    let nodes = vec![node("node-1", NodeState::Up), node("node-2", NodeState::Down)];
    ProcessStatus {
        cluster: "skep".into(),
        name: "dispatcher".into(),
        roles: vec![Role::Dispatcher],
        version: "0.1.0".into(),
        pid: 1,
        started_unix_s: 1,
        uptime_ms: 100_000,
        draining: false,
        config_generation: 2,
        traffic: Traffic {
            connections_open: 64,
            requests_in_flight: 7,
            requests_total: 40_000,
            responses_4xx_total: 5,
            sent_bytes_total: 3 << 30,
            latency: Latency { p50_us: 300, p99_us: 1_900, ..Latency::default() },
            ..Traffic::default()
        },
        node: None,
        direct: None,
        cache: None,
        loads: Vec::new(),
        pools: Vec::new(),
        services: vec![ServiceStatus {
            name: "web".into(),
            listen: vec![([127, 0, 0, 1], 8080).into()],
            dispatch: "proxy".into(),
            policy: "round-robin".into(),
            arms: Vec::new(),
            nodes,
        }],
    }
}

#[test]
fn a_status_is_read_at_a_glance() {
    let expected = "\
cluster skep, dispatcher running for 1m 40s, config generation 2, version 0.1.0
requests 40.0k, in work 7, connections 64, sent 3.00 GiB, 4xx 5, 5xx 0
times of requests since the start: p50 0.30 ms, p95 -, p99 1.90 ms

service web: proxy, round-robin, 1/2 nodes up, on 127.0.0.1:8080
NODE    STATE  SINCE  LOAD  CONNS  REQ/S  REQUESTS  FAILED  LATENCY  WEIGHT
node-1  up     1m 5s     3      4    200     20.0k       2  0.41 ms       1
node-2  down   1m 5s     3      4    200     20.0k       2  0.41 ms       1
  node-2 down: connection refused
";
    assert_eq!(status(&process(), Paint::Plain), expected);
}

#[test]
fn a_service_in_an_ab_test_says_so() {
    let mut process = process();
    let arm = |name: &str, policy: &str, weight, nodes: &[&str]| ServiceArm {
        name: name.into(),
        policy: policy.into(),
        weight,
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
    };
    let arms = vec![arm("a", "lard", 3, &["node-1"]), arm("b", "random", 1, &["node-2"])];
    process.services[0].arms = arms;
    let text = status(&process, Paint::Plain);
    let expected = "
  A/B test: a=lard*3:node-1 b=random:node-2; see skep policy compare web
NODE";
    assert!(text.contains(expected), "{text}");
    let text = services(&process.services);
    assert!(text.contains("a=lard*3 b=random"), "{text}");
}

#[test]
fn loads_have_a_table_that_says_what_is_stale() {
    let mut process = process();
    process.loads = vec![report("node-1", 40), report("node-2", 3_200)];
    let expected = "
LOAD OF     CPU   MEMORY  CONNS   TO SEND    SENT/S    HITS  FILLED/S    AGE
node-1   12.5 %  300 MiB     64  5.00 MiB  80.0 MiB  97.0 %  1.00 MiB  40 ms
node-2   12.5 %  300 MiB     64  5.00 MiB  80.0 MiB  97.0 %  1.00 MiB     3s
  no load report of node-2 for 3s: ignored
";
    let text = status(&process, Paint::Plain);
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn no_line_is_wider_than_a_terminal() {
    let mut process = process();
    let long = "x".repeat(200);
    process.loads = vec![NodeReport {
        memory_bytes: u64::MAX,
        connections: u64::MAX,
        bytes_outstanding: u64::MAX,
        sent_bytes_s: u64::MAX,
        filled_bytes_s: u64::MAX,
        ..report(&long, u64::MAX / 2)
    }];
    process.cluster.clone_from(&long);
    process.node = Some(NodeLocalStatus {
        address: "[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap(),
        cache_bytes: u64::MAX,
        cache_bytes_max: u64::MAX,
        cache_segments: u64::MAX,
        cache_hits_total: 1,
        cache_lookups_total: 3,
        sites: vec!["*".into()],
    });
    let worst = &mut process.services[0].nodes[1];
    worst.name.clone_from(&long);
    worst.reason = Some(long);
    worst.address = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap();
    worst.since_ms = u64::MAX / 2;
    worst.latency_us = u64::MAX;
    (worst.outstanding_requests, worst.connections) = (u32::MAX, u32::MAX);
    (worst.requests_total, worst.failures_total) = (u64::MAX, u64::MAX);
    let all = &process.services;
    let texts = [
        status(&process, Paint::Plain),
        services(all),
        nodes(all.iter().flat_map(|service| &service.nodes), Paint::Plain),
    ];
    for line in texts.iter().flat_map(|text| text.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn states_have_colours_only_where_they_are_wanted() {
    assert!(!status(&process(), Paint::Plain).contains('\x1b'));
    let text = status(&process(), Paint::Colours);
    assert!(text.contains("\x1b[32mnode-1") && text.contains("\x1b[1;31mnode-2"), "{text}");
}

#[test]
fn parts_of_paths_are_encoded() {
    assert_eq!(encode("node-1.a_b~"), "node-1.a_b~");
    assert_eq!(encode("a/b?c&d=é %"), "a%2Fb%3Fc%26d%3D%C3%A9%20%25");
}

fn server(name: &str, state: NodeState, reason: Option<&str>) -> ServerStatus {
    ServerStatus {
        name: name.into(),
        pool: "app".into(),
        address: std::net::SocketAddr::from(([10, 0, 0, 1], 3000)).into(),
        state,
        source: NodeSource::Config,
        reason: reason.map(str::to_owned),
        since_ms: 61_000,
        weight: 2,
        share_permille: 1000,
        connections: 3,
        slots: 20,
        connections_max: 50,
        tunnels: 0,
        requests_total: 1_200,
        failures_total: 7,
        failures_by_cause: [("timed_out".to_owned(), 7)].into(),
        bytes_total: 0,
        latency_us: 1_500,
        agent: None,
        seen_by: Vec::new(),
    }
}

#[test]
fn pools_have_their_servers_and_reasons() {
    let down = server("two", NodeState::Down, Some("connection refused"));
    let pool = PoolStatus {
        name: "app".into(),
        policy: "least-outstanding".into(),
        queued_requests: 4,
        refused_total: 9,
        sessions_lost_total: 0,
        versions_differ: false,
        sessions: None,
        cluster_sessions: None,
        servers: vec![server("one", NodeState::Up, None), down],
        nodes: Vec::new(),
        missing: Vec::new(),
    };
    let text = pools(std::slice::from_ref(&pool), Paint::Plain);
    let first = "pool app: least-outstanding, 1/2 servers up, 4 waiting, 9 refused\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("10.0.0.1:3000") && text.contains("3/20"), "{text}");
    assert!(text.contains("  one: 20 of 50 connections, by its slots\n"), "{text}");
    assert!(text.contains("  two down: connection refused\n"), "{text}");
    let last = "  two failed: 7 timed_out\n  sessions in the last 30 min: -\n";
    assert!(text.ends_with(last), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(pools(&[], Paint::Plain), "no pools\n");
    let of = |node: &str, missing: Option<&str>, pools: &[PoolStatus]| NodePools {
        node: node.into(),
        missing: missing.map(str::to_owned),
        pools: pools.to_vec(),
    };
    let nodes = [
        of("n1", None, std::slice::from_ref(&pool)),
        of("n2", None, &[pool]),
        of("n3", Some("no answer within 2 s"), &[]),
    ];
    let text = pools_of_nodes(&nodes, Paint::Plain);
    let first = "pool app: least-outstanding, 8 waiting, 18 refused, 0 sessions lost\n";
    assert!(text.starts_with(first), "{text}");
    let rows: Vec<_> =
        text.lines().map(|it| it.split_whitespace().take(3).collect::<Vec<_>>()).collect();
    let expected: Vec<Vec<_>> = [["one", "n1", "up"], ["one", "n2", "up"], ["two", "n1", "down"]]
        .map(|row| row.to_vec())
        .to_vec();
    assert_eq!(rows[2..5], expected, "{text}");
    assert!(text.contains("  two at n2 down: connection refused\n"), "{text}");
    assert!(text.ends_with("no answer of n3: no answer within 2 s\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(pools_of_nodes(&[], Paint::Plain).starts_with("no pools\n"));
}

#[test]
fn sessions_are_shown_by_network_and_not_as_none_where_they_are_not_counted() {
    let network =
        |name: &str, sessions| NetworkSessions { network: name.into(), sessions, sketch: None };
    let counted = PoolSessions {
        window_s: 1_800,
        total: 1_240,
        networks: vec![network("campus", 900), network("library", 20), network("other", 320)],
        nodes: vec!["n1".into()],
    };
    let shown = |of: Option<&PoolSessions>, nodes: &[&str]| {
        let pool = PoolStatus {
            name: "app".into(),
            policy: "random".into(),
            queued_requests: 0,
            refused_total: 0,
            sessions_lost_total: 0,
            versions_differ: false,
            sessions: of.cloned(),
            cluster_sessions: of.cloned(),
            servers: vec![],
            nodes: Vec::new(),
            missing: Vec::new(),
        };
        let of_node = |node: &&str| NodePools {
            node: (*node).to_owned(),
            missing: None,
            pools: vec![pool.clone()],
        };
        let text = match nodes {
            [] => pools(&[pool], Paint::Plain),
            nodes => pools_of_nodes(&nodes.iter().map(of_node).collect::<Vec<_>>(), Paint::Plain),
        };
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        text[text.find("  sessions").unwrap()..].to_owned()
    };
    let head = "  sessions in the last 30 min:";
    let whole = format!("{head} 1.24k (campus 900, library 20, other 320)");
    assert_eq!(shown(Some(&counted), &[]), format!("{whole}\n"));
    assert_eq!(shown(Some(&counted), &["n1"]), format!("{whole}\n"));
    let partly = format!("{whole}\n    (without n2)\n");
    assert_eq!(shown(Some(&counted), &["n1", "n2"]), partly);
    assert_eq!(shown(None, &["n1"]), format!("{head} -\n"));
    let unnamed = PoolSessions { networks: vec![network("other", 1_240)], ..counted };
    assert_eq!(shown(Some(&unnamed), &["n1"]), format!("{head} 1.24k\n"));
    let unknown = PoolSessions { total: 0, networks: vec![], nodes: vec![], ..unnamed };
    assert_eq!(shown(Some(&unknown), &["n1"]), format!("{head} not known (without n1)\n"));
}

#[test]
fn requests_over_time_have_their_newest_last_and_gaps_stay_gaps() {
    let point = |at_unix_s, requests| TrafficPoint {
        at_unix_s,
        requests,
        to_pools: requests / 2,
        pool_failures: 1,
        responses_5xx: 0,
        sent_bytes: 2_048,
    };
    let points = vec![point(1_200, 120), point(1_320, 60)];
    let shown = series(&TrafficSeries { step_s: 60, kept_s: 108_000, points });
    let rows: Vec<Vec<&str>> = shown.lines().map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 3, "{shown}");
    assert_eq!(rows[1][..5], ["2m", "0s", "2.00", "120", "60"], "{shown}");
    assert_eq!(rows[2][1..4], ["1.00", "60", "30"], "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let nothing = series(&TrafficSeries { step_s: 60, kept_s: 108_000, points: vec![] });
    assert_eq!(nothing, "nothing yet: the first step of 60 s is not over\n");
}
