//! Reads a config from its file.

use std::path::Path;

use anyhow::Context;
use skep_config::Config;

/// Reads and checks a config file. Relative paths in it are relative to its folder.
///
/// # Errors
/// States all faults at once, each with its location.
pub fn load(file: &Path) -> anyhow::Result<Config> {
    load_real(file, file)
}

/// The same of a file that lies at `real`: the path `file` is for messages, and relative paths begin at its folder.
///
/// # Errors
/// The same.
pub fn load_real(real: &Path, file: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(real)
        .with_context(|| format!("cannot read config file {}", file.display()))?;
    let mut config = Config::parse(&file.display().to_string(), &text)
        .map_err(|errors| anyhow::anyhow!("config refused\n{errors}"))?;
    let folder = file.parent().filter(|it| *it != Path::new("")).unwrap_or(Path::new("."));
    let folder = std::path::absolute(folder).context("cannot find the working directory")?;
    config.resolve_paths(&folder);
    Ok(config)
}
