//! Makes the input of the table from the config and the services' states.

use std::net::IpAddr;
use std::sync::Arc;

use skep_cluster::table_publisher::{NodePlan, ServicePlan, TablePlan};
use skep_config::Config;
use skep_dispatcher::{Candidate, Dispatcher, Openness};
use skep_policy::policies;
use skep_wire::message::{Mac, Name, NameTooLong};
use skep_wire::steer::{DatapathService, Network, Protocol};

/// One address of a service in direct dispatch, and the state behind it.
pub(crate) struct Address {
    /// Its index in the tables: the same on all machines with the same config.
    pub(crate) id: u16,
    pub(crate) listen: std::net::SocketAddr,
    pub(crate) dispatcher: Arc<Dispatcher>,
}

/// The addresses of all services in direct dispatch, in the order of the config.
pub(crate) fn addresses(config: &Config, dispatchers: &[Arc<Dispatcher>]) -> Vec<Address> {
    let mut addresses = Vec::new();
    for (_, service) in config.direct_services() {
        let Some(dispatcher) = dispatchers.iter().find(|it| it.name() == service.name) else {
            continue;
        };
        for &listen in &service.listen {
            let (id, dispatcher) = (addresses.len() as u16, Arc::clone(dispatcher));
            addresses.push(Address { id, listen, dispatcher });
        }
    }
    addresses
}

/// The current input of the table.
pub(crate) fn plan(addresses: &[Address], macs: &[Mac]) -> Result<TablePlan, NameTooLong> {
    let mut nodes: Vec<NodePlan> = Vec::new();
    let mut services = Vec::new();
    for address in addresses {
        let candidates = address.dispatcher.candidates();
        let names = candidates.iter().map(|candidate| Name::new(&candidate.name));
        services.push(ServicePlan {
            service: service(address),
            policy: Name::new(&address.dispatcher.policy())?,
            nodes: names.collect::<Result<_, _>>()?,
        });
        // All at once: it is rather this machine that is cut off. Nodes refuse for themselves.
        let mut wanted = candidates.iter().filter(|it| it.openness != Openness::Closing);
        let are_all_shut = wanted.all(|it| it.openness == Openness::Shut);
        for candidate in candidates {
            let name = Name::new(&candidate.name)?;
            let Candidate { address, openness, .. } = candidate;
            let is_shut = openness == Openness::Shut && !are_all_shut;
            // Weight 0 keeps what it has and gets nothing new.
            let weight = if is_shut { 0 } else { candidate.weight };
            match nodes.iter_mut().find(|node| node.name == name) {
                Some(node) => node.weight = node.weight.min(weight),
                None => nodes.push(NodePlan { name, address, weight }),
            }
        }
    }
    Ok(TablePlan { services, nodes, dispatchers: macs.to_vec() })
}

/// All nodes, and whether an operator (or the node itself) drains them.
pub(crate) fn closed(addresses: &[Address]) -> Vec<(String, bool)> {
    let mut closed: Vec<(String, bool)> = Vec::new();
    for candidate in addresses.iter().flat_map(|address| address.dispatcher.candidates()) {
        let is_closed = candidate.openness == Openness::Closing;
        match closed.iter_mut().find(|(name, _)| *name == candidate.name) {
            Some((_, before)) => *before |= is_closed,
            None => closed.push((candidate.name, is_closed)),
        }
    }
    closed
}

/// Whether the policy of this name uses weights.
pub(crate) fn is_weighted(policy: &str) -> bool {
    policies().iter().any(|info| info.name == policy && info.weighted)
}

/// The networks of a setting; the config has checked their form.
pub(crate) fn networks(texts: &[String]) -> Vec<Network> {
    texts.iter().filter_map(|text| network(text)).collect()
}

fn network(text: &str) -> Option<Network> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let address: IpAddr = address.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let prefix_bits = bits.map_or(Some(all), |bits| bits.parse().ok())?;
    Some(Network { address, prefix_bits })
}

fn service(address: &Address) -> DatapathService {
    let policy = address.dispatcher.policy();
    // The config and the API let only such policies pass.
    let info = policies().iter().find(|info| info.name == policy);
    let direct = info.and_then(|info| info.direct);
    DatapathService {
        id: address.id,
        address: address.listen,
        protocol: Protocol::Tcp,
        choices: direct.map_or(1, |direct| direct.choices),
        measure: direct.map_or(skep_wire::steer::Measure::First, |direct| direct.measure),
        by_address: direct.is_some_and(|direct| direct.by_address),
    }
}
