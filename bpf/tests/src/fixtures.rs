//! Named packets, each with the verdict that it must meet.

mod flows;
mod icmp;
mod ip;
mod link;
mod networks;
mod node;
mod transport;

use std::net::SocketAddr;

use skep_steer::Tables;
use skep_wire::steer::{NodeIndex, Verdict};

use crate::machine::Program;
use crate::world::world;

/// A named packet, what came before it, and what it must meet.
pub struct Fixture {
    /// What is tried, in words.
    pub name: &'static str,
    pub program: Program,
    /// Frames that come first, whatever they meet.
    pub before: Vec<Vec<u8>>,
    pub frame: Vec<u8>,
    /// What it must meet.
    pub verdict: Verdict,
    /// The node that it must go to.
    pub node: Option<NodeIndex>,
    /// Connections of the node: the client's end, then its own.
    pub sockets: Vec<(SocketAddr, SocketAddr)>,
    changes: Vec<fn(&mut Tables)>,
}

impl Fixture {
    fn new(program: Program, name: &'static str, frame: Vec<u8>, verdict: Verdict) -> Self {
        Self {
            name,
            program,
            before: Vec::new(),
            frame,
            verdict,
            node: None,
            sockets: Vec::new(),
            changes: Vec::new(),
        }
    }

    fn after(mut self, frame: Vec<u8>) -> Self {
        self.before.push(frame);
        self
    }

    fn to(mut self, node: NodeIndex) -> Self {
        self.node = Some(node);
        self
    }

    /// In a world that differs so. Flows that tables hold are as if they had
    /// come before.
    fn given(mut self, change: fn(&mut Tables)) -> Self {
        self.changes.push(change);
        self
    }

    fn with_socket(mut self, client: SocketAddr, service: SocketAddr) -> Self {
        self.sockets.push((client, service));
        self
    }

    /// The tables that it begins with.
    pub fn tables(&self, world: &Tables) -> Tables {
        let mut tables = world.clone();
        for change in &self.changes {
            change(&mut tables);
        }
        tables
    }
}

/// All of them. Names are unique.
pub fn all() -> Vec<Fixture> {
    [
        link::fixtures(),
        ip::fixtures(),
        transport::fixtures(),
        icmp::fixtures(),
        flows::fixtures(),
        networks::fixtures(),
        node::fixtures(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The frames of one program's fixtures, with what comes before them: where
/// mutations begin.
pub fn frames(program: Program) -> Vec<Vec<u8>> {
    let fixtures = all().into_iter().filter(|fixture| fixture.program == program);
    fixtures.flat_map(|fixture| [fixture.before, vec![fixture.frame]].concat()).collect()
}

/// The tables that fixtures begin with.
pub fn base() -> Tables {
    world()
}

fn dispatch(name: &'static str, frame: Vec<u8>, verdict: Verdict) -> Fixture {
    Fixture::new(Program::Dispatch, name, frame, verdict)
}
