//! What orders to both sides have in common: their bounds, what this machine adds to them, and the
//! self-check.

use std::net::IpAddr;
use std::time::Duration;

use skep_netif::{CheckInput, Complaint, Device, Dispatching, MacAddr, Netif};
use skep_wire::guard::{AttachedProgram, Expectations, OrderReply, PROBE_MS};
use skep_wire::steer::{DatapathNode, DatapathService, NODES_MAX, SERVICES_MAX};

use crate::error::NetguardError;
use crate::limits::{PEERS_CHECKED_MAX, WEIGHT_MAX};
use crate::plan::NetguardPlan;

/// Describes a program attached to a device, for the serving process.
pub(crate) fn opened(device: &Device, how: String) -> AttachedProgram {
    AttachedProgram {
        how,
        device: device.name.clone(),
        device_index: device.index,
        mac: device.mac.map_or([0; 6], |mac| mac.0),
        mtu: device.mtu,
    }
}

/// Returns what this check covers; `checked` is the number of peers that earlier checks covered. A
/// large cluster is checked in parts, in turn: all peers at once would overrun the device's queue with
/// requests, and an answer with their faults.
pub(crate) fn part_of(mut expected: Expectations, checked: &mut usize) -> Expectations {
    let count = expected.peers.len();
    if count > PEERS_CHECKED_MAX {
        expected.peers.rotate_left(*checked % count);
        expected.peers.truncate(PEERS_CHECKED_MAX);
        *checked = checked.wrapping_add(PEERS_CHECKED_MAX);
    }
    expected
}

/// Checks this machine and its network segment for faults.
pub(crate) fn check(
    netif: &mut Netif,
    device: &Device,
    vips: &[IpAddr],
    dispatching: Dispatching,
    expected: Expectations,
) -> Result<OrderReply, NetguardError> {
    let peer = |peer: skep_wire::guard::ExpectedPeer| skep_netif::CheckedPeer {
        name: peer.name,
        address: peer.address,
        mac: MacAddr(peer.mac),
        mtu: peer.mtu,
    };
    let complaints = skep_netif::check(
        netif,
        &CheckInput {
            device: device.name.clone(),
            vips: vips.to_vec(),
            is_node: dispatching == Dispatching::No,
            dispatching,
            active: expected.active.map(MacAddr),
            peers: expected.peers.into_iter().map(peer).collect(),
            clients: Vec::new(),
            wait: Duration::from_millis(PROBE_MS),
        },
    )?;
    let (doubtful, wrong): (Vec<_>, Vec<_>) = complaints.iter().partition(|it| it.is_doubt);
    let sentences = |found: Vec<&Complaint>| found.iter().map(ToString::to_string).collect();
    Ok(OrderReply::Checked { wrong: sentences(wrong), doubtful: sentences(doubtful) })
}

/// Checks that services are within the bounds of the tables, at addresses of the plan.
pub(crate) fn check_services(
    services: &[DatapathService],
    plan: &NetguardPlan,
) -> Result<(), NetguardError> {
    services.iter().try_for_each(|service| {
        in_bounds("service", usize::from(service.id), SERVICES_MAX)?;
        plan.check(service.address)
    })
}

/// Returns the nodes as reached through this machine's device, whatever the order specifies.
pub(crate) fn own(
    nodes: Vec<DatapathNode>,
    device: &Device,
) -> Result<Vec<DatapathNode>, NetguardError> {
    let own = |node: DatapathNode| {
        in_bounds("node", usize::from(node.index), NODES_MAX)?;
        Ok(DatapathNode { device_index: device.index, ..node })
    };
    nodes.into_iter().map(own).collect()
}

/// Returns the rows of a service, checked against the bounds of the tables.
pub(crate) fn rows(
    service: DatapathService,
    memberships: &[Vec<skep_wire::steer::ServiceMember>],
) -> Result<Vec<skep_wire::steer::Row>, NetguardError> {
    let choices = usize::from(service.choices.max(1));
    in_bounds("choice", choices - 1, skep_wire::steer::CHOICES_MAX)?;
    for member in memberships.iter().flatten() {
        in_bounds("node", usize::from(member.index), NODES_MAX)?;
        in_bounds("weight", member.weight as usize, WEIGHT_MAX as usize + 1)?;
    }
    Ok(skep_policy::rows(choices, memberships))
}

/// Checks that a number in an order is below its limit.
pub(crate) fn in_bounds(
    what: &'static str,
    number: usize,
    limit: usize,
) -> Result<(), NetguardError> {
    match number < limit {
        true => Ok(()),
        false => Err(NetguardError::OutOfBounds { what, number, limit }),
    }
}
