//! The event loop of direct dispatch: receives from dispatchers and nodes, drives failover and the
//! forwarding table, and waits only for datagrams.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use skep_cluster::failover::{AddressConflict, Failover, FailoverAction};
use skep_cluster::failure_detector::FailureDetector;
use skep_cluster::flows::FlowSink;
use skep_cluster::handover::{Handover, LastTable};
use skep_cluster::lease_observer::LeaseObserver;
use skep_cluster::table_distribution::{TableDistributor, TableUpdate};
use skep_cluster::table_publisher::{NodePlan, TablePublisher};
use skep_config::AGENT_PORT;
use skep_dispatcher::NodeLoads;
use skep_peer::{EncodedMessage, Pulse, Received, Socket};
use skep_units::Now;
use skep_wire::guard::{Expectations, ExpectedPeer};
use skep_wire::message::{
    DispatcherHeartbeat, FlowsTaken, Mac, Message, Name, NodeHeartbeat, Stage,
};
use skep_wire::seal::{PeerId, Stamp};
use skep_wire::table::{Table, TableNode, TableVersion};

use crate::clock::{command_time, now};
use crate::dispatcher_macs::dispatcher_macs;
use crate::epoch_writer::{EpochWriter, Written};
use crate::flow_streams::FlowStreams;
use crate::heartbeats::HeartbeatTurns;
use crate::limits::PATIENCE_AT_START_MS;
use crate::load_digests::LoadDigests;
use crate::netguard_executor::{Job, News, conflicts};
use crate::node_observations::NodeObservations;
use crate::packet_path::{PathState, PathWishes};
use crate::planner::{DrainOrder, PlanView};
use crate::queue::Queue;
use crate::shared_store::EtcdStore;
use crate::status::{PeerStatus, Shared, View, stage_word};
use crate::table_queue::TableQueue;

/// The event loop of direct dispatch, and its state. It runs on its own thread.
pub(crate) struct DirectLoop {
    pub(crate) socket: Socket,
    pub(crate) failover: Failover,
    pub(crate) heartbeats: HeartbeatTurns,
    pub(crate) publisher: TablePublisher,
    pub(crate) distributor: TableDistributor,
    pub(crate) plans: PlanView,
    pub(crate) others: BTreeMap<PeerId, Other>,
    /// Agents of the nodes in the config, by name.
    pub(crate) agents: BTreeMap<Name, SocketAddr>,
    pub(crate) own_mac: Mac,
    pub(crate) started: Now,
    pub(crate) jobs: Arc<Queue<Job>>,
    /// Jobs that did not fit into the queue: netguard is slow or has ended.
    pub(crate) backlog: VecDeque<Job>,
    pub(crate) news: Arc<Queue<News>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) loads: Arc<NodeLoads>,
    /// Time at which the nodes' loads are next sent to the packet program, once per round of their
    /// heartbeats: in between it adds the flows that it assigns.
    pub(crate) loads_due_at: Now,
    pub(crate) load_digests: LoadDigests,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) has_failed: Arc<AtomicBool>,
    pub(crate) told: Arc<Table>,
    pub(crate) wishes: PathWishes,
    pub(crate) path: PathState,
    pub(crate) table_queue: TableQueue,
    pub(crate) node_observations: NodeObservations,
    /// The active dispatcher whose flows are in the sink.
    pub(crate) followed: Option<PeerId>,
    pub(crate) sink: FlowSink,
    pub(crate) streams: FlowStreams,
    pub(crate) handover: Handover,
    /// The table of a term of this dispatcher that has ended.
    pub(crate) last_table: Option<LastTable>,
    pub(crate) epoch_writer: EpochWriter,
    pub(crate) lease_observer: Option<LeaseObserver<EtcdStore>>,
}

/// Another dispatcher.
pub(crate) struct Other {
    pub(crate) name: Name,
    pub(crate) address: IpAddr,
    pub(crate) heartbeat: Option<(DispatcherHeartbeat, Now)>,
}

impl DirectLoop {
    /// Runs until it is stopped; then lets another dispatcher take over at once.
    pub(crate) fn run(mut self, first: Vec<FailoverAction>, pulse: &Pulse) {
        self.carry_out(first);
        let tick_ms = self.failover.tick_ms();
        let mut tick_at = now().plus_ms(tick_ms);
        while !self.stop.load(Ordering::Relaxed) {
            pulse.tick();
            let left_ms = if self.table_queue.is_empty() { tick_at.since_ms(now()) } else { 0 };
            match self.socket.receive(Duration::from_millis(left_ms)) {
                Ok(Some(received)) => self.hear(received),
                Ok(None) => self.send_tables(),
                Err(error) => {
                    tracing::error!(%error, "heartbeats cannot be received");
                    std::thread::sleep(Duration::from_millis(tick_ms));
                }
            }
            self.hear_news();
            self.hand_over();
            let now = now();
            if now >= tick_at {
                tick_at = now.plus_ms(tick_ms);
                self.tick(now);
                // Runs in each turn, however many datagrams arrive.
                self.send_tables();
            }
        }
        let has_failed = self.has_failed.load(Ordering::Relaxed);
        if has_failed && !self.failover.has_standby(now()) {
            // There is no other dispatcher to take over the addresses.
            self.wishes.keep_addresses();
        }
        let outputs = self.failover.stop(now());
        self.carry_out(outputs);
        self.wishes.finish();
        self.show(now());
    }

    fn tick(&mut self, now: Now) {
        self.look_at_plan();
        for note in self.publisher.tick(now) {
            if let skep_cluster::table_publisher::TableNote::Dead { name, .. } = &note {
                self.loads.miss(name);
            }
            tracing::warn!("{note}");
        }
        let no_nodes = self.plans.plan().nodes.is_empty();
        let hears_nodes = no_nodes || !self.publisher.detector().hears_nobody(now);
        self.failover.set_hears_nodes(now, hears_nodes);
        self.failover.set_hindered(now, self.path.is_hindered);
        let (table, detector) = (self.publisher.table(), self.publisher.detector());
        let is_dispatcher = |mac| table.dispatchers.contains(&mac);
        self.failover
            .end_conflict(|mac| is_dispatcher(mac) || node_of(table, detector, mac).is_some());
        self.observe_lease(now);
        match self.epoch_writer.poll(now) {
            Some(Written::Persisted(last)) => self.failover.epochs_persisted(last),
            Some(Written::Failed) => self.failover.epochs_not_persisted(now),
            None => {}
        }
        let outputs = self.failover.tick(now);
        self.carry_out(outputs);
        self.follow_active();
        self.publish(now);
        self.hand_table_over(now);
        self.want(now);
        self.want_announcement(now);
        self.stream(now);
        let told = self.publisher.table().version;
        self.node_observations.tick(now, (&self.failover, self.publisher.detector()), told);
        self.show(now);
    }

    fn observe_lease(&mut self, now: Now) {
        let (epoch, wants_lease) = (self.failover.epoch(), self.failover.wants_lease());
        let epoch = self.is_active().then_some(epoch);
        if let Some(observer) = &mut self.lease_observer {
            observer.store_mut().tell_health();
            let view = observer.view(now, epoch, wants_lease);
            let outputs = self.failover.lease(now, view);
            self.carry_out(outputs);
        }
    }

    fn hear(&mut self, received: Received) {
        let Received { from, stamp, at, message } = received;
        let now = now();
        self.follow_active();
        match message {
            Message::Dispatcher(it) => self.hear_dispatcher((now, at), it, from, stamp),
            Message::Node(it) if it.name.peer() == from => self.hear_node((now, at), it, stamp),
            Message::Table(table) => self.hear_table(table, from),
            Message::TableDelta(delta) => {
                // Without its base the delta is ignored; the complete table follows soon.
                if let Some(table) = self.distributor.recent().apply(&delta) {
                    self.hear_table(table, from);
                }
            }
            // Batches that are not accepted are sent again.
            Message::Flows(batch)
                if self.failover.active() == Some(from) && self.backlog.is_empty() =>
            {
                if let (flows, Some(taken)) = self.sink.take(batch) {
                    self.job(Job::Insert(flows, taken));
                }
            }
            Message::Served(served) if served.node == from => self.hear_served(now, served),
            Message::ArmCounts(counts) if self.nodes().any(|node| node == from) => {
                self.loads.hear_arm_counts(from, &counts);
            }
            Message::FlowsTaken(taken) => self.streams.taken(now, from, taken),
            Message::Rates(rates) => self.hear_rates(from, rates),
            // Loads are carried by heartbeats here, and A/B tests do not exist.
            _ => {}
        }
    }

    /// Discards flows that were received from an earlier active dispatcher.
    fn follow_active(&mut self) {
        let active = self.failover.active();
        if active != self.followed {
            self.followed = active;
            self.sink.reset();
            self.failover.set_flows_synced(false);
        }
    }

    fn hear_dispatcher(
        &mut self,
        (now, arrived): (Now, Now),
        heartbeat: DispatcherHeartbeat,
        from: PeerId,
        stamp: Stamp,
    ) {
        let Some(other) = self.others.get_mut(&from) else { return };
        other.heartbeat = Some((heartbeat.clone(), arrived));
        let name = other.name.clone();
        if self.is_active() && !self.publisher.knows(heartbeat.table) {
            self.handover.await_table(now, &name, heartbeat.table);
        }
        let outputs = self.failover.heard(arrived, &heartbeat, from, stamp);
        self.carry_out(outputs);
        if self.is_active() {
            self.send_table(now, from, heartbeat.table);
            let is_standby = heartbeat.stage == Stage::Standby;
            if is_standby && self.streams.heard(now, from, heartbeat.flows_synced) {
                self.job(Job::Stream(true));
                self.job(Job::List);
            }
        }
    }

    fn hear_node(&mut self, (now, arrived): (Now, Now), heartbeat: NodeHeartbeat, stamp: Stamp) {
        let outputs = self.failover.witness(arrived, heartbeat.hears, heartbeat.table);
        self.carry_out(outputs);
        let (name, load, version) = (heartbeat.name.clone(), heartbeat.load, heartbeat.table);
        for note in self.publisher.heard(arrived, heartbeat, stamp) {
            match note.is_trouble() {
                true => tracing::warn!("{note}"),
                false => tracing::info!("{note}"),
            }
        }
        self.loads.hear(&name, Some(stamp), load);
        if self.is_active() && self.may_publish(now) {
            self.send_table(now, name.peer(), version);
        }
    }

    /// A standby steers by the active dispatcher's table, and records the drains in it. A standby that has
    /// just started, without an active dispatcher before it, learns earlier flows from the nodes' tables.
    fn hear_table(&mut self, table: Table, from: PeerId) {
        // A dispatcher in an address conflict may find in the table that the other machine belongs to the
        // cluster.
        let is_new = matches!(self.failover.stage(), Stage::Joining | Stage::Leaving);
        let is_from_node = is_new && self.nodes().any(|node| node == from);
        if !(is_from_node || self.others.contains_key(&from)) {
            return;
        }
        self.failover.table_heard(now(), table.version);
        if self.is_active() {
            return self.take_table_over(&table);
        }
        if self.last_table.as_mut().is_some_and(|last| !last.yields_to(now(), &table)) {
            // The table is sent again.
            return;
        }
        let before = Arc::clone(self.publisher.table());
        if !self.publisher.adopt(table) {
            return;
        }
        self.last_table = None;
        let table = Arc::clone(self.publisher.table());
        self.distributor.adopted(Arc::clone(&table));
        let drained = |node: &&TableNode| node.is_drained;
        let was_drained: BTreeSet<&Name> =
            before.nodes.iter().filter(drained).map(|node| &node.name).collect();
        for node in &table.nodes {
            // Includes nodes that are not planned any more but have connections.
            self.listen_to(&node.name, node.address);
            if node.is_drained != was_drained.contains(&node.name) {
                let (name, is_drained) = (node.name.clone(), node.is_drained);
                self.plans.order(DrainOrder { name, is_drained, at: command_time() });
            }
        }
        self.told = table;
        self.want_table();
    }

    fn hear_news(&mut self) {
        for news in self.news.try_take() {
            match news {
                News::Owners(owners) => {
                    for (address, mac) in conflicts(owners) {
                        self.hear_conflict(AddressConflict { address, mac });
                    }
                }
                News::Listed(flows) => self.streams.list(&flows),
                News::ListFailed => self.streams.list_failed(),
                News::Inserted(inserted) => self.flows_inserted(inserted),
                News::Begun(flows) => self.streams.begin(&flows),
                News::Path(state) => self.path = state,
            }
        }
    }

    fn hear_conflict(&mut self, conflict: AddressConflict) {
        let (table, detector) = (self.publisher.table(), self.publisher.detector());
        let node = node_of(table, detector, conflict.mac).cloned();
        let is_known = node.is_some() || table.dispatchers.contains(&conflict.mac);
        let outputs = self.failover.conflict(now(), conflict, is_known);
        self.carry_out(outputs);
        if let Some(node) = node {
            self.node_observations.answers(now(), node, conflict.address);
        }
    }

    /// Acknowledges flows once they are in the table. For flows that cannot be inserted, the active
    /// dispatcher sends a new dump later.
    fn flows_inserted(&mut self, inserted: Result<FlowsTaken, FlowsTaken>) {
        let (Ok(taken) | Err(taken)) = inserted;
        if !self.sink.is_of(taken) {
            return;
        }
        match (inserted, self.failover.active()) {
            (Ok(taken), Some(active)) => self.send(active, &Message::FlowsTaken(taken)),
            (Ok(_), None) => {}
            (Err(_), _) => self.sink.reset(),
        }
        self.failover.set_flows_synced(self.sink.is_synced());
    }

    /// Carries out the actions of failover, in order.
    fn carry_out(&mut self, outputs: Vec<FailoverAction>) {
        for output in outputs {
            match output {
                FailoverAction::SendHeartbeat => self.send_heartbeat(),
                FailoverAction::Probe => self.job(Job::Probe),
                FailoverAction::PersistEpochs { last } => self.epoch_writer.write(now(), last),
                FailoverAction::Claim { epoch } => {
                    self.last_table = None;
                    self.publisher.begin_term(epoch);
                    self.want(now());
                }
                FailoverAction::Announce => {
                    self.handover.announce();
                    self.want_announcement(now());
                }
                FailoverAction::StepDown { .. } => {
                    self.publisher.step_down();
                    self.table_queue.clear();
                    self.handover.step_down();
                    self.last_table = Some(LastTable::new(Arc::clone(self.publisher.table())));
                    // Sent before the heartbeat that announces the end of the term.
                    self.hand_table_over(now());
                    self.streams.clear();
                    self.job(Job::Stream(false));
                    self.want(now());
                }
                FailoverAction::Log(note) if note.is_trouble() => tracing::warn!("{note}"),
                FailoverAction::Log(note) => tracing::info!("{note}"),
            }
        }
    }

    /// Passes the addresses that failover wants to the executor.
    fn want(&mut self, now: Now) {
        if self.wishes.follow(now, &self.failover) {
            self.wake_executor();
        }
    }

    /// Passes the latest table to the executor.
    fn want_table(&mut self) {
        if self.wishes.steer_by(Arc::clone(&self.told)) {
            self.wake_executor();
        }
    }

    pub(crate) fn wake_executor(&mut self) {
        self.job(Job::Reconcile);
    }

    fn send_heartbeat(&mut self) {
        let heartbeat = self.failover.heartbeat(now(), self.publisher.table().version);
        let nodes = &self.plans.plan().nodes;
        let turn = self.heartbeats.next(&heartbeat, nodes.len(), self.failover.interval_ms());
        let to = self.others.keys().copied().chain(turn.map(|at| nodes[at].name.peer()));
        self.socket.send_all(to, &Message::Dispatcher(heartbeat));
    }

    /// Applies changes by the config and the operator.
    fn look_at_plan(&mut self) {
        let macs = self.macs();
        if self.plans.look(&macs) {
            let plan = self.plans.plan().clone();
            plan.nodes.iter().for_each(|node| self.listen_to(&node.name, node.address));
            self.publisher.set_plan(plan);
        }
        if self.is_active() {
            self.plans.closed().into_iter().for_each(|closed| self.publisher.set_drained(closed));
        }
    }

    /// Accepts datagrams of a node of this cluster that serves at `address`.
    pub(crate) fn listen_to(&mut self, name: &Name, address: SocketAddr) {
        let usual = SocketAddr::new(address.ip(), AGENT_PORT);
        let agent = self.agents.get(name).copied().unwrap_or(usual);
        self.socket.set_peer(name.as_str(), agent);
    }

    /// Sends a new table to all nodes and dispatchers whose heartbeats are received, and steers by it.
    fn publish(&mut self, now: Now) {
        if !self.is_active() || !self.may_publish(now) {
            return;
        }
        let table = Arc::clone(self.publisher.table());
        if !Arc::ptr_eq(&table, &self.told) {
            self.told = Arc::clone(&table);
            let nodes = self.plans.plan().nodes.iter().filter_map(|node| {
                let heartbeat = self.publisher.detector().heartbeat(&node.name)?;
                Some((node.name.peer(), heartbeat.table))
            });
            let others = self.others.iter().filter_map(|(id, other)| {
                let (heartbeat, _) = other.heartbeat.as_ref()?;
                Some((*id, heartbeat.table))
            });
            let updates = self.distributor.publish(now, Arc::clone(&table), nodes.chain(others));
            let encode = |it: TableUpdate| {
                // The message is longer than receivers accept, so it is sent to none.
                let message = EncodedMessage::new(&it.message).ok()?;
                Some((it.to, Arc::new(message)))
            };
            self.table_queue.put(updates.into_iter().filter_map(encode).collect());
            self.want_table();
        }
        if now >= self.loads_due_at {
            self.loads_due_at = now.plus_ms(self.publisher.detector().interval_ms());
            self.tell_loads();
        }
        self.tell_deciding_nodes(now);
    }

    /// Whether a table may be published: heartbeats of all nodes were received, or they had enough time.
    /// Until then the table of an earlier process stays in force; one without nodes must not replace it.
    fn may_publish(&self, now: Now) -> bool {
        let is_heard = |node: &NodePlan| self.publisher.detector().heartbeat(&node.name).is_some();
        now.since_ms(self.started) >= PATIENCE_AT_START_MS
            || self.plans.plan().nodes.iter().all(is_heard)
    }

    fn stream(&mut self, now: Now) {
        for (to, batch) in self.streams.due(now) {
            self.send(to, &Message::Flows(batch));
        }
    }

    fn show(&self, now: Now) {
        let active = self.failover.active().map(|id| match self.others.get(&id) {
            Some(other) => other.name.to_string(),
            None => "this one".to_owned(),
        });
        let silent_max_ms = self.failover.takeover_ms();
        let peers = self.others.values().map(|other| {
            let silent_ms = other.heartbeat.as_ref().map(|(_, at)| now.since_ms(*at));
            let stage = match &other.heartbeat {
                Some((it, at)) if now.since_ms(*at) <= silent_max_ms => stage_word(it.stage),
                _ => "silent",
            };
            PeerStatus {
                name: other.name.to_string(),
                stage: stage.to_owned(),
                silent_ms: silent_ms.unwrap_or(now.since_ms(self.started)),
            }
        });
        self.shared.set_view(View {
            stage: self.failover.stage(),
            epoch: self.failover.epoch(),
            active,
            flows_synced: self.sink.is_synced() && !self.is_active(),
            store: self.lease_observer.as_ref().map(|observer| observer.store().health()),
            peers: peers.collect(),
            table: Arc::clone(self.publisher.table()),
            applied: self.path.applied,
            has_addresses: self.path.has_addresses,
            nodes_behind: self.node_observations.behind(),
            heartbeat_gaps: self.node_observations.heartbeat_gaps(),
            trouble: self.trouble(),
            expectations: self.expectations(),
        });
    }

    /// Faults other than those of orders to netguard and of this machine, as sentences.
    fn trouble(&self) -> Vec<String> {
        let of_disk = self.epoch_writer.trouble().map(|trouble| trouble.to_string());
        of_disk.into_iter().chain(self.node_observations.trouble()).collect()
    }

    /// The hosts expected on the segment, for the check of this machine.
    fn expectations(&self) -> Expectations {
        let dispatchers = self.others.values().filter_map(|other| {
            let (heartbeat, _) = other.heartbeat.as_ref()?;
            let (name, address) = (other.name.to_string(), other.address);
            Some(ExpectedPeer { name, address, mac: heartbeat.mac, mtu: 0 })
        });
        let nodes = self.publisher.detector().living().filter_map(|heartbeat| {
            let (name, &address) = (heartbeat.name.to_string(), heartbeat.addresses.first()?);
            Some(ExpectedPeer { name, address, mac: heartbeat.mac, mtu: heartbeat.mtu })
        });
        let active = self.failover.active().and_then(|id| self.others.get(&id));
        Expectations {
            is_active: self.is_active(),
            active: active.and_then(|other| other.heartbeat.as_ref()).map(|(it, _)| it.mac),
            peers: dispatchers.chain(nodes).filter(|peer| peer.mac != self.own_mac).collect(),
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.failover.stage() == Stage::Active
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = PeerId> {
        self.plans.plan().nodes.iter().map(|node| node.name.peer())
    }

    /// MAC addresses of all dispatchers, as far as they are known.
    fn macs(&self) -> Vec<Mac> {
        let heartbeats = self.others.values().filter_map(|other| other.heartbeat.as_ref());
        let heard: Vec<Mac> = heartbeats.map(|(it, _)| it.mac).chain([self.own_mac]).collect();
        // This dispatcher is not in `others`.
        let unheard = (self.others.len() + 1).saturating_sub(heard.len());
        dispatcher_macs(heard, unheard, &self.publisher.table().dispatchers)
    }

    /// Sends the next queued tables, up to a bound.
    fn send_tables(&mut self) {
        for (to, message) in self.table_queue.take_turn() {
            self.socket.send_encoded(to, &message);
        }
    }

    /// Sends the last published table to a machine that has an earlier one.
    fn send_table(&mut self, now: Now, to: PeerId, has: TableVersion) {
        if self.table_queue.has(to) {
            return;
        }
        if let Some(message) = self.distributor.heard(now, to, has) {
            self.send(to, &message);
        }
    }

    pub(crate) fn send(&mut self, to: PeerId, message: &Message) {
        // The next heartbeat causes another attempt, and a counter counts errors.
        let _ = self.socket.send(to, message);
    }

    pub(crate) fn job(&mut self, job: Job) {
        self.backlog.push_back(job);
        self.hand_over();
    }

    /// Queues jobs for the executor, without waiting. If there is no room, only loads may be dropped: newer
    /// ones follow soon.
    fn hand_over(&mut self) {
        while let Some(job) = self.backlog.pop_front() {
            match self.jobs.try_push(job) {
                Ok(()) | Err(Job::Loads(..)) => {}
                Err(job) => return self.backlog.push_front(job),
            }
        }
    }
}

/// The node with this MAC address; also one whose process has failed, since its machine still answers.
fn node_of<'a>(table: &'a Table, detector: &'a FailureDetector, mac: Mac) -> Option<&'a Name> {
    let known = table.nodes.iter().find(|node| node.mac == mac).map(|node| &node.name);
    known.or_else(|| detector.living().find(|it| it.mac == mac).map(|it| &it.name))
}

impl Drop for DirectLoop {
    fn drop(&mut self) {
        self.jobs.close();
        self.news.close();
    }
}
