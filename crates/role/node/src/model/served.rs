//! Which objects dispatchers, and nodes that hand off, are to be told of: under `redirect` and `handoff` the process that chooses a
//! node sees no responses, and knows the sizes of objects only from here.

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
    /// Under `handoff` URLs are told apart by their hosts, too.
    with_host: AtomicBool,
    /// Under `redirect` clients come by the host of the node, whatever it was at the dispatcher.
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

    /// Whether anybody is to be told.
    pub(crate) fn is_wanted(&self) -> bool {
        self.with_host.load(Relaxed) || self.without_host.load(Relaxed)
    }

    /// The object that `request` asks for has so many bytes.
    pub(crate) fn note(&self, request: &RequestHead<'_, '_>, bytes: u64) {
        // What cannot be normalised was not answered for.
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

    /// What is to be told now, as messages of `node`.
    pub(crate) fn take(&self, node: PeerId) -> Vec<ServedObjects> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let now = waiting.len().min(SIZES_MESSAGES_MAX * OBJECTS_PER_MESSAGE_MAX);
        let objects: Vec<SizedObject> = waiting.drain(..now).collect();
        drop(waiting);
        let message = |objects: &[SizedObject]| ServedObjects { node, objects: objects.to_vec() };
        objects.chunks(OBJECTS_PER_MESSAGE_MAX).map(message).collect()
    }
}
