//! Messages: encoded messages decode to the same, and nothing else decodes.

use proptest::prelude::*;
use skep_units::{EPOCH_MAX, Rng};
use skep_wire::delta::{NotItsBase, TableDelta};
use skep_wire::guard::{self, Order, Side, Steerer};
use skep_wire::limits::{
    ADDRESSES_MAX, DISPATCHERS_MAX, FLOWS_PER_BATCH_MAX, HISTORY_MAX, KEY_CHARACTERS_MIN,
    MESSAGE_BYTES_MAX, NAME_BYTES_MAX, WEIGHT_MAX,
};
use skep_wire::message::{
    ARM_CELLS_MAX, ArmClient, ArmClients, ArmCounts, ArmsInForce, CLIENTS_PER_MESSAGE_MAX,
    DispatcherHeartbeat, FlowBatch, FlowsTaken, Hears, Message, Name, NameTooLong, NodeHeartbeat,
    NodeLoad, NotAMessage, OBJECTS_PER_MESSAGE_MAX, ServedObjects, ServiceArms, SizedObject, Stage,
    ToldArm, TransferRates,
};
use skep_wire::parts::{PART_BYTES, Reassembler, split};
use skep_wire::seal::{Endpoint, Key, PeerId};
use skep_wire::steer::{
    DatapathService, Flow, ForwardingState, Measure, NODES_MAX, Protocol, ROW_NODES, SERVICES_MAX,
    ServiceMember,
};
use skep_wire::table::{Share, Table, TableNode, TableService, TableVersion};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn dispatcher_heartbeat() -> DispatcherHeartbeat {
    DispatcherHeartbeat {
        name: name("d1"),
        stage: Stage::Standby,
        epoch: 9,
        priority: 100,
        flows_synced: true,
        table: TableVersion { epoch: 8, generation: 7 },
        hears: Some(Hears { dispatcher: PeerId(5), epoch: 8, ago_ms: 12 }),
        mac: [2, 0, 0, 0, 0, 1],
    }
}

fn node_heartbeat() -> NodeHeartbeat {
    NodeHeartbeat {
        name: name("n1"),
        index: Some(3),
        mac: [2, 0, 0, 0, 0, 2],
        mtu: 1_500,
        addresses: vec!["10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap()],
        services: vec![7],
        table: TableVersion::default(),
        hears: None,
        is_leaving: false,
        load: NodeLoad {
            connections: 1,
            requests_in_flight: 2,
            bytes_outstanding: 3,
            cpu_permille: 4,
            memory_bytes: 5,
            sent_bytes_s: 6,
            filled_bytes_s: 7,
            hit_permille: 8,
        },
    }
}

/// The load whose numbers need the most bytes.
fn heaviest() -> NodeLoad {
    NodeLoad {
        connections: u64::MAX,
        requests_in_flight: u64::MAX,
        bytes_outstanding: u64::MAX,
        cpu_permille: 1000,
        memory_bytes: u64::MAX,
        sent_bytes_s: u64::MAX,
        filled_bytes_s: u64::MAX,
        hit_permille: 1000,
    }
}

/// A table of `nodes` nodes and `services` services with full histories, which have nothing in
/// common if `is_worst`.
fn table(nodes: u16, services: u16, is_worst: bool) -> Table {
    let node = |index: u16| TableNode {
        index,
        name: name(&format!("{index:064}")),
        address: "[2001:db8::1]:65535".parse().unwrap(),
        weight: WEIGHT_MAX,
        state: ForwardingState::Up,
        is_drained: false,
        mac: [255; 6],
        mtu: 9_000,
    };
    let memberships = if is_worst { services * HISTORY_MAX as u16 } else { HISTORY_MAX as u16 };
    let membership = |number: u16| {
        let weight = WEIGHT_MAX - u32::from(number);
        (0..nodes).map(|index| Share { index, weight }).collect()
    };
    let service = |id: u16| TableService {
        service: DatapathService {
            id,
            address: "[2001:db8::2]:443".parse().unwrap(),
            protocol: Protocol::Tcp,
            choices: 4,
            measure: Measure::Turns,
            by_address: false,
        },
        policy: name("round-robin"),
        history: (0..HISTORY_MAX as u16)
            .map(|at| if is_worst { id * HISTORY_MAX as u16 + at } else { at })
            .collect(),
    };
    Table {
        version: TableVersion { epoch: EPOCH_MAX, generation: u64::MAX },
        services: (0..services).map(service).collect(),
        nodes: (0..nodes).map(node).collect(),
        memberships: (0..memberships).map(membership).collect(),
        dispatchers: vec![[1; 6], [2; 6]],
    }
}

fn flows(count: usize) -> FlowBatch {
    let flow = |port: usize| Flow {
        client: format!("[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:{}", 65_000 + port)
            .parse()
            .unwrap(),
        service: 63,
        node: 255,
    };
    let flows = (0..count).map(flow).collect();
    FlowBatch { dump: 1 << 40, number: 1 << 40, is_first: false, is_last: true, flows }
}

fn all() -> Vec<Message> {
    vec![
        Message::Dispatcher(dispatcher_heartbeat()),
        Message::Node(node_heartbeat()),
        Message::Table(table(256, 3, false)),
        Message::Table(Table::default()),
        Message::TableDelta(TableDelta::between(&table(256, 3, false), &table(200, 3, false))),
        Message::Flows(flows(FLOWS_PER_BATCH_MAX)),
        Message::FlowsTaken(FlowsTaken { dump: 1, number: 2 }),
        Message::Load(NodeLoad::default()),
        Message::Load(heaviest()),
        Message::ArmClients(arm_clients(CLIENTS_PER_MESSAGE_MAX)),
        Message::Served(served(OBJECTS_PER_MESSAGE_MAX)),
        Message::Rates(TransferRates { link_bytes_per_s: u64::MAX, fetch_bytes_per_s: u64::MAX }),
        Message::Arms(ArmsInForce::default()),
        Message::Arms(arms(7)),
        Message::ArmCounts(arm_counts(ARM_CELLS_MAX)),
    ]
}

fn arms(weight: u32) -> ArmsInForce {
    let arm = ToldArm { policy: name("lard"), weight, nodes: vec![PeerId(1), PeerId(2)] };
    let addresses = vec!["192.0.2.1:80".parse().unwrap()];
    ArmsInForce { services: vec![ServiceArms { addresses, test: 3, arms: vec![arm; 2] }] }
}

fn arm_counts(count: usize) -> ArmCounts {
    ArmCounts { test: 3, arm: 1, session: 4, counted_ms: 5, cells: vec![u64::MAX; count] }
}

#[test]
fn arms_beyond_their_bounds_are_no_message() {
    for wrong in [Message::Arms(arms(0)), Message::ArmCounts(arm_counts(ARM_CELLS_MAX + 1))] {
        assert_eq!(Message::decode(&wrong.encode()), Err(NotAMessage));
    }
}

fn served(count: usize) -> ServedObjects {
    let objects = vec![SizedObject { url_hash: u64::MAX, bytes: u64::MAX }; count];
    ServedObjects { node: PeerId(u64::MAX), objects }
}

fn arm_clients(count: usize) -> ArmClients {
    let clients = vec![ArmClient { client: u64::MAX, arm: 7 }; count];
    ArmClients { test: u64::MAX, known: u32::MAX, digest: u64::MAX, clients }
}

#[test]
fn what_is_written_is_read_again() {
    for message in all() {
        let bytes = message.encode();
        assert_eq!(Message::decode(&bytes), Ok(message));
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(Message::decode(&longer), Err(NotAMessage), "something behind it");
        assert_eq!(Message::decode(&bytes[..bytes.len() - 1]), Err(NotAMessage), "cut short");
    }
}

#[test]
fn a_load_is_one_small_datagram() {
    let key = Key::from_text(&"k".repeat(KEY_CHARACTERS_MIN)).unwrap();
    let mut node = Endpoint::new(&key, "hive", "n1", 1);
    let usual = NodeLoad {
        connections: 200,
        requests_in_flight: 40,
        bytes_outstanding: 80_000_000,
        cpu_permille: 250,
        memory_bytes: 1 << 30,
        sent_bytes_s: 100_000_000,
        filled_bytes_s: 1_000_000,
        hit_permille: 970,
    };
    let mut sizes = [usual, heaviest()].into_iter().map(|load| {
        let parts = split(&Message::Load(load).encode()).unwrap();
        assert_eq!(parts.len(), 1);
        node.seal(PeerId(1), &parts[0]).unwrap().len()
    });
    let (usual, heaviest) = (sizes.next().unwrap(), sizes.next().unwrap());
    eprintln!("a load: {usual} bytes, at most {heaviest}");
    assert!(usual < 120 && heaviest < 200, "{usual}, {heaviest}");
}

#[test]
fn heartbeats_and_batches_fill_one_datagram_and_the_worst_table_travels() {
    for message in [
        Message::Dispatcher(dispatcher_heartbeat()),
        Message::Flows(flows(FLOWS_PER_BATCH_MAX)),
        Message::ArmClients(arm_clients(CLIENTS_PER_MESSAGE_MAX)),
        Message::Served(served(OBJECTS_PER_MESSAGE_MAX)),
    ] {
        assert!(message.encode().len() <= PART_BYTES, "{message:?}");
    }
    let addresses = vec!["2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap(); ADDRESSES_MAX];
    let (name, services) = (name(&"n".repeat(NAME_BYTES_MAX)), vec![u64::MAX; SERVICES_MAX]);
    let heartbeat = NodeHeartbeat { name, addresses, services, ..node_heartbeat() };
    assert!(Message::Node(heartbeat).encode().len() <= PART_BYTES);

    let usual = Message::Table(table(NODES_MAX as u16, 8, false)).encode().len();
    let worst = Message::Table(table(NODES_MAX as u16, SERVICES_MAX as u16, true));
    let bytes = worst.encode();
    eprintln!("tables of {NODES_MAX} nodes: usual {usual} bytes, worst {}", bytes.len());
    assert!(bytes.len() <= MESSAGE_BYTES_MAX);
    let mut reassembler = Reassembler::default();
    let parts = split(&bytes).unwrap();
    let whole = parts.iter().find_map(|part| reassembler.take(PeerId(1), part).unwrap());
    assert_eq!(Message::decode(&whole.unwrap()), Ok(worst));
}

#[test]
fn beyond_the_bounds_is_no_message() {
    type Change = fn(&mut Table);
    let changes: [(&str, Change); 13] = [
        ("an epoch after which there is none", |it| it.version.epoch = u64::MAX),
        ("an index too high", |it| it.nodes[3].index = NODES_MAX as u16),
        ("an index twice", |it| it.nodes[1].index = 0),
        ("nodes out of order", |it| it.nodes.swap(0, 1)),
        ("a node too heavy", |it| it.nodes[0].weight = WEIGHT_MAX + 1),
        ("a member without weight", |it| it.memberships[0][0].weight = 0),
        ("a member that is no node", |it| it.memberships[0][3].index = 200),
        ("members out of order", |it| it.memberships[0].swap(0, 1)),
        ("a service too high", |it| it.services[1].service.id = SERVICES_MAX as u16),
        ("a service twice", |it| it.services[1].service.id = 0),
        ("no choices", |it| it.services[0].service.choices = 0),
        ("a history into nowhere", |it| it.services[0].history[0] = 99),
        ("a history too long", |it| it.services[0].history = vec![0; ROW_NODES + 1]),
    ];
    for (what, change) in changes {
        let mut table = table(4, 2, false);
        change(&mut table);
        assert_eq!(Message::decode(&Message::Table(table).encode()), Err(NotAMessage), "{what}");
    }
    let many = NodeHeartbeat {
        addresses: vec!["::1".parse().unwrap(); ADDRESSES_MAX + 1],
        ..node_heartbeat()
    };
    let mut stray = flows(1);
    stray.flows[0].service = SERVICES_MAX as u16;
    let epoch = EPOCH_MAX + 1;
    let hears = Some(Hears { dispatcher: PeerId::of("d"), epoch, ago_ms: 1 });
    let late = TableVersion { epoch, generation: 1 };
    for message in [
        Message::Dispatcher(DispatcherHeartbeat { epoch, ..dispatcher_heartbeat() }),
        Message::Dispatcher(DispatcherHeartbeat { hears, ..dispatcher_heartbeat() }),
        Message::Dispatcher(DispatcherHeartbeat { table: late, ..dispatcher_heartbeat() }),
        Message::Node(NodeHeartbeat { hears, ..node_heartbeat() }),
        Message::Node(NodeHeartbeat { table: late, ..node_heartbeat() }),
        Message::Node(many),
        Message::Node(NodeHeartbeat { services: vec![1; SERVICES_MAX + 1], ..node_heartbeat() }),
        Message::Node(NodeHeartbeat { index: Some(NODES_MAX as u16), ..node_heartbeat() }),
        Message::Flows(flows(FLOWS_PER_BATCH_MAX + 1)),
        Message::Flows(stray),
        Message::Load(NodeLoad { cpu_permille: 1001, ..heaviest() }),
        Message::Node(NodeHeartbeat {
            load: NodeLoad { hit_permille: 1001, ..heaviest() },
            ..node_heartbeat()
        }),
    ] {
        assert_eq!(Message::decode(&message.encode()), Err(NotAMessage), "{message:?}");
    }
}

#[test]
fn a_delta_leads_from_its_base_to_its_table_and_nowhere_else() {
    let base = table(256, 64, false);
    let version = TableVersion { epoch: 7, generation: 8 };
    let mut next = Table { version, ..base.clone() };
    next.nodes[100].state = ForwardingState::Down;
    let mut present = next.memberships[0].clone();
    present.remove(100);
    next.memberships.insert(0, present);
    next.memberships.pop();
    let delta = TableDelta::between(&base, &next);
    assert_eq!(delta.apply(&base), Ok(next.clone()));
    let bytes = Message::TableDelta(delta.clone()).encode().len();
    let whole = Message::Table(next.clone()).encode().len();
    eprintln!("a node of 256 dies: {bytes} bytes instead of {whole}");
    assert!(bytes < 200, "{bytes}");

    assert_eq!(delta.apply(&next), Err(NotItsBase));
    let mut twin = base.clone();
    twin.nodes[3].mtu += 1;
    assert_eq!(delta.apply(&twin), Err(NotItsBase), "of the same version, but another table");
    let mut unsound = next.clone();
    unsound.nodes.swap(0, 1);
    assert_eq!(TableDelta::between(&base, &unsound).apply(&base), Err(NotItsBase));
    let worst = table(NODES_MAX as u16, SERVICES_MAX as u16, true);
    assert_eq!(TableDelta::between(&base, &worst).apply(&base), Ok(worst));
}

#[test]
fn names_are_bounded_on_the_wire_too() {
    let bytes = NAME_BYTES_MAX + 1;
    assert_eq!(Name::new(&"x".repeat(bytes)), Err(NameTooLong { bytes }));
    let long = name(&"x".repeat(NAME_BYTES_MAX));
    let good =
        Message::Dispatcher(DispatcherHeartbeat { name: long, ..dispatcher_heartbeat() }).encode();
    // The second byte is the name's length.
    let mut bad = good;
    assert_eq!(usize::from(bad[1]), NAME_BYTES_MAX);
    bad[1] += 1;
    bad.insert(2, b'x');
    assert_eq!(Message::decode(&bad), Err(NotAMessage));
}

#[test]
fn members_of_a_service_come_with_their_names() {
    let table = table(3, 1, false);
    let members = table.members(&table.services[0]);
    assert_eq!(members.len(), HISTORY_MAX);
    assert_eq!(members[0][2].index, 2);
    assert_eq!(members[0][2].name_hash, table.nodes[2].name.peer().0);
    assert_eq!(members[1][0].weight, WEIGHT_MAX - 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert!(Message::decode(&message.encode()).is_ok());
        }
        let _ = Reassembler::default().take(PeerId(1), &bytes);
    }

    #[test]
    fn no_change_makes_it_panic(seed: u64, which in 0_usize..6) {
        let mut bytes = all()[which].encode();
        let mut rng = Rng::new(seed);
        for _ in 0..=rng.below(6) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.next_u64() as u8,
                _ => bytes.insert(at, rng.next_u64() as u8),
            }
        }
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }
}

#[test]
fn orders_about_all_nodes_fit_the_socket_to_netguard() {
    let member = |index: usize| ServiceMember {
        index: index as u16,
        name_hash: u64::MAX,
        weight: WEIGHT_MAX,
    };
    let members: Vec<_> = (0..NODES_MAX).map(member).collect();
    let memberships = vec![members; HISTORY_MAX];
    let side = Side::Dispatch;
    let service = DatapathService {
        id: SERVICES_MAX as u16 - 1,
        address: "[2001:db8::2]:443".parse().unwrap(),
        protocol: Protocol::Tcp,
        choices: 4,
        measure: Measure::Turns,
        by_address: false,
    };
    let rows = Order::Rows { side, service, memberships };
    let steerers = vec![([255; 6], Steerer::Node); NODES_MAX + DISPATCHERS_MAX];
    for order in [rows, Order::Steerers(side, steerers)] {
        let bytes = postcard::to_allocvec(&order).unwrap().len();
        eprintln!("{bytes} bytes of {}", guard::MESSAGE_BYTES_MAX);
        assert!(bytes <= guard::MESSAGE_BYTES_MAX);
    }
}
