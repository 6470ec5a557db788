//! The tables of nodes, and the nodes in tables.

use skep_wire::message::NodeHeartbeat;

use crate::machine::Node;

use super::*;

/// How long a dead node may remain in a table.
const DEAD_MS_MAX: u64 = 1_000;
/// How long a node may have an earlier table than a dispatcher that it reaches, if no datagram is
/// lost: until it is sent a whole one, as needed after a restart, plus heartbeats there and back.
const LAG_MS_MAX: u64 = 600;
/// How much less than the true age a node may report, if its clock is slow.
const REPORT_SLACK_MS: u64 = 10;
/// How long a node may have a later table than the only active dispatcher, which it reaches, if no
/// datagram is lost: until that one learns of it, has waited for another active dispatcher, has
/// obtained the next epoch from its disk, and has made a table.
const AHEAD_MS_MAX: u64 = 500;
/// How long it may report a dead dispatcher as alive after its clock stood still: until silence is
/// detected, by the slowest clock.
const HIDES_MS_MAX: u64 = 180;
/// How long heartbeats of a node must have arrived for it to count as alive: longer than the
/// silence of a dead one.
const HEARD_MS_MIN: u64 = 700;

impl Check {
    /// Nodes follow the tables, however fast they change.
    pub(super) fn lags(&mut self, world: &World) -> Result<(), String> {
        for (d, dispatcher) in world.dispatchers.iter().enumerate() {
            for (n, node) in world.nodes.iter().enumerate() {
                let (key, id) = ((d, n), world.dispatchers.len() + n);
                let is_reached = is_active(world, dispatcher)
                    && node.body.runs(world.at)
                    && world.net.loss_percent == 0
                    && world.net.joins(d, id)
                    && dispatcher.publisher.detector().heartbeat(&node.body.name).is_some();
                let behind =
                    self.behind.remove(&key).filter(|(wanted, _)| node.version() < *wanted);
                let present = dispatcher.publisher.table().version;
                let is_behind = is_reached && node.version() < present;
                let Some((wanted, since)) =
                    behind.or(Some((present, world.at))).filter(|_| is_behind)
                else {
                    continue;
                };
                self.behind.insert(key, (wanted, since));
                let runs_since = dispatcher.body.runs_since.max(node.body.runs_since);
                let ms = world.at - since.max(runs_since);
                self.most.lag_ms_max = self.most.lag_ms_max.max(ms);
                if ms > LAG_MS_MAX {
                    return Err(format!("{} lags {ms} ms behind d{d}", node.body.name));
                }
            }
        }
        Ok(())
    }

    /// Nodes do not steer for long by the table of a term that has ended unnoticed.
    pub(super) fn aheads(&mut self, world: &World) -> Result<(), String> {
        let mut active = world.dispatchers.iter().enumerate().filter(|(_, it)| it.is_active);
        let (only, others) = (active.next(), active.next());
        for (n, node) in world.nodes.iter().enumerate() {
            let id = world.dispatchers.len() + n;
            let is_ahead = |(d, it): (Id, &Dispatcher)| {
                let is_reached = world.net.joins(d, id);
                let is_able = is_active(world, it) && it.may_claim_since.is_some();
                let is_calm = world.net.loss_percent == 0 && node.body.runs(world.at);
                let is_later = node.version() > it.publisher.table().version;
                (is_reached && is_able && is_calm && is_later).then_some(d)
            };
            let of = only.filter(|_| others.is_none()).and_then(is_ahead);
            let Some(d) = of else {
                self.ahead.remove(&n);
                continue;
            };
            let (of, since) = *self.ahead.entry(n).or_insert((d, world.at));
            let body = &world.dispatchers[d].body;
            let may_claim_since = world.dispatchers[d].may_claim_since.unwrap_or(world.at);
            let runs_since = body.woke_at().max(node.body.woke_at()).max(may_claim_since);
            let ms = world.at - since.max(runs_since);
            self.most.ahead_ms_max = self.most.ahead_ms_max.max(ms);
            if of != d {
                self.ahead.insert(n, (d, world.at));
            } else if ms > AHEAD_MS_MAX {
                return Err(format!("{} has a later table than d{d} for {ms} ms", node.body.name));
            }
        }
        Ok(())
    }

    /// A dead node leaves the table of an active dispatcher that receives heartbeats of any other
    /// node.
    pub(super) fn dead_nodes(&mut self, world: &World) -> Result<(), String> {
        for node in &world.nodes {
            let Some(dead_since) = node.dead_since else { continue };
            for (id, dispatcher) in world.dispatchers.iter().enumerate() {
                let publisher = &dispatcher.publisher;
                if publisher.detector().hears_nobody(dispatcher.body.clock.at(world.at)) {
                    self.deaf_until[id] = world.at;
                }
                if !is_active(world, dispatcher) || !is_in(publisher.table(), node) {
                    continue;
                }
                // A merge may let it keep connections, but gives it no new ones.
                let takes_flows = is_up(publisher.table(), node);
                let merged_at = if takes_flows { 0 } else { dispatcher.merged_at };
                let since = dead_since
                    .max(dispatcher.body.woke_at())
                    .max(self.active_since[id])
                    .max(merged_at)
                    .max(self.deaf_until[id]);
                let ms = world.at - since;
                self.most.dead_ms_max = self.most.dead_ms_max.max(ms);
                if ms > DEAD_MS_MAX {
                    return Err(format!("{} is dead and in d{id}'s table", node.body.name));
                }
            }
        }
        Ok(())
    }

    /// A node does not report a heartbeat as later than the dispatcher sent it, except for a moment
    /// after the node's clock stood still.
    pub(crate) fn reports(world: &World, id: Id, heartbeat: &NodeHeartbeat) -> Result<(), String> {
        let Some(hears) = heartbeat.hears else { return Ok(()) };
        let body = &world.nodes[id - world.dispatchers.len()].body;
        let is_of = |it: &&Dispatcher| it.body.peer == hears.dispatcher;
        let Some(dispatcher) = world.dispatchers.iter().find(is_of) else { return Ok(()) };
        let told_ms = u64::from(hears.ago_ms) + world.net.delay_ms_max + REPORT_SLACK_MS;
        let silent_ms = world.at - dispatcher.said_active_at;
        let may_hide = body.stood_until.is_some_and(|until| world.at - until < HIDES_MS_MAX);
        if silent_ms > told_ms && !may_hide {
            return Err(format!(
                "{} says that it heard {} {} ms ago, which has said nothing for {silent_ms} ms; it runs \
                 since {}, and its clock stood still until {:?}",
                body.name, dispatcher.body.name, hears.ago_ms, body.runs_since, body.stood_until
            ));
        }
        Ok(())
    }

    /// Nodes never apply an earlier table than their current one.
    pub(super) fn applied_tables(&mut self, world: &World) -> Result<(), String> {
        self.node_versions.resize(world.nodes.len(), TableVersion::default());
        for (node, before) in world.nodes.iter().zip(&mut self.node_versions) {
            if node.version() < *before {
                return Err(format!("{} went back from table {before:?}", node.body.name));
            }
            *before = node.version();
        }
        Ok(())
    }

    pub(super) fn note_heard(&mut self, world: &World) {
        for d in 0..world.dispatchers.len() {
            for n in 0..world.nodes.len() {
                if may_hear(world, d, n) {
                    self.heard_since.entry((d, n)).or_insert(world.at);
                } else {
                    self.heard_since.remove(&(d, n));
                }
            }
        }
    }

    /// Nodes whose heartbeats could reach a dispatcher all the time, whether it ran or not, stay in
    /// its tables.
    pub(super) fn living_nodes(
        &self,
        world: &World,
        id: Id,
        before: &Table,
        after: &Table,
    ) -> Result<(), String> {
        let body = &world.dispatchers[id].body;
        // Silence from before a suspension of its machine ends with the next arrivals.
        let resumed_at = if body.runs_since > body.knows_since { body.runs_since } else { 0 };
        for (n, node) in world.nodes.iter().enumerate() {
            let since = self.heard_since.get(&(id, n)).map(|since| resumed_at.max(*since));
            let is_heard = since.is_some_and(|since| world.at - since >= HEARD_MS_MIN)
                && may_hear(world, id, n);
            if is_heard && is_up(before, node) && !is_up(after, node) {
                return Err(format!("d{id} takes {} out, which it could hear", node.body.name));
            }
        }
        Ok(())
    }
}

/// Whether a node's heartbeats reach a dispatcher, and its checks of the node pass.
fn may_hear(world: &World, dispatcher: Id, number: usize) -> bool {
    let (node, id) = (&world.nodes[number], world.dispatchers.len() + number);
    let heartbeats = node.body.runs(world.at) && !node.is_leaving;
    let comes = world.net.loss_percent == 0 && world.net.joins(dispatcher, id);
    heartbeats && comes && world.dispatchers[dispatcher].passes(number)
}

/// Whether a node receives new flows by that table.
fn is_up(table: &Table, node: &Node) -> bool {
    table.node(node.body.name.as_str()).is_some_and(|row| row.state == ForwardingState::Up)
}

/// Whether a node may still receive packets by that table.
fn is_in(table: &Table, node: &Node) -> bool {
    let Some(row) = table.node(node.body.name.as_str()) else { return false };
    let present = table.services.iter().filter_map(|service| table.history(service).next());
    row.state != ForwardingState::Down || present.flatten().any(|share| share.index == row.index)
}
