//! The present requests of this process, and of all nodes, at servers of pools and at nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use skep_console::{ClusterRequests, NodeRequest, RequestStatus};
use skep_node::ClientNetworks;
use skep_proxy::{RequestInFlight, tell_requests};
use skep_wire::cache::NodeQuestion;

use super::nodes;
use crate::running::Running;

/// Maximum number of requests shown: the oldest ones, which are of interest.
const REQUESTS_MAX: usize = 1_000;

/// Timeout for workers' answers; later ones are ignored.
const WORKERS: Duration = Duration::from_secs(1);

pub(super) fn requests(running: &Running) -> Vec<RequestStatus> {
    let workers = running.workers.get().map(Vec::as_slice).unwrap_or_default();
    let (tell, told) = sync_channel(workers.len().max(1));
    let asked = workers.iter().filter(|worker| tell_requests(worker, tell.clone())).count();
    let ends_at = Instant::now() + WORKERS;
    let mut requests = Vec::new();
    for _ in 0..asked {
        let left = ends_at.saturating_duration_since(Instant::now());
        match told.recv_timeout(left) {
            Ok(of_worker) => requests.extend(of_worker),
            Err(_) => break,
        }
    }
    requests.sort_by_key(|it| Reverse(it.age_ms));
    requests.truncate(REQUESTS_MAX);
    let networks = ClientNetworks::new(&running.config().client_networks);
    requests.into_iter().map(|request| status(request, &networks)).collect()
}

/// The requests of all nodes, and those of this process.
pub(super) fn of_cluster(running: &Running) -> ClusterRequests {
    let own = requests(running);
    let mut answers = nodes::ask(running, NodeQuestion::Requests, || own.clone());
    let missing = nodes::missing(&answers);
    if nodes::own_node(running).is_none() {
        answers.push((running.roles.name.clone(), Ok(own)));
    }
    let of_node = |(from, answer): (String, Result<Vec<RequestStatus>, String>)| {
        let requests = answer.unwrap_or_default().into_iter();
        requests.map(move |request| NodeRequest { from: from.clone(), request })
    };
    let mut requests: Vec<_> = answers.into_iter().flat_map(of_node).collect();
    requests.sort_by_key(|it| Reverse(it.request.age_ms));
    let mut by_network = BTreeMap::<String, BTreeMap<String, u64>>::new();
    for NodeRequest { request, .. } in &requests {
        if let Some(pool) = &request.pool {
            let of_pool = by_network.entry(pool.clone()).or_default();
            *of_pool.entry(request.network.clone()).or_default() += 1;
        }
    }
    ClusterRequests { requests, by_network, missing }
}

fn status(request: RequestInFlight, networks: &ClientNetworks) -> RequestStatus {
    let is_pool = request.group_word == "pool";
    let group = Some(request.group);
    let (pool, service) = if is_pool { (group, None) } else { (None, group) };
    RequestStatus {
        pool,
        service,
        at: request.member,
        client: request.client,
        network: networks.name_of(request.client).to_owned(),
        method: request.method,
        path: request.path,
        age_ms: request.age_ms,
        is_tunnel: request.is_tunnel,
    }
}
