//! The maps that the dispatcher's and the node's program share.
//!
//! **Invariants:** the half of a table that packets are steered by is never written: rows that are
//! replaced by a map of another size are copied before a program meets the new one. A new service
//! begins with empty rows, even if its place was used before. Removals precede insertions, so a
//! full map accepts any change. `generation` changes after the data that it describes.

use std::collections::HashMap;
use std::hash::Hash;
use std::os::fd::AsFd;

use aya::Pod;
use aya::maps::{Array, MapData, MapError, PerCpuArray};
use skep_wire::guard::{PacketCounters, ProgramSettings, Steerer};
use skep_wire::steer::{
    CHOICES_MAX, Count, DatapathNode, DatapathService, NO_NODE, NODES_MAX, ROW_NODES, ROWS, Row,
    SERVICES_MAX, Verdict,
};

use crate::limits::STEERERS_MAX;
use crate::object::{Loaded, Misfits};
use crate::{DatapathError, abi, sys};

type HashTable<K, V> = aya::maps::HashMap<MapData, K, V>;

/// The common maps.
pub(crate) struct Tables {
    settings: Array<MapData, abi::Settings>,
    vips: HashTable<abi::Address, u32>,
    services: HashTable<abi::ServiceKey, abi::Service>,
    rows: MapData,
    nodes: Array<MapData, abi::Node>,
    steerers: HashTable<[u8; 6], u32>,
    verdicts: PerCpuArray<MapData, abi::Count>,
    service_counts: PerCpuArray<MapData, abi::Count>,
    node_counts: PerCpuArray<MapData, abi::Count>,
    /// Indexed by the service's place.
    halves: Vec<Half>,
}

/// Which half of a service's table is in use, and whether it was filled for the current service of
/// the place.
#[derive(Clone, Copy, Default)]
struct Half {
    counts: u8,
    is_filled: bool,
}

impl Tables {
    /// Takes the maps of a program that is not attached yet; `services_max` is the capacity of
    /// `rows`. Rows among the maps that were replaced are copied.
    pub(crate) fn take(
        loaded: &mut Loaded,
        services_max: u32,
        misfits: &Misfits,
    ) -> Result<Self, DatapathError> {
        let mut tables = Self {
            settings: loaded.map("settings")?,
            vips: loaded.map("vips")?,
            services: loaded.map("services")?,
            rows: loaded.data("rows")?,
            nodes: loaded.map("nodes")?,
            steerers: loaded.map("steerers")?,
            verdicts: loaded.map("verdicts")?,
            service_counts: loaded.map("service_counts")?,
            node_counts: loaded.map("node_counts")?,
            halves: vec![Half::default(); services_max as usize],
        };
        for service in all(&tables.services).map_err(DatapathError::map("services"))?.values() {
            if let Some(half) = tables.halves.get_mut(usize::from(service.id)) {
                *half = Half { counts: service.half & 1, is_filled: true };
            }
        }
        if let Some((_, old)) = misfits.iter().find(|(name, _)| name == "rows") {
            tables.move_rows(old)?;
        }
        Ok(tables)
    }

    /// Fills rows that are all new: the services that there are have theirs from the old map. A new
    /// map is full of zeros, and 0 is a node.
    fn move_rows(&self, old: &MapData) -> Result<(), DatapathError> {
        let failed = DatapathError::map_io("rows");
        let filled =
            |(id, half): (usize, &Half)| half.is_filled.then_some((id as u32, half.counts));
        let firsts = self.halves.iter().enumerate().filter_map(filled).map(first_row);
        let places: Vec<u32> = firsts.flat_map(|first| (first..).take(ROWS)).collect();
        let mut rows = vec![abi::Row(NO_ROW.0); places.len()];
        let info = old.info().map_err(DatapathError::map("rows"))?;
        if info.value_size() as usize == size_of::<abi::Row>() {
            sys::each(old.fd().as_fd(), |place: u32, row: abi::Row| {
                if let Ok(at) = places.binary_search(&place) {
                    rows[at] = row;
                }
            })
            .map_err(&failed)?;
        }
        sys::update_batch(self.rows.fd().as_fd(), &places, &rows).map_err(failed)
    }

    pub(crate) fn set_settings(&mut self, settings: &ProgramSettings) -> Result<(), DatapathError> {
        self.change_settings(false, |now| {
            let stream = if settings.stream { abi::SETTING_STREAM } else { 0 };
            *now = abi::Settings {
                hash_seed: settings.hash_seed,
                new_flows_max: settings.new_flows_max,
                new_flows_per_source_max: settings.new_flows_per_source_max,
                flags: now.flags & !abi::SETTING_STREAM | stream,
                own_node: settings.own_node,
                ..*now
            };
        })
    }

    /// Number and hardware address of the device that the program is on.
    pub(crate) fn own(&self) -> Result<(u32, [u8; 6]), DatapathError> {
        let settings = self.settings.get(&0, 0).map_err(DatapathError::map("settings"))?;
        Ok((settings.own_device_index, settings.own_mac))
    }

    /// Sets the device that the program is on.
    pub(crate) fn set_own(&mut self, device: u32, mac: [u8; 6]) -> Result<(), DatapathError> {
        let failed = DatapathError::map("steerers");
        let mut steerers = all(&self.steerers).map_err(&failed)?;
        steerers.retain(|_, steerer| *steerer != abi::STEERER_SELF);
        steerers.extend(own(mac));
        let is_other = replace(&mut self.steerers, &steerers).map_err(&failed)?;
        self.change_settings(is_other, |now| {
            now.own_device_index = device;
            now.own_mac = mac;
        })
    }

    pub(crate) fn set_services(
        &mut self,
        services: &[DatapathService],
    ) -> Result<(), DatapathError> {
        check("number of services", services.len() as u64, 0, SERVICES_MAX as u64)?;
        let mut wanted = HashMap::new();
        for service in services {
            self.check_service(service.id)?;
            check("number of choices of a service", service.choices, 1, CHOICES_MAX as u64)?;
            if !self.halves[usize::from(service.id)].is_filled {
                self.write_rows(service.id, &[NO_ROW; ROWS])?;
                self.flip(service.id)?;
            }
            let half = self.halves[usize::from(service.id)].counts;
            wanted.insert(abi::ServiceKey::from(service), abi::Service::new(service, half));
        }
        for (id, half) in self.halves.iter_mut().enumerate() {
            half.is_filled &= services.iter().any(|service| usize::from(service.id) == id);
        }
        let vips = services.iter().map(|service| (service.address.ip().into(), 0)).collect();
        // A packet to a service never misses it: its address comes and goes last.
        replace(&mut self.services, &wanted).map_err(DatapathError::map("services"))?;
        replace(&mut self.vips, &vips).map_err(DatapathError::map("vips"))?;
        Ok(())
    }

    /// The places of the current services.
    pub(crate) fn services(&self) -> Result<Vec<u16>, DatapathError> {
        let services = all(&self.services).map_err(DatapathError::map("services"))?;
        Ok(services.values().map(|service| service.id).collect())
    }

    /// Writes the half that is not in use; packets use it after [`Self::flip`].
    pub(crate) fn write_rows(&mut self, service: u16, rows: &[Row]) -> Result<(), DatapathError> {
        self.check_service(service)?;
        check("number of rows of a table", rows.len() as u64, ROWS as u64, ROWS as u64)?;
        let half = self.halves[usize::from(service)].counts ^ 1;
        let first = first_row((u32::from(service), half));
        let places: Vec<_> = (first..).take(ROWS).collect();
        let rows: Vec<_> = rows.iter().map(|row| abi::Row(row.0)).collect();
        sys::update_batch(self.rows.fd().as_fd(), &places, &rows)
            .map_err(DatapathError::map_io("rows"))
    }

    /// Switches to the other half.
    pub(crate) fn flip(&mut self, service: u16) -> Result<(), DatapathError> {
        let half = self.halves[usize::from(service)].counts ^ 1;
        let services = all(&self.services).map_err(DatapathError::map("services"))?;
        for (key, value) in services.into_iter().filter(|(_, value)| value.id == service) {
            let value = abi::Service { half, ..value };
            self.services.insert(key, value, 0).map_err(DatapathError::map("services"))?;
        }
        self.halves[usize::from(service)] = Half { counts: half, is_filled: true };
        Ok(())
    }

    pub(crate) fn set_nodes(&mut self, nodes: &[DatapathNode]) -> Result<(), DatapathError> {
        let mut wanted = [abi::Node::default(); NODES_MAX];
        for node in nodes {
            check("place of a node", node.index, 0, NODES_MAX as u64 - 1)?;
            wanted[usize::from(node.index)] = node.into();
        }
        let failed = DatapathError::map("nodes");
        for (index, node) in (0..).zip(&wanted) {
            // What stays is not written: a packet could read it half.
            if self.nodes.get(&index, 0).map_err(&failed)? != *node {
                self.nodes.set(index, node, 0).map_err(&failed)?;
            }
        }
        Ok(())
    }

    pub(crate) fn set_steerers(
        &mut self,
        steerers: &[([u8; 6], Steerer)],
    ) -> Result<(), DatapathError> {
        check("number of steerers", steerers.len() as u64, 0, STEERERS_MAX as u64)?;
        let mut wanted: HashMap<_, _> =
            steerers.iter().map(|(mac, steerer)| (*mac, abi::steerer(*steerer))).collect();
        wanted.extend(own(self.own()?.1));
        if replace(&mut self.steerers, &wanted).map_err(DatapathError::map("steerers"))? {
            self.change_settings(true, |_| ())?;
        }
        Ok(())
    }

    /// Writes settings at once; with a new generation if packets of known flows must be checked
    /// again.
    pub(crate) fn change_settings(
        &mut self,
        is_new_generation: bool,
        change: impl FnOnce(&mut abi::Settings),
    ) -> Result<(), DatapathError> {
        let failed = DatapathError::map("settings");
        let mut settings = self.settings.get(&0, 0).map_err(&failed)?;
        change(&mut settings);
        if is_new_generation || settings.generation == 0 {
            // 0 is that of flows which nobody checked.
            settings.generation = settings.generation.wrapping_add(1).max(1);
        }
        self.settings.set(0, settings, 0).map_err(&failed)
    }

    pub(crate) fn counters(&self) -> Result<PacketCounters, DatapathError> {
        let verdicts = sums(&self.verdicts).map_err(DatapathError::map("verdicts"))?;
        Ok(PacketCounters {
            verdicts: Verdict::ALL.iter().copied().zip(verdicts).collect(),
            services: sums(&self.service_counts).map_err(DatapathError::map("service_counts"))?,
            nodes: sums(&self.node_counts).map_err(DatapathError::map("node_counts"))?,
        })
    }

    pub(crate) fn check_service(&self, service: u16) -> Result<(), DatapathError> {
        check("place of a service", service, 0, self.halves.len() as u64 - 1)
    }
}

/// For a service without a table: the kernel rejects access.
const NO_ROW: Row = Row([NO_NODE; ROW_NODES]);

/// The place of the first row of a half of a service's table.
fn first_row((service, half): (u32, u8)) -> u32 {
    (service * 2 + u32::from(half)) * ROWS as u32
}

/// Frames sent by this machine must not return to it; a device without hardware address cannot
/// distinguish senders.
fn own(mac: [u8; 6]) -> Option<([u8; 6], u32)> {
    (mac != [0; 6]).then_some((mac, abi::STEERER_SELF))
}

/// Checks the range of a number from outside.
pub(crate) fn check(
    what: &'static str,
    found: impl Into<u64>,
    least: u64,
    most: u64,
) -> Result<(), DatapathError> {
    let found = found.into();
    if (least..=most).contains(&found) {
        return Ok(());
    }
    let expected = if least == most { most.to_string() } else { format!("{least} to {most}") };
    Err(DatapathError::OutOfRange { what, found, expected })
}

fn all<K: Pod + Eq + Hash, V: Pod>(map: &HashTable<K, V>) -> Result<HashMap<K, V>, MapError> {
    map.iter().collect()
}

/// Makes the map contain exactly `wanted`; returns whether it changed.
fn replace<K: Pod + Eq + Hash, V: Pod + PartialEq>(
    map: &mut HashTable<K, V>,
    wanted: &HashMap<K, V>,
) -> Result<bool, MapError> {
    let there = all(map)?;
    for gone in there.keys().filter(|key| !wanted.contains_key(*key)) {
        map.remove(gone)?;
    }
    for (key, value) in wanted.iter().filter(|(key, value)| there.get(*key) != Some(*value)) {
        map.insert(key, value, 0)?;
    }
    Ok(there != *wanted)
}

fn sums(map: &PerCpuArray<MapData, abi::Count>) -> Result<Vec<Count>, MapError> {
    map.iter()
        .map(|counts| {
            Ok(counts?.iter().fold(Count::default(), |sum, count| Count {
                packets: sum.packets + count.packets,
                bytes: sum.bytes + count.bytes,
            }))
        })
        .collect()
}
