//! One policy of a worker, with its view of the members among which it selects.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use skep_http::RequestHead;
use skep_http::path::{self, Path, Reading};
use skep_policy::{
    AttemptEnd, ClusterView, NodeView, Policy, PolicyInfo, RequestKey, ServedLog, ServedObject,
    ServedReader, policies,
};
use skep_units::{NodeId, Now};

use crate::members::published::Published;

pub(crate) struct Chooser {
    policy: Box<dyn Policy>,
    content_aware: bool,
    learns_sizes: bool,
    view: ClusterView,
    /// Index among the members of each node of the view.
    members: Vec<usize>,
    /// Object sizes reported by members, if the policy uses sizes and this process sees no
    /// responses.
    served: Option<ToldSizes>,
}

/// Object sizes reported by members, and how far the policy has read them.
struct ToldSizes {
    log: Cache<Arc<ArcSwap<ServedLog>>, Arc<ServedLog>>,
    reader: ServedReader,
}

/// The selection of a policy.
pub(crate) struct Chosen {
    /// Index among the members.
    pub(crate) index: usize,
    /// Hash of the request's URL, if the policy is to learn the object's size.
    pub(crate) url_hash: Option<u64>,
}

impl Chooser {
    /// Creates the policy called `policy`; [`Self::follow`] sets its members.
    pub(crate) fn new(policy: &str, seed: u64) -> Self {
        Self {
            policy: build(policy, seed),
            content_aware: info_of(policy).content_aware,
            learns_sizes: info_of(policy).learns_sizes,
            view: ClusterView::default(),
            members: Vec::new(),
            served: None,
        }
    }

    /// Selects from now on among the members with these names; empty: among all.
    pub(crate) fn follow(&mut self, published: &Published, names: &[String]) {
        let is_in = |name: &str| names.is_empty() || names.iter().any(|it| it == name);
        let members = published.members.iter().enumerate();
        self.members = members
            .filter(|(_, entry)| is_in(&entry.member.name))
            .map(|(index, _)| index)
            .collect();
        let memory_bytes = published.settings.memory_bytes;
        self.view.version = published.members_version;
        self.view.has_cluster_cache = published.settings.have_cluster_cache;
        let node = |index: &usize| {
            let entry = &published.members[*index];
            NodeView {
                eligible: false,
                slow_start_permille: 1,
                memory_bytes,
                ..NodeView::idle(entry.member.id, entry.member.name_hash, entry.weight)
            }
        };
        self.view.nodes = self.members.iter().map(node).collect();
        let served = published.served.as_ref().filter(|_| self.learns_sizes);
        self.served = match (served, self.served.take()) {
            (Some(_), Some(known)) => Some(known),
            (served, _) => served.map(ToldSizes::new),
        };
    }

    /// Selects a member for `request`; `host` is a scratch buffer. `published` is the state passed
    /// to [`Self::follow`] last.
    pub(crate) fn choose(
        &mut self,
        (request, client): (&RequestHead<'_, '_>, SocketAddr),
        published: &Published,
        exclude: &[NodeId],
        now: Now,
        scratch: &mut Vec<u8>,
    ) -> Option<Chosen> {
        self.refresh(published, now);
        if let Some(told) = &mut self.served {
            told.reader.teach(told.log.load(), &self.view.nodes, &mut *self.policy);
        }
        let (mut host, mut path) = (request.authority.name, Cow::Borrowed(request.path));
        if self.content_aware {
            if host.iter().any(u8::is_ascii_uppercase) {
                scratch.clear();
                request.authority.write_lower(scratch);
                host = scratch;
            }
            // A path that cannot be normalised is left to the member to refuse.
            path = path::read(request.path, Reading::Origins).map_or(path, Path::into_place);
        }
        let key = RequestKey {
            client: client.ip(),
            client_port: client.port(),
            // Members receive requests under other host names, and report sizes without hosts.
            host: if self.served.is_some() { b"" } else { host },
            path: &path,
            query: request.query,
        };
        let id = self.policy.pick(&key, &self.view, exclude).node()?;
        self.policy.started(id);
        let url_hash = self.learns_sizes.then(|| key.url_hash());
        if let (Some(url_hash), Some(_)) = (url_hash, &self.served) {
            self.policy.sent_unseen(url_hash);
        }
        let at = self.view.nodes.iter().position(|node| node.id == id)?;
        Some(Chosen { index: self.members[at], url_hash })
    }

    /// Records a request that was sent to a member which this policy did not select.
    pub(crate) fn started(&mut self, node: NodeId) {
        self.policy.started(node);
    }

    /// Reports an object's size to the policy.
    pub(crate) fn learned(&mut self, url_hash: u64, object: ServedObject) {
        self.policy.learned(url_hash, object);
    }

    /// Reports the end of an attempt to the policy.
    pub(crate) fn finished(&mut self, now: Now, node: NodeId, end: AttemptEnd) {
        self.policy.finished(now, node, end);
    }

    fn refresh(&mut self, published: &Published, now: Now) {
        self.view.now = now;
        let interval_ms = published.settings.report_interval_ms;
        for (view, index) in self.view.nodes.iter_mut().zip(&self.members) {
            published.members[*index].member.refresh(view, now, interval_ms);
        }
    }
}

impl ToldSizes {
    fn new(log: &Arc<ArcSwap<ServedLog>>) -> Self {
        Self { log: Cache::new(Arc::clone(log)), reader: ServedReader::default() }
    }
}

fn build(policy: &str, seed: u64) -> Box<dyn Policy> {
    #[expect(clippy::expect_used, reason = "config and control take no other names")]
    skep_policy::build(policy, seed).expect("a policy in force has a known name")
}

fn info_of(policy: &str) -> &'static PolicyInfo {
    let info = policies().iter().find(|info| info.name == policy);
    #[expect(clippy::expect_used, reason = "config and control take no other names")]
    info.expect("a policy in force has a known name")
}
