//! The committed objects in this kernel, run by BPF_PROG_TEST_RUN.
//!
//! Maps are pinned in a BPF file system that is mounted nowhere: it goes with
//! the descriptor, whatever becomes of the process. Nothing is attached.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, PerCpuArray, PerCpuValues, lpm_trie};
use aya::programs::{SchedClassifier, TestRun, TestRunOptions, TestRunResult, Xdp};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use skep_steer::{Counters, Outcome, PacketAction, Tables};
use skep_wire::steer::{Count, NO_NODE, NODES_MAX, ROW_NODES, ROWS, Row, SERVICES_MAX, Verdict};

use crate::encode::{
    Entry, WRITTEN_BY_PROGRAM, entries, first_row, index, is_in, read_assigned, read_count,
    read_flow, read_move, read_rate, read_used_ns, row,
};
use crate::machine::{Machine, Program, State};
use crate::world::{OTHER_DEVICE, OWN_DEVICE};

/// Flows that the kernel's table holds in tests: more than they make.
const FLOWS_MAX: u32 = 1 << 18;

/// Nodes that tests give indices below this.
const NODES_USED_MAX: usize = 8;

/// Frames that BPF_PROG_TEST_RUN takes: with head and tail room they must lie
/// within a page.
const FRAME_BYTES_MAX: usize = 3_300;

/// A committed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The dispatcher's program for XDP.
    DispatchXdp,
    /// The dispatcher's program for tc.
    DispatchTc,
    /// The node's program.
    Node,
}

/// An object in the kernel.
pub struct Kernel {
    object: Object,
    programs: Ebpf,
    /// What the maps hold of what tests write to hashes.
    written: Vec<Entry>,
    rows: BTreeMap<u16, Arc<Vec<Row>>>,
    /// Packets of each verdict, before the last one.
    counted: Vec<u64>,
    _file_system: OwnedFd,
}

impl Kernel {
    /// Loads an object. Without the right to, the error says so.
    pub fn load(object: Object) -> Result<Self> {
        let file_system = bpf_file_system().context("no BPF file system (are you root?)")?;
        let path = format!("/proc/self/fd/{}", file_system.as_raw_fd());
        let bytes: &[u8] = match object {
            Object::DispatchXdp => include_bytes_aligned!("../../objects/dispatch_xdp.o"),
            Object::DispatchTc => include_bytes_aligned!("../../objects/dispatch_tc.o"),
            Object::Node => include_bytes_aligned!("../../objects/node.o"),
        };
        let mut loader = EbpfLoader::new();
        loader.default_map_pin_directory(&path);
        loader.map_max_entries("rows", (SERVICES_MAX * 2 * ROWS) as u32);
        if object != Object::Node {
            loader.map_max_entries("flows", FLOWS_MAX).map_max_entries("sources", 1024);
        }
        let mut programs = loader.load(bytes).context("the kernel does not take the maps")?;
        match object {
            Object::DispatchXdp => xdp(&mut programs)?.load()?,
            Object::DispatchTc | Object::Node => tc(&mut programs, object)?.load()?,
        }
        Ok(Self {
            object,
            programs,
            written: Vec::new(),
            rows: BTreeMap::new(),
            counted: vec![0; Verdict::ALL.len()],
            _file_system: file_system,
        })
    }

    /// Runs a frame `repeat` times; the mean duration.
    pub fn measure(&mut self, frame: &[u8], repeat: u32) -> Result<Duration> {
        let mut out = vec![0; frame.len() + 64];
        Ok(self.test_run(frame, &mut out, repeat)?.duration)
    }

    /// The window of new flows, as the guard of all has it.
    pub fn total(&mut self) -> Result<skep_steer::Rate> {
        let total: Array<_, [u8; 16]> = Array::try_from(self.map("total")?)?;
        Ok(read_rate(&total.get(&0, 0)?))
    }

    /// The windows of new flows of sources, as the guard has them.
    pub fn sources(&mut self) -> Result<BTreeMap<Ipv6Addr, skep_steer::Rate>> {
        let sources: HashMap<_, [u8; 16], [u8; 16]> = HashMap::try_from(self.map("sources")?)?;
        let rates =
            sources.iter().map(|entry| entry.map(|(key, rate)| (key.into(), read_rate(&rate))));
        Ok(rates.collect::<Result<_, _>>()?)
    }

    /// When each entry of `moves` was used last, in nanoseconds of the kernel's clock.
    pub fn moves_used_ns(&mut self) -> Result<Vec<u64>> {
        Ok(self.moves()?.iter().map(|(_, value)| read_used_ns(value)).collect())
    }

    /// The flow events that have been reported since the last call.
    pub fn events(&mut self) -> Result<Vec<Vec<u8>>> {
        let map = self.programs.map_mut("events").context("no map events")?;
        let mut ring = aya::maps::RingBuf::try_from(map)?;
        let mut events = Vec::new();
        while let Some(event) = ring.next() {
            events.push(event.to_vec());
        }
        Ok(events)
    }

    fn test_run(&mut self, frame: &[u8], out: &mut [u8], repeat: u32) -> Result<TestRunResult> {
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(out),
            repeat,
            ..Default::default()
        };
        let result = match self.object {
            Object::DispatchXdp => xdp(&mut self.programs)?.test_run(options),
            object => tc(&mut self.programs, object)?.test_run(options),
        };
        result.with_context(|| format!("a test run of {} bytes", frame.len()))
    }

    fn map(&mut self, name: &str) -> Result<&mut aya::maps::Map> {
        self.programs.map_mut(name).with_context(|| format!("no map {name}"))
    }

    fn has(&self, map: &str) -> bool {
        let program = match self.object {
            Object::DispatchXdp | Object::DispatchTc => Program::Dispatch,
            Object::Node => Program::Node,
        };
        is_in(program, map)
    }

    fn set(&mut self, entry: &Entry) -> Result<()> {
        let Entry { map, key, value } = entry;
        match *map {
            "settings" => self.set_in_array::<48>(map, key, value),
            "nodes" => self.set_in_array::<16>(map, key, value),
            "loads" => self.set_in_array::<32>(map, key, value),
            "assigned" => self.set_in_array::<8>(map, key, value),
            "total" => self.set_in_array::<16>(map, key, value),
            "vips" => self.set_in_hash::<16, 4>(map, key, value),
            "services" => self.set_in_hash::<20, 8>(map, key, value),
            "steerers" => self.set_in_hash::<6, 4>(map, key, value),
            "moves" => self.set_in_hash::<36, 16>(map, key, value),
            "flows" => self.set_in_hash::<20, 16>(map, key, value),
            "sources" => self.set_in_hash::<16, 16>(map, key, value),
            "networks" => {
                let mut trie: LpmTrie<_, [u8; 16], u32> = LpmTrie::try_from(self.map(map)?)?;
                let bits = u32::from_ne_bytes(sized(&key[..4])?);
                let key = lpm_trie::Key::new(bits, sized(&key[4..])?);
                Ok(trie.insert(&key, u32::from_ne_bytes(sized(value)?), 0)?)
            }
            other => bail!("no map {other} to write to"),
        }
        .with_context(|| format!("an entry of {map}"))
    }

    fn remove(&mut self, entry: &Entry) -> Result<()> {
        let Entry { map, key, .. } = entry;
        match *map {
            "vips" => self.remove_from_hash::<16, 4>(map, key),
            "services" => self.remove_from_hash::<20, 8>(map, key),
            "steerers" => self.remove_from_hash::<6, 4>(map, key),
            "loads" => self.set_in_array::<32>(map, key, &[0; 32]),
            "networks" => {
                let mut trie: LpmTrie<_, [u8; 16], u32> = LpmTrie::try_from(self.map(map)?)?;
                let bits = u32::from_ne_bytes(sized(&key[..4])?);
                Ok(trie.remove(&lpm_trie::Key::new(bits, sized(&key[4..])?))?)
            }
            _ => Ok(()),
        }
    }

    fn set_in_array<const V: usize>(&mut self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let mut array: Array<_, [u8; V]> = Array::try_from(self.map(map)?)?;
        Ok(array.set(u32::from_ne_bytes(sized(key)?), sized::<V>(value)?, 0)?)
    }

    fn set_in_hash<const K: usize, const V: usize>(
        &mut self,
        map: &str,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let mut hash: HashMap<_, [u8; K], [u8; V]> = HashMap::try_from(self.map(map)?)?;
        Ok(hash.insert(sized::<K>(key)?, sized::<V>(value)?, 0)?)
    }

    fn remove_from_hash<const K: usize, const V: usize>(
        &mut self,
        map: &str,
        key: &[u8],
    ) -> Result<()> {
        let mut hash: HashMap<_, [u8; K], [u8; V]> = HashMap::try_from(self.map(map)?)?;
        Ok(hash.remove(&sized::<K>(key)?)?)
    }

    /// Empties what the program writes to.
    fn clear(&mut self) -> Result<()> {
        if self.object != Object::Node {
            for (key, _) in self.flows()? {
                self.remove_from_hash::<20, 16>("flows", &key)?;
            }
            let sources: HashMap<_, [u8; 16], [u8; 16]> = HashMap::try_from(self.map("sources")?)?;
            let keys = sources.keys().collect::<Result<Vec<_>, _>>()?;
            for key in keys {
                self.remove_from_hash::<16, 16>("sources", &key)?;
            }
            for (place, _) in self.assigned()? {
                self.set_in_array::<8>("assigned", &index(place), &[0; 8])?;
            }
            self.events()?;
        } else {
            for (key, _) in self.moves()? {
                self.remove_from_hash::<36, 16>("moves", &key)?;
            }
        }
        for map in ["verdicts", "service_counts", "node_counts"] {
            for (place, _) in self.counts(map)? {
                let mut counts: PerCpuArray<_, [u8; 16]> = PerCpuArray::try_from(self.map(map)?)?;
                let zeros = vec![[0; 16]; aya::util::nr_cpus().map_err(|(_, error)| error)?];
                counts.set(place, PerCpuValues::try_from(zeros)?, 0)?;
            }
        }
        self.counted.fill(0);
        Ok(())
    }

    fn flows(&mut self) -> Result<Vec<([u8; 20], [u8; 16])>> {
        let flows: HashMap<&mut MapData, _, _> = HashMap::try_from(self.map("flows")?)?;
        Ok(flows.iter().collect::<Result<_, _>>()?)
    }

    fn moves(&mut self) -> Result<Vec<([u8; 36], [u8; 16])>> {
        let moves: HashMap<&mut MapData, _, _> = HashMap::try_from(self.map("moves")?)?;
        Ok(moves.iter().collect::<Result<_, _>>()?)
    }

    /// What is not zero.
    fn assigned(&mut self) -> Result<Vec<(u32, [u8; 8])>> {
        let assigned: Array<_, [u8; 8]> = Array::try_from(self.map("assigned")?)?;
        let mut found = Vec::new();
        for service in 0..SERVICES_MAX {
            for place in (service * NODES_MAX..).take(NODES_USED_MAX) {
                let value = assigned.get(&(place as u32), 0)?;
                if value != [0; 8] {
                    found.push((place as u32, value));
                }
            }
        }
        Ok(found)
    }

    /// What is not zero.
    fn counts(&mut self, map: &str) -> Result<Vec<(u32, Count)>> {
        let counts: PerCpuArray<_, [u8; 16]> = PerCpuArray::try_from(self.map(map)?)?;
        let mut found = Vec::new();
        for place in 0..counts.len() {
            let count = sum(&counts.get(&place, 0)?);
            if count.packets != 0 {
                found.push((place, count));
            }
        }
        Ok(found)
    }

    /// The verdict whose counter went up.
    fn take_verdict(&mut self) -> Result<Verdict> {
        let counts: PerCpuArray<_, [u8; 16]> =
            PerCpuArray::try_from(self.programs.map_mut("verdicts").context("no map verdicts")?)?;
        for ((place, &verdict), counted) in (0..).zip(Verdict::ALL).zip(&mut self.counted) {
            let packets = sum(&counts.get(&place, 0)?).packets;
            if packets != *counted {
                *counted = packets;
                return Ok(verdict);
            }
        }
        bail!("no verdict was counted")
    }

    fn set_rows(&mut self, tables: &Tables) -> Result<()> {
        let empty = Arc::new(vec![Row([NO_NODE; ROW_NODES]); ROWS]);
        for service in &tables.services {
            let rows = tables.rows.get(&service.id).unwrap_or(&empty);
            if self.rows.get(&service.id) == Some(rows) {
                continue;
            }
            let Map::Array(map) = self.map("rows")? else { bail!("rows are no array") };
            let bytes: Vec<u8> = rows.iter().flat_map(row).collect();
            write(map, first_row(service.id) as usize * size_of::<Row>(), &bytes)?;
            self.rows.insert(service.id, Arc::clone(rows));
        }
        Ok(())
    }

    fn action(&self, return_value: u32, frame: &[u8]) -> Result<PacketAction> {
        // aya gives what the program returned, -1 as the largest number.
        Ok(match (self.object, return_value) {
            (Object::DispatchXdp, 2) | (Object::DispatchTc | Object::Node, u32::MAX) => {
                PacketAction::Pass
            }
            (Object::DispatchXdp, 1) | (Object::DispatchTc | Object::Node, 2) => PacketAction::Drop,
            (Object::DispatchXdp, 3) => PacketAction::Transmit { device_index: OWN_DEVICE },
            (Object::DispatchXdp, 4) => PacketAction::Transmit { device_index: OTHER_DEVICE },
            (Object::DispatchTc | Object::Node, 7) => PacketAction::Transmit { device_index: 0 },
            (object, other) => bail!("{object:?} returned {other} for {frame:02x?}"),
        })
    }
}

impl Machine for Kernel {
    fn name(&self) -> &'static str {
        match self.object {
            Object::DispatchXdp => "kernel, XDP",
            Object::DispatchTc => "kernel, tc",
            Object::Node => "kernel, node",
        }
    }

    fn can_run(&self, frame: &[u8]) -> bool {
        let bytes_min = match frame.get(12..14) {
            // For a socket buffer the kernel looks at what it says to be IP.
            Some([0x08, 0x00]) if self.object != Object::DispatchXdp => 34,
            Some([0x86, 0xdd]) if self.object != Object::DispatchXdp => 54,
            _ if self.object != Object::DispatchXdp => 15,
            _ => 14,
        };
        (bytes_min..=FRAME_BYTES_MAX).contains(&frame.len())
    }

    fn set_tables(&mut self, tables: &Tables) -> Result<()> {
        self.clear()?;
        let mut wanted = entries(tables);
        wanted.retain(|entry| self.has(entry.map));
        let old: Vec<Entry> = std::mem::take(&mut self.written);
        for entry in &old {
            if !wanted.iter().any(|new| (new.map, &new.key) == (entry.map, &entry.key)) {
                self.remove(entry)?;
            }
        }
        for entry in &wanted {
            if WRITTEN_BY_PROGRAM.contains(&entry.map) || !old.contains(entry) {
                self.set(entry)?;
            }
        }
        self.written = wanted;
        self.set_rows(tables)
    }

    fn run(&mut self, _now_ns: u64, frame: &[u8]) -> Result<Outcome> {
        let mut out = vec![0; frame.len() + 64];
        let result = self.test_run(frame, &mut out, 1)?;
        ensure!(result.data_size_out as usize <= out.len(), "a frame grew");
        out.truncate(result.data_size_out as usize);
        let action = self.action(result.return_value, frame)?;
        Ok(Outcome { verdict: self.take_verdict()?, action, frame: out })
    }

    fn state(&mut self) -> Result<State> {
        let mut state = State::default();
        if self.object != Object::Node {
            state.flows = self.flows()?.iter().map(|(key, value)| read_flow(key, value)).collect();
            for (place, value) in self.assigned()? {
                state.assigned.extend([read_assigned(&index(place), &value)]);
            }
        } else {
            state.moves = self.moves()?.iter().map(|(key, value)| read_move(key, value)).collect();
        }
        let Counters { verdicts, services, nodes } = &mut state.counters;
        verdicts.extend(self.counts("verdicts")?);
        let narrow = |(place, count): (u32, Count)| (place as u16, count);
        services.extend(self.counts("service_counts")?.into_iter().map(narrow));
        nodes.extend(self.counts("node_counts")?.into_iter().map(narrow));
        Ok(state)
    }
}

fn bpf_file_system() -> Result<OwnedFd> {
    let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

fn xdp(programs: &mut Ebpf) -> Result<&mut Xdp> {
    Ok(programs.program_mut("dispatch_xdp").context("no program")?.try_into()?)
}

fn tc(programs: &mut Ebpf, object: Object) -> Result<&mut SchedClassifier> {
    let name = if object == Object::Node { "node" } else { "dispatch_tc" };
    Ok(programs.program_mut(name).context("no program")?.try_into()?)
}

/// Writes to the memory of a map that was made with `BPF_F_MMAPABLE`, from the byte `at` on: one
/// system call for all, not one for each element.
#[expect(unsafe_code, reason = "rustix's mmap is as unsafe")]
fn write(map: &MapData, at: usize, bytes: &[u8]) -> Result<()> {
    const PAGE_BYTES: usize = 4096;
    let before = at % PAGE_BYTES;
    let (access, len) = (ProtFlags::READ | ProtFlags::WRITE, before + bytes.len());
    // SAFETY: a new mapping, at a place that the kernel chooses, which holds all of `bytes` and goes
    // before anybody else knows of it.
    unsafe {
        let from = (at - before) as u64;
        let there =
            mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, map.fd().as_fd(), from)?;
        let first = there.cast::<u8>().add(before);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), first, bytes.len());
        Ok(munmap(there, len)?)
    }
}

fn sum(values: &PerCpuValues<[u8; 16]>) -> Count {
    values.iter().map(|value| read_count(value)).fold(Count::default(), |all, one| Count {
        packets: all.packets + one.packets,
        bytes: all.bytes + one.bytes,
    })
}

fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    <[u8; N]>::try_from(bytes).with_context(|| format!("{} bytes, not {N}", bytes.len()))
}
