//! The machines: cores of a dispatcher and of a node, with the little that a
//! role does around them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use skep_cluster::beats::WatchSettings;
use skep_cluster::duty::{Duty, DutySettings, Ear, Output};
use skep_cluster::keeper::{NodePlan, Plan, ServicePlan, TableKeeper};
use skep_units::{Now, Rng};
use skep_wire::message::{DispatcherBeat, Name, NodeBeat, NodeLoad, Stage};
use skep_wire::seal::{PeerId, Stamp};
use skep_wire::steer::{Measure, Protocol, Service};
use skep_wire::table::{Table, TableVersion};

use crate::net::Id;
use crate::scenario::Scenario;

pub const INTERVAL_MS: u64 = 50;
pub const NODE_INTERVAL_MS: u64 = 100;
pub const LEASE_MS: u64 = 2_000;

/// What travels.
#[derive(Clone, Debug)]
pub enum Said {
    Dispatcher(Arc<DispatcherBeat>, Stamp),
    Node(Arc<NodeBeat>, Stamp),
    Table(Arc<Table>),
}

/// A machine's own clock: started anywhere, and a little fast or slow.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset_ms: u64,
    permille: u64,
}

impl Clock {
    pub fn new(rng: &mut Rng) -> Self {
        Self { offset_ms: rng.below(1 << 40), permille: 990 + rng.below(21) }
    }

    pub fn at(&self, real_ms: u64) -> Now {
        Now(self.offset_ms + real_ms * self.permille / 1_000)
    }
}

/// What dispatchers and nodes have in common.
#[derive(Clone, Debug)]
pub struct Body {
    pub name: Name,
    pub peer: PeerId,
    pub clock: Clock,
    pub is_alive: bool,
    /// Does not run until then.
    pub paused_until: u64,
    /// What came while it did not run.
    pub inbox: VecDeque<(Id, Said)>,
    pub stamp: Stamp,
    /// Counts starts, so that timers of an earlier life do nothing.
    pub life: u64,
    /// Since when it runs without a break.
    pub runs_since: u64,
}

impl Body {
    pub fn new(name: &str, rng: &mut Rng) -> Self {
        let name = Name::new(name).unwrap();
        Self {
            peer: name.peer(),
            name,
            clock: Clock::new(rng),
            is_alive: true,
            paused_until: 0,
            inbox: VecDeque::new(),
            stamp: Stamp { incarnation: 1, sequence: 0 },
            life: 1,
            runs_since: 0,
        }
    }

    pub fn runs(&self, at: u64) -> bool {
        self.is_alive && at >= self.paused_until
    }

    pub fn next_stamp(&mut self) -> Stamp {
        self.stamp.sequence += 1;
        self.stamp
    }

    pub fn restart(&mut self, at: u64) {
        self.is_alive = true;
        self.paused_until = 0;
        self.inbox.clear();
        self.stamp = Stamp { incarnation: self.stamp.incarnation + 1, sequence: 0 };
        self.life += 1;
        self.runs_since = at;
    }
}

/// A dispatcher.
pub struct Dispatcher {
    pub body: Body,
    settings: DutySettings,
    plan: Plan,
    pub duty: Duty,
    pub keeper: TableKeeper,
    /// Survives restarts.
    pub persisted: u64,
    /// As its outputs say.
    pub is_active: bool,
    /// Whom it follows, and since when.
    pub follows: Option<(PeerId, u64)>,
    pub reaches_store: bool,
}

impl Dispatcher {
    pub fn new(place: usize, scenario: &Scenario, rng: &mut Rng) -> (Self, Vec<Output>) {
        let body = Body::new(&format!("d{place}"), rng);
        let settings = DutySettings {
            name: body.name.clone(),
            place: place as u8,
            priority: 100 + rng.below(3) as u32,
            mac: [2, 0, 0, 0, 0, place as u8],
            interval_ms: INTERVAL_MS,
            missed_max: 3,
            preempt: scenario.preempt,
            lease_patience_ms: LEASE_MS + 1_000,
        };
        let plan = plan(scenario);
        let (duty, outputs) = Duty::new(settings.clone(), body.clock.at(0), 0);
        let mut dispatcher = Self {
            body,
            settings,
            keeper: TableKeeper::new(WatchSettings::default()),
            plan,
            duty,
            persisted: 0,
            is_active: false,
            follows: None,
            reaches_store: true,
        };
        dispatcher.keeper.set_plan(dispatcher.plan.clone());
        (dispatcher, outputs)
    }

    pub fn restart(&mut self, at: u64) -> Vec<Output> {
        self.body.restart(at);
        let now = self.body.clock.at(at);
        let (duty, outputs) = Duty::new(self.settings.clone(), now, self.persisted);
        self.duty = duty;
        self.keeper = TableKeeper::new(WatchSettings::default());
        self.keeper.set_plan(self.plan.clone());
        self.is_active = false;
        self.follows = None;
        outputs
    }

    pub fn priority(&self) -> u32 {
        self.settings.priority
    }

    /// Flows are synced some time after it began to follow somebody.
    pub fn sync_flows(&mut self, at: u64) {
        let active = self.duty.active().filter(|active| *active != self.body.peer);
        match (active, self.follows) {
            (Some(active), Some((followed, since))) if active == followed => {
                if at - since > 400 {
                    self.duty.set_flows_synced(true);
                }
            }
            _ => {
                self.follows = active.map(|active| (active, at));
                self.duty.set_flows_synced(false);
            }
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.duty.stage() == Stage::Leaving
    }
}

/// A node.
pub struct Node {
    pub body: Body,
    pub ear: Ear,
    pub table: Arc<Table>,
    pub is_leaving: bool,
    /// Since when it is dead.
    pub dead_since: Option<u64>,
    mac: [u8; 6],
}

impl Node {
    pub fn new(number: usize, rng: &mut Rng) -> Self {
        Self {
            body: Body::new(&format!("n{number}"), rng),
            ear: Ear::default(),
            table: Arc::default(),
            is_leaving: false,
            dead_since: None,
            mac: [2, 0, 0, 0, 1, number as u8],
        }
    }

    /// Its process comes back; packets were steered by its table all the time.
    pub fn restart(&mut self, at: u64) {
        self.body.restart(at);
        self.ear = Ear::default();
        self.is_leaving = false;
        self.dead_since = None;
    }

    pub fn beat(&self, at: u64) -> NodeBeat {
        let now = self.body.clock.at(at);
        NodeBeat {
            name: self.body.name.clone(),
            index: self.table.node(self.body.name.as_str()).map(|node| node.index),
            mac: self.mac,
            mtu: 1_500,
            addresses: Vec::new(),
            table: self.table.version,
            hears: self.ear.hears(now, 175),
            is_leaving: self.is_leaving,
            load: NodeLoad::default(),
        }
    }

    /// Applies a table if it is later than its own.
    pub fn offer(&mut self, table: &Arc<Table>) {
        if table.version > self.table.version {
            self.table = Arc::clone(table);
        }
    }

    pub fn version(&self) -> TableVersion {
        self.table.version
    }
}

/// Two services; the second has half of the nodes.
fn plan(scenario: &Scenario) -> Plan {
    let names = (0..scenario.nodes).map(|number| Name::new(&format!("n{number}")).unwrap());
    let names: Vec<Name> = names.collect();
    let service = |id: u16, nodes: &[Name]| ServicePlan {
        service: Service {
            id,
            address: SocketAddr::from(([192, 0, 2, 1], 80 + id)),
            protocol: Protocol::Tcp,
            choices: 2,
            measure: Measure::Load,
            by_address: false,
        },
        policy: Name::new("power-of-two").unwrap(),
        nodes: nodes.to_vec(),
    };
    let nodes = names.iter().enumerate().map(|(number, name)| NodePlan {
        name: name.clone(),
        address: SocketAddr::from(([10, 0, 0, number as u8], 80)),
        weight: 1 + number as u32 % 3,
    });
    Plan {
        services: vec![service(0, &names), service(1, &names[..names.len().div_ceil(2)])],
        nodes: nodes.collect(),
        dispatchers: vec![[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1]],
    }
}
