//! `skep config`: check, show, explain.

use std::io::Write;

use anyhow::{Context, bail};
use skep_config::Config;

use crate::arguments::ConfigCommand;
use crate::config_file::load;
use crate::show::plural;

pub(crate) fn config(command: ConfigCommand) -> anyhow::Result<()> {
    let text = match command {
        ConfigCommand::Check { file } => {
            let config = load(&file)?;
            let counts = [
                plural(config.services.len() as u64, "service"),
                plural(config.nodes.len() as u64, "node"),
                plural(config.sites.len() as u64, "site"),
                plural(config.pools.len() as u64, "pool"),
            ];
            format!("{}: ok ({})\n", file.display(), counts.join(", "))
        }
        ConfigCommand::Show { file: Some(file) } => load(&file)?.to_toml_full(),
        ConfigCommand::Show { file: None } => Config::default().to_toml_full(),
        ConfigCommand::Reference { setting: None } => skep_config::settings_help(),
        ConfigCommand::Reference { setting: Some(path) } => match skep_config::setting(&path) {
            Some(setting) => setting.help(),
            None => bail!("no setting {path:?}; `skep config reference` lists them all"),
        },
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}
