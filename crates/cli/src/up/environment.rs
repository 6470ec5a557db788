//! The environment in which the processes of a cluster run: this machine, or, in direct dispatch,
//! one machine each in a test bed of network namespaces.

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use skep_testbed::{Bed, Machine, Topology};

use super::plan::{DISPATCHER, Places, STANDBY};
use crate::arguments::UpArgs;

/// The environment of a cluster's processes: this machine, or a test bed.
pub(super) struct Environment(Option<Bed>);

impl Environment {
    /// Creates the environment that `args` require.
    pub(super) fn make(args: &UpArgs) -> anyhow::Result<Self> {
        if !args.dispatch.is_steered() {
            return Ok(Self(None));
        }
        let nodes = usize::from(args.nodes);
        let topology = Topology { clients: 0, dispatchers: 2, nodes, ..Topology::default() };
        let bed = Bed::new(&topology).with_context(|| format!("--dispatch {}", args.dispatch))?;
        bed.to_host(bed.vip(0).0.into()).context("cannot reach the cluster from this machine")?;
        Ok(Self(Some(bed)))
    }

    /// The addresses of the machines, if it is a test bed.
    pub(super) fn places(&self, args: &UpArgs) -> Option<Places> {
        let bed = self.0.as_ref()?;
        let port = if args.listen.port() == 0 { 80 } else { args.listen.port() };
        let addresses = |machines: &[Machine]| {
            machines.iter().map(|machine| machine.ipv4().into()).collect::<Vec<IpAddr>>()
        };
        Some(Places {
            vip: (bed.vip(0).0, port).into(),
            dispatchers: addresses(bed.dispatchers()),
            nodes: addresses(bed.nodes()),
        })
    }

    /// A command that runs the process `name` on its machine.
    pub(super) fn command(&self, program: &Path, name: &str) -> Command {
        let machine = self.0.as_ref().and_then(|bed| match name {
            DISPATCHER => bed.machine("dispatcher-1"),
            STANDBY => bed.machine("dispatcher-2"),
            node => bed.machine(node),
        });
        match machine {
            Some(machine) => machine.command(program),
            None => Command::new(program),
        }
    }

    /// The features that the bed lacks, as sentences.
    pub(super) fn notes(&self) -> &[String] {
        self.0.as_ref().map_or(&[], Bed::notes)
    }
}

/// Writes a key for this cluster alone to a file that only root can read.
pub(super) fn write_key(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let write = || {
        let mut secret = [0; 32];
        std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut secret)?;
        let text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{text}")
    };
    write().with_context(|| format!("cannot write the cluster's key {}", path.display()))
}
