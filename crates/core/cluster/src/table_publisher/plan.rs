//! The plan of a table, from the config: services and nodes.

use std::net::SocketAddr;
use std::sync::Arc;

use skep_wire::message::{Mac, Name};
use skep_wire::steer::{DatapathService, Measure, Protocol};

use crate::service_ids::ServiceKey;

/// The plan, from the config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablePlan {
    /// The services, in any order, each once.
    pub services: Vec<ServicePlan>,
    /// All nodes.
    pub nodes: Vec<NodePlan>,
    /// Devices of the dispatchers.
    pub dispatchers: Vec<Mac>,
}

/// A service in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePlan {
    /// Virtual address and port.
    pub address: SocketAddr,
    pub protocol: Protocol,
    /// Candidates of a row for a new flow.
    pub choices: u8,
    /// Which of them takes it.
    pub measure: Measure,
    /// Whether all flows of a client stay together.
    pub by_address: bool,
    pub policy: Name,
    /// The nodes behind it: their places in [`TablePlan::nodes`].
    pub nodes: Arc<[usize]>,
}

/// A node in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    pub name: Name,
    /// Where it serves.
    pub address: SocketAddr,
    /// Its share against the others'; 0 drains it.
    pub weight: u32,
    /// Whether it may get new flows as far as this dispatcher's own checks say. Not part of the
    /// table: the dispatcher that takes over has checks of its own.
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
