//! The node's side: virtual addresses from which it sends but for which it does not answer ARP, and
//! the packet program that hands on other nodes' packets.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use skep_datapath::{Moves, NodeProgram};
use skep_netif::{Device, Dispatching, Netif, Record};
use skep_wire::guard::{AttachedProgram, MachineState, Order, OrderReply};

use crate::error::NetguardError;
use crate::look::Look;
use crate::orders::{check, check_services, opened, own, part_of, rows};
use crate::plan::NetguardPlan;

/// Name of the folder of its pins.
const SIDE: &str = "node";

/// The open packet program and its device.
pub(crate) struct NodeSide {
    program: NodeProgram,
    device: Device,
    opened: AttachedProgram,
    look: Look,
    /// Peers that checks have seen so far.
    checked: usize,
}

impl NodeSide {
    /// Loads the packet program, or takes over that of an earlier process.
    pub(crate) fn open(plan: &NetguardPlan, netif: &mut Netif) -> Result<Self, NetguardError> {
        let device = plan.node.device(netif)?;
        let mut program = NodeProgram::open(&plan.place(SIDE), plan.sizes)?;
        program.keep_services(&plan.services)?;
        program.watch_moves(plan.handoffs.is_some())?;
        program.attach(&device.name)?;
        tracing::info!(device = device.name, "packets of other nodes are handed on by tc");
        let opened = opened(&device, "tc".to_owned());
        Ok(Self { program, device, opened, look: Look::new()?, checked: 0 })
    }

    pub(crate) fn opened(&self) -> &AttachedProgram {
        &self.opened
    }

    /// The connections that are handed off.
    pub(crate) fn moves(&self) -> Result<Moves, NetguardError> {
        Ok(self.program.moves()?)
    }

    /// Executes one of its orders.
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
            }
            Order::Rows { service, memberships, .. } => {
                check_services(&[service], plan)?;
                self.program.set_rows(&service, &rows(service, &memberships)?)?;
            }
            Order::Nodes(_, nodes) => self.program.set_nodes(&own(nodes, &self.device)?)?,
            Order::Steerers(_, steerers) => self.program.set_steerers(&steerers)?,
            Order::Counters(_) => return Ok(OrderReply::Counters(self.program.counters()?)),
            Order::Look { .. } => return self.look(plan, netif),
            Order::Check(_, expected) => {
                let vips = &plan.node.vips;
                let expected = part_of(expected, &mut self.checked);
                return check(netif, &self.device, vips, Dispatching::No, expected);
            }
            _ => return Err(NetguardError::WrongSide),
        }
        Ok(OrderReply::Done)
    }

    fn look(
        &mut self,
        plan: &NetguardPlan,
        netif: &mut Netif,
    ) -> Result<OrderReply, NetguardError> {
        let (program, device) = (&self.program, &self.device);
        let mut state = self.look.state(|| {
            Ok(MachineState {
                missing: netif.missing(&read(plan)?, device, &plan.node.vips)?,
                device: device.name.clone(),
                is_attached: program.is_attached(device.index)?,
                ..MachineState::default()
            })
        })?;
        // A missing program is loaded again.
        if state.is_attached {
            state.changed_maps = self.program.changed(Instant::now())?;
        }
        Ok(OrderReply::Machine(state))
    }
}

/// Puts the node's virtual addresses on `lo`. Every change is recorded in a file first, so that a
/// netguard that dies in between leaves no unrecorded change.
pub(crate) fn hold(plan: &NetguardPlan, netif: &mut Netif) -> Result<(), NetguardError> {
    let device = plan.node.device(netif)?;
    let mut record = read(plan)?;
    let recorded = record.clone();
    // Of an earlier config: packets for them must not be taken here any more.
    let gone: Vec<_> = record.vips().filter(|vip| !plan.node.vips.contains(vip)).collect();
    let undone = gone.into_iter().map(|vip| netif.undo_vip(&mut record, vip));
    undone.fold(Ok(()), Result::and)?;
    for &vip in &plan.node.vips {
        netif.prepare_hold(&mut record, &device, vip, &[])?;
    }
    if record != recorded {
        write(plan, &record)?;
    }
    Ok(netif.hold(&record)?)
}

/// Whether a node of this plan has left something on the machine.
pub(crate) fn is_here(plan: &NetguardPlan) -> bool {
    plan.place(SIDE).pins.exists() || plan.record.exists()
}

/// Removes all that a node of this plan left on the machine.
pub(crate) fn close(plan: &NetguardPlan, netif: &mut Netif) -> Result<(), NetguardError> {
    NodeProgram::detach(&plan.place(SIDE))?;
    let mut record = read(plan)?;
    let undone = netif.undo(&mut record);
    write(plan, &record)?;
    Ok(undone?)
}

fn read(plan: &NetguardPlan) -> Result<Record, NetguardError> {
    let failed = |error| NetguardError::Record { path: plan.record.clone(), error };
    match fs::read(&plan.record) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| failed(error.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Record::default()),
        Err(error) => Err(failed(error)),
    }
}

fn write(plan: &NetguardPlan, record: &Record) -> Result<(), NetguardError> {
    let failed = |error| NetguardError::Record { path: plan.record.clone(), error };
    if record.is_empty() {
        return match fs::remove_file(&plan.record) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        };
    }
    let text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
    replace(&plan.record, &text).map_err(failed)
}

/// Replaces the file `path`: after a crash it has its earlier content, or all of `text`.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder)?.sync_all()
}
