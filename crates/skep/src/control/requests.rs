//! The requests that this process has at servers of pools and at nodes now.

use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use skep_console::RequestStatus;
use skep_proxy::{RequestInFlight, tell_requests};

use crate::running::Running;

/// Requests that are shown: the oldest, which are of interest.
const REQUESTS_MAX: usize = 1_000;

/// How long workers are waited for: a later answer is ignored.
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
    requests.sort_by_key(|it| std::cmp::Reverse(it.age_ms));
    requests.truncate(REQUESTS_MAX);
    requests.into_iter().map(status).collect()
}

fn status(request: RequestInFlight) -> RequestStatus {
    let is_pool = request.group_word == "pool";
    let group = Some(request.group);
    let (pool, service) = if is_pool { (group, None) } else { (None, group) };
    RequestStatus {
        pool,
        service,
        at: request.member,
        client: request.client,
        method: request.method,
        path: request.path,
        age_ms: request.age_ms,
        is_tunnel: request.is_tunnel,
    }
}
