//! Files of partitioned folders: nodes walk their folders, announce on every link what they have
//! found, and ask for files of other nodes. No coordinator may answer "nobody" for a file of a
//! linked node, of a recently lost one, or of one that has not linked yet.

use std::collections::BTreeMap;

use skep_units::Rng;
use skep_wire::cache::{FileAnswer, SegmentName, ToCoordinator, ToNode};

use crate::links::Conn;
use crate::world::{Event, World};

/// Short, so that it sometimes expires.
pub(crate) const LOST_NODE_MS: u64 = 600;
/// Files that exist; the names after them do not.
const FILES: u64 = 24;
const NAMES: u64 = 30;
/// Longest walk of a node that has just started.
const WALK_MS: u64 = 400;
/// Interval of announcements, of this many files each.
const ANNOUNCE_GAP_MS: u64 = 15;
const FILES_PART: usize = 2;
const SEEK_MS: u64 = 10;

/// Knowledge about files and answers to be checked.
pub(crate) struct Files {
    rng: Rng,
    /// Bound of the coordinators.
    pub(crate) files_max: usize,
    /// When each node has walked all its folders.
    walked_at: BTreeMap<usize, u64>,
    coordinators: BTreeMap<usize, Heard>,
    asks: BTreeMap<(u64, u64), u64>,
}

/// What a coordinator can know about nodes.
#[derive(Default)]
struct Heard {
    began_at: u64,
    /// The links of nodes.
    linked: BTreeMap<usize, u64>,
    /// When the other nodes were lost.
    lost_at: BTreeMap<usize, u64>,
}

impl Files {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xf11e);
        // Small, so that some are refused.
        let files_max = [1_000, 1_000, 6][rng.below(3) as usize];
        let (walked_at, coordinators, asks) = Default::default();
        Self { rng, files_max, walked_at, coordinators, asks }
    }

    pub(crate) fn node_started(&mut self, at: u64, node: usize) {
        self.walked_at.insert(node, at + self.rng.below(WALK_MS));
    }

    pub(crate) fn coordinator_started(&mut self, at: u64, coordinator: usize) {
        self.coordinators.insert(coordinator, Heard { began_at: at, ..Heard::default() });
    }

    pub(crate) fn joined(&mut self, conn: &Conn) {
        self.coordinators.entry(conn.coordinator).or_default().linked.insert(conn.node, conn.id);
    }

    pub(crate) fn left(&mut self, at: u64, conn: &Conn) {
        let heard = self.coordinators.entry(conn.coordinator).or_default();
        if heard.linked.get(&conn.node) == Some(&conn.id) {
            heard.linked.remove(&conn.node);
            heard.lost_at.insert(conn.node, at);
        }
    }

    /// Whether a coordinator must not assume that a node has no unknown files.
    fn must_count(&self, at: u64, coordinator: usize, node: usize) -> bool {
        self.coordinators.get(&coordinator).is_none_or(|heard| {
            let since = heard.lost_at.get(&node).copied().unwrap_or(heard.began_at);
            heard.linked.contains_key(&node) || at < since + LOST_NODE_MS
        })
    }
}

impl World {
    /// A node announces the next files that it has found so far.
    pub(crate) fn announce(&mut self, conn: u64, told: usize) {
        let Some(Conn { node, .. }) = self.conns.get(&conn).cloned() else { return };
        if !self.nodes[node].is_alive || self.nodes[node].link(conn).is_none() {
            return;
        }
        let all: Vec<_> = (0..FILES).filter(|&file| self.has_file(node, file)).collect();
        let is_walked = self.at >= self.files.walked_at[&node];
        let found = if is_walked { all.len() } else { all.len() / 2 };
        let end = found.min(told + FILES_PART).max(told);
        let is_complete = end == all.len() && is_walked;
        let added = all[told..end].iter().map(|&file| file_name(file)).collect();
        self.say(conn, ToCoordinator::Announce { added, removed: Vec::new(), is_complete });
        if !is_complete {
            self.schedule(self.at + ANNOUNCE_GAP_MS, Event::Announce { conn, told: end });
        }
    }

    /// A random node asks all coordinators for a random file that it does not have.
    pub(crate) fn seek_file(&mut self) {
        self.schedule(self.at + SEEK_MS, Event::SeekFile);
        let node = self.files.rng.below(self.nodes.len() as u64) as usize;
        let file = self.files.rng.below(NAMES);
        if !self.nodes[node].is_alive || self.has_file(node, file) {
            return;
        }
        let conns: Vec<u64> = self.nodes[node].links.values().map(|link| link.conn).collect();
        for conn in conns {
            let ask = self.number();
            self.files.asks.insert((conn, ask), file);
            self.say(conn, ToCoordinator::FindFile { ask, name: file_name(file) });
        }
    }

    /// Compares a coordinator's answer with what is allowed.
    pub(crate) fn check_file_answer(&mut self, conn: &Conn, said: &ToNode) -> Result<(), String> {
        let ToNode::FileAnswer { ask, answer } = said else { return Ok(()) };
        let asked = self.files.asks.remove(&(conn.id, *ask));
        let file = asked.ok_or("an answer without a question")?;
        let homes: Vec<_> =
            (0..self.nodes.len()).filter(|&node| self.has_file(node, file)).collect();
        match answer {
            FileAnswer::Have { holders } => {
                self.totals.files_found += 1;
                let members = self.machines[conn.coordinator].core.members();
                let named: Vec<usize> = members
                    .filter(|member| holders.contains(&member.id))
                    .map(|member| usize::from(member.address.port()))
                    .collect();
                let is_right = |node: &usize| *node != conn.node && self.has_file(*node, file);
                if named.len() != holders.len() || !named.iter().all(is_right) {
                    return Err(format!("{named:?} do not all have file {file}"));
                }
            }
            FileAnswer::Nobody => {
                self.totals.files_nobody += 1;
                let must_count =
                    |&node: &usize| self.files.must_count(self.at, conn.coordinator, node);
                if let Some(home) = homes.into_iter().find(must_count) {
                    return Err(format!("nobody is said to have file {file} of n{home}"));
                }
            }
            FileAnswer::Unsure { nodes, are_all } => {
                self.totals.files_unsure += 1;
                let is_missing = |&node: &usize| {
                    let is_named = nodes.iter().any(|it| usize::from(it.address.port()) == node);
                    self.files.must_count(self.at, conn.coordinator, node) && !is_named
                };
                if let Some(home) = homes.into_iter().find(is_missing).filter(|_| *are_all) {
                    return Err(format!("n{home} is not named for its file {file}"));
                }
            }
            FileAnswer::Refused => {}
        }
        Ok(())
    }

    /// At the end every coordinator must know all files, and know that it does.
    pub(crate) fn all_files_known(&self) -> Result<(), String> {
        for (place, machine) in self.machines.iter().enumerate() {
            let counters = machine.core.counters();
            let is_known = (counters.files, counters.nodes_unsure) == (FILES, 0);
            if !is_known && self.files.files_max > FILES as usize * self.nodes.len() {
                return Err(format!("c{place} does not know all files: {counters:?}"));
            }
        }
        Ok(())
    }

    fn has_file(&self, node: usize, file: u64) -> bool {
        let nodes = self.nodes.len() as u64;
        let home = file % nodes;
        // Some are at two nodes.
        let other = if file.is_multiple_of(4) { (file + 1) % nodes } else { home };
        file < FILES && [home, other].contains(&(node as u64))
    }
}

fn file_name(file: u64) -> SegmentName {
    SegmentName((u128::from(file) << 64 | 0xf11e).to_le_bytes())
}
