//! Single flights: for each key one request is sent at a time, and all others that need the same object
//! wait for its outcome.
//!
//! ```text
//!  join(key) --first--> SingleFlight: asks, then lands with an outcome --.
//!        '---others--> FlightWaiter: waits <-----outcome, or none--------'
//! ```
//!
//! Invariant: every flight ends. If it is dropped without an outcome, its waiters are woken and the
//! next request to join leads.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use skep_wire::cache::{PeerRefusal, SegmentName};
use tokio::sync::watch;

use crate::limits::{HEAD_WAIT_MS, LEASE_WAIT_MS};

/// The flights in progress, by key.
#[derive(Debug)]
pub(crate) struct Flights<K, V> {
    under_way: Mutex<HashMap<K, watch::Receiver<FlightState<V>>>>,
}

#[derive(Debug)]
enum FlightState<V> {
    /// It may wait for other nodes.
    AskingPeers,
    /// It waits for an origin only.
    AskingOrigin,
    Done(V),
}

/// The result of joining a flight.
pub(crate) enum FlightRole<K: Hash + Eq, V> {
    /// No request is in progress: the caller must send it.
    Lead(SingleFlight<K, V>),
    Wait(FlightWaiter<V>),
}

/// The only request in progress for a key. Its holder must send it.
#[derive(Debug)]
pub(crate) struct SingleFlight<K: Hash + Eq, V> {
    flights: Arc<Flights<K, V>>,
    key: K,
    sender: watch::Sender<FlightState<V>>,
}

/// Waits for the flight of another request.
#[derive(Debug)]
pub(crate) struct FlightWaiter<V>(watch::Receiver<FlightState<V>>);

impl<K: Hash + Eq + Clone, V> Flights<K, V> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { under_way: Mutex::default() })
    }

    /// Joins the flight for `key`, or begins it.
    pub(crate) fn join(self: &Arc<Self>, key: &K) -> FlightRole<K, V> {
        let mut under_way = self.lock();
        if let Some(flight) = under_way.get(key) {
            return FlightRole::Wait(FlightWaiter(flight.clone()));
        }
        let (sender, receiver) = watch::channel(FlightState::AskingPeers);
        under_way.insert(key.clone(), receiver);
        FlightRole::Lead(SingleFlight { flights: Arc::clone(self), key: key.clone(), sender })
    }

    /// The flight for `key`, if one is in progress.
    pub(crate) fn find(&self, key: &K) -> Option<FlightWaiter<V>> {
        self.lock().get(key).map(|flight| FlightWaiter(flight.clone()))
    }
}

impl<V: Clone> Flights<SegmentName, V> {
    /// The outcome of the flight for `name`, for another node: waits briefly for servers that are being
    /// asked, but not for other nodes, which may be waiting for this one.
    pub(crate) async fn outcome_for_peer(&self, name: &SegmentName) -> Result<V, PeerRefusal> {
        let mut flight = self.find(name).ok_or(PeerRefusal::NotThere)?;
        // The coordinator's grant to this node may arrive later than its answer to the other node.
        let asks = Duration::from_millis(LEASE_WAIT_MS);
        let asks = tokio::time::timeout(asks, flight.past_peers()).await;
        asks.ok().flatten().ok_or(PeerRefusal::NotThere)?;
        let limit = Duration::from_millis(HEAD_WAIT_MS);
        match tokio::time::timeout(limit, flight.outcome()).await {
            Err(_) => Err(PeerRefusal::Overloaded),
            Ok(outcome) => outcome.ok_or(PeerRefusal::NotThere),
        }
    }
}

impl<K: Hash + Eq, V> Flights<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, watch::Receiver<FlightState<V>>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, V> SingleFlight<K, V> {
    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// Records that from now on it waits for an origin only.
    pub(crate) fn asks_origin(&self) {
        self.sender.send_replace(FlightState::AskingOrigin);
    }

    /// Wakes the waiters with the outcome.
    pub(crate) fn land(self, outcome: V) {
        self.sender.send_replace(FlightState::Done(outcome));
    }

    /// Whether any request waits for its outcome.
    pub(crate) fn is_awaited(&self) -> bool {
        /// The receiver in the table, which is cloned for each request that joins.
        const OF_THE_TABLE: usize = 1;
        self.sender.receiver_count() > OF_THE_TABLE
    }

    /// Returns another waiter for the same flight.
    pub(crate) fn waiter(&self) -> FlightWaiter<V> {
        FlightWaiter(self.sender.subscribe())
    }
}

impl<K: Hash + Eq, V> Drop for SingleFlight<K, V> {
    fn drop(&mut self) {
        let mut under_way = self.flights.lock();
        under_way.remove(&self.key);
        if under_way.capacity() / 8 > under_way.len() {
            under_way.shrink_to_fit();
        }
    }
}

impl<V: Clone> FlightWaiter<V> {
    /// Waits for the outcome; `None`: the flight was dropped without one.
    pub(crate) async fn outcome(&mut self) -> Option<V> {
        let is_over = |state: &FlightState<V>| matches!(state, FlightState::Done(_));
        match &*self.0.wait_for(is_over).await.ok()? {
            FlightState::Done(outcome) => Some(outcome.clone()),
            FlightState::AskingPeers | FlightState::AskingOrigin => None,
        }
    }

    /// Waits until the flight no longer waits for other nodes; `None`: it was dropped before.
    pub(crate) async fn past_peers(&mut self) -> Option<()> {
        let is_past = |state: &FlightState<V>| !matches!(state, FlightState::AskingPeers);
        self.0.wait_for(is_past).await.ok().map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests")]
    use super::*;

    fn lead(flights: &Arc<Flights<u8, u8>>) -> SingleFlight<u8, u8> {
        let FlightRole::Lead(flight) = flights.join(&1) else { panic!("somebody leads") };
        flight
    }

    fn wait(flights: &Arc<Flights<u8, u8>>) -> FlightWaiter<u8> {
        let FlightRole::Wait(flight) = flights.join(&1) else { panic!("nobody leads") };
        flight
    }

    #[tokio::test]
    async fn one_leads_and_all_others_have_its_outcome() {
        let flights = Flights::new();
        let flight = lead(&flights);
        let (mut one, mut other) = (wait(&flights), wait(&flights));
        assert!(matches!(flights.join(&2), FlightRole::Lead(_)));
        flight.land(7);
        assert_eq!((one.outcome().await, other.outcome().await), (Some(7), Some(7)));
        assert!(flights.find(&1).is_none());
        drop(lead(&flights));
    }

    #[tokio::test]
    async fn a_flight_that_is_dropped_ends_for_all() {
        let flights = Flights::new();
        let flight = lead(&flights);
        let (mut one, mut other) = (wait(&flights), wait(&flights));
        drop(flight);
        assert_eq!((one.outcome().await, other.past_peers().await), (None, None));
        drop(lead(&flights));
    }

    #[tokio::test]
    async fn who_may_not_wait_for_peers_waits_for_the_origin() {
        let flights = Flights::new();
        let flight = lead(&flights);
        let mut waiter = wait(&flights);
        flight.asks_origin();
        assert_eq!(waiter.past_peers().await, Some(()));
        flight.land(3);
        assert_eq!((waiter.past_peers().await, waiter.outcome().await), (Some(()), Some(3)));
    }
}
