//! Purges: their propagation to all nodes, and their guarantees.

use skep_directory::{PurgeFate, PurgeOrder, PurgeReport, Purger};
use skep_units::{Now, dispatcher_number};
use skep_wire::cache::{
    NodeFeatures, PurgeKind, PurgeNews, PurgeStamp, PurgeWhat, ToCoordinator, ToNode,
};

use crate::links::{Conn, name_of};
use crate::origin::Object;
use crate::world::{Machine, World};

/// How long nodes have to acknowledge a purge.
const LIMIT_MS: u64 = 700;
/// Base of the machines' clocks, which differ by less than twice this.
const EPOCH_MS: u64 = 1_000_000;

/// All commands of a run, and which nodes are bound by them.
#[derive(Default)]
pub(crate) struct Purging {
    commands: Vec<Command>,
    /// By node: the commands that bind it, each with the number of the event from which on it must
    /// not serve what was purged. Some replies begin in the same millisecond, but before that
    /// event.
    promises: Vec<Vec<(u64, usize)>>,
}

struct Command {
    kind: PurgeKind,
    what: PurgeWhat,
    at: u64,
    coordinator: usize,
    /// Lives of the coordinator and of all nodes when the command was given.
    life: u64,
    lives: Vec<u64>,
    /// Nodes that served clients at that time.
    serving: Vec<usize>,
}

impl Purging {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { commands: Vec::new(), promises: vec![Vec::new(); nodes] }
    }

    /// The earliest time that bytes of `object` in a reply may be from if a node begins it with
    /// event `event`, by hard purges; by soft ones, the earliest time at which the origin had that
    /// version.
    pub(crate) fn promised(
        &self,
        kind: PurgeKind,
        node: usize,
        object: &Object,
        event: u64,
    ) -> u64 {
        let bound = self.promises[node].iter().filter(|(since, _)| *since < event);
        let commands = bound.map(|(_, command)| &self.commands[*command]);
        let of_it = commands.filter(|it| it.kind == kind && object.is_hit(&it.what));
        of_it.map(|it| it.at).max().unwrap_or(0)
    }

    /// A process that has just started has no purges and no segments.
    pub(crate) fn forget(&mut self, node: usize) {
        self.promises[node].clear();
    }

    /// Commands given to a coordinator during this life.
    fn of(&self, coordinator: usize, life: u64) -> Vec<usize> {
        let is_its = |it: &&usize| {
            let command = &self.commands[**it];
            (command.coordinator, command.life) == (coordinator, life)
        };
        let all: Vec<usize> = (0..self.commands.len()).collect();
        all.iter().filter(is_its).copied().collect()
    }
}

/// The purger of a dispatcher, with a clock of its own.
pub(crate) struct Stamps {
    purger: Purger<u64, usize>,
    clock_ms: u64,
}

impl Stamps {
    pub(crate) fn new(coordinator: usize, random: u64) -> Self {
        let purger = Purger::new(dispatcher_number(&format!("c{coordinator}")));
        Self { purger, clock_ms: EPOCH_MS + random % EPOCH_MS }
    }

    pub(crate) fn newest(&self) -> PurgeStamp {
        self.purger.purges().newest()
    }

    fn now(&self, at: u64) -> (Now, u64) {
        (Now(at), self.clock_ms + at)
    }
}

impl World {
    /// An operator purges something, often because it was changed in place.
    pub(crate) fn purge(&mut self, random: u64) {
        let coordinator = (random >> 8) as usize % self.machines.len();
        let object = (random >> 16) as usize % self.origin.objects.len();
        let what = self.origin.objects[object].purge(random >> 24);
        let is_soft = random >> 4 & 1 == 0;
        let kind = if is_soft { PurgeKind::Soft } else { PurgeKind::Hard };
        // Soft purges are for changes that the origin reveals when it is asked. A version that
        // changes while it is read is a fault.
        if random & 1 == 0 && !(is_soft && self.scenario.is_calm()) {
            self.origin.objects[object].change(self.at, is_soft);
        }
        let nodes: Vec<_> = self.linked(coordinator).map(|it| (it.id, name_of(it.node))).collect();
        let Machine { is_alive, life, stamps, .. } = &mut self.machines[coordinator];
        // A coordinator without nodes rejects the command: nothing was done.
        if !*is_alive || nodes.is_empty() {
            return;
        }
        let (at, life) = (self.at, *life);
        let serving: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.nodes[*node].is_alive).collect();
        let names = serving.iter().map(|node| name_of(*node)).collect();
        let order =
            PurgeOrder { kind, what: vec![what.clone()], limit_ms: LIMIT_MS, serving: names };
        let number = self.purging.commands.len();
        let news = stamps.purger.begin(stamps.now(at), order, nodes, number);
        let lives = self.nodes.iter().map(|node| node.life).collect();
        let command = Command { kind, what, at, coordinator, life, lives, serving };
        self.purging.commands.push(command);
        self.tell(|| format!("*** purge at c{coordinator}: {news:?}"));
        self.tell_purges(coordinator, None, &(kind, news));
    }

    fn linked(&self, coordinator: usize) -> impl Iterator<Item = &Conn> {
        let conns = self.conns.values();
        conns.filter(move |it| it.coordinator == coordinator && it.link.is_some() && !it.is_closed)
    }

    fn tell_purges(
        &mut self,
        coordinator: usize,
        but: Option<u64>,
        purges: &(PurgeKind, PurgeNews),
    ) {
        let linked = self.linked(coordinator).map(|conn| conn.id);
        let others: Vec<u64> = linked.filter(|id| Some(*id) != but).collect();
        let message = || ToNode::purges(purges.clone(), NodeFeatures::OWN);
        others.into_iter().for_each(|conn| self.say_to_node(conn, message()));
    }

    /// A node has sent its hello: it is sent all purges before anything else, and is bound by them
    /// once it is welcome.
    pub(crate) fn tell_all_purges(&mut self, conn: u64) {
        let coordinator = self.conns[&conn].coordinator;
        let name = name_of(self.conns[&conn].node);
        let Machine { life, stamps, .. } = &mut self.machines[coordinator];
        stamps.purger.joined(conn, &name);
        let (told, owed) = (stamps.purger.purges().told(), self.purging.of(coordinator, *life));
        let messages = told.into_iter().map(|it| ToNode::purges(it, NodeFeatures::OWN));
        messages.for_each(|message| self.say_to_node(conn, message));
        self.conns.get_mut(&conn).expect("a link").owed = owed;
    }

    /// A coordinator receives a message about purges from a node.
    pub(crate) fn coordinator_hears_purges(&mut self, conn: u64, message: ToCoordinator) {
        let (coordinator, at) = (self.conns[&conn].coordinator, self.at);
        let stamps = &mut self.machines[coordinator].stamps;
        match message {
            ToCoordinator::Purges(news) => {
                self.coordinator_learns(conn, PurgeKind::Hard, &news);
            }
            ToCoordinator::SoftPurges(news) => {
                self.coordinator_learns(conn, PurgeKind::Soft, &news);
            }
            ToCoordinator::Purged { stamp, newest } => {
                let now = stamps.now(at);
                if let Some(again) = stamps.purger.acknowledged(now, conn, (stamp, newest)) {
                    self.totals.purged_again += 1;
                    self.tell_purges(coordinator, None, &again);
                }
            }
            _ => {}
        }
        self.report_purges(coordinator);
    }

    fn coordinator_learns(&mut self, conn: u64, kind: PurgeKind, news: &PurgeNews) {
        let coordinator = self.conns[&conn].coordinator;
        if let Some(new) = self.machines[coordinator].stamps.purger.learn(kind, news) {
            self.tell_purges(coordinator, Some(conn), &(kind, new));
        }
    }

    pub(crate) fn purger_left(&mut self, coordinator: usize, conn: u64) {
        self.machines[coordinator].stamps.purger.left(conn);
        self.report_purges(coordinator);
    }

    /// A node that has acknowledged a purge is bound by it.
    pub(crate) fn report_purges(&mut self, coordinator: usize) {
        for (command, report) in self.machines[coordinator].stamps.purger.ended(Now(self.at)) {
            self.tell(|| format!("*** purged {command}: {report:?}"));
            self.totals.purges += u64::from(report.is_complete());
            self.totals.purges_incomplete += u64::from(!report.is_complete());
            self.has_reached_all(command, &report);
            let acknowledged = |fate| matches!(fate, PurgeFate::Acknowledged { .. });
            for (name, _) in report.nodes.into_iter().filter(|(_, fate)| acknowledged(*fate)) {
                let is_it = |node: &usize| name_of(*node) == name;
                let node = (0..self.nodes.len()).find(is_it).expect("a node");
                if self.purging.commands[command].lives[node] == self.nodes[node].life {
                    self.purging.promises[node].push((self.totals.events, command));
                }
            }
        }
    }

    /// Checks that a report names every node that served when the command was given, and that
    /// each node that it lists as having applied the purge knows it.
    fn has_reached_all(&self, command: usize, report: &PurgeReport) {
        let Command { kind, what, lives, serving, .. } = &self.purging.commands[command];
        for &node in serving {
            let fate = report.nodes.iter().find(|(name, _)| *name == name_of(node));
            let (_, fate) =
                fate.unwrap_or_else(|| panic!("nothing is said of n{node}: {report:?}"));
            let is_it = self.lives(node, lives[node]);
            if !is_it || !matches!(fate, PurgeFate::Acknowledged { .. }) {
                continue;
            }
            let mut hit = self.origin.objects.iter().filter(|object| object.is_hit(what));
            let known = self.nodes[node].purges.of(*kind);
            let knows = |object: &Object| object.purged(known) >= report.stamp;
            assert!(hit.all(knows), "n{node} does not know of purge {command}: {report:?}");
        }
    }

    /// At the end, all nodes and coordinators must know every purge that any of them knows.
    pub(crate) fn all_purges_known(&self) -> Result<(), String> {
        let of_nodes = self.nodes.iter().map(|node| &node.purges);
        let of_machines = self.machines.iter().map(|machine| machine.stamps.purger.purges());
        let kinds = [PurgeKind::Hard, PurgeKind::Soft];
        for (object, kind) in self.origin.objects.iter().flat_map(|it| kinds.map(|kind| (it, kind)))
        {
            let tables = of_nodes.clone().chain(of_machines.clone());
            let stamps: Vec<PurgeStamp> = tables.map(|it| object.purged(it.of(kind))).collect();
            if stamps.iter().any(|stamp| *stamp != stamps[0]) {
                return Err(format!("a purge has not reached all: {stamps:?}"));
            }
        }
        Ok(())
    }

    /// A node receives purges: it applies them, and forwards them to the other coordinators.
    pub(crate) fn node_hears_purges(
        &mut self,
        node: usize,
        conn: u64,
        (kind, news): (PurgeKind, &PurgeNews),
    ) {
        let purges = &mut self.nodes[node].purges;
        let new = purges.learn(kind, news);
        let (stamp, newest): (PurgeStamp, _) = (news.newest(), purges.newest());
        self.say(conn, ToCoordinator::Purged { stamp, newest });
        let Some(new) = new else { return };
        let links = self.nodes[node].links.values().map(|link| link.conn);
        let others: Vec<u64> = links.filter(|other| *other != conn).collect();
        let message = || ToCoordinator::purges((kind, new.clone()));
        others.into_iter().for_each(|it| self.say(it, message()));
    }

    /// A node was away and is welcome again.
    pub(crate) fn is_bound(&mut self, node: usize, conn: u64) {
        let owed = std::mem::take(&mut self.conns.get_mut(&conn).expect("a link").owed);
        let event = self.totals.events;
        self.purging.promises[node].extend(owed.into_iter().map(|it| (event, it)));
    }
}
