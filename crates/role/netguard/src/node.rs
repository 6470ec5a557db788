//! The node's side: virtual addresses from which it sends but for which it does not answer ARP,
//! and the packet program that forwards packets to other nodes.

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

/// Name of the folder with this side's pins.
const SIDE: &str = "node";

/// The open packet program and its device.
pub(crate) struct NodeSide {
    program: NodeProgram,
    device: Device,
    opened: AttachedProgram,
    look: Look,
    /// The number of peers that earlier checks covered.
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

    /// Returns the map of connections that are handed off.
    pub(crate) fn moves(&self) -> Result<Moves, NetguardError> {
        Ok(self.program.moves()?)
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
        // A missing program will be loaded again.
        if state.is_attached {
            state.changed_maps = self.program.changed(Instant::now())?;
        }
        Ok(OrderReply::Machine(state))
    }
}

/// Adds the node's virtual addresses to `lo`. Every change is first recorded in a file, so that
/// a netguard that dies in between leaves no unrecorded change.
pub(crate) fn hold(plan: &NetguardPlan, netif: &mut Netif) -> Result<(), NetguardError> {
    let device = plan.node.device(netif)?;
    let mut record = read(plan)?;
    let recorded = record.clone();
    // Those of an earlier config: their packets must no longer be accepted here.
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

/// Whether a node of this plan has left anything on the machine.
pub(crate) fn is_here(plan: &NetguardPlan) -> bool {
    plan.place(SIDE).pins.exists() || plan.record.exists()
}

/// Removes everything that a node of this plan left on the machine.
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

/// Replaces the file at `path`: after a crash it has either its earlier content or all of
/// `text`.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder)?.sync_all()
}
