//! Asks other nodes for a response before servers are asked.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use skep_http::RequestHead;
use skep_serve::monotonic_ms;

use super::heads::PoolFlight;
use super::judge::is_for;
use super::peer_head;
use crate::model::pool_cache::{PoolCache, PoolKey};
use crate::model::resource::Resource;
use crate::model::route::Route;
use crate::peers::{HeadLease, HeadSought, PeerClient};

/// The result of asking other nodes.
pub(crate) enum PoolSought {
    /// Another node has it. It may be for requests with other fields.
    Found(Arc<Resource>),
    /// A node that asked reports that the response may not be stored.
    NotStored,
    /// This node is to ask a server.
    Ask(PoolRequest),
}

/// A request to a server, for all that wait.
pub(crate) struct PoolRequest {
    /// For requests that wait on other nodes.
    pub(crate) lease: Option<HeadLease>,
    /// The response to validate: stored here, or on another node.
    pub(crate) kept: Option<Arc<Resource>>,
}

/// Asks other nodes for the response that `flight`, led by `request`, is for. A stale response of theirs
/// counts as absent, and is validated.
pub(crate) async fn seek(
    peer_client: Option<&Rc<PeerClient>>,
    (route, cache, key): (&Arc<Route>, &PoolCache, &PoolKey),
    (request, flight): (&RequestHead<'_, '_>, &PoolFlight),
) -> PoolSought {
    let stale = Cell::new(None);
    let read = |peer_head: &_, transit_ms| {
        let came = (peer_head, transit_ms);
        let read = peer_head::read((route, cache, key), came, flight.purges());
        let found = read.filter(|resource| !flight.is_gone(resource))?;
        let is_fresh = found.freshness().is_some_and(|it| it.is_fresh(monotonic_ms()));
        if !is_fresh && is_for(&found, request) {
            stale.set(Some(Arc::clone(&found)));
        }
        is_fresh.then_some(found)
    };
    let sought = match peer_client {
        Some(peer_client) => peer_client.seek_head(flight.name(), read).await,
        None => HeadSought::Nowhere,
    };
    let lease = match sought {
        HeadSought::Found(resource) => return PoolSought::Found(resource),
        HeadSought::NotStored => return PoolSought::NotStored,
        HeadSought::Granted(lease) => Some(lease),
        HeadSought::Nowhere => None,
    };
    PoolSought::Ask(PoolRequest { lease, kept: flight.kept_or(stale.take()) })
}
