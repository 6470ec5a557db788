//! A dispatcher's part in purges: assigns their stamps, and tracks which nodes have
//! applied them.
//!
//! ```text
//!   command --begin--> stamp, to all linked nodes --> Purged by each: done
//!                        ^                              |
//!                        '---- a newer stamp <----------' one knew of a newer one
//! ```
//!
//! A purge is ordered by its stamp, so one whose stamp is not the newest at a node
//! might have no effect there (another dispatcher assigned the newer one, by a clock
//! that is ahead). It gets a new stamp, until its stamp is the newest on all nodes.
//!
//! Invariants: every order ends, at the latest at its deadline; a node's
//! acknowledgement counts only for a stamp that was the newest it knew.

use skep_units::Now;
use skep_wire::cache::{PurgeKind, PurgeNews, PurgeStamp, PurgeWhat};
use skep_wire::message::Name;

use crate::PurgeTables;

/// A purge command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeOrder {
    /// Hard or soft.
    pub kind: PurgeKind,
    /// What is purged, at most
    /// [`PURGES_PER_MESSAGE_MAX`](skep_wire::limits::PURGES_PER_MESSAGE_MAX).
    pub what: Vec<PurgeWhat>,
    /// How long nodes have to acknowledge it, in milliseconds.
    pub limit_ms: u64,
    /// Nodes that serve clients; those that are not linked have the same time to link and to apply
    /// it.
    pub serving: Vec<Name>,
}

/// The result of a purge at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeFate {
    /// The node has applied it, after this many milliseconds.
    Acknowledged {
        /// Milliseconds since the command.
        ms: u64,
    },
    /// It is linked but has not acknowledged in time.
    Late,
    /// Its link has ended. It receives the purge when it links again.
    Lost,
    /// It serves clients, but was not linked in time.
    Unlinked,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeReport {
    /// The final stamp of the purge.
    pub stamp: PurgeStamp,
    /// Each node that was linked when the command began, or serves clients.
    pub nodes: Vec<(Name, PurgeFate)>,
}

impl PurgeReport {
    /// Whether all nodes have applied it.
    pub fn is_complete(&self) -> bool {
        self.nodes.iter().all(|(_, fate)| matches!(fate, PurgeFate::Acknowledged { .. }))
    }
}

/// `L` identifies a link, `T` the recipient of the result of an order.
#[derive(Debug)]
pub struct Purger<L, T> {
    /// The number of this dispatcher.
    number: u16,
    purges: PurgeTables,
    orders: Vec<Order<L, T>>,
}

#[derive(Debug)]
struct Order<L, T> {
    kind: PurgeKind,
    what: Vec<PurgeWhat>,
    stamp: PurgeStamp,
    began: Now,
    ends: Now,
    nodes: Vec<Told<L>>,
    teller: T,
}

/// A node that is to apply a purge.
#[derive(Debug)]
struct Told<L> {
    name: Name,
    link: Option<L>,
    /// Whether to wait for a link of this node.
    is_serving: bool,
    /// `None` while pending.
    fate: Option<PurgeFate>,
    /// The result if nothing more is received from it.
    otherwise: PurgeFate,
}

impl<L: Copy + PartialEq, T> Purger<L, T> {
    /// A purger for the dispatcher with this unique number; without any purges.
    pub fn new(number: u16) -> Self {
        Self { number, purges: PurgeTables::default(), orders: Vec::new() }
    }

    /// All known purges.
    pub fn purges(&self) -> &PurgeTables {
        &self.purges
    }

    /// Begins a purge, at `unix_ms` by the wall clock. The returned purge, of the kind of the
    /// order, must be sent to all `nodes`, the linked ones.
    pub fn begin(
        &mut self,
        (now, unix_ms): (Now, u64),
        order: PurgeOrder,
        nodes: impl IntoIterator<Item = (L, Name)>,
        teller: T,
    ) -> PurgeNews {
        let PurgeOrder { kind, what, limit_ms, serving } = order;
        let (stamp, news) = self.stamp(unix_ms, kind, &what);
        let linked = nodes.into_iter().map(|(link, name)| Told {
            is_serving: serving.contains(&name),
            name,
            link: Some(link),
            fate: None,
            otherwise: PurgeFate::Late,
        });
        let mut nodes: Vec<Told<L>> = linked.collect();
        for name in serving {
            if nodes.iter().all(|node| node.name != name) {
                let otherwise = PurgeFate::Unlinked;
                nodes.push(Told { name, link: None, is_serving: true, fate: None, otherwise });
            }
        }
        let ends = now.plus_ms(limit_ms);
        self.orders.push(Order { kind, what, stamp, began: now, ends, nodes, teller });
        news
    }

    /// Merges purges from another machine. Returns those that were new, to be sent to all others.
    pub fn learn(&mut self, kind: PurgeKind, news: &PurgeNews) -> Option<PurgeNews> {
        self.purges.learn(kind, news)
    }

    /// A node has applied all purges up to `stamp`, and the newest stamp that it knows is `newest`.
    /// A returned purge must be sent to all linked nodes.
    pub fn acknowledged(
        &mut self,
        (now, unix_ms): (Now, u64),
        link: L,
        (stamp, newest): (PurgeStamp, PurgeStamp),
    ) -> Option<(PurgeKind, PurgeNews)> {
        let at = self.orders.iter().position(|order| {
            order.stamp == stamp && order.nodes.iter().any(|node| node.link == Some(link))
        })?;
        if newest > stamp {
            // Recorded now, so that the next stamp is after it.
            self.purges.heard_of(newest);
            let (kind, what) = (self.orders[at].kind, self.orders[at].what.clone());
            let (stamp, news) = self.stamp(unix_ms, kind, &what);
            let order = &mut self.orders[at];
            order.stamp = stamp;
            let there = order.nodes.iter_mut().filter(|node| node.fate != Some(PurgeFate::Lost));
            there.for_each(|node| node.fate = None);
            return Some((kind, news));
        }
        let order = &mut self.orders[at];
        let ms = now.since_ms(order.began);
        let node = order.nodes.iter_mut().filter(|node| node.link == Some(link));
        node.for_each(|node| node.fate = Some(PurgeFate::Acknowledged { ms }));
        None
    }

    /// A node has linked, perhaps again, and was sent all purges.
    pub fn joined(&mut self, link: L, name: &Name) {
        let nodes = self.orders.iter_mut().flat_map(|order| &mut order.nodes);
        for node in nodes.filter(|node| node.name == *name && node.fate.is_none()) {
            (node.link, node.otherwise) = (Some(link), PurgeFate::Late);
        }
    }

    /// A link has ended. A node that serves clients may link again in time.
    pub fn left(&mut self, link: L) {
        let nodes = self.orders.iter_mut().flat_map(|order| &mut order.nodes);
        for node in nodes.filter(|node| node.link == Some(link) && node.fate.is_none()) {
            (node.link, node.otherwise) = (None, PurgeFate::Lost);
            node.fate = (!node.is_serving).then_some(PurgeFate::Lost);
        }
    }

    /// Sets the nodes that serve clients: links of other nodes are not waited for.
    pub fn set_serving(&mut self, serving: &[Name]) {
        let nodes = self.orders.iter_mut().flat_map(|order| &mut order.nodes);
        let awaited = nodes.filter(|node| node.link.is_none() && node.fate.is_none());
        for node in awaited.filter(|node| !serving.contains(&node.name)) {
            node.fate = Some(node.otherwise);
        }
    }

    /// Removes and returns the orders that all nodes acknowledged or that timed out, with the
    /// recipients of the results.
    pub fn ended(&mut self, now: Now) -> Vec<(T, PurgeReport)> {
        let is_over = |order: &mut Order<L, T>| {
            now >= order.ends || order.nodes.iter().all(|node| node.fate.is_some())
        };
        let report = |order: Order<L, T>| {
            let fate = |node: Told<L>| (node.name, node.fate.unwrap_or(node.otherwise));
            let nodes = order.nodes.into_iter().map(fate).collect();
            (order.teller, PurgeReport { stamp: order.stamp, nodes })
        };
        self.orders.extract_if(.., is_over).map(report).collect()
    }

    fn stamp(
        &mut self,
        unix_ms: u64,
        kind: PurgeKind,
        what: &[PurgeWhat],
    ) -> (PurgeStamp, PurgeNews) {
        let stamp = PurgeStamp::after(self.purges.newest(), unix_ms, self.number);
        let purges = what.iter().map(|what| (what.clone(), stamp)).collect();
        let news = PurgeNews { purges, ..PurgeNews::default() };
        self.purges.learn(kind, &news);
        (stamp, news)
    }
}
