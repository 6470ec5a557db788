//! The shared cache in front of pools: responses that servers of applications allow to be stored.
//!
//! ```text
//!  request -> PoolKey -> PoolHeads::look_up --- reuse: send ------------> Resource, as an origin's
//!                           | none, stale           ^ collapsed
//!                           v                       |
//!                        one leads, others wait ----'
//!                           | lease of the cluster, or another node's head
//!                           v
//!                        skep-proxy --head, body, end--> Fill: stored, copied, passed, or released
//! ```
//!
//! The rules are those of `skep-httpcache`. The leading request is the first client's own, which
//! continues if that client disconnects; a background refresh has no client.
//!
//! Invariants: a response is sent only to requests whose key, and whose fields named by its Vary,
//! equal those of the request that it answered; a response that may not be stored is sent to one
//! client only; a request waits for at most one other request for its variant, and never while the
//! key is marked; stored bytes are those of one response (its version is unique), complete
//! according to the protocol, or they are dropped.

mod body;
mod explain;
mod fill;
mod heads;
mod invalidation;
mod judge;
mod judgements;
mod paused;
mod peer_head;
mod received;
mod refresh_ahead;
mod refresh_place;
mod response_copy;
mod seek;
mod slot;

pub(crate) use body::PoolSegment;
pub(crate) use explain::LookupOutcome;
pub(crate) use fill::{Fill, FillOutcome, FillPlan, Led, Wishes};
pub(crate) use heads::{FlightOutcome, PoolFlight, PoolHeads, PoolLookup};
pub(crate) use invalidation::{Changed, Invalidation};
pub(crate) use judge::{Alone, StaleUse, is_for, is_sent_as_it_is, use_of_stale};
pub(crate) use refresh_ahead::is_to_be_refreshed;
pub(crate) use seek::{PoolRequest, PoolSought, seek};
pub(crate) use slot::Refusal;
