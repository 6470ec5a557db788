//! `skep-lab`: test beds of network namespaces for manual use, and the experiments of the cluster cache in
//! them.
//!
//! A bed exists as long as the `skep-lab up` that created it; the other commands find it in `/run/skep-lab`.

mod experiments;

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use skep_testbed::{Bed, BedInfo, Frames, MachineInfo, Topology};
use tokio::signal::unix::{SignalKind, signal};

use experiments::{
    BedPolicyOptions, Failure, HandoffOptions, LargeOptions, Options, OriginOptions, PortalOptions,
    ScaleOptions, SimulationOptions, TestBedExperiment, VerifyOptions,
};

/// Test beds of network namespaces: clients, a router, dispatchers, nodes and an
/// origin on this machine. Needs root.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage; `exec` has that of its command.\n\
                  Programs needed: ip, tc (package iproute2), nft (package nftables)."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a test bed and keep it until Ctrl-C
    Up(Up),
    /// Run a command on a machine of a bed, in the current folder
    Exec {
        /// Number of the bed, as shown by `list`; not needed if there is only one
        #[arg(long)]
        bed: Option<u16>,
        /// Name of the machine: node-1, dispatcher-2, …
        machine: String,
        /// Command with its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// List the beds that are up, with their machines
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove what is left of beds that could not clean up (there should be nothing)
    Clean,
    /// Experiment: requests per second from 1 to 8 nodes, compared with other servers
    Table2(Options),
    /// Experiment: data sets smaller than a node's cache, smaller than the cluster's, and larger
    Regimes(Options),
    /// Experiment: nodes are killed, added and drained while clients send requests
    Churn(Options),
    /// Experiment: a 2 GB file through nodes with 256 MB of memory each
    Large(LargeOptions),
    /// Experiment: connections move to the nodes that answer them
    Handoff(HandoffOptions),
    /// Experiment: a portal on Tomcat behind Skep, from 1 to 4 nodes
    Portal(PortalOptions),
    /// Experiment: all policies side by side on simulated sites; needs no root
    Policies(SimulationOptions),
    /// Experiment: policies in a test bed, and the simulator beside it
    PoliciesBed(BedPolicyOptions),
    /// Experiment: nodes started and stopped by a ramp of clients, simulated; needs no root
    Elastic(SimulationOptions),
    /// Experiment: 10 to 1,000 simulated nodes, and the loss of every tenth; needs no root
    Scale(ScaleOptions),
    /// Experiment: replies are compared byte for byte while nodes come and go and objects change
    Verify(VerifyOptions),
    /// Run the origin of the experiments, which is slow on purpose
    Origin(OriginOptions),
}

/// Make a test bed and keep it until Ctrl-C
#[derive(Debug, Args)]
struct Up {
    /// Topology as TOML; the options below override it
    topology: Option<PathBuf>,
    /// Number of clients
    #[arg(long)]
    clients: Option<usize>,
    /// Put the clients behind a router, on a LAN of their own
    #[arg(long)]
    router: bool,
    /// Number of dispatchers
    #[arg(long)]
    dispatchers: Option<usize>,
    /// Number of nodes
    #[arg(long)]
    nodes: Option<usize>,
    /// Add an origin
    #[arg(long)]
    origin: bool,
    /// Form of frames: as on a wire (XDP works), or large, which costs less CPU time
    #[arg(long, value_enum)]
    frames: Option<FramesArg>,
    /// Connect this host to the bed's LAN, with a route to this address
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FramesArg {
    Wire,
    Large,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Up(up) => run_up(&up),
        Command::Exec { bed, machine, command } => run_exec(bed, &machine, &command),
        Command::List { json } => run_list(json),
        Command::Clean => run_clean(),
        Command::Table2(options) => experiments::run(TestBedExperiment::Table2, &options),
        Command::Regimes(options) => experiments::run(TestBedExperiment::Regimes, &options),
        Command::Churn(options) => experiments::run(TestBedExperiment::Churn, &options),
        Command::Large(options) => experiments::run_large(&options),
        Command::Handoff(options) => experiments::run_handoff(&options),
        Command::Portal(options) => experiments::run_portal(&options),
        Command::Policies(options) => experiments::run_policies(&options),
        Command::PoliciesBed(options) => experiments::run_policies_bed(&options),
        Command::Elastic(options) => experiments::run_elastic(&options),
        Command::Scale(options) => experiments::run_scale(&options),
        Command::Verify(options) => experiments::run_verify(&options),
        Command::Origin(options) => experiments::serve_origin(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output wants no more.
        Err(error) if is_closed_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("skep-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_up(up: &Up) -> Result<(), Failure> {
    let bed = Bed::new(&topology(up)?)?;
    if let Some(address) = up.host {
        bed.to_host(address)?;
    }
    for note in bed.notes() {
        eprintln!("skep-lab: {note}");
    }
    show(&bed.info())?;
    writeln!(io::stdout(), "skep-lab: bed {} is up, Ctrl-C ends it", bed.info().slot)?;
    wait_for_end()?;
    Ok(())
}

/// The file's topology, overridden by the options.
fn topology(up: &Up) -> Result<Topology, Failure> {
    let mut topology = match &up.topology {
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            Topology::from_toml(&text).map_err(|error| format!("{}: {error}", path.display()))?
        }
        None => Topology::default(),
    };
    for (count, option) in [
        (&mut topology.clients, up.clients),
        (&mut topology.dispatchers, up.dispatchers),
        (&mut topology.nodes, up.nodes),
    ] {
        *count = option.unwrap_or(*count);
    }
    topology.router |= up.router;
    topology.origin |= up.origin;
    topology.frames = match up.frames {
        None => topology.frames,
        Some(FramesArg::Wire) => Frames::Wire,
        Some(FramesArg::Large) => Frames::Large,
    };
    Ok(topology)
}

/// Waits for SIGINT or SIGTERM.
fn wait_for_end() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    })
}

fn run_exec(bed: Option<u16>, name: &str, command: &[String]) -> Result<(), Failure> {
    let bed = choose(skep_testbed::beds()?, bed)?;
    let machine = bed.machines.iter().find(|machine| machine.name == name);
    let machine = machine.ok_or_else(|| {
        let names: Vec<_> = bed.machines.iter().map(|it| it.name.as_str()).collect();
        format!("there is no machine {name} in bed {}: it has {}", bed.slot, names.join(", "))
    })?;
    let [program, arguments @ ..] = command else { return Err("no command".into()) };
    let error = skep_testbed::command_in(machine, program)?.args(arguments).exec();
    Err(format!("cannot run `{program}` in {name}: {error}").into())
}

/// The bed with this number, or the only one.
fn choose(mut beds: Vec<BedInfo>, slot: Option<u16>) -> Result<BedInfo, Failure> {
    let numbers = beds.iter().map(|bed| bed.slot.to_string()).collect::<Vec<_>>().join(", ");
    beds.retain(|bed| slot.is_none_or(|slot| bed.slot == slot));
    match (beds.len(), slot) {
        (1, _) => Ok(beds.remove(0)),
        (0, Some(slot)) => Err(format!("there is no bed {slot}; beds: [{numbers}]").into()),
        (0, None) => Err("there is no bed: make one by `skep-lab up`".into()),
        _ => Err(format!("there are beds {numbers}: say which by --bed").into()),
    }
}

fn run_list(json: bool) -> Result<(), Failure> {
    let beds = skep_testbed::beds()?;
    if json {
        writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&beds)?)?;
        return Ok(());
    }
    for bed in &beds {
        writeln!(io::stdout(), "bed {} of process {}", bed.slot, bed.owner)?;
        show(bed)?;
    }
    if beds.is_empty() {
        writeln!(io::stdout(), "no beds")?;
    }
    Ok(())
}

/// Prints its machines, one per line, with the command to enter each.
fn show(bed: &BedInfo) -> io::Result<()> {
    let enter = |pid: Option<u32>| match pid {
        Some(pid) => format!("nsenter --target {pid} --net --mount"),
        None => "killed".to_owned(),
    };
    let mut out = io::stdout().lock();
    for MachineInfo { name, ipv4, ipv6, mac, pid, .. } in &bed.machines {
        let (ipv4, ipv6) = (ipv4.to_string(), ipv6.to_string());
        writeln!(out, "  {name:<13} {ipv4:<15} {ipv6:<24} {mac}  {}", enter(*pid))?;
    }
    writeln!(out, "  {:<13} {:<59}  {}", "(bridges)", "", enter(Some(bed.switch)))
}

fn run_clean() -> Result<(), Failure> {
    let cleaned = skep_testbed::clean()?;
    for slot in &cleaned {
        writeln!(io::stdout(), "cleaned up after bed {slot}")?;
    }
    if cleaned.is_empty() {
        writeln!(io::stdout(), "nothing to clean up")?;
    }
    Ok(())
}

fn is_closed_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
