//! The table of operators' orders about servers of pools: for each server, the latest order on each
//! aspect.
//!
//! Nodes and coordinators each have one, and exchange their entries, as with purges: a merge can
//! only raise stamps, and entries that arrive twice or late have no effect.
//!
//! Invariants: of two orders on the same aspect of a server, the later one takes precedence
//! everywhere; orders about a server from before it was added or removed do not apply to the one
//! that was added since; the table is bounded, and forgets the oldest orders.

use std::collections::BTreeMap;

use skep_wire::cache::{OrderStamp, ServerAspect, ServerOrder};
use skep_wire::limits::SERVER_ORDERS_MAX;
use skep_wire::message::Name;

/// Pool, server, and aspect.
type Place = (Name, Name, ServerAspect);

#[derive(Debug, Default)]
pub struct OrderTable {
    orders: BTreeMap<Place, ServerOrder>,
    newest: OrderStamp,
}

impl OrderTable {
    /// A stamp later than all known ones, assigned at `unix_ms` (milliseconds since 1970) by the
    /// process with this number.
    pub fn next_stamp(&mut self, unix_ms: u64, number: u16) -> OrderStamp {
        self.newest = OrderStamp::after(self.newest, unix_ms, number);
        self.newest
    }

    /// Merges orders; returns those that are later than the known ones, the oldest first. Ignores
    /// orders whose stamps are further ahead of `unix_ms` (milliseconds since 1970) than clocks may
    /// differ.
    pub fn learn(&mut self, unix_ms: u64, orders: Vec<ServerOrder>) -> Vec<ServerOrder> {
        let is_news =
            |order: &ServerOrder| !order.stamp.is_ahead_of(unix_ms) && self.is_news(order);
        let mut new: Vec<_> = orders.into_iter().filter(is_news).collect();
        new.sort_by_key(|order| order.stamp);
        for order in &new {
            self.newest = self.newest.max(order.stamp);
            if order.change.aspect() == ServerAspect::Presence {
                let is_before = |(pool, server, _): &Place, known: &ServerOrder| {
                    (pool, server) == (&order.pool, &order.server) && known.stamp < order.stamp
                };
                self.orders.retain(|place, known| !is_before(place, known));
            }
            self.orders.insert(place(order), order.clone());
        }
        while self.orders.len() > SERVER_ORDERS_MAX {
            let oldest = self.orders.iter().min_by_key(|(_, order)| order.stamp);
            let Some(oldest) = oldest.map(|(place, _)| place.clone()) else { break };
            self.orders.remove(&oldest);
        }
        // An order may have been superseded by another one in the same message.
        new.retain(|order| self.orders.get(&place(order)) == Some(order));
        new
    }

    /// Whether the order is later than the known ones on the same aspect, and on the server's
    /// presence.
    pub fn is_news(&self, order: &ServerOrder) -> bool {
        let (pool, server, aspect) = place(order);
        let is_after = |known: Option<&ServerOrder>| known.is_none_or(|it| it.stamp < order.stamp);
        let presence = (pool.clone(), server.clone(), ServerAspect::Presence);
        is_after(self.orders.get(&(pool, server, aspect))) && is_after(self.orders.get(&presence))
    }

    /// Whether the order is in force.
    pub fn has(&self, order: &ServerOrder) -> bool {
        self.orders.get(&place(order)).is_some_and(|known| known.stamp == order.stamp)
    }

    /// All orders in force, the oldest first.
    pub fn all(&self) -> Vec<ServerOrder> {
        let mut all: Vec<_> = self.orders.values().cloned().collect();
        all.sort_by_key(|order| order.stamp);
        all
    }
}

fn place(order: &ServerOrder) -> Place {
    (order.pool.clone(), order.server.clone(), order.change.aspect())
}
