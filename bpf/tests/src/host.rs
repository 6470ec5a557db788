//! The programs built for this machine's processes (`bpf/host/main.c`), under
//! the address and undefined behaviour sanitizers.

use std::collections::BTreeMap;
use std::io::{BufReader, BufWriter, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use skep_steer::{Counters, Outcome, PacketAction, Tables};
use skep_wire::steer::{NO_NODE, ROW_NODES, ROWS, Row, Verdict};

use crate::encode::{
    Entry, entries, first_row, index, is_in, read_assigned, read_count, read_flow, read_index,
    read_move, row,
};
use crate::machine::{Machine, Program, State};

/// Frames that are sent before their answers are read, so that neither side
/// waits for the other with its pipe full.
const BATCH_BYTES_MAX: usize = 32 * 1024;

/// All of the frame lies linear, as for XDP.
const ALL_LINEAR: u32 = u32::MAX;

/// As much as the programs ask the kernel for, as for tc: HEADERS_MAX of
/// `bpf/packet.h`.
const HEADERS_LINEAR: u32 = 144;

/// A program as a process.
pub struct Host {
    program: Program,
    process: Child,
    requests: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
    rows: BTreeMap<u16, Arc<Vec<Row>>>,
    linear: u32,
}

impl Host {
    /// Builds and starts a program. Without a compiler or its sanitizers the
    /// error says so.
    pub fn start(program: Program, directory: &Path) -> Result<Self> {
        let binary = build(program, directory)?;
        let mut process =
            Command::new(binary).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let requests = process.stdin.take().context("no standard input")?;
        let answers = process.stdout.take().context("no standard output")?;
        Ok(Self {
            program,
            process,
            requests: BufWriter::with_capacity(BATCH_BYTES_MAX, requests),
            answers: BufReader::with_capacity(BATCH_BYTES_MAX, answers),
            rows: BTreeMap::new(),
            linear: ALL_LINEAR,
        })
    }

    /// From now on only headers lie linear, as in the kernel's socket buffers.
    pub fn set_headers_linear(&mut self) {
        self.linear = HEADERS_LINEAR;
    }

    /// Gives the node connections: the client's end, then its own.
    pub fn set_sockets(&mut self, sockets: &[(SocketAddr, SocketAddr)]) -> Result<()> {
        for (client, service) in sockets {
            let key = [
                &octets(client.ip())[..],
                &octets(service.ip()),
                &client.port().to_be_bytes(),
                &service.port().to_be_bytes(),
            ];
            self.set("sockets", &key.concat(), &1u32.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Runs frames, all at `now_ns`, and gives what came of each in order.
    pub fn run_all(&mut self, now_ns: u64, frames: &[Vec<u8>]) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(frames.len());
        let mut rest = frames;
        while !rest.is_empty() {
            let count = batch(rest);
            let (now, later) = rest.split_at(count);
            for frame in now {
                self.send(now_ns, frame)?;
            }
            self.flush()?;
            for _ in now {
                outcomes.push(self.receive()?);
            }
            rest = later;
        }
        Ok(outcomes)
    }

    fn send(&mut self, now_ns: u64, frame: &[u8]) -> Result<()> {
        self.requests.write_all(b"P")?;
        self.requests.write_all(&self.linear.to_ne_bytes())?;
        self.requests.write_all(&now_ns.to_ne_bytes())?;
        self.give(frame)
    }

    fn receive(&mut self) -> Result<Outcome> {
        let verdict = self.take_number()?;
        let action = match self.take_number()? {
            0 => PacketAction::Pass,
            1 => PacketAction::Drop,
            2 => PacketAction::Transmit { device_index: 0 },
            other => bail!("an action {other}"),
        };
        let device_index = self.take_number()?;
        let action = match action {
            PacketAction::Transmit { .. } => PacketAction::Transmit { device_index },
            other => other,
        };
        let verdict = verdict_of(verdict)?;
        Ok(Outcome { verdict, action, frame: self.take()? })
    }

    fn set(&mut self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        self.requests.write_all(b"S")?;
        self.give(map.as_bytes())?;
        self.give(key)?;
        self.give(value)
    }

    fn set_rows(&mut self, tables: &Tables) -> Result<()> {
        let empty = Arc::new(vec![Row([NO_NODE; ROW_NODES]); ROWS]);
        for service in &tables.services {
            let rows = tables.rows.get(&service.id).unwrap_or(&empty);
            if self.rows.get(&service.id) == Some(rows) {
                continue;
            }
            let bytes: Vec<u8> = rows.iter().flat_map(row).collect();
            self.set("rows", &index(first_row(service.id)), &bytes)?;
            self.rows.insert(service.id, Arc::clone(rows));
        }
        Ok(())
    }

    fn dump(&mut self, map: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.requests.write_all(b"D")?;
        self.give(map.as_bytes())?;
        self.flush()?;
        let mut entries = Vec::new();
        loop {
            let key = self.take()?;
            if key.is_empty() {
                return Ok(entries);
            }
            entries.push((key, self.take()?));
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.requests.write_all(b"F")?;
        Ok(self.requests.flush()?)
    }

    fn give(&mut self, bytes: &[u8]) -> Result<()> {
        self.requests.write_all(&(bytes.len() as u32).to_ne_bytes())?;
        Ok(self.requests.write_all(bytes)?)
    }

    fn take_number(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        self.answers.read_exact(&mut bytes).context("the host build ended; see above")?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn take(&mut self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.take_number()? as usize];
        self.answers.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Machine for Host {
    fn name(&self) -> &'static str {
        if self.linear == ALL_LINEAR { "host" } else { "host, headers linear" }
    }

    fn can_run(&self, _frame: &[u8]) -> bool {
        true
    }

    fn set_tables(&mut self, tables: &Tables) -> Result<()> {
        self.requests.write_all(b"C")?;
        for Entry { map, key, value } in entries(tables) {
            if is_in(self.program, map) {
                self.set(map, &key, &value)?;
            }
        }
        self.set_rows(tables)
    }

    fn run(&mut self, now_ns: u64, frame: &[u8]) -> Result<Outcome> {
        self.send(now_ns, frame)?;
        self.flush()?;
        self.receive()
    }

    fn state(&mut self) -> Result<State> {
        let mut state = State::default();
        if self.program == Program::Dispatch {
            state.flows = self.dump("flows")?.iter().map(|(k, v)| read_flow(k, v)).collect();
            let assigned = self.dump("assigned")?;
            state.assigned = assigned.iter().map(|(k, v)| read_assigned(k, v)).collect();
        } else {
            state.moves = self.dump("moves")?.iter().map(|(k, v)| read_move(k, v)).collect();
        }
        let Counters { verdicts, services, nodes } = &mut state.counters;
        for (key, value) in self.dump("verdicts")? {
            verdicts.insert(read_index(&key), read_count(&value));
        }
        for (key, value) in self.dump("service_counts")? {
            services.insert(read_index(&key) as u16, read_count(&value));
        }
        for (key, value) in self.dump("node_counts")? {
            nodes.insert(read_index(&key) as u16, read_count(&value));
        }
        Ok(state)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It ends by itself when its input does; this is for one that hangs.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The verdict of a number that a program gave.
pub(crate) fn verdict_of(number: u32) -> Result<Verdict> {
    let verdict = Verdict::ALL.get(number as usize).copied();
    verdict.with_context(|| format!("a verdict {number}: did the programs and wire part ways?"))
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// How many of the frames go out at once.
fn batch(frames: &[Vec<u8>]) -> usize {
    let mut bytes = 0;
    let fits = |frame: &&Vec<u8>| {
        bytes += frame.len() + 32;
        bytes <= BATCH_BYTES_MAX
    };
    frames.iter().take_while(fits).count().max(1)
}

fn build(program: Program, directory: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/main.c");
    let (name, define) = match program {
        Program::Dispatch => ("dispatch", "-DSKEP_DISPATCH"),
        Program::Node => ("node", "-DSKEP_NODE"),
    };
    let binary = directory.join(name);
    let output = Command::new("cc")
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"])
        .args(["-fno-strict-aliasing", "-fsanitize=address,undefined"])
        .args(["-fno-sanitize-recover=all", define, "-o"])
        .arg(&binary)
        .arg(source)
        .output()
        .context("cc: not found")?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cc cannot build the host's program:\n{messages}");
    Ok(binary)
}
