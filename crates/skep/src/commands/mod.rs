//! One file a command.

mod config;
mod run;
mod serve;

pub(crate) use config::load as load_config;

use crate::cli::{Cli, Command};

/// Does what was typed.
pub(crate) fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Serve(args) => serve::serve(args),
        Command::Run(args) => run::run(&args),
        Command::Config(command) => config::config(command),
    }
}
