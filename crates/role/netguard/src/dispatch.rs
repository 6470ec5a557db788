//! The dispatcher's side: its packet program and its virtual addresses.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skep_datapath::DispatchProgram;
use skep_netif::{ClaimWatch, Device, Dispatching, MacAddr, Netif, ProvokedClients};
use skep_wire::guard::{
    AttachedProgram, FLOWS_MAX, MachineState, Order, OrderReply, PROBE_MS, VipHolder,
};
use skep_wire::steer::{
    DatapathNode, DatapathService, Flow, ForwardingState, NODES_MAX, NodeIndex, Protocol,
    SERVICES_MAX, WeightedLoad,
};

use crate::error::NetguardError;
use crate::limits::{ANNOUNCEMENTS, PROVOKING_MAX, WEIGHT_MAX};
use crate::look::Look;
use crate::orders::{check, check_services, in_bounds, opened, own, part_of, rows};
use crate::plan::NetguardPlan;

/// Name of the folder with this side's pins.
const SIDE: &str = "dispatch";

/// The open packet program and what it needs.
pub(crate) struct DispatchSide {
    program: DispatchProgram,
    device: Device,
    opened: AttachedProgram,
    watch: ClaimWatch,
    look: Look,
    /// The part of a dump of the flow table that has not been returned yet.
    listing: VecDeque<Flow>,
    services: Vec<DatapathService>,
    /// Nodes that receive no packets.
    down: HashSet<NodeIndex>,
    /// The virtual addresses that this machine has.
    held: Vec<IpAddr>,
    /// Replaced when the addresses are released. Threads that provoke RSTs have weak references, and end then.
    hold_token: Arc<()>,
    /// The number of peers that earlier checks covered.
    checked: usize,
}

impl DispatchSide {
    /// Loads the packet program, or takes over that of an earlier process.
    pub(crate) fn open(plan: &NetguardPlan, netif: &mut Netif) -> Result<Self, NetguardError> {
        let device = plan.dispatch.device(netif)?;
        let mut program = DispatchProgram::open(&plan.place(SIDE), plan.sizes)?;
        program.keep_services(&plan.services)?;
        let how = program.attach(&device.name, plan.how)?;
        let watch = ClaimWatch::open(&device, plan.dispatch.vips.clone())?;
        if !program.replaced().is_empty() {
            tracing::warn!(maps = ?program.replaced(), "pinned maps of another size or version were replaced, and their flows and rows copied");
        }
        tracing::info!(device = device.name, "packets are steered by {how}");
        let opened = opened(&device, how.to_string());
        Ok(Self {
            program,
            device,
            opened,
            watch,
            look: Look::new()?,
            listing: VecDeque::new(),
            services: Vec::new(),
            down: HashSet::new(),
            held: Vec::new(),
            hold_token: Arc::default(),
            checked: 0,
        })
    }

    pub(crate) fn opened(&self) -> &AttachedProgram {
        &self.opened
    }

    /// Records that the virtual addresses are no longer on this machine.
    pub(crate) fn forget_addresses(&mut self) {
        self.held.clear();
        self.hold_token = Arc::default();
    }

    /// Executes an order for this side.
    pub(crate) fn perform(
        &mut self,
        order: Order,
        plan: &NetguardPlan,
        netif: &mut Netif,
    ) -> Result<OrderReply, NetguardError> {
        match order {
            Order::Settings(_, settings) => self.program.set_settings(&settings)?,
            Order::Services(_, services) => {
                check_services(&services, plan)?;
                self.program.set_services(&services)?;
                self.services = services;
            }
            Order::Rows { service, memberships, .. } => {
                check_services(&[service], plan)?;
                self.program.set_rows(&service, &rows(service, &memberships)?)?;
            }
            Order::Nodes(_, nodes) => self.set_nodes(&own(nodes, &self.device)?)?,
            Order::Steerers(_, steerers) => self.program.set_steerers(&steerers)?,
            Order::Loads(services, loads) => {
                check_loads(&services, &loads)?;
                self.program.set_loads(&services, &loads)?;
            }
            Order::Networks { allow, deny } => self.program.set_networks(&allow, &deny)?,
            Order::InsertFlows(flows) => self.program.insert_flows(&flows)?,
            Order::ChangeOwners(changes) => {
                return Ok(OrderReply::Flows(self.program.change_owners(&changes)?));
            }
            Order::FirstFlows => return self.first_flows(),
            Order::NextFlows => return Ok(self.next_flows()),
            Order::NewFlows => {
                return Ok(OrderReply::Flows(self.program.next_flow_events(FLOWS_MAX)?));
            }
            Order::Counters(_) => return Ok(OrderReply::Counters(self.program.counters()?)),
            Order::Claim => self.claim(&plan.dispatch.vips, netif)?,
            Order::Announce => self.announce()?,
            Order::Release => {
                self.forget_addresses();
                netif.release_all(&self.device, &plan.dispatch.vips)?;
            }
            Order::Look { probe, .. } => return self.look(&plan.dispatch.vips, netif, probe),
            Order::Check(_, expected) => {
                let dispatching = match expected.is_active {
                    true => Dispatching::Active,
                    false => Dispatching::Standby,
                };
                let expected = part_of(expected, &mut self.checked);
                return check(netif, &self.device, &plan.dispatch.vips, dispatching, expected);
            }
            Order::Open(_) | Order::Abort | Order::Hold => return Err(NetguardError::WrongSide),
        }
        Ok(OrderReply::Done)
    }

    /// Sets the nodes. Provokes RSTs for the clients of nodes that have just failed, as soon as
    /// their packets are steered to other nodes.
    fn set_nodes(&mut self, nodes: &[DatapathNode]) -> Result<(), NetguardError> {
        self.program.set_nodes(nodes)?;
        let is_down = |node: &&DatapathNode| node.state == ForwardingState::Down;
        let down: HashSet<_> = nodes.iter().filter(is_down).map(|node| node.index).collect();
        let failed: HashSet<_> = down.difference(&self.down).copied().collect();
        self.down = down;
        if !self.held.is_empty() && !failed.is_empty() {
            self.provoke_rst(&failed)?;
        }
        Ok(())
    }

    /// Makes the clients of these nodes detect that their connections are lost.
    fn provoke_rst(&self, failed: &HashSet<NodeIndex>) -> Result<(), NetguardError> {
        let lost = self.connections_to(failed)?;
        if lost.is_empty() {
            return Ok(());
        }
        if Arc::weak_count(&self.hold_token) >= PROVOKING_MAX {
            tracing::warn!(
                "clients of a failed node are not sent a RST: those of {PROVOKING_MAX} earlier failures are still being probed"
            );
            return Ok(());
        }
        // On another thread: orders must not wait for so many packets.
        let token = Arc::downgrade(&self.hold_token);
        let is_held = move || token.strong_count() > 0;
        let provoke = move || skep_netif::provoke_rst(&lost, is_held, report);
        if let Err(error) = std::thread::Builder::new().name("skep-rst".into()).spawn(provoke) {
            tracing::warn!(%error, "clients of a failed node are not sent a RST");
        }
        Ok(())
    }

    /// The clients that the flow table sends to these nodes, by the address of their TCP service.
    fn connections_to(
        &self,
        nodes: &HashSet<NodeIndex>,
    ) -> Result<Vec<(SocketAddr, Vec<SocketAddr>)>, NetguardError> {
        let mut clients: HashMap<u16, Vec<SocketAddr>> = HashMap::new();
        self.program.flows(|flow| {
            if nodes.contains(&flow.node) {
                clients.entry(flow.service).or_default().push(flow.client);
            }
        })?;
        let tcp = self.services.iter().filter(|service| service.protocol == Protocol::Tcp);
        let found = tcp.filter_map(|it| Some((it.address, clients.remove(&it.id)?)));
        Ok(found.collect())
    }

    /// Adds and announces the addresses; if some cannot be added, the others still are.
    fn claim(&mut self, vips: &[IpAddr], netif: &mut Netif) -> Result<(), NetguardError> {
        if let Err(error) = netif.ask_as_itself(&self.device) {
            tracing::warn!(%error, "ARP requests of this machine may announce its virtual addresses");
        }
        let (held, failure) = netif.claim_all(&self.device, vips)?;
        self.held = held;
        let announced = if self.held.is_empty() { Ok(()) } else { self.announce() };
        failure.map_or(announced, |failure| Err(failure.into()))
    }

    /// Announces the addresses that this machine has.
    fn announce(&self) -> Result<(), NetguardError> {
        if self.held.is_empty() {
            return Err(NetguardError::NotHeld);
        }
        let announced = self.held.iter().map(|vip| Ok(self.watch.announce(*vip, ANNOUNCEMENTS)?));
        announced.fold(Ok(()), Result::and)
    }

    fn first_flows(&mut self) -> Result<OrderReply, NetguardError> {
        self.listing.clear();
        let listing = &mut self.listing;
        self.program.flows(|flow| listing.push_back(flow))?;
        Ok(self.next_flows())
    }

    fn next_flows(&mut self) -> OrderReply {
        let count = self.listing.len().min(FLOWS_MAX);
        OrderReply::Flows(self.listing.drain(..count).collect())
    }

    fn look(
        &mut self,
        vips: &[IpAddr],
        netif: &mut Netif,
        probe: bool,
    ) -> Result<OrderReply, NetguardError> {
        let (program, own, held) = (&self.program, &self.device, &mut self.held);
        let mut state = self.look.state(|| {
            let devices = netif.devices()?;
            let device = devices.iter().find(|device| device.index == own.index);
            let has = |vip: &IpAddr| device.is_some_and(|it| it.has(*vip));
            held.retain(has);
            let missing = vips.iter().filter(|vip| !has(vip));
            Ok(MachineState {
                missing: missing.map(|vip| format!("{vip} on {}", own.name)).collect(),
                device: own.name.clone(),
                is_attached: program.is_attached(own.index)?,
                ..MachineState::default()
            })
        })?;
        // A device that is gone cannot be used for probes, and a program that is gone is loaded
        // again.
        if state.is_attached {
            state.owners = self.owners(vips, probe)?;
            // Last, because what it finds is searched for only once per round.
            state.changed_maps = self.program.changed(Instant::now())?;
        }
        Ok(OrderReply::Machine(state))
    }

    fn owners(&mut self, vips: &[IpAddr], probe: bool) -> Result<Vec<VipHolder>, NetguardError> {
        let mut claims = self.watch.claims()?;
        if probe {
            let wait = Duration::from_millis(PROBE_MS);
            claims.extend(skep_netif::survey(&self.device, vips, wait)?);
        }
        let own = MacAddr(self.opened.mac);
        let others = claims.into_iter().filter(|claim| claim.mac != own);
        let mut owners: Vec<VipHolder> =
            others.map(|claim| VipHolder { vip: claim.address, mac: claim.mac.0 }).collect();
        owners.sort_unstable_by_key(|owner| (owner.vip, owner.mac));
        owners.dedup();
        Ok(owners)
    }
}

/// Logs whether RSTs were provoked for the clients of a service.
fn report(service: SocketAddr, outcome: Result<ProvokedClients, skep_netif::Error>) {
    match outcome {
        Ok(ProvokedClients { asked, failed: 0 }) => {
            tracing::info!(%service, clients = asked, "clients of a failed node are sent a RST");
        }
        Ok(ProvokedClients { asked, failed }) => tracing::warn!(
            %service, clients = asked, failed, "some clients of a failed node cannot be sent a RST: \
             this machine has no route to them"
        ),
        Err(error) => tracing::warn!(%error, "clients of a failed node are not sent a RST"),
    }
}

/// Whether a dispatcher of this plan has left anything on the machine.
pub(crate) fn is_here(plan: &NetguardPlan) -> bool {
    plan.place(SIDE).pins.exists()
}

/// Returns the virtual addresses that are on this machine.
pub(crate) fn held(plan: &NetguardPlan, netif: &mut Netif) -> Result<Vec<IpAddr>, NetguardError> {
    Ok(held_on(&plan.dispatch.device(netif)?, plan))
}

fn held_on(device: &Device, plan: &NetguardPlan) -> Vec<IpAddr> {
    plan.dispatch.vips.iter().copied().filter(|vip| device.has(*vip)).collect()
}

/// Whether another machine answers for a virtual address of this one.
pub(crate) fn are_elsewhere(plan: &NetguardPlan, netif: &mut Netif) -> Result<bool, NetguardError> {
    let device = plan.dispatch.device(netif)?;
    let held = held_on(&device, plan);
    let wait = Duration::from_millis(PROBE_MS);
    let claims =
        if held.is_empty() { Vec::new() } else { skep_netif::survey(&device, &held, wait)? };
    Ok(claims.iter().any(|claim| Some(claim.mac) != device.mac))
}

/// Releases the virtual addresses, whichever process has claimed them. Returns whether any was
/// present.
pub(crate) fn release(plan: &NetguardPlan, netif: &mut Netif) -> Result<bool, NetguardError> {
    let device = plan.dispatch.device(netif)?;
    let was_there = !held_on(&device, plan).is_empty();
    netif.release_all(&device, &plan.dispatch.vips)?;
    Ok(was_there)
}

/// Removes everything that a dispatcher of this plan left on the machine.
pub(crate) fn close(plan: &NetguardPlan, netif: &mut Netif) -> Result<(), NetguardError> {
    if let Ok(device) = plan.dispatch.device(netif) {
        netif.release_all(&device, &plan.dispatch.vips)?;
    }
    Ok(DispatchProgram::detach(&plan.place(SIDE))?)
}

fn check_loads(services: &[u16], loads: &[WeightedLoad]) -> Result<(), NetguardError> {
    // One load per service and node is stored until all are written.
    in_bounds("number of services", services.len(), SERVICES_MAX + 1)?;
    in_bounds("number of loads", loads.len(), NODES_MAX + 1)?;
    services.iter().try_for_each(|&id| in_bounds("service", usize::from(id), SERVICES_MAX))?;
    loads.iter().try_for_each(|load| {
        in_bounds("node", usize::from(load.node), NODES_MAX)?;
        in_bounds("weight", load.weight as usize, WEIGHT_MAX as usize + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_no_more_than_services_and_nodes_can_be() {
        let load = WeightedLoad { node: 0, weight: 1, load: 1 };
        assert!(check_loads(&[0; SERVICES_MAX], &vec![load; NODES_MAX]).is_ok());
        assert!(check_loads(&[0; SERVICES_MAX + 1], &[]).is_err());
        assert!(check_loads(&[0], &vec![load; NODES_MAX + 1]).is_err());
    }
}
