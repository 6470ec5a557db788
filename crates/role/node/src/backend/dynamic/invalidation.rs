//! Invalidates what an unsafe request changes, on all nodes, before its client has the response (RFC
//! 9111 4.4).
//!
//! ```text
//!  head of the answer --> purges of its URL, of Location and Content-Location, of groups
//!     here at once -----> coordinator -----> all nodes, this one too
//!  client <---- when it came back, or INVALIDATION_WAIT_MS are over
//! ```
//!
//! Stamps of purges are part of names, so responses requested before are not found afterwards.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use skep_http::path::{self, Reading};
use skep_http::{Host, Method, ResponseHead};
use skep_httpcache::{TargetUri, invalidated, invalidated_groups};
use skep_proxy::{Tap, TapBody, Tapped};
use skep_wire::cache::{PurgeKind, PurgePlace, PurgeWhat};
use skep_wire::limits::{PURGE_TAG_BYTES_MAX, PURGES_PER_MESSAGE_MAX};

use crate::limits::INVALIDATION_WAIT_MS;
use crate::model::pool_cache::is_named_by_purges;
use crate::model::route::Route;
use crate::model::site::Site;
use crate::peers::PeerClient;

/// A request that may change resources.
pub(crate) struct Changed<'a> {
    pub(crate) method: Method<'a>,
    pub(crate) scheme: &'static str,
    pub(crate) authority: Host<'a>,
    /// Path and query as the client sent them.
    pub(crate) target: Vec<u8>,
}

/// Observes the response to it.
pub(crate) struct Invalidation<'a> {
    route: &'a Arc<Route>,
    site: &'a Site,
    peer_client: Option<&'a PeerClient>,
    changed: Changed<'a>,
    /// The Cache-Status line for the client.
    line: Vec<u8>,
    told: Option<Pin<Box<dyn Future<Output = ()> + 'a>>>,
}

impl<'a> Invalidation<'a> {
    pub(crate) fn new(
        (route, site): (&'a Arc<Route>, &'a Site),
        peer_client: Option<&'a PeerClient>,
        changed: Changed<'a>,
        line: Vec<u8>,
    ) -> Self {
        Self { route, site, peer_client, changed, line, told: None }
    }

    /// The purges that a response causes.
    fn purges(&self, head: &ResponseHead<'_, '_>) -> Vec<PurgeWhat> {
        let Changed { method, scheme, authority, target } = &self.changed;
        let fields = head.fields.iter().map(|(name, value)| (name.as_bytes(), value));
        let uri = TargetUri { scheme, authority: *authority, path_and_query: target };
        let paths = invalidated(*method, head.status, &uri, fields.clone());
        let places = paths.iter().flat_map(|path| self.places(path));
        let groups = invalidated_groups(*method, head.status, fields);
        let groups = groups.into_iter().filter(|group| group.len() <= PURGE_TAG_BYTES_MAX);
        places.chain(groups.map(PurgeWhat::Tag)).take(PURGES_PER_MESSAGE_MAX).collect()
    }

    /// The purges of a path and query, in each form under which a route of the site may have stored
    /// it.
    fn places(&self, path_and_query: &[u8]) -> Vec<PurgeWhat> {
        let mut parts = path_and_query.splitn(2, |byte| *byte == b'?');
        let path = path::read(parts.next().unwrap_or_default(), Reading::Origins);
        let Ok(path) = path else { return Vec::new() };
        let targets = self.site.stored_targets(path.target(), parts.next());
        targets.iter().filter_map(|target| self.place(target)).collect()
    }

    /// The purge of a target; `None`: the target is too long to be purged, and nothing is stored
    /// under it.
    fn place(&self, target: &[u8]) -> Option<PurgeWhat> {
        if !is_named_by_purges(target) {
            return None;
        }
        let target = String::from_utf8(path::place(target).into_owned()).ok()?;
        let mut name = Vec::new();
        self.changed.authority.write_lower(&mut name);
        let host = String::from_utf8(name).ok().filter(|name| !name.is_empty());
        Some(PurgeWhat::Url(PurgePlace { target, host }))
    }
}

impl Tap for Invalidation<'_> {
    fn head(&mut self, head: &ResponseHead<'_, '_>) -> Tapped {
        let what = self.purges(head);
        if !what.is_empty() {
            let route = self.route;
            let stamp = route.purges.purge(PurgeKind::Hard, what.clone());
            let is_told = self.peer_client.is_some_and(|it| it.invalidate(what));
            if is_told {
                let target = self.changed.target.clone();
                let told = route.purges.until(move |known| route.purged(known, &target) > stamp);
                let limit = Duration::from_millis(INVALIDATION_WAIT_MS);
                // After a timeout the purge arrives a little later.
                let told = async move { drop(tokio::time::timeout(limit, told).await) };
                self.told = Some(Box::pin(told));
            }
        }
        Tapped::Pass(std::mem::take(&mut self.line))
    }

    fn body(&mut self, _: &[u8]) -> TapBody {
        TapBody::Stop
    }

    fn end(&mut self) {}

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let told = self.told.as_mut();
        let polled = told.map_or(Poll::Ready(()), |told| told.as_mut().poll(cx));
        if polled.is_ready() {
            self.told = None;
        }
        polled
    }

    fn outlives_client(&self) -> bool {
        false
    }
}
