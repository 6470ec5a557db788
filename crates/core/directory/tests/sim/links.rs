//! Messages between nodes and coordinators: on links, in order, and in datagrams.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use skep_directory::{Hello, Inventory, NodeLinkId};
use skep_units::Now;
use skep_wire::cache::{ToCoordinator, ToNode};
use skep_wire::message::Name;

use crate::node::Link;
use crate::world::{Event, HOLDINGS_MAX, World};

const REPORT_MS: u64 = 50;
/// Longest delay of a datagram: some overtake others.
const LOAD_WAY_MS: u64 = 120;
/// Messages in flight on a link that broke still arrive for this time at most; longer than a delay.
const BROKEN_MS: u64 = 6;
/// Interval of parts of an inventory, of this many segments each.
const INVENTORY_GAP_MS: u64 = 15;
const INVENTORY_PART: usize = 3;

/// A link between a node and a coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Conn {
    pub(crate) id: u64,
    pub(crate) node: usize,
    pub(crate) coordinator: usize,
    /// If it broke: until when messages in flight still arrive.
    pub(crate) heard_until: Option<u64>,
    /// The coordinator has noticed its end, or another link of the node.
    pub(crate) is_closed: bool,
    pub(crate) link: Option<NodeLinkId>,
    /// Purges that bind its node once it is welcome.
    pub(crate) owed: Vec<usize>,
    /// When the last message arrives, in each direction.
    last: [u64; 2],
}

impl Conn {
    fn is_up(&self) -> bool {
        self.heard_until.is_none()
    }

    /// Whether a message that arrives now was not lost with the link.
    pub(crate) fn is_heard(&self, at: u64) -> bool {
        self.heard_until.is_none_or(|until| at <= until)
    }
}

impl World {
    pub(crate) fn connect_all(&mut self, node: usize) {
        let life = self.nodes[node].life;
        self.files.node_started(self.at, node);
        for coordinator in 0..self.scenario.coordinators {
            let at = self.at + 1 + self.rng.below(20);
            self.schedule(at, Event::Connect { node, coordinator, life });
        }
        self.schedule(self.at + REPORT_MS, Event::Report { node, life });
    }

    pub(crate) fn connect(&mut self, node: usize, coordinator: usize, life: u64) {
        if !self.lives(node, life) || self.nodes[node].links.contains_key(&coordinator) {
            return;
        }
        if !self.machines[coordinator].is_alive || self.parts.contains(&(node, coordinator)) {
            self.schedule(self.at + 50, Event::Connect { node, coordinator, life });
            return;
        }
        let id = self.number();
        let last = [self.at; 2];
        let (heard_until, is_closed, link, owed) = (None, false, None, Vec::new());
        let conn = Conn { id, node, coordinator, heard_until, is_closed, link, owed, last };
        self.conns.insert(id, conn);
        let link = Link {
            conn: id,
            changes: Default::default(),
            inventory: Inventory::new(self.nodes[node].memory.names()),
            is_active: false,
            epoch: 0,
            members: BTreeMap::new(),
        };
        self.nodes[node].links.insert(coordinator, link);
        let hello = ToCoordinator::Hello {
            name: name_of(node),
            address: SocketAddr::from(([127, 0, 0, 1], node as u16)),
            capacity_bytes: self.nodes[node].memory.capacity_bytes(),
        };
        self.say(id, hello);
        let purges = self.nodes[node].purges.told();
        purges.into_iter().for_each(|it| self.say(id, ToCoordinator::purges(it)));
        self.announce(id, 0);
        self.tell_inventory(id);
    }

    /// In many small parts, slowly: much changes between them.
    pub(crate) fn tell_inventory(&mut self, conn: u64) {
        let node = self.conns[&conn].node;
        let (said, is_part) = self.nodes[node].holdings(conn, INVENTORY_PART);
        said.into_iter().for_each(|message| self.say(conn, message));
        if is_part {
            self.schedule(self.at + INVENTORY_GAP_MS, Event::Inventory { conn });
        }
    }

    /// A node sends a message on a link; it arrives in order, or never.
    pub(crate) fn say(&mut self, conn: u64, message: ToCoordinator) {
        let encoded = ToCoordinator::decode(&message.encode());
        assert_eq!(encoded.as_ref(), Ok(&message), "it does not travel");
        if let Some(at) = self.way(conn, 0) {
            self.schedule(at, Event::ToCoordinator { conn, message });
        }
    }

    fn way(&mut self, conn: u64, way: usize) -> Option<u64> {
        let delay = 1 + self.rng.below(4);
        let conn = self.conns.get_mut(&conn).filter(|conn| conn.is_up())?;
        conn.last[way] = conn.last[way].max(self.at + delay);
        Some(conn.last[way])
    }

    pub(crate) fn coordinator_hears(
        &mut self,
        id: u64,
        message: ToCoordinator,
    ) -> Result<(), String> {
        let conn = self.conns[&id].clone();
        let now = Now(self.at);
        if conn.is_closed || !conn.is_heard(self.at) || !self.machines[conn.coordinator].is_alive {
            return Ok(());
        }
        self.tell(|| format!("n{} to c{}: {message:?}", conn.node, conn.coordinator));
        let core = &mut self.machines[conn.coordinator].core;
        if let ToCoordinator::Hello { name, address, capacity_bytes } = message {
            let joined = core.joined(Hello { name, address, capacity_bytes }).expect("few nodes");
            self.conns.get_mut(&id).expect("checked").link = Some(joined.link);
            let coordinator = conn.coordinator;
            let replaced = |conn: &&Conn| {
                conn.coordinator == coordinator
                    && conn.link.is_some()
                    && conn.link == joined.replaces
            };
            if let Some(replaced) = self.conns.values_mut().find(|conn| replaced(&&**conn)) {
                replaced.is_closed = true;
                self.check.left(replaced);
            }
            self.check.joined(&conn, joined.link.member());
            self.files.joined(&conn);
            self.tell_all_purges(id);
        } else if matches!(
            message,
            ToCoordinator::Purges(_) | ToCoordinator::SoftPurges(_) | ToCoordinator::Purged { .. }
        ) {
            self.coordinator_hears_purges(id, message);
        } else if let Some(link) = conn.link {
            self.check.hears(self.at, &conn, &message);
            core.heard(now, link, message);
        }
        self.deliver(conn.coordinator)
    }

    /// Sends the messages of a coordinator.
    pub(crate) fn deliver(&mut self, coordinator: usize) -> Result<(), String> {
        let said: Vec<(NodeLinkId, ToNode)> = self.machines[coordinator].core.outbox().collect();
        for (link, message) in said {
            let its = |conn: &&Conn| conn.coordinator == coordinator && conn.link == Some(link);
            let conn = self.conns.values().find(its).ok_or("a message to nobody")?.clone();
            self.check.says(self.at, &conn, &message)?;
            self.check_file_answer(&conn, &message)?;
            self.say_to_node(conn.id, message);
        }
        let counters = self.machines[coordinator].core.counters();
        let is_bounded = counters.holdings <= HOLDINGS_MAX as u64;
        if is_bounded { Ok(()) } else { Err(format!("beyond its bounds: {counters:?}")) }
    }

    /// A coordinator sends a message on a link.
    pub(crate) fn say_to_node(&mut self, conn: u64, message: ToNode) {
        let Conn { node, coordinator, .. } = self.conns[&conn];
        self.tell(|| format!("c{coordinator} to n{node}: {message:?}"));
        assert_eq!(ToNode::decode(&message.encode()).as_ref(), Ok(&message), "it does not travel");
        if let Some(at) = self.way(conn, 1) {
            self.schedule(at, Event::ToNode { conn, message });
        }
    }

    pub(crate) fn break_conn(&mut self, id: u64) {
        let until = self.at + self.rng.below(BROKEN_MS);
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.is_up()) else { return };
        conn.heard_until = Some(until);
        for event in [Event::CoordinatorDown { conn: id }, Event::NodeDown { conn: id }] {
            let at = self.at + self.rng.below(100);
            self.schedule(at, event);
        }
    }

    pub(crate) fn coordinator_down(&mut self, id: u64) -> Result<(), String> {
        let conn = self.conns.get_mut(&id).expect("a link");
        conn.is_closed = true;
        let conn = conn.clone();
        let Some(link) = conn.link.filter(|_| self.machines[conn.coordinator].is_alive) else {
            return Ok(());
        };
        self.machines[conn.coordinator].core.left(Now(self.at), link);
        self.purger_left(conn.coordinator, id);
        self.check.left(&conn);
        self.files.left(self.at, &conn);
        // From now on, no link has this number.
        self.deliver(conn.coordinator)
    }

    pub(crate) fn node_down(&mut self, id: u64) {
        let Conn { node, coordinator, .. } = self.conns[&id];
        let is_it = |link: &Link| link.conn == id;
        if self.nodes[node].is_alive && self.nodes[node].links.get(&coordinator).is_some_and(is_it)
        {
            self.nodes[node].links.remove(&coordinator);
            let life = self.nodes[node].life;
            self.schedule(self.at + 20, Event::Connect { node, coordinator, life });
        }
    }

    pub(crate) fn report(&mut self, node: usize, life: u64) {
        if !self.lives(node, life) {
            return;
        }
        self.tell_load(node);
        self.tell_held(node);
        let active = self.nodes[node].active().map(|link| link.conn);
        if let Some((conn, names)) = active.zip(self.nodes[node].memory.tail()) {
            self.say(conn, ToCoordinator::Tail { names });
        }
        self.schedule(self.at + REPORT_MS, Event::Report { node, life });
    }

    /// In datagrams: some are lost, duplicated, or overtaken by later ones.
    fn tell_load(&mut self, node: usize) {
        let bytes = self.nodes[node].streams as u64 * 65_536;
        let reached: Vec<usize> = self.nodes[node].links.keys().copied().collect();
        for coordinator in reached {
            let is_cut = self.parts.contains(&(node, coordinator));
            let copies = [0, 0, 2, 1, 1, 1, 1, 1][self.rng.below(8) as usize];
            for _ in 0..if is_cut { 0 } else { copies } {
                let at = self.at + self.rng.below(LOAD_WAY_MS);
                self.schedule(at, Event::Load { coordinator, node, bytes });
            }
        }
    }

    pub(crate) fn loaded(&mut self, coordinator: usize, node: usize, bytes: u64) {
        let machine = &mut self.machines[coordinator];
        if machine.is_alive {
            machine.core.loaded(Now(self.at), &name_of(node), bytes);
        }
    }

    /// A node's memory has changed: the changes are recorded for the coordinators, and evicted
    /// segments are offered.
    pub(crate) fn changed(&mut self, node: usize) {
        for name in self.nodes[node].note_changes() {
            let is_held = self.nodes.iter().any(|it| it.is_alive && it.memory.has(&name));
            self.tell(|| format!("n{node} holds {name:?} no more; others do: {is_held}"));
            self.totals.sole_lost += u64::from(!is_held);
        }
        self.offer_if_wanted(node);
    }

    /// Reports all changes to all coordinators at once.
    pub(crate) fn tell_held(&mut self, node: usize) {
        self.changed(node);
        let links = self.nodes[node].links.values_mut();
        let told = |link: &mut Link| (link.conn, link.changes.drain());
        let said: Vec<_> = links.map(told).collect();
        for (conn, deltas) in said {
            deltas.into_iter().for_each(|delta| self.say(conn, delta));
        }
    }
}

/// The name of a node.
pub(crate) fn name_of(node: usize) -> Name {
    Name::new(&format!("n{node}")).expect("short")
}
