//! The maps that the dispatcher's and the node's program share.
//!
//! **Invariants:** the half of a table by which packets are steered is never written; when a map of another
//! size replaces one, its rows are copied before a program uses the new map. A service keeps the place of its
//! rows even if its id changes, and a new service begins with empty rows, even if its place was used before.
//! Removals precede insertions, so a full map accepts any change. `generation` changes after the data that it
//! describes. A change is based on what this process wrote last, even if other programs have modified the
//! maps since.

mod compare;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use aya::Pod;
use aya::maps::{Array, MapData, MapError, PerCpuArray};
use skep_wire::guard::{PacketCounters, ProgramSettings, Steerer};
use skep_wire::steer::{
    CHOICES_MAX, Count, DatapathNode, DatapathService, NO_NODE, NODES_MAX, ROW_NODES, ROWS, Row,
    SERVICES_MAX, Verdict,
};

use crate::limits::STEERERS_MAX;
use crate::object::{Loaded, Misfits};
use crate::sys::View;
use crate::{DatapathError, abi, sys};

use compare::{Comparison, ROW_WORDS, RowSums};
pub(crate) use compare::{Findings, difference};

type HashTable<K, V> = aya::maps::HashMap<MapData, K, V>;

/// The common maps.
pub(crate) struct Tables {
    settings: Array<MapData, abi::Settings>,
    vips: HashTable<abi::Address, u32>,
    services: HashTable<abi::ServiceKey, abi::Service>,
    rows: MapData,
    rows_view: View,
    nodes: Array<MapData, abi::Node>,
    steerers: HashTable<[u8; 6], u32>,
    verdicts: PerCpuArray<MapData, abi::Count>,
    service_counts: PerCpuArray<MapData, abi::Count>,
    node_counts: PerCpuArray<MapData, abi::Count>,
    /// The places in `rows`, each with room for two tables.
    places: Vec<Place>,
    written: Written,
    comparison: Comparison,
}

/// A place in `rows`.
#[derive(Clone, Default)]
struct Place {
    /// The service whose tables are at this place.
    service: Option<abi::ServiceKey>,
    /// Which of its halves is in use.
    half: u8,
    /// Checksums of the rows that were written to each half.
    sums: [Option<RowSums>; 2],
}

/// What was written to the other maps; `None` if this process has written nothing.
#[derive(Default)]
struct Written {
    /// Initially the settings of an earlier process.
    settings: abi::Settings,
    nodes: Option<Vec<abi::Node>>,
    steerers: Option<HashMap<[u8; 6], u32>>,
    services: Option<HashMap<abi::ServiceKey, abi::Service>>,
}

/// A service that packets are steered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Present {
    key: abi::ServiceKey,
    pub(crate) id: u16,
}

impl Tables {
    /// Takes the maps of a program that is not attached yet; `services_max` is the capacity of
    /// `rows`. Rows among the maps that were replaced are copied.
    pub(crate) fn take(
        loaded: &mut Loaded,
        services_max: u32,
        misfits: &Misfits,
    ) -> Result<Self, DatapathError> {
        let rows = loaded.data("rows")?;
        let words = first_row(services_max, 0) as usize * ROW_WORDS;
        let mut tables = Self {
            settings: loaded.map("settings")?,
            vips: loaded.map("vips")?,
            services: loaded.map("services")?,
            rows_view: View::new(rows.fd().as_fd(), words)
                .map_err(DatapathError::map_io("rows"))?,
            rows,
            nodes: loaded.map("nodes")?,
            steerers: loaded.map("steerers")?,
            verdicts: loaded.map("verdicts")?,
            service_counts: loaded.map("service_counts")?,
            node_counts: loaded.map("node_counts")?,
            places: vec![Place::default(); services_max as usize],
            written: Written::default(),
            comparison: Comparison::default(),
        };
        tables.written.settings =
            tables.settings.get(&0, 0).map_err(DatapathError::map("settings"))?;
        let replaced = misfits.iter().find(|(name, _)| name == "rows").map(|(_, old)| old);
        let behind = tables.find_places()?;
        if let Some(old) = replaced {
            if has_rows(old)? {
                tables.move_in(behind, old)?;
            }
            tables.move_rows(old)?;
        }
        Ok(tables)
    }

    /// Finds the places of the existing services. Returns the services whose place is beyond the end.
    fn find_places(&mut self) -> Result<Vec<(abi::ServiceKey, abi::Service)>, DatapathError> {
        let mut behind = Vec::new();
        for (key, value) in self.all_services()? {
            match self.places.get_mut(usize::from(value.place())) {
                Some(place) => (place.service, place.half) = (Some(key), value.half & 1),
                None => behind.push((key, value)),
            }
        }
        Ok(behind)
    }

    /// Moves services to free places within the `old` map, which a program may still use. If no place is
    /// free, the new config has fewer addresses than before, and these services are removed soon.
    fn move_in(
        &mut self,
        services: Vec<(abi::ServiceKey, abi::Service)>,
        old: &MapData,
    ) -> Result<(), DatapathError> {
        let failed = DatapathError::map_io("rows");
        for (key, value) in services {
            let Some(free) = self.places.iter().position(|it| it.service.is_none()) else { break };
            let half = value.half & 1;
            let rows = table_at(old, first_row(value.place().into(), half)).map_err(&failed)?;
            write_table(old, first_row(free as u32, half), &rows).map_err(&failed)?;
            let value = abi::Service { shift: (free as u16).wrapping_sub(value.id), ..value };
            self.services.insert(key, value, 0).map_err(DatapathError::map("services"))?;
            (self.places[free].service, self.places[free].half) = (Some(key), half);
        }
        Ok(())
    }

    /// Fills a new map of rows: existing services get theirs from the old map. A new map is full of zeros,
    /// and 0 is a valid node.
    fn move_rows(&self, old: &MapData) -> Result<(), DatapathError> {
        let failed = DatapathError::map_io("rows");
        let filled = |(at, place): (usize, &Place)| {
            place.service.is_some().then(|| first_row(at as u32, place.half))
        };
        let firsts = self.places.iter().enumerate().filter_map(filled);
        let places: Vec<u32> = firsts.flat_map(|first| (first..).take(ROWS)).collect();
        let mut rows = vec![abi::Row(NO_ROW.0); places.len()];
        if has_rows(old)? {
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

    /// Sets whether packets are looked up in `moves`.
    pub(crate) fn watch_moves(&mut self, is_watching: bool) -> Result<(), DatapathError> {
        self.change_settings(false, |now| {
            let flag = if is_watching { abi::SETTING_MOVES } else { 0 };
            now.flags = now.flags & !abi::SETTING_MOVES | flag;
        })
    }

    /// Returns the index and the hardware address of the program's device.
    pub(crate) fn own(&self) -> (u32, [u8; 6]) {
        (self.written.settings.own_device_index, self.written.settings.own_mac)
    }

    /// Sets the program's device.
    pub(crate) fn set_own(&mut self, device: u32, mac: [u8; 6]) -> Result<(), DatapathError> {
        let failed = DatapathError::map("steerers");
        let mut steerers = match &self.written.steerers {
            Some(written) => written.clone(),
            None => all(&self.steerers).map_err(&failed)?,
        };
        steerers.retain(|_, steerer| *steerer != abi::STEERER_SELF);
        steerers.extend(own(mac));
        let is_other = replace(&mut self.steerers, &steerers).map_err(&failed)?;
        self.written.steerers = self.written.steerers.is_some().then_some(steerers);
        self.change_settings(is_other, |now| {
            now.own_device_index = device;
            now.own_mac = mac;
        })
    }

    pub(crate) fn set_services(
        &mut self,
        services: &[DatapathService],
    ) -> Result<(), DatapathError> {
        check("number of services", services.len() as u64, 0, self.places.len() as u64)?;
        for service in services {
            check_id(service.id)?;
            check("number of choices of a service", service.choices, 1, CHOICES_MAX as u64)?;
        }
        let keys: HashSet<_> = services.iter().map(abi::ServiceKey::from).collect();
        for place in &mut self.places {
            place.service = place.service.filter(|key| keys.contains(key));
        }
        let mut wanted = HashMap::new();
        for service in services {
            let key = abi::ServiceKey::from(service);
            if self.find(key).is_none() {
                self.write_rows(service, &[NO_ROW; ROWS])?;
                self.flip(service)?;
            }
            let at = self.place_for(key)?;
            wanted.insert(key, abi::Service::new(service, at as u16, self.places[at].half));
        }
        self.written.services = Some(wanted.clone());
        self.replace_services(&wanted)
    }

    /// Removes the services at all other addresses.
    pub(crate) fn keep_services(&mut self, addresses: &[SocketAddr]) -> Result<(), DatapathError> {
        let mut services = self.present_services()?;
        services.retain(|key, _| addresses.contains(&key.address()));
        for place in &mut self.places {
            place.service = place.service.filter(|key| services.contains_key(key));
        }
        self.replace_services(&services)
    }

    fn replace_services(
        &mut self,
        wanted: &HashMap<abi::ServiceKey, abi::Service>,
    ) -> Result<(), DatapathError> {
        let vips = vips(wanted);
        // An address is removed after its services and added after them, so no packet to a service misses it.
        replace(&mut self.services, wanted).map_err(DatapathError::map("services"))?;
        replace(&mut self.vips, &vips).map_err(DatapathError::map("vips"))?;
        Ok(())
    }

    /// The current services.
    pub(crate) fn services(&self) -> Result<HashSet<Present>, DatapathError> {
        let present = |(key, value): (abi::ServiceKey, abi::Service)| Present { key, id: value.id };
        Ok(self.present_services()?.into_iter().map(present).collect())
    }

    /// The services as this process wrote them, or as an earlier process left them.
    fn present_services(&self) -> Result<HashMap<abi::ServiceKey, abi::Service>, DatapathError> {
        self.written.services.clone().map_or_else(|| self.all_services(), Ok)
    }

    fn all_services(&self) -> Result<HashMap<abi::ServiceKey, abi::Service>, DatapathError> {
        all(&self.services).map_err(DatapathError::map("services"))
    }

    /// Writes the half that is not in use; packets use it after [`Self::flip`].
    pub(crate) fn write_rows(
        &mut self,
        service: &DatapathService,
        rows: &[Row],
    ) -> Result<(), DatapathError> {
        check("number of rows of a table", rows.len() as u64, ROWS as u64, ROWS as u64)?;
        let at = self.place_for(service.into())?;
        let half = self.places[at].half ^ 1;
        let first = first_row(at as u32, half) as usize * ROW_WORDS;
        let rows: Vec<_> = rows.iter().map(|row| abi::Row(row.0)).collect();
        self.places[at].sums[usize::from(half)] = Some(RowSums::of(&rows));
        // By the kernel, element by element, it takes a dozen times as long. No packet reads this half
        // before a system call that tells of it.
        let there = &self.rows_view.words()[first..first + ROWS * ROW_WORDS];
        let words = rows.iter().flat_map(|row| row.words());
        there.iter().zip(words).for_each(|(there, word)| there.store(word, Ordering::Relaxed));
        Ok(())
    }

    /// Switches to the other half.
    pub(crate) fn flip(&mut self, service: &DatapathService) -> Result<(), DatapathError> {
        let key = abi::ServiceKey::from(service);
        let at = self.place_for(key)?;
        let half = self.places[at].half ^ 1;
        if let Some(value) = self.present_services()?.get(&key) {
            let value = abi::Service { half, ..*value };
            self.services.insert(key, value, 0).map_err(DatapathError::map("services"))?;
            if let Some(written) = &mut self.written.services {
                written.insert(key, value);
            }
        }
        (self.places[at].service, self.places[at].half) = (Some(key), half);
        Ok(())
    }

    /// The place of a service in `rows`: a free one if it has none.
    fn place_for(&self, key: abi::ServiceKey) -> Result<usize, DatapathError> {
        let free = || self.places.iter().position(|place| place.service.is_none());
        let services_max = self.places.len() as u64;
        self.find(key).or_else(free).ok_or(DatapathError::OutOfRange {
            what: "number of services",
            found: services_max + 1,
            expected: format!("0 to {services_max}"),
        })
    }

    fn find(&self, key: abi::ServiceKey) -> Option<usize> {
        self.places.iter().position(|place| place.service == Some(key))
    }

    pub(crate) fn set_nodes(&mut self, nodes: &[DatapathNode]) -> Result<(), DatapathError> {
        let mut wanted = [abi::Node::default(); NODES_MAX];
        for node in nodes {
            check("place of a node", node.index, 0, NODES_MAX as u64 - 1)?;
            wanted[usize::from(node.index)] = node.into();
        }
        self.written.nodes = Some(wanted.to_vec());
        let failed = DatapathError::map("nodes");
        for (index, node) in (0..).zip(&wanted) {
            // Unchanged entries are not written: a packet could read a half-written one.
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
        wanted.extend(own(self.own().1));
        let failed = DatapathError::map("steerers");
        let is_other = replace(&mut self.steerers, &wanted).map_err(&failed)?;
        self.written.steerers = Some(wanted);
        if is_other { self.change_settings(true, |_| ()) } else { Ok(()) }
    }

    /// Writes the settings in one update; with a new generation if packets of known flows must be checked
    /// again, as they must be if others have changed the settings.
    pub(crate) fn change_settings(
        &mut self,
        is_new_generation: bool,
        change: impl FnOnce(&mut abi::Settings),
    ) -> Result<(), DatapathError> {
        let failed = DatapathError::map("settings");
        let there = self.settings.get(&0, 0).map_err(&failed)?;
        let mut settings = self.written.settings;
        let is_foreign = there != settings;
        change(&mut settings);
        if is_new_generation || is_foreign || settings.generation == 0 {
            // Generation 0 marks flows that were not checked.
            let last = settings.generation.max(there.generation);
            settings.generation = last.wrapping_add(1).max(1);
        }
        self.written.settings = settings;
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
}

/// For a service without a table: the kernel rejects access.
const NO_ROW: Row = Row([NO_NODE; ROW_NODES]);

/// The first row of a half of the tables at a place.
fn first_row(place: u32, half: u8) -> u32 {
    (place * 2 + u32::from(half)) * ROWS as u32
}

/// The virtual addresses of services.
fn vips(services: &HashMap<abi::ServiceKey, abi::Service>) -> HashMap<abi::Address, u32> {
    services.keys().map(|key| (key.vip, 0)).collect()
}

/// Whether a map has rows in the format of this version.
fn has_rows(map: &MapData) -> Result<bool, DatapathError> {
    let info = map.info().map_err(DatapathError::map("rows"))?;
    Ok(info.value_size() as usize == size_of::<abi::Row>())
}

/// Reads the table that begins at row `first`.
fn table_at(map: &MapData, first: u32) -> io::Result<Vec<abi::Row>> {
    let mut rows = vec![abi::Row(NO_ROW.0); ROWS];
    sys::each(map.fd().as_fd(), |at: u32, row: abi::Row| {
        let at = at.checked_sub(first).and_then(|at| rows.get_mut(at as usize));
        at.into_iter().for_each(|it| *it = row);
    })?;
    Ok(rows)
}

fn write_table(map: &MapData, first: u32, rows: &[abi::Row]) -> io::Result<()> {
    let at: Vec<u32> = (first..).take(rows.len()).collect();
    sys::update_batch(map.fd().as_fd(), &at, rows)
}

/// Checks an id.
pub(crate) fn check_id(service: u16) -> Result<(), DatapathError> {
    check("id of a service", service, 0, SERVICES_MAX as u64 - 1)
}

/// The entry of this machine among the steerers, so that frames that it sent do not return to it; a device
/// without a hardware address cannot distinguish senders.
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
