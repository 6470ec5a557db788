//! The command-line arguments. Settings of a config file are not repeated here: they are in one
//! table, and `skep config reference` prints it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use skep_config::{DispatchMode, POLICY_NAMES};
use skep_console::PURGE_MS_MAX;
use skep_units::WEIGHT_MAX;

/// One web server made of many machines.
#[derive(Debug, Parser)]
#[command(name = "skep", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory: one node, no config file
    Serve(ServeArgs),
    /// Run a complete cluster on this machine until Ctrl-C
    Up(UpArgs),
    /// Run the daemon with a config file
    Run(RunArgs),
    /// Show services and nodes with their state and load; with --pools, the servers of applications
    Status(ShowArgs),
    /// Watch a cluster live
    Top(TopArgs),
    /// List, drain, resume, add and remove nodes, and change their weights
    #[command(subcommand)]
    Node(NodeCommand),
    /// List services
    #[command(subcommand)]
    Service(ServiceCommand),
    /// List and explain policies, find the one that suits a site, and change or compare those of a service
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// List, add, remove, drain, resume and test the servers of applications
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Purge URLs, prefixes or tags from the memory of all nodes
    Purge(PurgeArgs),
    /// Explain what nodes keep in memory, and why
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Make a process reload its config file
    Reload(ReloadArgs),
    /// Check, show or explain config files
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Load a site with a published workload, checking every body, or with the requests of its log
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Measure the response times of URLs from this machine, and report on them
    #[command(subcommand)]
    Probe(ProbeCommand),
    /// Hold the privileges of a process in direct dispatch; `skep run` starts it
    Netguard(NetguardArgs),
    /// Run the commands that switch machines; `skep run` starts it
    #[command(hide = true)]
    Power(PowerArgs),
}

mod advise;
mod bench;
mod compare;
mod policy;
mod pool;
mod probe;

pub(crate) use advise::AdviseArgs;
pub(crate) use bench::{
    BenchCommand, BenchDataArgs, BenchHttp, BenchReplayArgs, BenchRunArgs, BenchWorkload,
};
pub(crate) use compare::{CompareAction, CompareArgs};
pub(crate) use policy::PolicyCommand;
pub(crate) use pool::{OneServer, PoolCommand};
pub(crate) use probe::{ProbeCommand, ProbeRunArgs};

/// Serve a directory: one node, no config file
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Directory to serve
    pub dir: PathBuf,
    /// Address to listen on; port 0 selects a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Memory for files, such as 256MiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    pub cache_size: u64,
    /// Worker threads; 0 is one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: u32,
    /// Where to log requests: a file, `-` for standard output, or `off`
    #[arg(long, value_name = "PATH|-|off", default_value = "off")]
    pub access_log: String,
    /// List directories that have no index file
    #[arg(long)]
    pub listing: bool,
    /// Page that is served for paths without a file, such as /index.html
    #[arg(long, value_name = "PATH")]
    pub spa: Option<String>,
    /// User to change to when started as root [default: skep, or nobody if there is no such user]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct UpArgs {
    /// Directory to serve
    pub(crate) dir: PathBuf,
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    pub(crate) nodes: u16,
    /// How a request gets to a node: proxy, redirect, direct or handoff (the last two need root:
    /// machines are network namespaces)
    #[arg(long, value_name = "MODE", default_value = "proxy", value_parser = dispatch)]
    pub(crate) dispatch: DispatchMode,
    /// Policy by which the node is chosen
    #[arg(long, value_name = "NAME", default_value = "round-robin",
          value_parser = PossibleValuesParser::new(POLICY_NAMES))]
    pub(crate) policy: String,
    /// Address for clients; port 0 selects a free one. With `--dispatch direct` only the port is used: the
    /// address is a virtual one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Add X-Skep-Node, the name of the node that answered, to each response
    #[arg(long)]
    pub(crate) node_header: bool,
    /// Memory of each node for files, such as 256MiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    pub(crate) cache_size: u64,
    /// Worker threads of each process; 0 is one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: u32,
    /// Where the processes log the requests that they answer: a file, `-` for
    /// standard output, or `off`
    #[arg(long, value_name = "PATH|-|off", default_value = "off")]
    pub(crate) access_log: String,
    /// Database to which samples of all processes and of this machine are recorded [default: none]
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Time that one sample covers
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    pub(crate) record_interval: u64,
    /// Address of the management API over TCP, or `off`; by default
    /// 127.0.0.1:7070 if that is free
    #[arg(long, value_name = "ADDR:PORT|off", value_parser = admin)]
    pub(crate) admin: Option<Admin>,
    /// User to change to when started as root [default: skep, or nobody if there is no such user]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Show everything that the processes log, not only warnings and errors
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Where `skep up` offers the management API over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admin {
    Off,
    On(SocketAddr),
}

/// Whom a command asks.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection options")]
pub(crate) struct Target {
    /// Control socket of a process
    #[arg(long, value_name = "PATH", conflicts_with_all = ["api", "config"])]
    pub(crate) socket: Option<PathBuf>,
    /// Management API over TCP, such as http://127.0.0.1:7070
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub(crate) api: Option<String>,
    /// File with the token for the API over TCP
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Config file of a cluster on this machine. Without any of these:
    /// $SKEP_SOCKET, else the newest `skep up`, else /var/lib/skep
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Print the API's response, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Steps of requests over time.
pub(crate) const SERIES_STEPS: [&str; 2] = ["10s", "1m"];

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// Show the servers of applications, as all nodes see them
    #[arg(long)]
    pub(crate) pools: bool,
    /// Show the requests in progress at servers of applications, of all nodes
    #[arg(long, conflicts_with = "pools")]
    pub(crate) requests: bool,
    /// Show the requests of all nodes over time, in total and to servers of applications: the last hour in
    /// steps of 10s, or the last 30 hours in steps of 1m
    #[arg(long, value_name = "STEP", conflicts_with_all = ["pools", "requests"],
          value_parser = PossibleValuesParser::new(SERIES_STEPS))]
    pub(crate) series: Option<String>,
    /// With --requests or --series: only those of the process that is asked
    #[arg(long)]
    pub(crate) process: bool,
    #[command(flatten)]
    pub(crate) status: StatusArgs,
}

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Refresh interval, such as 1s or 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: u64,
    /// Sort order of the nodes
    #[arg(long, value_name = "WHAT", default_value = "name")]
    pub(crate) sort: SortBy,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Sort order of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    Name,
    State,
    Rate,
    Load,
    Latency,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List the nodes
    List(StatusArgs),
    /// Stop sending new requests to a node; in-flight requests complete
    Drain {
        #[command(flatten)]
        node: OneNode,
        /// Wait until its last request has ended
        #[arg(long)]
        wait: bool,
        /// Maximum time to wait
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
        timeout: u64,
    },
    /// Send requests to a drained node again
    Resume {
        #[command(flatten)]
        node: OneNode,
    },
    /// Add a node, until it is removed or the dispatcher ends
    Add {
        #[command(flatten)]
        node: OneNode,
        /// Where the dispatcher reaches it
        #[arg(value_name = "ADDR:PORT")]
        address: SocketAddr,
        /// Its share of the work under weighted policies
        #[arg(long, value_name = "N", default_value_t = 1,
              value_parser = clap::value_parser!(u32).range(1..=i64::from(WEIGHT_MAX)))]
        weight: u32,
        /// Where redirects send clients, if not to that address
        #[arg(long, value_name = "HOST:PORT")]
        public_address: Option<String>,
    },
    /// Remove a node; it is gone when its last request has ended
    Remove {
        #[command(flatten)]
        node: OneNode,
        /// Wait until it is gone, so that its name is free
        #[arg(long)]
        wait: bool,
        /// Time for its requests to complete
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
        timeout: u64,
    },
    /// Change a node's share of the work under weighted policies
    Weight {
        #[command(flatten)]
        node: OneNode,
        /// Its share
        #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(WEIGHT_MAX)))]
        weight: u32,
    },
}

/// A node, and how to say what became of it.
#[derive(Args, Debug)]
pub(crate) struct OneNode {
    /// Name of the node
    pub(crate) name: String,
    /// Service of the node, if it has several and only one is meant
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    /// Print the API's response, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// List the services
    List(StatusArgs),
}

#[derive(Args, Debug)]
pub(crate) struct PurgeArgs {
    /// What to purge: /PATH, http://HOST/PATH, /PREFIX* for all paths with this prefix, or tag:NAME for what
    /// its origin has tagged (Surrogate-Key, Cache-Tag)
    #[arg(value_name = "WHAT", required = true, num_args = 1..=PURGES_MAX, value_parser = purge)]
    pub(crate) what: Vec<String>,
    /// Make it stale instead of removing it: it is then validated with its source, or used stale where its
    /// Cache-Control allows that
    #[arg(long)]
    pub(crate) soft: bool,
    /// Maximum time to wait for nodes
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = purge_time)]
    pub(crate) timeout: u64,
    /// Print the API's response, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Explain why each node keeps the response for a URL, or why not
    Explain(ExplainArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// http://HOST[:PORT]/PATH?QUERY, as a client requests it
    pub(crate) url: String,
    /// Method of the request
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    pub(crate) method: String,
    /// Header field of the request, such as 'Accept-Language: de'; may be repeated
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// Assume that the client sends the request to a node itself, not to a dispatcher that proxies
    #[arg(long)]
    pub(crate) direct: bool,
    /// Print the API's response, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Args, Debug)]
pub(crate) struct ReloadArgs {
    /// Print the API's response, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Run the daemon with a config file
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Config file of the cluster
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Which dispatcher or node of the file this process is; without it, all
    /// of them
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
    /// Exit when standard input is closed: with the process at its other end
    #[arg(long, hide = true)]
    pub leashed: bool,
}

/// Hold the privileges of a process in direct dispatch; `skep run` starts it
#[derive(Args, Debug)]
pub struct NetguardArgs {
    /// Config file of the cluster
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Dispatcher or node of the file that this netguard serves
    #[arg(long = "as", value_name = "NAME")]
    pub name: String,
    /// Remove what direct dispatch left on this machine: programs, virtual addresses, settings of the kernel;
    /// then exit
    #[arg(long)]
    pub clear: bool,
    /// Serve the process that holds the other end of standard input, and exit after it
    #[arg(long, hide = true)]
    pub leashed: bool,
}

/// Run the commands that switch machines; `skep run` starts it
#[derive(Args, Debug)]
pub struct PowerArgs {
    /// Config file of the cluster
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a file; prints file, line, column, the expected value, and a hint
    Check {
        /// Config file
        file: PathBuf,
    },
    /// Print every setting of a file, with the defaults of those that are not set
    Show {
        /// Config file; without it, the defaults
        file: Option<PathBuf>,
    },
    /// Explain a setting, or all of them
    Reference {
        /// A setting such as limits.head_bytes_max
        setting: Option<String>,
    },
}

/// Maximum number of nodes of `skep up`: each is a process with threads and memory.
const NODES_MAX: i64 = 64;

/// Minimum interval of samples of `skep top`, in milliseconds.
const INTERVAL_MS_MIN: u64 = 100;

/// Maximum interval of samples of `skep top`, in milliseconds.
const INTERVAL_MS_MAX: u64 = 60_000;

/// Maximum number of things purged by one command: as many as fit into one message.
const PURGES_MAX: usize = skep_wire::limits::PURGES_PER_MESSAGE_MAX;

fn size(text: &str) -> Result<u64, String> {
    skep_config::parse_size(text)
        .map_err(|hint| hint.unwrap_or_else(|| "expected a size such as 64MiB".to_string()))
}

fn duration(text: &str) -> Result<u64, String> {
    skep_config::parse_duration_ms(text)
        .map_err(|hint| hint.unwrap_or_else(|| "expected a time such as 30s".to_string()))
}

fn interval(text: &str) -> Result<u64, String> {
    let interval_ms = duration(text)?;
    match (INTERVAL_MS_MIN..=INTERVAL_MS_MAX).contains(&interval_ms) {
        true => Ok(interval_ms),
        false => Err("expected 100ms to 60s".to_owned()),
    }
}

/// Checks what to purge; returns the text unchanged.
fn purge(text: &str) -> Result<String, String> {
    skep_coordinator::parse_purge(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn purge_time(text: &str) -> Result<u64, String> {
    time_up_to(text, PURGE_MS_MAX)
}

fn time_up_to(text: &str, ms_max: u64) -> Result<u64, String> {
    let timeout_ms = duration(text)?;
    match (1..=ms_max).contains(&timeout_ms) {
        true => Ok(timeout_ms),
        false => Err(format!("expected 1ms to {}s", ms_max / 1000)),
    }
}

fn dispatch(text: &str) -> Result<DispatchMode, String> {
    let expected = || format!("expected one of: {}", DispatchMode::WORDS.join(", "));
    DispatchMode::from_word(text).ok_or_else(expected)
}

fn admin(text: &str) -> Result<Admin, String> {
    match text {
        "off" => Ok(Admin::Off),
        address => match address.parse() {
            Ok(address) => Ok(Admin::On(address)),
            Err(_) => Err("expected ADDR:PORT or off".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests;
