//! One file a command.

mod config;
mod netguard;
mod node;
mod options;
mod purge;
mod reload;
mod run;
mod serve;
mod service;
mod status;
mod target;

pub(crate) use config::load as load_config;
pub(crate) use options::check as check_options;

use std::io::Write;

use anyhow::Context;
use skep_console::Answer;

use crate::cli::{Cli, Command};

/// Does what was typed.
pub(crate) fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Serve(args) => serve::serve(args),
        Command::Up(args) => crate::up::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Status(args) => status::status(&args),
        Command::Top(args) => crate::top::run(&args),
        Command::Node(command) => node::node(command),
        Command::Service(command) => service::service(command),
        Command::Purge(args) => purge::purge(args),
        Command::Reload(args) => reload::reload(&args),
        Command::Config(command) => config::config(command),
        Command::Netguard(args) => netguard::run(&args),
    }
}

/// Writes `text` to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the answer")
}

/// Writes an answer of the API as it came.
fn print_json(answer: &Answer) -> anyhow::Result<()> {
    print(&format!("{}\n", answer.text().trim_end()))
}
