//! Arguments of `skep pool`.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use skep_config::ConnectionsScope;
use skep_config::limits::SERVER_CONNECTIONS_MAX;
use skep_console::SERVER_TEST_MS_MAX;
use skep_units::{ServerAddress, WEIGHT_MAX};

use super::{StatusArgs, Target, duration, time_up_to};

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List the pools and their servers, with the counts of all nodes added up
    List(StatusArgs),
    /// Add a server at all nodes, until it is removed or its pool is removed from the config
    Add {
        #[command(flatten)]
        server: OneServer,
        /// Where nodes reach it: IP:PORT, or unix: and the path of a socket
        #[arg(value_name = "ADDRESS")]
        address: ServerAddress,
        /// Its share of the work under weighted policies
        #[arg(long, value_name = "N", default_value_t = 1,
              value_parser = clap::value_parser!(u32).range(1..=i64::from(WEIGHT_MAX)))]
        weight: u32,
        /// Maximum number of requests and upgraded connections at a time
        #[arg(long, value_name = "N", default_value_t = 256,
              value_parser = clap::value_parser!(u32).range(1..=i64::from(SERVER_CONNECTIONS_MAX)))]
        connections_max: u32,
        /// What --connections-max applies to
        #[arg(long, value_name = "WHOSE", default_value = "auto",
              value_parser = PossibleValuesParser::new(ConnectionsScope::WORDS))]
        connections_scope: String,
        /// Address of its status, if it differs from ADDRESS
        #[arg(long, value_name = "ADDRESS")]
        status_address: Option<ServerAddress>,
    },
    /// Remove a server at all nodes; it is gone when its last request has ended
    Remove {
        #[command(flatten)]
        server: OneServer,
        /// Wait until it is gone, so that its name is free
        #[arg(long)]
        wait: bool,
        /// Time for its requests to complete
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
        timeout: u64,
    },
    /// Stop sending new requests to a server, except those of its sessions, at all nodes; in-flight requests
    /// complete
    Drain {
        #[command(flatten)]
        server: OneServer,
    },
    /// Send requests to a drained server again, at all nodes
    Resume {
        #[command(flatten)]
        server: OneServer,
    },
    /// Change a server's share of the work under weighted policies, at all nodes
    Weight {
        #[command(flatten)]
        server: OneServer,
        /// Its weight
        #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(WEIGHT_MAX)))]
        weight: u32,
    },
    /// Send a GET to a server from this node, and show its answer and the times
    Test {
        #[command(flatten)]
        server: OneServer,
        /// Path and query, as the server sees them [default: /]
        #[arg(long, value_name = "PATH")]
        path: Option<String>,
        /// Host field [default: that of the pool's checks, else the server's address]
        #[arg(long, value_name = "HOST")]
        host: Option<String>,
        /// Send what the pool's checks send, and show how they judge the answer
        #[arg(long, conflicts_with_all = ["path", "host"])]
        health: bool,
        /// Maximum time for the answer
        #[arg(long, value_name = "TIME", default_value = "10s", value_parser = answer_time)]
        timeout: u64,
    },
}

/// A server of a pool, and how to say what became of it.
#[derive(Args, Debug)]
pub(crate) struct OneServer {
    /// Name of the pool
    pub(crate) pool: String,
    /// Name of the server
    pub(crate) name: String,
    /// Print the API's response, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// At most as long as the API allows.
fn answer_time(text: &str) -> Result<u64, String> {
    time_up_to(text, SERVER_TEST_MS_MAX)
}
