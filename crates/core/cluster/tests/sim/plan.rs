//! The config of each dispatcher.

use std::net::SocketAddr;

use skep_cluster::table_publisher::{NodePlan, ServicePlan, TablePlan};
use skep_wire::message::Name;
use skep_wire::steer::{Measure, Protocol, SERVICES_MAX, service_hash};

use crate::scenario::Scenario;

/// The address of a service. Their hashes prefer the same id, so only tables determine which has
/// it.
pub(crate) fn service_address(number: u16) -> SocketAddr {
    let address = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
    let wish = |port: &u16| service_hash(address(*port)).is_multiple_of(SERVICES_MAX as u64);
    let port = (1..).filter(wish).nth(usize::from(number)).unwrap();
    address(port)
}

/// Two or three services in different orders, as in the configs of a rolling restart. The third one
/// precedes the others; the first has all nodes.
pub(crate) fn plan(scenario: &Scenario, place: usize) -> TablePlan {
    let names = (0..scenario.nodes).map(|number| Name::new(&format!("n{number}")).unwrap());
    let service = |number: u16, nodes: usize| ServicePlan {
        address: service_address(number),
        protocol: Protocol::Tcp,
        choices: 2,
        measure: Measure::Load,
        by_address: false,
        policy: Name::new("power-of-two").unwrap(),
        nodes: (0..nodes).collect(),
    };
    let nodes = names.enumerate().map(|(number, name)| NodePlan {
        name,
        address: SocketAddr::from(([10, 0, 0, number as u8], 80)),
        weight: 1 + number as u32 % 3,
        is_open: true,
    });
    let half = scenario.nodes.div_ceil(2);
    let mut services = vec![service(2, half), service(1, scenario.nodes), service(0, half)];
    services.truncate(2 + place % 2);
    services.rotate_left(place % 2);
    TablePlan {
        services,
        nodes: nodes.collect(),
        dispatchers: vec![[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1]],
    }
}
