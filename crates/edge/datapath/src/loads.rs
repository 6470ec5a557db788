//! The loads of nodes, to which the dispatcher's program adds the flows that it assigns itself.
//!
//! Reports are received many times a second, for all nodes and services: the flows that the program assigned
//! are read in one call per service, and only changed values are written.

use std::os::fd::AsFd;

use aya::maps::MapData;
use skep_wire::guard::{ChangedMap, ProgramMap};
use skep_wire::steer::{NODES_MAX, SERVICES_MAX, WeightedLoad};

use crate::tables::{check, check_id};
use crate::{DatapathError, abi, sys};

/// The maps `loads` and `assigned`.
pub(crate) struct Loads {
    loads: MapData,
    assigned: MapData,
    /// What is in `loads`, as far as this process wrote it.
    written: Vec<abi::Load>,
    /// The service whose loads are compared next.
    next: u16,
}

impl Loads {
    /// Takes over the maps with their current contents.
    pub(crate) fn take(loads: MapData, assigned: MapData) -> Result<Self, DatapathError> {
        let mut written = vec![abi::Load::default(); SERVICES_MAX * NODES_MAX];
        sys::read_range(loads.fd().as_fd(), 0, &mut written)
            .map_err(DatapathError::map_io("loads"))?;
        Ok(Self { loads, assigned, written, next: 0 })
    }

    /// Starts the turns of a service anew, for its new table.
    pub(crate) fn begin_table(&mut self, service: u16) -> Result<(), DatapathError> {
        check_id(service)?;
        let assigned = self.assigned_of(service, NODES_MAX)?;
        let mut changed = Vec::new();
        for (node, assigned) in assigned.into_iter().enumerate() {
            let place = place(service, node);
            let load = abi::Load { assigned_at_table: assigned, ..self.written[place] };
            changed.extend((load != self.written[place]).then_some((place, load)));
        }
        self.write(&changed)
    }

    /// Stores the loads that nodes reported; they apply to all of `services`.
    pub(crate) fn set(
        &mut self,
        services: &[u16],
        loads: &[WeightedLoad],
    ) -> Result<(), DatapathError> {
        let mut nodes = 0;
        for load in loads {
            check("place of a node", load.node, 0, NODES_MAX as u64 - 1)?;
            check("weight of a node", load.weight, 1, u64::from(u32::MAX))?;
            nodes = nodes.max(usize::from(load.node) + 1);
        }
        let mut changed = Vec::new();
        for &service in services {
            check_id(service)?;
            let assigned = self.assigned_of(service, nodes)?;
            for load in loads {
                let node = usize::from(load.node);
                let place = place(service, node);
                let load = abi::Load {
                    reported: load.load,
                    assigned_at_report: assigned[node],
                    weight: load.weight,
                    ..self.written[place]
                };
                changed.extend((load != self.written[place]).then_some((place, load)));
            }
        }
        self.write(&changed)
    }

    /// Compares the loads of the next service with what was written, and rewrites those that others have
    /// changed: only this process knows when turns began.
    pub(crate) fn compare_next(&mut self) -> Result<Option<ChangedMap>, DatapathError> {
        let service = self.next;
        self.next = (service + 1) % SERVICES_MAX as u16;
        let first = place(service, 0);
        let mut there = vec![abi::Load::default(); NODES_MAX];
        sys::read_range(self.loads.fd().as_fd(), first as u32, &mut there)
            .map_err(DatapathError::map_io("loads"))?;
        let written = self.written[first..].iter().copied();
        let pairs = (first..).zip(written).zip(there).filter(|((_, load), there)| load != there);
        let changed: Vec<(usize, abi::Load)> = pairs.map(|(written, _)| written).collect();
        self.write(&changed)?;
        Ok(changed.first().map(|(place, _)| ChangedMap {
            map: ProgramMap::Loads,
            key: format!("{} of service {service}", place - first),
        }))
    }

    /// Returns the number of flows that the program assigned to each of the first `nodes` nodes.
    fn assigned_of(&self, service: u16, nodes: usize) -> Result<Vec<u64>, DatapathError> {
        let mut assigned = vec![0; nodes];
        sys::read_range(self.assigned.fd().as_fd(), place(service, 0) as u32, &mut assigned)
            .map_err(DatapathError::map_io("assigned"))?;
        Ok(assigned)
    }

    fn write(&mut self, changed: &[(usize, abi::Load)]) -> Result<(), DatapathError> {
        let (places, loads): (Vec<u32>, Vec<abi::Load>) =
            changed.iter().map(|&(place, load)| (place as u32, load)).unzip();
        sys::update_batch(self.loads.fd().as_fd(), &places, &loads)
            .map_err(DatapathError::map_io("loads"))?;
        changed.iter().for_each(|&(place, load)| self.written[place] = load);
        Ok(())
    }
}

fn place(service: u16, node: usize) -> usize {
    usize::from(service) * NODES_MAX + node
}
