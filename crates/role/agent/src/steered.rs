//! A node's heartbeats in direct dispatch, and its handling of the dispatchers' heartbeats and
//! tables.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};

use skep_cluster::failover::WitnessState;
use skep_cluster::table_distribution::RecentTables;
use skep_peer::{Received, Socket};
use skep_units::Now;
use skep_wire::guard::AttachedProgram;
use skep_wire::message::{
    DispatcherHeartbeat, Hears, Message, Name, NodeHeartbeat, NodeLoad, ServedObjects, Stage,
};
use skep_wire::seal::{PeerId, Stamp};
use skep_wire::table::Table;

use crate::limits::JOINING_ANSWER_MS;
use crate::report::ReportProtocol;
use crate::{Shared, now};

pub(crate) struct Steered {
    pub(crate) name: Name,
    pub(crate) address: IpAddr,
    pub(crate) opened: AttachedProgram,
    /// Services on whose addresses this node listens.
    pub(crate) services: Vec<u64>,
    pub(crate) tables: SyncSender<Arc<Table>>,
    /// The latest table, while the queue has no room for it.
    pub(crate) waiting: Option<Arc<Table>>,
    /// The latest table received.
    pub(crate) table: Arc<Table>,
    pub(crate) recent: RecentTables,
    /// Times at which the table was last sent to dispatchers that join.
    pub(crate) answered: BTreeMap<PeerId, Now>,
    pub(crate) witness: WitnessState,
    /// Silence after which an active dispatcher counts as failed, in milliseconds.
    pub(crate) takeover_ms: u64,
    pub(crate) shared: Arc<Shared>,
}

impl ReportProtocol for Steered {
    fn message(&mut self, now: Now, load: NodeLoad) -> Message {
        self.hand_over();
        let hears = self.witness.hears(now, self.takeover_ms);
        self.show_active(hears);
        Message::Node(NodeHeartbeat {
            name: self.name.clone(),
            index: self.table.node(self.name.as_str()).map(|node| node.index),
            mac: self.opened.mac,
            mtu: self.opened.mtu,
            addresses: vec![self.address],
            services: self.services.clone(),
            table: self.shared.applied(),
            hears,
            is_leaving: self.shared.is_leaving.load(Ordering::Relaxed),
            load,
        })
    }

    fn note_served(&mut self, served: &ServedObjects) {
        self.shared.note_served(&Arc::new(served.clone()));
    }

    fn received(&mut self, received: Received, socket: &mut Socket) {
        let Received { from, stamp, at, message } = received;
        match message {
            Message::Dispatcher(heartbeat) => {
                // It has no state: without the histories it would find no owner for connections of
                // earlier memberships, and would report other dispatchers' machines as address
                // conflicts.
                let is_new = matches!(heartbeat.stage, Stage::Joining | Stage::Leaving);
                let asks = is_new && heartbeat.table < self.table.version;
                let now = now();
                let answered = self.answered.get(&from);
                let is_due = answered.is_none_or(|at| now.since_ms(*at) >= JOINING_ANSWER_MS);
                if asks && is_due {
                    // A later heartbeat repeats the request.
                    self.answered.insert(from, now);
                    let _ = socket.send(from, &Message::Table(Table::clone(&self.table)));
                }
                self.witness(at, &heartbeat, from, stamp);
            }
            Message::Table(table) => self.take(table),
            Message::TableDelta(delta) => {
                // Without its base the delta is ignored; the complete table follows soon.
                if let Some(table) = self.recent.apply(&delta) {
                    self.take(table);
                }
            }
            // This node's own report is known already.
            Message::Served(served) if served.node != self.name.peer() => {
                self.shared.note_served(&Arc::new(served));
            }
            // Readers compare pointers, so equal contents must not replace the pointer.
            Message::Arms(arms) if **self.shared.arms.load() != arms => {
                self.shared.arms.store(Arc::new(arms));
            }
            Message::Loads(digest) => {
                self.shared.digest.store(Arc::new((at, digest)));
            }
            _ => {}
        }
    }
}

impl Steered {
    fn witness(
        &mut self,
        arrived: Now,
        heartbeat: &DispatcherHeartbeat,
        from: PeerId,
        stamp: Stamp,
    ) {
        if self.witness.heard(arrived, heartbeat, from, stamp)
            && self.witness.hears(now(), self.takeover_ms).is_some_and(|it| it.dispatcher == from)
        {
            self.shared.set_active_mac(heartbeat.mac);
        }
    }

    fn take(&mut self, table: Table) {
        if table.version <= self.table.version {
            return;
        }
        self.table = Arc::new(table);
        self.recent.keep(Arc::clone(&self.table));
        self.waiting = Some(Arc::clone(&self.table));
        self.hand_over();
    }

    fn show_active(&self, hears: Option<Hears>) {
        let active = hears.map(|hears| hears.dispatcher);
        if self.shared.active.load().as_deref() != active.as_ref() {
            self.shared.active.store(active.map(Arc::new));
        }
    }

    /// Passes the latest table to the applying thread, without waiting.
    fn hand_over(&mut self) {
        let Some(table) = self.waiting.take() else { return };
        if let Err(TrySendError::Full(table)) = self.tables.try_send(table) {
            self.waiting = Some(table);
        }
    }
}
