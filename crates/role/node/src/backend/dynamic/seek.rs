//! Other nodes' responses: asked for before the servers are.

use std::rc::Rc;
use std::sync::Arc;

use super::heads::PoolFlight;
use super::peer_head;
use crate::model::pool_cache::{PoolCache, PoolKey};
use crate::model::resource::Resource;
use crate::model::route::Route;
use crate::peers::{HeadLease, HeadSought, PeerClient};

/// The result of asking other nodes.
pub(crate) enum PoolSought {
    /// One has it. It may be for requests with other fields.
    Found(Arc<Resource>),
    /// It may not be stored, says one that has asked.
    NotStored,
    /// This node is to ask, for all of them if it has a lease.
    Ask(Option<HeadLease>),
}

/// Asks other nodes for what `flight` is for.
pub(crate) async fn seek(
    peer_client: Option<&Rc<PeerClient>>,
    (route, cache, key): (&Arc<Route>, &PoolCache, &PoolKey),
    flight: &PoolFlight,
) -> PoolSought {
    let Some(peer_client) = peer_client else { return PoolSought::Ask(None) };
    let read = |peer_head: &_, transit_ms| {
        let came = (peer_head, transit_ms);
        let read = peer_head::read((route, cache, key), came, flight.purges());
        read.filter(|resource| !flight.is_gone(resource))
    };
    match peer_client.seek_head(flight.name(), read).await {
        HeadSought::Found(resource) => PoolSought::Found(resource),
        HeadSought::NotStored => PoolSought::NotStored,
        HeadSought::Granted(lease) => PoolSought::Ask(Some(lease)),
        HeadSought::Nowhere => PoolSought::Ask(None),
    }
}
