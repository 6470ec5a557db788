//! The tables of requests: the servers and the loads, round by round.
//!
//! In each round every server of a group is restarted, checked, measured under each load in turn with the
//! others, and stopped: A B C ... for one load, then A B C ... for the next. The order of the servers is
//! rotated by one from round to round, so that none always follows the same one. Backends are started once
//! for a group.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::backends::Backends;
use crate::content::{self, LARGE, MEDIUM, SMALL};
use crate::drain::Drain;
use crate::limits::{
    BACKEND_WARM_RATIO, BACKEND_WARM_TURNS, BACKEND_WARM_UP_SECONDS, BACKEND_WARM_UP_TURNS_MAX,
    CONNECTIONS, SERVER_CORE, WARM_UP_SECONDS,
};
use crate::peers::{BEFORE, MeasuredServer, PEERS, Places, SKEP, ServerRole};
use crate::process::Server;
use crate::results::{Cell, Results, Row, Sample};
use crate::slow_clients::SlowClients;
use crate::wrk::{Load, Wrk};

/// What all measurements need, created once.
pub(crate) struct Bench {
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    pub(crate) places: Places,
    only: Vec<String>,
    /// The same with an earlier build: then only that and the present build are measured.
    before: Option<Places>,
    pub(crate) wrk: Wrk,
    pub(crate) drain: Drain,
    /// The folder of the programs compiled from `bench/limit`.
    pub(crate) programs: PathBuf,
    /// Removed on drop, with its content.
    dir: tempfile::TempDir,
}

/// Loads with the keys of their tables.
type Loads = &'static [(&'static str, Load)];

/// Measures serving files from disk or memory. Returns the number of rows that are not sound.
pub(crate) fn files(bench: &Bench, results: &mut Results) -> Result<usize> {
    let loads: Loads = &[
        ("files-1k", Load::Path(SMALL.0)),
        ("files-22k", Load::Path(MEDIUM.0)),
        ("files-541k", Load::Path(LARGE.0)),
        ("files-mix", Load::Mix),
    ];
    group(bench, results, ServerRole::Files, loads)
}

/// Measures a proxy to two origins.
pub(crate) fn proxy(bench: &Bench, results: &mut Results) -> Result<usize> {
    let loads: Loads = &[("proxy-1k", Load::Path(SMALL.0)), ("proxy-22k", Load::Path(MEDIUM.0))];
    group(bench, results, ServerRole::Proxy, loads)
}

/// Measures redirects to an origin.
pub(crate) fn redirect(bench: &Bench, results: &mut Results) -> Result<usize> {
    group(bench, results, ServerRole::Redirect, &[("redirect", Load::Path(SMALL.0))])
}

/// Measures pools: HTTP, FastCGI, AJP.
pub(crate) fn applications(bench: &Bench, results: &mut Results) -> Result<usize> {
    let groups: [(ServerRole, Loads); 8] = [
        (ServerRole::Pool, &[("pool-1k", Load::Path(SMALL.0)), ("pool-22k", Load::Path(MEDIUM.0))]),
        (
            ServerRole::PoolFull,
            &[("pool-full-1k", Load::Path(SMALL.0)), ("pool-full-22k", Load::Path(MEDIUM.0))],
        ),
        (ServerRole::Cached, &[("cached-1k", Load::Path(SMALL.0))]),
        (ServerRole::Fcgi, &[("fcgi-1k", Load::Path(SMALL.0))]),
        (ServerRole::FcgiUnix, &[("fcgi-unix-1k", Load::Path(SMALL.0))]),
        (
            ServerRole::FcgiKept,
            &[("fcgi-kept-1k", Load::Path(SMALL.0)), ("fcgi-kept-22k", Load::Path(MEDIUM.0))],
        ),
        (
            ServerRole::FcgiFew,
            &[
                ("fcgi-few-1k", Load::Path(SMALL.0)),
                ("fcgi-few-uploads", Load::Beside(SlowClients::Uploaders, SMALL.0)),
                ("fcgi-few-readers", Load::Beside(SlowClients::Readers, SMALL.0)),
            ],
        ),
        (ServerRole::Ajp, &[("ajp-1k", Load::Path(SMALL.0)), ("ajp-22k", Load::Path(MEDIUM.0))]),
    ];
    groups
        .into_iter()
        .try_fold(0, |unsound, (role, loads)| Ok(unsound + group(bench, results, role, loads)?))
}

impl Bench {
    /// Compiles the C programs, and writes the files and the scripts.
    pub(crate) fn prepare(
        (rounds, seconds): (u32, u32),
        only: &[String],
        skep: &Path,
        before: Option<&Path>,
    ) -> Result<Self> {
        for name in only {
            let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
            ensure!(
                MeasuredServer::named(name).is_some(),
                "no server {name}: {}",
                names.join(", ")
            );
        }
        let dir = tempfile::Builder::new()
            .prefix("skep-bench-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir()?;
        let root = dir.path().join("root");
        content::write_files(&root)?;
        let programs = dir.path().join("programs");
        std::fs::create_dir(&programs)?;
        for name in ["limit", "bodies", "drain"] {
            compile(name, &programs)?;
        }
        let limit = programs.join("limit");
        let places = |skep: &Path| Places {
            root: root.clone(),
            limit: limit.clone(),
            skep: skep.to_owned(),
        };
        Ok(Self {
            rounds,
            seconds,
            places: places(skep),
            before: before.map(places),
            only: only.to_vec(),
            wrk: Wrk::prepare(dir.path())?,
            drain: Drain::new(&programs),
            programs,
            dir,
        })
    }

    /// The servers to measure in a role, each with its version, or why it is missing.
    pub(crate) fn chosen(
        &self,
        role: ServerRole,
    ) -> Vec<(&'static MeasuredServer, Result<String>)> {
        let wanted = |peer: &&MeasuredServer| match &self.before {
            Some(_) => peer.name == SKEP,
            None => self.only.is_empty() || self.only.iter().any(|name| name == peer.name),
        };
        let before = self.before.iter().map(|_| &BEFORE);
        let peers = PEERS.iter().filter(wanted).chain(before).filter(|peer| peer.plays(role));
        peers.map(|peer| (peer, peer.version(self.places_of(peer)))).collect()
    }

    /// A folder that is removed with this.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Whether only two builds of Skep are measured.
    pub(crate) fn is_paired(&self) -> bool {
        self.before.is_some()
    }

    fn places_of(&self, peer: &MeasuredServer) -> &Places {
        let before = self.before.as_ref().filter(|_| peer.name == BEFORE.name);
        before.unwrap_or(&self.places)
    }

    /// Starts a server to measure on its core, and checks it with `paths`.
    pub(crate) fn start(
        &self,
        peer: &MeasuredServer,
        role: ServerRole,
        paths: &[String],
        backends: [u16; 2],
    ) -> Result<Server> {
        let server = self.start_unchecked(peer, role, backends)?;
        peer.check(role, server.port, paths, self.places_of(peer))?;
        Ok(server)
    }

    /// The same without checks.
    pub(crate) fn start_unchecked(
        &self,
        peer: &MeasuredServer,
        role: ServerRole,
        backends: [u16; 2],
    ) -> Result<Server> {
        let dir = self.dir_of(peer);
        peer.start(role, &dir, SERVER_CORE, backends, self.places_of(peer))
    }

    fn dir_of(&self, peer: &MeasuredServer) -> PathBuf {
        self.dir.path().join(peer.name)
    }

    /// Starts the backends of `peers` in this role: one for each of them, or one for all.
    fn backends<'a>(
        &self,
        role: ServerRole,
        peers: impl Iterator<Item = &'a MeasuredServer>,
    ) -> Result<Vec<Backends>> {
        let start = |dir: &Path| Backends::start(role, dir, &self.places);
        if role.is_exclusive() {
            return peers.map(|peer| start(&self.dir_of(peer))).collect();
        }
        Ok(vec![start(self.dir.path())?])
    }

    /// Has `backends` answer requests through `peer` until their cost no longer falls.
    fn warm_up(
        &self,
        peer: &MeasuredServer,
        role: ServerRole,
        loads: Loads,
        backends: &Backends,
    ) -> Result<()> {
        let server = self.start(peer, role, &paths_of(loads), backends.ports)?;
        for (key, load) in loads {
            let (mut cheapest_us, mut warm_turns) = (f64::INFINITY, 0);
            for turn in 1..=BACKEND_WARM_UP_TURNS_MAX {
                let before = backends.cpu_ns();
                let outcome =
                    self.wrk.run(server.port, *load, CONNECTIONS, BACKEND_WARM_UP_SECONDS)?;
                let us = (backends.cpu_ns() - before) as f64 / 1e3 / outcome.requests as f64;
                let is_warm = us > BACKEND_WARM_RATIO * cheapest_us;
                warm_turns = if is_warm { warm_turns + 1 } else { 0 };
                cheapest_us = cheapest_us.min(us);
                println!("  {key:<16} warm-up {turn}: {us:.1} us of the backend for a request");
                if warm_turns == BACKEND_WARM_TURNS {
                    break;
                }
            }
        }
        Ok(())
    }

    /// One measurement, after a warm-up.
    pub(crate) fn measure(&self, server: &mut Server, load: Load) -> Result<Sample> {
        let _beside = match load {
            Load::Beside(slow, _) => slow.connect(server.port)?,
            Load::Path(_) | Load::Mix => Vec::new(),
        };
        self.wrk.run(server.port, load, CONNECTIONS, WARM_UP_SECONDS)?;
        let before = server.cpu_ns();
        let outcome = self.wrk.run(server.port, load, CONNECTIONS, self.seconds)?;
        let used = server.cpu_ns() - before;
        server.check_alive()?;
        Ok(Sample {
            cpu_us: used as f64 / 1e3 / outcome.requests as f64,
            busy_cpu_us: None,
            requests_per_s: outcome.requests as f64 / outcome.seconds,
            requests: outcome.requests,
            errors: outcome.errors,
            p50_us: outcome.p50_us,
            p99_us: outcome.p99_us,
        })
    }

    /// CPU time per request with the client that never sleeps, in microseconds. Not for the mix, whose
    /// answers differ in length, nor for proxies, whose origins share the client's core.
    fn measure_busy(&self, server: &Server, role: ServerRole, load: Load) -> Result<Option<f64>> {
        let Load::Path(path) = load else { return Ok(None) };
        if role.has_backends() {
            return Ok(None);
        }
        let before = server.cpu_ns();
        let answers = self.drain.run(server.port, path, CONNECTIONS, self.seconds)?;
        Ok(Some((server.cpu_ns() - before) as f64 / 1e3 / answers as f64))
    }
}

fn compile(name: &str, into: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("limit").join(format!("{name}.c"));
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(into.join(name))
        .arg(&source)
        .status()
        .context("cc (Debian: gcc, libc6-dev)")?;
    ensure!(status.success(), "cc {}: {status}", source.display());
    Ok(())
}

fn group(bench: &Bench, results: &mut Results, role: ServerRole, loads: Loads) -> Result<usize> {
    let mut tables: BTreeMap<&'static str, Vec<Row>> = BTreeMap::new();
    let chosen = bench.chosen(role);
    for (key, _) in loads {
        tables.insert(key, chosen.iter().map(|(peer, version)| new_row(peer, version)).collect());
    }
    let mut able: Vec<usize> =
        (0..chosen.len()).filter(|&i| chosen.get(i).is_some_and(|(_, v)| v.is_ok())).collect();
    let backends = bench.backends(role, chosen.iter().map(|(peer, _)| *peer))?;
    let first = able.first().and_then(|&i| chosen.get(i));
    if let (true, Some((peer, _))) = (role.warms_up(), first) {
        println!("skep-bench: {role:?}, warm-up");
        bench.warm_up(peer, role, loads, &backends[0])?;
    }
    for round in 1..=bench.rounds {
        println!("skep-bench: {role:?}, round {round} of {}", bench.rounds);
        let peers: Vec<_> = able
            .iter()
            .filter_map(|&i| Some((i, chosen.get(i)?.0, backends.get(i).or(backends.first())?)))
            .collect();
        one_round(bench, role, loads, &peers, &mut tables)?;
        if !able.is_empty() {
            able.rotate_left(1);
        }
    }
    let mut unsound = 0;
    for (key, rows) in tables {
        unsound += rows.iter().filter(|row| !row.is_sound()).count();
        let when = results.machine.when();
        let cell = Cell { when, rounds: bench.rounds, seconds: bench.seconds, rows };
        results.cells.insert(key.to_owned(), cell);
    }
    Ok(unsound)
}

fn one_round(
    bench: &Bench,
    role: ServerRole,
    loads: Loads,
    peers: &[(usize, &MeasuredServer, &Backends)],
    tables: &mut BTreeMap<&'static str, Vec<Row>>,
) -> Result<()> {
    let paths = paths_of(loads);
    let mut servers = Vec::new();
    for &(index, peer, backends) in peers {
        match bench.start(peer, role, &paths, backends.ports) {
            Ok(server) => servers.push((index, peer, server)),
            Err(error) => {
                crate::interrupt::check()?;
                eprintln!("skep-bench: {} cannot be measured: {error:#}", peer.name);
                for row in tables.values_mut().filter_map(|rows| rows.get_mut(index)) {
                    row.trouble = Some(format!("{error:#}"));
                }
            }
        }
    }
    for (key, load) in loads {
        for (index, peer, server) in &mut servers {
            let measured = bench.measure(server, *load).and_then(|sample| {
                let busy_cpu_us = bench.measure_busy(server, role, *load)?;
                Ok(Sample { busy_cpu_us, ..sample })
            });
            crate::interrupt::check()?;
            let Some(row) = tables.get_mut(key).and_then(|rows| rows.get_mut(*index)) else {
                continue;
            };
            match measured {
                Ok(sample) => {
                    print_sample(key, peer.name, &sample);
                    row.samples.push(sample);
                }
                Err(error) => {
                    eprintln!("skep-bench: {key}: {}: {error:#}", peer.name);
                    row.trouble = Some(format!("{error:#}"));
                }
            }
        }
    }
    Ok(())
}

fn new_row(peer: &MeasuredServer, version: &Result<String>) -> Row {
    let (version, trouble) = match version {
        Ok(version) => (version.clone(), None),
        Err(error) => {
            eprintln!("skep-bench: skipping {}: {error:#}", peer.name);
            (String::new(), Some(format!("{error:#}")))
        }
    };
    Row { server: peer.name.to_owned(), version, trouble, samples: Vec::new() }
}

/// All paths that the loads may request.
fn paths_of(loads: Loads) -> Vec<String> {
    let mut paths = Vec::new();
    for (_, load) in loads {
        match load {
            Load::Path(path) => paths.push((*path).to_owned()),
            Load::Beside(slow, path) => paths.extend([slow.path(), path].map(str::to_owned)),
            Load::Mix => paths.extend(content::all_files().into_iter().map(|(path, _)| path)),
        }
    }
    paths
}

fn print_sample(key: &str, server: &str, sample: &Sample) {
    let busy = sample.busy_cpu_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.2}"));
    println!(
        "  {key:<16} {server:<9} {:>8.2} us (busy client {busy:>6})  {:>8.0} requests/s  median {:.0} us  \
         {} errors",
        sample.cpu_us, sample.requests_per_s, sample.p50_us, sample.errors
    );
}
