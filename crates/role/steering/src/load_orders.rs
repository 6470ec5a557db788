//! The nodes' loads that are sent to the packet program.
//!
//! Services that use the same measure of a node's load share one list: the cost of a round of
//! heartbeats grows with the number of nodes, and hardly with that of addresses.

use skep_cluster::failure_detector::FailureDetector;
use skep_policy::{DirectLoad, Work, policies};
use skep_wire::message::{NodeHeartbeat, NodeLoad};
use skep_wire::steer::{Measure, WeightedLoad};
use skep_wire::table::{Table, TableNode, TableService};

use crate::plan::is_weighted;

/// Services, by id, and the loads of all nodes for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOrder {
    pub services: Vec<u16>,
    pub loads: Vec<WeightedLoad>,
}

/// The measure of a node's load for a service.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counted {
    load: DirectLoad,
    is_weighted: bool,
}

/// The loads of the nodes of `table` for those of its services whose policies use them.
pub fn load_orders(table: &Table, detector: &FailureDetector) -> Vec<LoadOrder> {
    let mut groups: Vec<(Counted, Vec<u16>)> = Vec::new();
    for service in table.services.iter().filter(|it| it.service.measure == Measure::Load) {
        let (counted, id) = (Counted::by(service), service.service.id);
        match groups.iter_mut().find(|(of, _)| *of == counted) {
            Some((_, services)) => services.push(id),
            None => groups.push((counted, vec![id])),
        }
    }
    if groups.is_empty() {
        return Vec::new();
    }
    let heard = table.nodes.iter().filter_map(|node| Some((node, detector.heartbeat(&node.name)?)));
    let heard: Vec<(&TableNode, &NodeHeartbeat)> = heard.collect();
    let loads = |(counted, services): (Counted, Vec<u16>)| {
        let load = |(node, heartbeat): &(&TableNode, &NodeHeartbeat)| WeightedLoad {
            node: node.index,
            weight: if counted.is_weighted { node.weight.max(1) } else { 1 },
            load: counted.of(&heartbeat.load),
        };
        LoadOrder { services, loads: heard.iter().map(load).collect() }
    };
    groups.into_iter().map(loads).collect()
}

impl Counted {
    fn by(service: &TableService) -> Self {
        let policy = service.policy.as_str();
        let info = policies().iter().find(|info| info.name == policy);
        let load = info.and_then(|info| info.direct).map(|direct| direct.load);
        let load = load.unwrap_or(DirectLoad::Connections);
        Self { load, is_weighted: is_weighted(policy) }
    }

    fn of(self, load: &NodeLoad) -> u64 {
        match self.load {
            DirectLoad::Requests => load.requests_in_flight,
            DirectLoad::Bytes => Work::of(load).replies(),
            DirectLoad::Connections => load.connections,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_cluster::failure_detector::FailureDetectorSettings;
    use skep_units::Now;
    use skep_wire::message::Name;
    use skep_wire::seal::Stamp;
    use skep_wire::steer::{DatapathService, ForwardingState, Protocol};
    use skep_wire::table::TableVersion;

    use super::*;

    const VIP: &str = "192.0.2.1:80";

    fn service(id: u16, policy: &str, measure: Measure) -> TableService {
        let (address, protocol) = (VIP.parse().unwrap(), Protocol::Tcp);
        let service =
            DatapathService { id, address, protocol, choices: 2, measure, by_address: false };
        TableService { service, policy: Name::new(policy).unwrap(), history: Vec::new() }
    }

    fn node(index: u16) -> TableNode {
        TableNode {
            index,
            name: Name::new(&format!("n{index}")).unwrap(),
            address: VIP.parse().unwrap(),
            weight: 7,
            state: ForwardingState::Up,
            is_drained: false,
            mac: [2; 6],
            mtu: 0,
        }
    }

    fn heartbeat(index: u16, load: NodeLoad) -> NodeHeartbeat {
        NodeHeartbeat {
            name: node(index).name,
            index: None,
            mac: [2; 6],
            mtu: 0,
            addresses: Vec::new(),
            services: Vec::new(),
            table: TableVersion::default(),
            hears: None,
            is_leaving: false,
            load,
        }
    }

    #[test]
    fn services_that_count_the_same_share_their_loads() {
        let mut detector = FailureDetector::new(FailureDetectorSettings::default());
        let load = NodeLoad { connections: 5, requests_in_flight: 3, ..NodeLoad::default() };
        // No heartbeat of the second node was received.
        detector.heard(Now(1), heartbeat(0, load), Stamp { incarnation: 1, sequence: 1 });
        let table = Table {
            services: vec![
                service(0, "least-connections", Measure::Load),
                service(1, "maglev-connection", Measure::First),
                service(2, "weighted-least-connections", Measure::Load),
                service(3, "least-connections", Measure::Load),
                service(4, "least-outstanding", Measure::Load),
            ],
            nodes: vec![node(0), node(1)],
            ..Table::default()
        };
        let loads = |services: &[u16], weight, load| LoadOrder {
            services: services.to_vec(),
            loads: vec![WeightedLoad { node: 0, weight, load }],
        };
        let told = load_orders(&table, &detector);
        assert_eq!(told, [loads(&[0, 3], 1, 5), loads(&[2], 7, 5), loads(&[4], 1, 3)]);
    }
}
