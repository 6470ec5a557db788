//! The plan of a table, from the config: services and nodes.

use std::net::SocketAddr;
use std::sync::Arc;

use skep_wire::message::{Mac, Name};
use skep_wire::steer::{DatapathService, Measure, Protocol};

use crate::service_ids::ServiceKey;

/// The plan of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablePlan {
    /// The services, each once, in any order.
    pub services: Vec<ServicePlan>,
    /// All nodes.
    pub nodes: Vec<NodePlan>,
    /// MAC addresses of the dispatchers' devices.
    pub dispatchers: Vec<Mac>,
}

/// A service in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePlan {
    /// Virtual address and port.
    pub address: SocketAddr,
    pub protocol: Protocol,
    /// Number of candidates of a row for a new flow.
    pub choices: u8,
    /// The measure by which one of them is selected.
    pub measure: Measure,
    /// Whether all flows of a client go to the same node.
    pub by_address: bool,
    pub policy: Name,
    /// Its nodes, as indexes into [`TablePlan::nodes`].
    pub nodes: Arc<[usize]>,
}

/// A node in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    pub name: Name,
    /// Address at which it serves.
    pub address: SocketAddr,
    /// Weight relative to the other nodes; 0 drains it.
    pub weight: u32,
    /// Whether it may receive new flows according to this dispatcher's own checks. Not part of the
    /// table: a dispatcher that takes over has checks of its own.
    pub is_open: bool,
}

impl ServicePlan {
    pub(super) fn key(&self) -> ServiceKey {
        ServiceKey::new(self.address, self.protocol)
    }

    pub(super) fn with_id(&self, id: u16) -> DatapathService {
        let Self { address, protocol, choices, measure, by_address, .. } = *self;
        DatapathService { id, address, protocol, choices, measure, by_address }
    }
}
