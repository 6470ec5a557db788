//! The dispatcher's program and its maps: flows, loads, networks and events, in addition to the maps that the
//! node's program also has.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use aya::maps::{IterableMap, LpmTrie, MapData, RingBuf};
use aya::{TestRun, TestRunOptions};
use skep_wire::guard::{ChangedMap, PacketCounters, ProgramMap, ProgramSettings, Steerer};
use skep_wire::steer::{
    DatapathNode, DatapathService, Flow, Network, OwnerChange, ROWS, Row, SERVICES_MAX,
    WeightedLoad,
};

use crate::device::Device;
use crate::error::chain;
use crate::limits::{
    COMPARE_ALL_MS, COMPARE_LOADS_MS, NETWORKS_MAX, TABLE_ENTRIES_MAX, TEST_FRAME_ROOM,
};
use crate::links::{self, Programs};
use crate::loads::Loads;
use crate::modes::{Attached, How};
use crate::object::{self, Loaded, Loader, MapSizes, Misfits};
use crate::removal;
use crate::sys::{self, Hook};
use crate::tables::{Findings, Tables, check, check_id, difference};
use crate::{DatapathError, PinPath, abi, pass};

/// Capacities of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Entries of the flow table; the least recently used is evicted first. 150 bytes of kernel
    /// memory each.
    pub flows_max: u32,
    /// Clients whose rate of new flows is tracked.
    pub sources_max: u32,
    /// Services; 2 MiB each, for their two tables.
    pub services_max: u32,
}

/// The two builds of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// For XDP.
    Xdp,
    /// For tc.
    Tc,
}

/// The result of a frame in [`DispatchProgram::test_run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What the program returned: `XDP_*` or `TC_ACT_*`.
    pub returned: u32,
    /// The frame after the run.
    pub frame: Vec<u8>,
    /// Mean time of one run, in nanoseconds.
    pub ns: u64,
}

/// The dispatcher's program.
pub struct DispatchProgram {
    place: PinPath,
    xdp: Loaded,
    tc: Loaded,
    tables: Tables,
    flows: MapData,
    loads: Loads,
    networks: LpmTrie<MapData, abi::Address, u32>,
    /// What was written to `networks`; `None` if this process has written nothing.
    written_networks: Option<HashMap<abi::NetworkBytes, u32>>,
    /// When `networks` was last compared.
    networks_at: Option<Instant>,
    /// When the loads of a service were last compared.
    loads_at: Option<Instant>,
    events: RingBuf<MapData>,
    replaced: Vec<String>,
}

impl DispatchProgram {
    /// Loads the program with the maps that are pinned at `place`: flows and tables are as the
    /// last process left them. Maps of another shape (other sizes, another version of Skep) are
    /// replaced, see [`Self::replaced`]; flows and rows are copied. Mounts bpffs at /sys/fs/bpf if it is
    /// not mounted.
    ///
    /// A program that is already attached keeps using its maps until [`Self::attach`].
    pub fn open(place: &PinPath, sizes: Sizes) -> Result<Self, DatapathError> {
        pass::prepare()?;
        let map_sizes = map_sizes(sizes)?;
        let misfits = object::prepare(place, &object::DISPATCH_XDP, &map_sizes)?;
        let mut loader = Loader::new(Some(place), &map_sizes);
        let mut xdp = loader.load(&object::DISPATCH_XDP)?;
        let tc = loader.load(&object::DISPATCH_TC)?;
        let dispatch = Self {
            place: place.clone(),
            tables: Tables::take(&mut xdp, sizes.services_max, &misfits)?,
            flows: xdp.data("flows")?,
            loads: Loads::take(xdp.data("loads")?, xdp.data("assigned")?)?,
            networks: xdp.map("networks")?,
            written_networks: None,
            networks_at: None,
            loads_at: None,
            events: xdp.map("events")?,
            replaced: misfits.iter().map(|(name, _)| name.clone()).collect(),
            xdp,
            tc,
        };
        dispatch.move_flows(&misfits)?;
        Ok(dispatch)
    }

    /// The names of maps that were replaced by [`Self::open`].
    pub fn replaced(&self) -> &[String] {
        &self.replaced
    }

    /// Attaches the program to a device and detaches it from every other. If it is already
    /// attached there in the same way, it is replaced atomically: packets meet the old or the new
    /// one. A change of the way leaves no gap either.
    ///
    /// A foreign XDP program stays: [`How::Auto`] then uses tc, which receives the packets that
    /// this program passes; any other way is refused.
    pub fn attach(&mut self, device: &str, how: How) -> Result<Attached, DatapathError> {
        let programs = Programs {
            xdp: Some(self.xdp.xdp_fd()?),
            tc: self.tc.tc_fd()?,
            // Before the node's program, which hands on what has no socket here.
            tc_hook: Hook::TcFirst,
        };
        let device = Device::named(device)?;
        let before = self.tables.own();
        self.tables.set_own(device.index, device.mac)?;
        let attached = links::attach(&self.place, &device, how, &programs);
        if attached.is_err() {
            // The program may still be attached where it was.
            self.tables.set_own(before.0, before.1)?;
        }
        attached
    }

    /// Whether the program is still attached to the device with this index.
    pub fn is_attached(&self, device_index: u32) -> Result<bool, DatapathError> {
        links::is_attached(&self.place, device_index)
    }

    /// Sets the program's device for [`Self::test_run`]; [`Self::attach`] does the same.
    pub fn set_own(&mut self, device_index: u32, mac: [u8; 6]) -> Result<(), DatapathError> {
        self.tables.set_own(device_index, mac)
    }

    /// Detaches the program from its device and removes all pins at `place`. Succeeds if there are none.
    pub fn detach(place: &PinPath) -> Result<(), DatapathError> {
        removal::remove(place)
    }

    /// Changes the settings; effective from the next packet on.
    pub fn set_settings(&mut self, settings: &ProgramSettings) -> Result<(), DatapathError> {
        self.tables.set_settings(settings)
    }

    /// Sets the list of services, and of virtual addresses with them. Flows of removed services, and
    /// of those with another id than before, are deleted. A new service has no nodes before
    /// [`Self::set_rows`], which may be called first.
    pub fn set_services(&mut self, services: &[DatapathService]) -> Result<(), DatapathError> {
        self.change_services(|tables| tables.set_services(services))
    }

    /// Removes the services at all other addresses: those of an earlier config.
    pub fn keep_services(&mut self, addresses: &[SocketAddr]) -> Result<(), DatapathError> {
        self.change_services(|tables| tables.keep_services(addresses))
    }

    fn change_services(
        &mut self,
        change: impl FnOnce(&mut Tables) -> Result<(), DatapathError>,
    ) -> Result<(), DatapathError> {
        let before = self.tables.services()?;
        change(&mut self.tables)?;
        let after = self.tables.services()?;
        let gone: HashSet<u16> = before.difference(&after).map(|service| service.id).collect();
        if gone.is_empty() { Ok(()) } else { self.forget_flows(&gone) }
    }

    /// Replaces the table of a service, all [`ROWS`] rows atomically for packets.
    pub fn set_rows(
        &mut self,
        service: &DatapathService,
        rows: &[Row],
    ) -> Result<(), DatapathError> {
        check_id(service.id)?;
        self.tables.write_rows(service, rows)?;
        self.loads.begin_table(service.id)?;
        self.tables.flip(service)
    }

    /// Sets the list of nodes; all others are down.
    pub fn set_nodes(&mut self, nodes: &[DatapathNode]) -> Result<(), DatapathError> {
        self.tables.set_nodes(nodes)
    }

    /// Sets the list of machines whose packets are already steered, by hardware address.
    pub fn set_steerers(&mut self, steerers: &[([u8; 6], Steerer)]) -> Result<(), DatapathError> {
        self.tables.set_steerers(steerers)
    }

    /// Stores the loads that nodes reported, for all of `services`; flows assigned afterwards are
    /// added to them. Nodes that are not listed keep their values.
    pub fn set_loads(
        &mut self,
        services: &[u16],
        loads: &[WeightedLoad],
    ) -> Result<(), DatapathError> {
        self.loads.set(services, loads)
    }

    /// Sets the lists of allowed and denied networks. The longest matching prefix decides; between equal
    /// prefixes, the denial. If any network is allowed, an address outside all networks is denied.
    pub fn set_networks(
        &mut self,
        allow: &[Network],
        deny: &[Network],
    ) -> Result<(), DatapathError> {
        check("number of networks", (allow.len() + deny.len()) as u64, 0, NETWORKS_MAX as u64)?;
        for network in allow.iter().chain(deny) {
            let bits_max = if network.address.is_ipv4() { 32 } else { 128 };
            check("prefix of a network", network.prefix_bits, 0, bits_max)?;
        }
        let failed = DatapathError::map("networks");
        let mut wanted = HashMap::new();
        let lists = [(allow, abi::ADMISSION_ALLOW), (deny, abi::ADMISSION_DENY)];
        for (network, admission) in
            lists.into_iter().flat_map(|(list, admission)| list.iter().map(move |n| (n, admission)))
        {
            let key = abi::network_key(network);
            self.networks.insert(&key, admission, 0).map_err(&failed)?;
            wanted.insert(abi::network_bytes(&key), admission);
        }
        let mut flags = if wanted.is_empty() { 0 } else { abi::SETTING_NETWORKS };
        flags |= if allow.is_empty() { 0 } else { abi::SETTING_ALLOW_LISTED };
        // Before old networks are removed: without the flag, an address needs to be in no network.
        self.tables.change_settings(false, |now| {
            now.flags = now.flags & abi::SETTING_STREAM | flags;
        })?;
        let there: Vec<_> = self.networks.keys().collect::<Result<_, _>>().map_err(&failed)?;
        for key in there.iter().filter(|key| !wanted.contains_key(&abi::network_bytes(key))) {
            self.networks.remove(key).map_err(&failed)?;
        }
        self.written_networks = Some(wanted);
        self.tables.change_settings(true, |_| ())
    }

    /// Returns the maps that others have changed since they were written, or that a failed change has left
    /// half-written. Maps that this process has not written are not compared, nor are flows and counters.
    /// Changed loads have been written again. Each call compares a part; with several calls a second,
    /// everything is compared within [`COMPARE_ALL_MS`].
    pub fn changed(&mut self, now: Instant) -> Result<Vec<ChangedMap>, DatapathError> {
        let mut findings = Findings::default();
        self.tables.compare(now, &mut findings);
        if is_due(&self.networks_at, now, COMPARE_ALL_MS)
            && let Some(written) = &self.written_networks
        {
            self.networks_at = Some(now);
            let fd = self.networks.map().fd().as_fd();
            let found = difference(ProgramMap::Networks, fd, written, abi::network_text);
            findings.add(found.map_err(DatapathError::map_io("networks")));
        }
        if is_due(&self.loads_at, now, COMPARE_LOADS_MS) {
            self.loads_at = Some(now);
            findings.add(self.loads.compare_next());
        }
        findings.outcome()
    }

    /// Adds flows that another dispatcher sent; the next packet of each is checked as if it were
    /// the first.
    pub fn insert_flows(&self, flows: &[Flow]) -> Result<(), DatapathError> {
        let keys: Vec<_> = flows.iter().map(abi::FlowKey::from).collect();
        let values: Vec<_> = flows
            .iter()
            .map(|flow| abi::Flow { node: flow.node, ..abi::Flow::default() })
            .collect();
        sys::update_batch(self.flows.fd().as_fd(), &keys, &values)
            .map_err(DatapathError::map_io("flows"))
    }

    /// Changes the owners of flows, and returns the flows that were changed. A flow whose owner is not `from`
    /// is left alone: it has moved again, or its client has opened another connection from the same port.
    ///
    /// # Errors
    /// The first error; all other changes were tried.
    pub fn change_owners(&self, changes: &[OwnerChange]) -> Result<Vec<Flow>, DatapathError> {
        let (mut changed, mut failed) = (Vec::with_capacity(changes.len()), None);
        for change in changes {
            match self.change_owner(change) {
                Ok(true) => changed.push(change.flow),
                Ok(false) => {}
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        failed.map_or(Ok(changed), Err).map_err(DatapathError::map_io("flows"))
    }

    fn change_owner(&self, OwnerChange { flow, from }: &OwnerChange) -> io::Result<bool> {
        let (map, key) = (self.flows.fd().as_fd(), abi::FlowKey::from(flow));
        let known: Option<abi::Flow> = sys::lookup(map, &key)?;
        if known.is_some_and(|known| from.is_some_and(|from| known.node != from)) {
            return Ok(false);
        }
        let changed = abi::Flow { node: flow.node, generation: 0, ..known.unwrap_or_default() };
        sys::update_batch(map, &[key], &[changed]).map(|()| true)
    }

    /// Calls `show` for every flow in the table. Flows that are added or removed meanwhile may or
    /// may not be included.
    pub fn flows(&self, mut show: impl FnMut(Flow)) -> Result<(), DatapathError> {
        let show = |key: abi::FlowKey, flow: abi::Flow| show(key.owned_by(flow.node));
        sys::each(self.flows.fd().as_fd(), show).map_err(DatapathError::map_io("flows"))
    }

    /// Takes the next new flows, at most `max`, in order of arrival; see
    /// [`ProgramSettings::stream`]. Flows that arrive while the ring of 1 MiB is full are not
    /// reported.
    pub fn next_flow_events(&mut self, max: usize) -> Result<Vec<Flow>, DatapathError> {
        let mut flows = Vec::new();
        while flows.len() < max
            && let Some(record) = self.events.next()
        {
            let event = abi::FlowEvent::read(&record);
            flows.extend(event.map(|event| event.key.owned_by(event.node)));
        }
        Ok(flows)
    }

    /// The counters since the maps were created.
    pub fn counters(&self) -> Result<PacketCounters, DatapathError> {
        self.tables.counters()
    }

    /// Runs the program on a frame, `repeat` times; flow table and counters are updated. The kernel does not
    /// restore the frame between runs: after the first run a forwarded frame is addressed to another machine,
    /// unless all hardware addresses are zero: the frame's, the node's and this machine's
    /// ([`Self::set_own`]).
    pub fn test_run(&self, build: Build, frame: &[u8], repeat: u32) -> Result<Run, DatapathError> {
        let mut room = vec![0; frame.len() + TEST_FRAME_ROOM];
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.data_out = Some(&mut room);
        options.repeat = repeat;
        let (program, result) = match build {
            Build::Xdp => ("dispatch_xdp", self.xdp.xdp()?.test_run(options)),
            Build::Tc => ("dispatch_tc", self.tc.tc()?.test_run(options)),
        };
        let result = result.map_err(|error| DatapathError::TestRun {
            program,
            bytes: frame.len(),
            reason: chain(&error),
        })?;
        room.truncate(result.data_size_out as usize);
        let ns = result.duration.as_nanos() as u64;
        Ok(Run { returned: result.return_value, frame: room, ns })
    }

    fn forget_flows(&self, services: &HashSet<u16>) -> Result<(), DatapathError> {
        let mut keys = Vec::new();
        let map = self.flows.fd().as_fd();
        let note = |key: abi::FlowKey, _: abi::Flow| {
            if services.contains(&key.service) {
                keys.push(key);
            }
        };
        sys::each(map, note)
            .and_then(|()| keys.iter().try_for_each(|key| sys::delete(map, key)))
            .map_err(DatapathError::map_io("flows"))
    }

    /// Copies a flow table of another size, if the flows have the same layout.
    fn move_flows(&self, misfits: &Misfits) -> Result<(), DatapathError> {
        let Some((_, old)) = misfits.iter().find(|(name, _)| name == "flows") else {
            return Ok(());
        };
        let info = old.info().map_err(DatapathError::map("flows"))?;
        let has_form = info.key_size() as usize == size_of::<abi::FlowKey>()
            && info.value_size() as usize == size_of::<abi::Flow>();
        if !has_form {
            return Ok(());
        }
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        sys::each(old.fd().as_fd(), |key: abi::FlowKey, flow: abi::Flow| {
            keys.push(key);
            values.push(flow);
        })
        .and_then(|()| sys::update_batch(self.flows.fd().as_fd(), &keys, &values))
        .map_err(DatapathError::map_io("flows"))
    }
}

fn is_due(last: &Option<Instant>, now: Instant, interval_ms: u64) -> bool {
    last.is_none_or(|last| now - last >= Duration::from_millis(interval_ms))
}

/// Rows per service: two halves.
const ROWS_OF_SERVICE: u32 = 2 * ROWS as u32;

fn map_sizes(sizes: Sizes) -> Result<MapSizes, DatapathError> {
    let most = u64::from(TABLE_ENTRIES_MAX);
    check("size of the flow table", sizes.flows_max, 1, most)?;
    check("size of the table of sources", sizes.sources_max, 1, most)?;
    let mut map_sizes = table_sizes(sizes.services_max)?;
    map_sizes.extend([("flows", sizes.flows_max), ("sources", sizes.sources_max)]);
    Ok(map_sizes)
}

/// Sizes of the maps that the node's program also has.
pub(crate) fn table_sizes(services_max: u32) -> Result<MapSizes, DatapathError> {
    check("number of services", services_max, 1, SERVICES_MAX as u64)?;
    Ok(vec![("rows", services_max * ROWS_OF_SERVICE)])
}
