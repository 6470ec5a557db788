//! The command line: its arguments ([`arguments`]) and its output for people.
//!
//! `commands/` queries running processes, through their management API only; [`show`] formats the answers as
//! text, [`top`] does so repeatedly. [`up`] starts a cluster on this machine. Serving processes are not
//! created here: [`run`] returns such a command as a [`Job`] to the composition root.

#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod config_file;
mod log_file;
mod options;
mod program;
mod show;
mod signals;
mod target;
mod top;
mod up;

use clap::Parser;

pub use arguments::{NetguardArgs, PowerArgs, RunArgs, ServeArgs};
pub use config_file::{load as load_config, load_real as load_real_config};
pub use options::check as check_options;
pub use program::this_program;
pub use signals::{SignalAction, Signals, announce};

use arguments::{Cli, Command};

/// A process that the composition root is to create.
#[derive(Debug)]
pub enum Job {
    /// One node, without a config file.
    Serve(ServeArgs),
    /// The daemon of a config file.
    Run(RunArgs),
    /// A daemon's netguard.
    Netguard(NetguardArgs),
    /// The process that runs the commands which switch machines, for a daemon.
    Power(PowerArgs),
}

/// Runs the command, or returns the process to be created. Invalid arguments end this process with a message
/// and exit code 2.
///
/// # Errors
/// Returns a sentence, for people.
pub fn run() -> anyhow::Result<Option<Job>> {
    match Cli::parse().command {
        Command::Serve(args) => return Ok(Some(Job::Serve(args))),
        Command::Run(args) => return Ok(Some(Job::Run(args))),
        Command::Netguard(args) => return Ok(Some(Job::Netguard(args))),
        Command::Power(args) => return Ok(Some(Job::Power(args))),
        Command::Up(args) => up::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Status(args) => commands::status(&args),
        Command::Node(command) => commands::node(command),
        Command::Service(command) => commands::service(command),
        Command::Policy(command) => commands::policy(command),
        Command::Pool(command) => commands::pool(command),
        Command::Purge(args) => commands::purge(args),
        Command::Cache(command) => commands::cache(command),
        Command::Reload(args) => commands::reload(&args),
        Command::Config(command) => commands::config(command),
        Command::Bench(command) => commands::bench(command),
        Command::Probe(command) => commands::probe(command),
    }?;
    Ok(None)
}
