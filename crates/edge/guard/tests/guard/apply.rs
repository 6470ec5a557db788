//! Tests which orders apply a table.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use skep_guard::{Applier, Guard, Listener, Serve};
use skep_wire::guard::{Order, OrderReply, ProgramMap, Side};
use skep_wire::message::Name;
use skep_wire::steer::{DatapathService, ForwardingState, Measure, NodeIndex, Protocol};
use skep_wire::table::{Share, Table, TableNode, TableService, TableVersion};

const SILENCE: Duration = Duration::from_secs(60);

/// Records the orders that it receives.
#[derive(Clone, Default)]
struct Recorder {
    orders: Arc<Mutex<Vec<Order>>>,
}

impl Serve for Recorder {
    fn perform(&mut self, order: Order) -> OrderReply {
        self.orders.lock().unwrap().push(order);
        OrderReply::Done
    }

    fn silent(&mut self) {}
}

/// A table of two nodes: `member` receives the new flows, and the other one has the given state.
fn table(generation: u64, member: NodeIndex, other: ForwardingState) -> Table {
    let address = "192.0.2.1:80".parse().unwrap();
    let service = DatapathService {
        id: 0,
        address,
        protocol: Protocol::Tcp,
        choices: 1,
        measure: Measure::First,
        by_address: false,
    };
    let node = |index: NodeIndex| TableNode {
        index,
        name: Name::new(&format!("n{index}")).unwrap(),
        address,
        weight: 1,
        state: if index == member { ForwardingState::Up } else { other },
        is_drained: false,
        mac: [2, 0, 0, 0, 0, index as u8],
        mtu: 1500,
    };
    Table {
        version: TableVersion { epoch: 1, generation },
        services: vec![TableService {
            service,
            policy: Name::new("round-robin").unwrap(),
            history: vec![0],
        }],
        nodes: vec![node(0), node(1)],
        memberships: vec![vec![Share { index: member, weight: 1 }]],
        dispatchers: Vec::new(),
    }
}

#[test]
fn nodes_that_others_have_changed_stay_open_until_no_row_needs_them() {
    use ForwardingState::{Down, Up};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guard.sock");
    let listener = Listener::bind(&path, vec![rustix::process::getuid().as_raw()], None).unwrap();
    let mut recorder = Recorder::default();
    let orders = Arc::clone(&recorder.orders);
    let netguard = thread::spawn(move || {
        listener.accept(SILENCE).unwrap().unwrap().serve(SILENCE, &mut recorder)
    });
    let guard = Arc::new(Guard::connect(&path).unwrap());
    let mut applier = Applier::new(guard, Side::Node, [9; 6], |_| false);
    applier.apply(&table(1, 0, Up)).unwrap();
    orders.lock().unwrap().clear();
    applier.forget(ProgramMap::Nodes);
    applier.apply(&table(2, 1, Down)).unwrap();
    let orders = std::mem::take(&mut *orders.lock().unwrap());
    let told = orders.iter().filter_map(|order| match order {
        Order::Nodes(_, nodes) => Some(nodes.iter().map(|node| node.state).collect()),
        Order::Rows { .. } => Some(Vec::new()),
        _ => None,
    });
    let told: Vec<Vec<ForwardingState>> = told.collect();
    assert_eq!(told, [vec![Up, Up], vec![], vec![Down, Up]], "the rows of before name the first");
    drop(applier);
    netguard.join().unwrap().unwrap();
}
