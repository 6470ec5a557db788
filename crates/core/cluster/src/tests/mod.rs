//! Tests of the cluster's state, one file for each part.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod budget;
mod elasticity;
mod failover;
mod flows;
mod handover;
mod health;
mod lease_observer;
mod machine_power;
mod membership;
mod reconciler;
mod table_distribution;
mod table_merge;
mod table_publisher;

use std::net::SocketAddr;

use skep_wire::message::{Name, NodeHeartbeat, NodeLoad};
use skep_wire::steer::service_hash;
use skep_wire::table::TableVersion;

use crate::HealthSettings;

/// Round numbers, for simple arithmetic.
const SETTINGS: HealthSettings = HealthSettings {
    interval_ms: 1_000,
    timeout_ms: 500,
    rise: 2,
    fall: 3,
    passive_failures_max: 4,
    slow_start_ms: 10_000,
};

/// The name of a node in direct dispatch.
fn name(number: usize) -> Name {
    Name::new(&format!("n{number:03}")).unwrap()
}

fn service_address(number: u16) -> SocketAddr {
    ([192, 0, 2, 1], 80 + number).into()
}

/// A heartbeat of the node with this number, which listens for the first three services and has a
/// table of an earlier term.
fn heartbeat(number: usize) -> NodeHeartbeat {
    NodeHeartbeat {
        name: name(number),
        index: None,
        mac: [2, 0, 0, 0, 0, number as u8],
        mtu: 1_500,
        addresses: Vec::new(),
        services: (0..3).map(|id| service_hash(service_address(id))).collect(),
        table: TableVersion { epoch: 0, generation: 1 },
        hears: None,
        is_leaving: false,
        load: NodeLoad::default(),
    }
}
