//! The command line: what can be typed ([`arguments`]), and what talks to people.
//!
//! `commands/` asks processes that run, by their management API and by nothing else;
//! [`show`] makes text of what they say, [`top`] does so again and again. [`up`] starts a
//! cluster on this machine. What serves is not made here: [`run`] hands such an order on
//! ([`Job`]), to the composition root.

#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod config_file;
mod options;
mod program;
mod show;
mod signals;
mod target;
mod top;
mod up;

use clap::Parser;

pub use arguments::{NetguardArgs, RunArgs, ServeArgs};
pub use config_file::load as load_config;
pub use options::check as check_options;
pub use program::this_program;
pub use signals::{Signals, Wish, announce};

use arguments::{Cli, Command};

/// A process that is to be made: what this crate leaves to the composition root.
#[derive(Debug)]
pub enum Job {
    /// One node, without a config file.
    Serve(ServeArgs),
    /// What a config file says.
    Run(RunArgs),
    /// The holder of a daemon's privileges.
    Netguard(NetguardArgs),
}

/// Does what was typed, or says which process it asks for. What makes no sense ends
/// this process, with a message and code 2.
///
/// # Errors
/// In a sentence, for people.
pub fn run() -> anyhow::Result<Option<Job>> {
    match Cli::parse().command {
        Command::Serve(args) => return Ok(Some(Job::Serve(args))),
        Command::Run(args) => return Ok(Some(Job::Run(args))),
        Command::Netguard(args) => return Ok(Some(Job::Netguard(args))),
        Command::Up(args) => up::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Status(args) => commands::status(&args),
        Command::Node(command) => commands::node(command),
        Command::Service(command) => commands::service(command),
        Command::Purge(args) => commands::purge(args),
        Command::Reload(args) => commands::reload(&args),
        Command::Config(command) => commands::config(command),
    }?;
    Ok(None)
}
