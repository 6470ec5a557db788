//! Beds of other processes: their list, and access to their machines.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::cpu::{self, Controller};
use crate::error::{TestbedError, Tried, check_root};
use crate::janitor::Janitor;
use crate::limits::SLOTS;
use crate::namespace::Entrance;
use crate::plan::host_device;
use crate::registry::{BedInfo, MachineInfo, Slot, entries};

/// Where the kernel lists devices.
const DEVICES: &str = "/sys/class/net";

/// The beds that are up, of all owners.
pub fn beds() -> Result<Vec<BedInfo>, TestbedError> {
    check_root()?;
    let alive = entries().into_iter().filter(|entry| entry.is_alive);
    Ok(alive.filter_map(|entry| entry.info).collect())
}

/// A command that will run in a machine of another process's bed, as
/// [`Machine::command`](crate::Machine::command) does.
pub fn command_in(
    machine: &MachineInfo,
    program: impl AsRef<OsStr>,
) -> Result<Command, TestbedError> {
    let name = &machine.name;
    let pid = machine.pid.ok_or_else(|| TestbedError::Dead(name.clone()))?;
    let entrance = Entrance::of(pid).tried(|| format!("cannot enter {name}"))?;
    if let Some(folder) = &machine.cgroup {
        let door = cpu::door(folder).tried(|| format!("cannot enter {}", folder.display()))?;
        entrance.set_cgroup(door);
    }
    Ok(Arc::new(entrance).command(program.as_ref()))
}

/// Takes away what beds left whose janitor was killed too; returns their
/// slots. Processes in their machines are not found any more.
pub fn clean() -> Result<Vec<u16>, TestbedError> {
    check_root()?;
    let controller = Controller::find();
    let files = entries();
    let has_file = |slot: &u16| files.iter().any(|entry| entry.slot == *slot);
    // A bed that is alive now may end before its turn: its own janitor has it then, and a file
    // made to claim its slot would be a trace that it never left.
    let is_alive = |slot: &u16| files.iter().any(|entry| entry.slot == *slot && entry.is_alive);
    let has_group =
        |slot: &u16| controller.as_ref().is_some_and(|it| it.bed_folder(*slot).exists());
    let has_device = |slot: &u16| Path::new(DEVICES).join(host_device(*slot)).exists();
    let is_left = |slot: &u16| has_file(slot) || has_group(slot) || has_device(slot);
    let left = (0..SLOTS).filter(|slot| !is_alive(slot) && is_left(slot));

    let mut cleaned = Vec::new();
    for number in left {
        // What is not ours to claim belongs to a bed that has come since.
        let Some(slot) = Slot::try_claim(number)? else { continue };
        let (mut janitor, _leash) = Janitor::start(&slot)?;
        if let Some(controller) = &controller {
            janitor.knows_cgroup(&controller.bed_folder(number))?;
        }
        janitor.knows_link(&host_device(number))?;
        drop(janitor);
        cleaned.push(number);
    }
    Ok(cleaned)
}
