//! The node's program: hands on packets to the nodes that own them.

use std::net::SocketAddr;
use std::time::Instant;

use skep_wire::guard::{ChangedMap, PacketCounters, ProgramSettings, Steerer};
use skep_wire::steer::{DatapathNode, DatapathService, Row};

use crate::device::Device;
use crate::dispatch::table_sizes;
use crate::links::{self, Programs};
use crate::modes::How;
use crate::object::{self, Loaded, Loader};
use crate::removal;
use crate::sys::Hook;
use crate::tables::{Findings, Tables};
use crate::{DatapathError, Moves, PinPath, Sizes, pass};

/// The node's program. Most of its methods are documented at those of [`crate::DispatchProgram`].
pub struct NodeProgram {
    place: PinPath,
    program: Loaded,
    tables: Tables,
    replaced: Vec<String>,
}

impl NodeProgram {
    /// See [`crate::DispatchProgram::open`]; of the sizes only the number of services is used.
    pub fn open(place: &PinPath, sizes: Sizes) -> Result<Self, DatapathError> {
        let services_max = sizes.services_max;
        pass::prepare()?;
        let sizes = table_sizes(services_max)?;
        let misfits = object::prepare(place, &object::NODE, &sizes)?;
        let types = object::kernel_types(object::KERNEL_TYPES.as_ref())?;
        let mut program =
            Loader::new(Some(place), &sizes).with_types(&types).load(&object::NODE)?;
        Ok(Self {
            place: place.clone(),
            tables: Tables::take(&mut program, services_max, &misfits)?,
            program,
            replaced: misfits.into_iter().map(|(name, _)| name).collect(),
        })
    }

    /// The names of maps that were replaced by [`Self::open`].
    pub fn replaced(&self) -> &[String] {
        &self.replaced
    }

    /// Attaches the program to a device, at tc's ingress after all other programs, and detaches it
    /// from every other; see [`crate::DispatchProgram::attach`].
    pub fn attach(&mut self, device: &str) -> Result<(), DatapathError> {
        let programs = Programs { xdp: None, tc: self.program.tc_fd()?, tc_hook: Hook::TcLast };
        let device = Device::named(device)?;
        let before = self.tables.own();
        self.tables.set_own(device.index, device.mac)?;
        let attached = links::attach(&self.place, &device, How::Tc, &programs);
        if attached.is_err() {
            self.tables.set_own(before.0, before.1)?;
        }
        attached.map(drop)
    }

    /// See [`crate::DispatchProgram::is_attached`].
    pub fn is_attached(&self, device_index: u32) -> Result<bool, DatapathError> {
        links::is_attached(&self.place, device_index)
    }

    /// See [`crate::DispatchProgram::detach`].
    pub fn detach(place: &PinPath) -> Result<(), DatapathError> {
        removal::remove(place)
    }

    /// See [`crate::DispatchProgram::set_settings`].
    pub fn set_settings(&mut self, settings: &ProgramSettings) -> Result<(), DatapathError> {
        self.tables.set_settings(settings)
    }

    /// See [`crate::DispatchProgram::set_services`].
    pub fn set_services(&mut self, services: &[DatapathService]) -> Result<(), DatapathError> {
        self.tables.set_services(services)
    }

    /// See [`crate::DispatchProgram::keep_services`].
    pub fn keep_services(&mut self, addresses: &[SocketAddr]) -> Result<(), DatapathError> {
        self.tables.keep_services(addresses)
    }

    /// See [`crate::DispatchProgram::set_rows`].
    pub fn set_rows(
        &mut self,
        service: &DatapathService,
        rows: &[Row],
    ) -> Result<(), DatapathError> {
        self.tables.write_rows(service, rows)?;
        self.tables.flip(service)
    }

    /// See [`crate::DispatchProgram::set_nodes`].
    pub fn set_nodes(&mut self, nodes: &[DatapathNode]) -> Result<(), DatapathError> {
        self.tables.set_nodes(nodes)
    }

    /// Sets the other nodes and the dispatchers: a packet's sender determines its hop.
    pub fn set_steerers(&mut self, steerers: &[([u8; 6], Steerer)]) -> Result<(), DatapathError> {
        self.tables.set_steerers(steerers)
    }

    /// Sets whether packets are looked up in [`Moves`]; while off, packets are spared the cost.
    pub fn watch_moves(&mut self, is_watching: bool) -> Result<(), DatapathError> {
        self.tables.watch_moves(is_watching)
    }

    /// Returns a handle to the connections that are handed off, for use by another thread.
    pub fn moves(&self) -> Result<Moves, DatapathError> {
        Moves::pinned(&self.place)
    }

    /// See [`crate::DispatchProgram::changed`].
    pub fn changed(&mut self, now: Instant) -> Result<Vec<ChangedMap>, DatapathError> {
        let mut findings = Findings::default();
        self.tables.compare(now, &mut findings);
        findings.outcome()
    }

    /// See [`crate::DispatchProgram::counters`].
    pub fn counters(&self) -> Result<PacketCounters, DatapathError> {
        self.tables.counters()
    }
}
