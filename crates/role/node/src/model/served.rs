//! Sizes of objects to report to dispatchers, and to nodes that hand off: under `redirect` and `handoff` the
//! process that selects a node sees no responses and learns sizes only from these reports.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use skep_config::{Config, DispatchMode};
use skep_http::RequestHead;
use skep_http::path::{self, Path, Reading};
use skep_policy::url_hash;
use skep_wire::message::{OBJECTS_PER_MESSAGE_MAX, ServedObjects, SizedObject};
use skep_wire::seal::PeerId;

use crate::limits::{SIZES_MESSAGES_MAX, SIZES_WAITING_MAX};

/// Shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Under `handoff` URLs include the host.
    with_host: AtomicBool,
    /// Under `redirect` the host is that of the node, not the one sent to the dispatcher, and is left out.
    without_host: AtomicBool,
    waiting: Mutex<Vec<SizedObject>>,
}

impl Served {
    pub(crate) fn of(config: &Config) -> Self {
        let served = Self::default();
        served.reload(config);
        served
    }

    pub(crate) fn reload(&self, config: &Config) {
        let has = |mode| {
            config.reports_load() && config.services.iter().any(|service| service.dispatch == mode)
        };
        self.with_host.store(has(DispatchMode::Handoff), Relaxed);
        self.without_host.store(has(DispatchMode::Redirect), Relaxed);
    }

    /// Whether any process needs the reports.
    pub(crate) fn is_wanted(&self) -> bool {
        self.with_host.load(Relaxed) || self.without_host.load(Relaxed)
    }

    /// Records the size of the object requested by `request`, in bytes.
    pub(crate) fn note(&self, request: &RequestHead<'_, '_>, bytes: u64) {
        // A path that cannot be normalised had no successful reply.
        let Ok(path) = path::read(request.path, Reading::Origins).map(Path::into_place) else {
            return;
        };
        let mut host = Vec::new();
        request.authority.write_lower(&mut host);
        let hosts = [(&self.with_host, &host[..]), (&self.without_host, &b""[..])];
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, host) in hosts.iter().filter(|(is_wanted, _)| is_wanted.load(Relaxed)) {
            if waiting.len() < SIZES_WAITING_MAX {
                waiting.push(SizedObject { url_hash: url_hash(host, &path, request.query), bytes });
            }
        }
    }

    /// The objects to report now, as messages of `node`.
    pub(crate) fn take(&self, node: PeerId) -> Vec<ServedObjects> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let now = waiting.len().min(SIZES_MESSAGES_MAX * OBJECTS_PER_MESSAGE_MAX);
        let objects: Vec<SizedObject> = waiting.drain(..now).collect();
        drop(waiting);
        let message = |objects: &[SizedObject]| ServedObjects { node, objects: objects.to_vec() };
        objects.chunks(OBJECTS_PER_MESSAGE_MAX).map(message).collect()
    }
}
