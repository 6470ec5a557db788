//! A coordinator's account of the slots of all servers.

use std::collections::BTreeMap;

use skep_units::Now;
use skep_wire::cache::{ServerKey, SlotGrant, SlotReport, SlotUse, ToNode};
use skep_wire::message::Name;

use super::division::{Division, divide};
use super::turns::{self, Turn, TurnCandidate};
use crate::limits::{
    SLOTS_LEAVE_MS, SLOTS_LOST_MS, SLOTS_SERVERS_MAX, SLOTS_SETTLE_MS, SLOTS_SPLIT_MS,
};
use crate::node_link::NodeLinkId;

#[derive(Debug, Default)]
pub(crate) struct SlotLedger {
    /// Whether this coordinator grants slots.
    is_active: bool,
    /// Since when at least one node has followed it.
    followed_since: Option<Now>,
    /// Whether all holdings of nodes since then are known.
    is_settled: bool,
    /// The number of nodes in the config.
    nodes: usize,
    /// The time of the last event.
    now: Now,
    links: BTreeMap<NodeLinkId, Link>,
    servers: BTreeMap<ServerKey, Server>,
}

#[derive(Debug)]
struct Link {
    name: Name,
    /// Number of the last grants sent.
    sent: u64,
    /// Number of the first grants since it became active: reports that do not acknowledge them are
    /// older.
    asked: u64,
    /// Whether grants must be sent, even if there are none.
    is_asked: bool,
    has_reported: bool,
    is_followed: bool,
    /// Grants to be sent.
    grants: Vec<SlotGrant>,
}

#[derive(Debug, Default)]
struct Server {
    nodes: BTreeMap<NodeLinkId, Held>,
    /// Slots that lost nodes may still use, and until when.
    lost: Vec<(Name, u32, Now)>,
    /// Since when nodes have followed different coordinators.
    split_since: Option<Now>,
}

/// A node's slots of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    /// Whether it has not been granted any yet.
    is_new: bool,
    slots_max: u32,
    wanted: u32,
    /// The last grant; before the first one, the slots that it held.
    granted: u32,
    /// The most slots that it may be using.
    bound: u32,
    /// Since when `bound` has exceeded what is due to it.
    leaving_since: Option<Now>,
    turn: Turn,
}

impl SlotLedger {
    /// The ledger of a cluster of `nodes` nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Starts to grant slots, or leaves that to another coordinator.
    pub(crate) fn set_active(&mut self, is_active: bool) {
        (self.is_active, self.followed_since, self.is_settled) = (is_active, None, false);
        self.servers.values_mut().for_each(|server| server.split_since = None);
        for link in self.links.values_mut() {
            link.is_followed = false;
            // A node that has reported nothing may run a version without grants.
            if link.has_reported {
                (link.is_asked, link.asked) = (is_active, link.sent + 1);
            }
        }
        // Another coordinator may have granted slots in between.
        let held = self.servers.values_mut().flat_map(|server| server.nodes.values_mut());
        held.for_each(|held| held.is_new = true);
    }

    pub(crate) fn joined(&mut self, link: NodeLinkId, name: Name) {
        let grants = Vec::new();
        let new = Link {
            name,
            sent: 0,
            asked: 0,
            is_asked: false,
            has_reported: false,
            is_followed: false,
            grants,
        };
        self.links.insert(link, new);
    }

    /// The slots of the node remain assigned to it for a while, since it may not have noticed the
    /// loss yet. `now` is `None` if the node is already back on another link.
    pub(crate) fn left(&mut self, now: Option<Now>, link: NodeLinkId) {
        let Some(Link { name, .. }) = self.links.remove(&link) else { return };
        let until = now.unwrap_or(self.now).max(self.now).plus_ms(SLOTS_LOST_MS);
        for server in self.servers.values_mut() {
            // If the link ended before its first report, the slots of the previous link still
            // count.
            let before =
                server.lost.iter().find(|(lost, ..)| *lost == name).map(|(_, slots, _)| *slots);
            let bound = server.nodes.remove(&link).map(|held| held.bound).or(before).unwrap_or(0);
            server.lost.retain(|(lost, ..)| *lost != name);
            if bound > 0 {
                server.lost.push((name.clone(), bound, until));
            }
        }
    }

    pub(crate) fn reported(&mut self, now: Now, link: NodeLinkId, report: &SlotReport) {
        let Some(of_link) = self.links.get_mut(&link) else { return };
        of_link.has_reported = true;
        let is_followed = report.is_followed && report.acknowledged >= of_link.asked;
        let is_changed = std::mem::replace(&mut of_link.is_followed, is_followed) != is_followed;
        let (is_current, name) = (report.acknowledged == of_link.sent, of_link.name.clone());
        let mut changed = Vec::new();
        for using in &report.servers {
            if self.servers.len() >= SLOTS_SERVERS_MAX && !self.servers.contains_key(&using.server)
            {
                continue;
            }
            let server = self.servers.entry(using.server).or_default();
            server.lost.retain(|(lost, ..)| *lost != name);
            if server.reported(now, link, using, (is_followed, is_current)) || is_changed {
                changed.push(using.server);
            }
            if let Some(held) = server.nodes.get_mut(&link).filter(|_| is_followed && is_changed) {
                // Slots that another coordinator granted are valid only until the first grant here.
                held.is_new = true;
            }
        }
        let is_told =
            |key: &ServerKey| report.servers.binary_search_by_key(key, |it| it.server).is_ok();
        for (_, server) in self.servers.iter_mut().filter(|(key, _)| !is_told(key)) {
            server.nodes.remove(&link);
        }
        self.settle(now, changed.into_iter());
    }

    pub(crate) fn tick(&mut self, now: Now) {
        for server in self.servers.values_mut() {
            server.lost.retain(|(.., until)| now < *until);
        }
        self.servers.retain(|_, server| !server.nodes.is_empty() || !server.lost.is_empty());
        let all: Vec<_> = self.servers.keys().copied().collect();
        self.settle(now, all.into_iter());
    }

    /// The grants to be sent.
    pub(crate) fn grants(&mut self) -> impl Iterator<Item = (NodeLinkId, ToNode)> {
        let is_due = |of: &Link| of.is_asked || !of.grants.is_empty();
        self.links.iter_mut().filter(move |(_, of)| is_due(of)).map(|(&link, of)| {
            of.is_asked = false;
            of.sent += 1;
            let grants = std::mem::take(&mut of.grants);
            (link, ToNode::Slots { number: of.sent, grants })
        })
    }

    /// Determines whether slots may be divided: what nodes were granted before must be known, so
    /// that it is not granted again. Where all coordinators are active, nodes follow a restarted
    /// one one after the other.
    fn look_if_settled(&mut self, now: Now) {
        let mut followed = self.links.values().map(|link| link.is_followed);
        if !followed.clone().any(|is_followed| is_followed) {
            (self.followed_since, self.is_settled) = (None, false);
            return;
        }
        let all_follow = self.links.len() >= self.nodes && followed.all(|is_followed| is_followed);
        let followed_ms = now.since_ms(*self.followed_since.get_or_insert(now));
        self.is_settled |= all_follow || followed_ms >= SLOTS_SETTLE_MS;
    }

    /// Queues the grants that are due for these servers.
    fn settle(&mut self, now: Now, servers: impl Iterator<Item = ServerKey>) {
        self.now = now;
        if !self.is_active {
            return;
        }
        self.look_if_settled(now);
        for key in servers {
            let Some(server) = self.servers.get_mut(&key) else { continue };
            let is_followed =
                |link: NodeLinkId| self.links.get(&link).is_some_and(|it| it.is_followed);
            for (link, slots) in server.settle(now, self.is_settled, is_followed) {
                if let Some(of_link) = self.links.get_mut(&link) {
                    of_link.grants.retain(|grant| grant.server != key);
                    of_link.grants.push(SlotGrant { server: key, slots });
                }
            }
        }
    }
}

impl Server {
    /// `is_current`: the node has received all grants that were sent to it.
    fn reported(
        &mut self,
        now: Now,
        link: NodeLinkId,
        using: &SlotUse,
        (is_followed, is_current): (bool, bool),
    ) -> bool {
        let &SlotUse { slots_max, held, wanted, .. } = using;
        let (granted, bound, turn) = (held, held, Turn::new(now));
        let leaving_since = None;
        let new = Held { is_new: true, slots_max, wanted, granted, bound, leaving_since, turn };
        let is_first = !self.nodes.contains_key(&link);
        let known = self.nodes.entry(link).or_insert(new);
        let before = *known;
        (known.slots_max, known.wanted) = (slots_max, wanted);
        if is_current && !is_followed {
            known.granted = held;
        }
        // It has lost its grant, in a pause.
        known.is_new |= is_current && held < known.granted;
        // Any grant sent meanwhile may be in force by now, if only until the next one.
        known.bound = if is_current { held } else { held.max(known.bound) };
        is_first || *known != before
    }

    /// The grants that are due to nodes that follow this coordinator.
    fn settle(
        &mut self,
        now: Now,
        is_settled: bool,
        is_followed: impl Fn(NodeLinkId) -> bool,
    ) -> Vec<(NodeLinkId, u32)> {
        let Some(slots_max) = self.nodes.values().map(|held| held.slots_max).min() else {
            return Vec::new();
        };
        let followers = self.nodes.keys().filter(|link| is_followed(**link)).count();
        if followers > 0 && followers < self.nodes.len() {
            let since = *self.split_since.get_or_insert(now);
            // Usually the other nodes are about to follow. This must end before the other
            // coordinator, which has lost these nodes, grants their slots to others.
            let lasts = now.since_ms(since) >= SLOTS_SPLIT_MS;
            return if lasts { self.share(slots_max, is_followed) } else { Vec::new() };
        }
        self.split_since = None;
        if followers == 0 || !is_settled {
            return Vec::new();
        }
        let lost = total(self.lost.iter().map(|(_, slots, _)| *slots));
        self.divide(now, slots_max.saturating_sub(lost))
    }

    /// Two coordinators would grant the same slots: each node has its share, as without a
    /// coordinator.
    fn share(
        &mut self,
        slots_max: u32,
        is_followed: impl Fn(NodeLinkId) -> bool,
    ) -> Vec<(NodeLinkId, u32)> {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let share = (slots_max / nodes).max(1);
        let followers = self.nodes.iter_mut().filter(|(link, _)| is_followed(**link));
        let due = followers.filter(|(_, held)| held.is_new || held.granted != share);
        due.map(|(link, held)| {
            (held.is_new, held.granted) = (false, share);
            held.bound = held.bound.max(share);
            (*link, share)
        })
        .collect()
    }

    /// Divides all slots among the nodes.
    fn divide(&mut self, now: Now, slots: u32) -> Vec<(NodeLinkId, u32)> {
        let granted = total(self.nodes.values().map(|held| held.granted));
        let is_due = |held: &Held| held.is_new || held.granted < held.wanted.min(slots);
        if granted == slots && !self.nodes.values().any(is_due) {
            self.nodes.values_mut().for_each(|held| held.turn.end());
            return Vec::new();
        }
        let wanted: Vec<_> = self.nodes.values().map(|held| held.wanted).collect();
        let Division { mut due, hungry, rest } = divide(slots, &wanted);
        self.take_turns(now, slots, &due, (&hungry, rest));
        let turns = self.nodes.values().map(|held| held.turn.slots());
        due.iter_mut().zip(turns).for_each(|(due, turn)| *due += turn);
        self.grant(slots, &due)
    }

    /// Of the `hungry` nodes, `rest` nodes have one slot more than is due.
    fn take_turns(&mut self, now: Now, slots: u32, due: &[u32], (hungry, rest): (&[usize], usize)) {
        let mut nodes: Vec<_> = self.nodes.values_mut().collect();
        for (node, held) in nodes.iter_mut().enumerate() {
            if rest == 0 || hungry.binary_search(&node).is_err() {
                held.turn.end();
            }
        }
        let claim = |held: &Held, due: u32| (due + held.turn.slots()).saturating_sub(held.bound);
        let claimed = total(nodes.iter().zip(due).map(|(held, due)| claim(held, *due)));
        let bound = total(nodes.iter().map(|held| held.bound));
        turns::begin(
            now,
            rest,
            slots.saturating_sub(bound).saturating_sub(claimed),
            &mut candidates(&mut nodes, due, hungry),
        );
        let coming = nodes.iter_mut().zip(due).map(|(held, due)| held.coming(now, *due));
        let coming = total(coming);
        turns::end(now, rest, coming, &mut candidates(&mut nodes, due, hungry));
    }

    /// Withdraws slots that are not due, and grants those that are due from the slots that nobody
    /// may be using.
    fn grant(&mut self, slots: u32, due: &[u32]) -> Vec<(NodeLinkId, u32)> {
        let mut free = slots.saturating_sub(total(self.nodes.values().map(|held| held.bound)));
        let mut nodes: Vec<_> = self.nodes.iter_mut().zip(due).collect();
        nodes.sort_by_key(|((_, held), _)| held.turn.had());
        // No node gets a second slot while another has none.
        let none = nodes.iter_mut().filter(|((_, held), due)| held.bound == 0 && **due > 0);
        for ((_, held), _) in none.take(free as usize) {
            (held.bound, free) = (1, free - 1);
        }
        let mut grants = Vec::new();
        for ((link, held), due) in nodes {
            // Slots that it still has need not be free.
            let more = due.saturating_sub(held.bound).min(free);
            let slots = (*due).min(held.bound + more);
            free -= more;
            held.bound = held.bound.max(slots);
            if std::mem::take(&mut held.is_new) || slots != held.granted {
                held.granted = slots;
                grants.push((*link, slots));
            }
        }
        grants
    }
}

impl Held {
    /// Slots that are no longer due to it and will soon be free.
    fn coming(&mut self, now: Now, due: u32) -> u32 {
        let more = self.bound.saturating_sub(due + self.turn.slots());
        if more == 0 {
            self.leaving_since = None;
            return 0;
        }
        let since = *self.leaving_since.get_or_insert(now);
        // After that, they are used by long requests, and other nodes must give way.
        if now.since_ms(since) < SLOTS_LEAVE_MS { more } else { 0 }
    }
}

/// The `nodes` that take turns.
fn candidates<'a>(
    nodes: &'a mut [&mut Held],
    due: &[u32],
    hungry: &[usize],
) -> Vec<TurnCandidate<'a>> {
    let candidates = nodes.iter_mut().enumerate();
    let candidates = candidates.filter(|(node, _)| hungry.binary_search(node).is_ok());
    let candidate = |(node, held): (usize, &'a mut &mut Held)| {
        let has_more = held.bound > due[node];
        TurnCandidate { turn: &mut held.turn, has_more }
    };
    candidates.map(candidate).collect()
}

fn total(slots: impl Iterator<Item = u32>) -> u32 {
    slots.fold(0, u32::saturating_add)
}
