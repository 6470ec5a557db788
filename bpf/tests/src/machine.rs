//! What a program can run on, and the model as one of these.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use skep_steer::{Counters, FlowEntry, FlowKey, Move, MoveKey, Outcome, Tables, hand_on, steer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The dispatcher's.
    Dispatch,
    Node,
}

/// Something that runs a packet program: its tables stay between packets.
pub trait Machine {
    /// Its name in messages.
    fn name(&self) -> &'static str;

    /// Whether it can be given such a frame at all.
    fn can_run(&self, frame: &[u8]) -> bool;

    /// Makes its tables these, all counters zero.
    fn set_tables(&mut self, tables: &Tables) -> Result<()>;

    /// Runs a frame that comes in at `now_ns`, where it can choose the time.
    fn run(&mut self, now_ns: u64, frame: &[u8]) -> Result<Outcome>;

    /// What it has written to its tables.
    fn state(&mut self) -> Result<State>;
}

/// What a program has written to its tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Owners of flows.
    pub flows: BTreeMap<FlowKey, FlowEntry>,
    /// Flows that nodes were given.
    pub assigned: BTreeMap<(u16, u16), u64>,
    /// Connections that are handed off.
    pub moves: BTreeMap<MoveKey, Move>,
    /// Packets and bytes.
    pub counters: Counters,
}

pub struct Model {
    program: Program,
    /// Both ends of the node's connections.
    sockets: Vec<(SocketAddr, SocketAddr)>,
    tables: Tables,
}

impl Model {
    /// Of a program, with empty tables and no connection.
    pub fn new(program: Program) -> Self {
        Self { program, sockets: Vec::new(), tables: Tables::default() }
    }

    /// Gives the node connections: the client's end, then its own.
    pub fn set_sockets(&mut self, sockets: &[(SocketAddr, SocketAddr)]) {
        self.sockets = sockets.to_vec();
    }
}

impl Machine for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn can_run(&self, _frame: &[u8]) -> bool {
        true
    }

    fn set_tables(&mut self, tables: &Tables) -> Result<()> {
        self.tables = tables.clone();
        Ok(())
    }

    fn run(&mut self, now_ns: u64, frame: &[u8]) -> Result<Outcome> {
        let sockets = &self.sockets;
        Ok(match self.program {
            Program::Dispatch => steer(&mut self.tables, now_ns, frame),
            Program::Node => hand_on(&mut self.tables, frame, |query| {
                sockets.contains(&(query.client, query.service))
            }),
        })
    }

    fn state(&mut self) -> Result<State> {
        Ok(State {
            flows: self.tables.flows.clone(),
            assigned: self.tables.assigned.clone(),
            moves: match self.program {
                Program::Dispatch => BTreeMap::new(),
                Program::Node => self.tables.moves.clone(),
            },
            counters: self.tables.counters.clone(),
        })
    }
}
