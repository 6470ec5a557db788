//! What can be typed. Settings of a config file are not repeated here: they
//! are in one table, and `skep config reference` prints it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

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
    Serve(Serve),
    /// Run what a config file says: the daemon
    Run(Run),
    /// Check, show or explain config files
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Directory to serve
    pub(crate) dir: PathBuf,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Memory for files, such as 256MiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    pub(crate) cache_size: u64,
    /// Worker threads; 0 is one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: u32,
    /// Where to log requests: a file, `-` for standard output, or `off`
    #[arg(long, value_name = "PATH|-|off", default_value = "off")]
    pub(crate) access_log: String,
    /// List directories that have no index file
    #[arg(long)]
    pub(crate) listing: bool,
    /// Page that answers for paths without a file, such as /index.html
    #[arg(long, value_name = "PATH")]
    pub(crate) spa: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Config file of the cluster
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Which dispatcher or node of the file this process is; without it, all
    /// of them
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a file; says file, line, column, what was expected, and a hint
    Check {
        /// Config file
        file: PathBuf,
    },
    /// Show what is in force: every setting, defaults marked
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

fn size(text: &str) -> Result<u64, String> {
    skep_config::parse_size(text)
        .map_err(|hint| hint.unwrap_or_else(|| "expected a size such as 64MiB".to_string()))
}
