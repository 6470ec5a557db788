//! Routes whose bytes come from HTTP origins.
//!
//! ```text
//!  path?query -> OriginHeadCache: current? --yes--> Resource, served like a file
//!                  | unknown or stale: one SingleFlight for all requests
//!                  v
//!                head: GET with the range of segment 0, conditional on the cached version
//!                  |-- 304 -----------> the same version, renewed
//!                  |-- cacheable -----> Resource; its body fills segment 0
//!                  '-- not cacheable -> passed to one client; the others ask for themselves
//!
//!  Where nodes cooperate, the coordinator is asked for the head first, as for a
//!  segment: one node gets it from the origin, the others get it from that node.
//!
//!  other segments: ranges pinned to the version, each through the cluster's fill
//! ```
//!
//! Requests to origins contain nothing of the client: no cookies, credentials or preferences. An
//! origin's response, whatever its `Vary` field states, is therefore the one that any client would
//! get, and path and query are the whole key.
//!
//! Invariants: bytes under a name are of one version, or a segment fails and its resource is
//! fetched anew; each waiter of a flight gets its outcome or leads the next one; a response
//! that an origin excludes from shared caches is never cached.

mod client;
mod fetch;
mod head_cache;
mod kept;
mod peer_head;
mod segment;

pub(crate) use client::{PassPermit, Passed, Remotes, SlowClientPermit, Tally};
pub(crate) use head_cache::{HeadOutcome, OriginHeadCache};
pub(crate) use kept::{NotKept, lines, once};
pub(crate) use peer_head::{ReadHead, decode, encode};
pub(crate) use segment::RemoteSegment;

/// Set-up shared by the tests of this module.
#[cfg(test)]
mod rig {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use skep_config::{BackendConfig, SiteConfig};
    use skep_origin::Head;
    use skep_serve::unix_ms;

    use super::kept::{self, FetchedHead};
    use crate::model::freshness::{self, ResourceFreshness};
    use crate::model::purges::Purges;
    use crate::model::resource::Resource;
    use crate::model::route::Route;
    use crate::model::site::SiteSet;

    /// A node with a route of an origin.
    pub(super) fn node() -> Arc<Route> {
        let origins = vec!["http://127.0.0.1:1".to_owned()];
        let config = SiteConfig::of(BackendConfig { origins, ..BackendConfig::default() });
        let set = SiteSet::new(&[config], &Arc::<Purges>::default()).unwrap();
        Arc::clone(set.routes().next().unwrap())
    }

    /// A response just received from `/a`, with this length and these fields.
    pub(super) fn resource(route: &Arc<Route>, bytes: u64, fields: &str) -> Arc<Resource> {
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n{fields}\r\n");
        let head = Head::from_text(text.as_bytes(), unix_ms()).unwrap();
        let remote = route.origin().unwrap();
        let (purges, freshness) =
            (route.purges.load(), ResourceFreshness::of(&head, &remote.policy));
        let purged = freshness::purged(route, &purges, b"/a", &head);
        let (target, version) = (b"/a".to_vec(), b"v".to_vec());
        let got = FetchedHead { target, version, bytes, head, purged, is_from_peer: false };
        kept::resource(route, remote, got, freshness, &purges)
    }
}
