//! The last epoch of this dispatcher, in a file that a restart finds.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use skep_config::Config;

/// A file with one number.
pub(crate) struct EpochFile(PathBuf);

impl EpochFile {
    /// The file of the dispatcher `name`, and what it says; 0 if there is none.
    pub(crate) fn open(config: &Config, name: &str) -> anyhow::Result<(Self, u64)> {
        let path = config.state_dir.join(format!("{name}.epoch"));
        let said = || {
            format!(
                "{} should hold a number: remove it, if no other dispatcher runs",
                path.display()
            )
        };
        let last = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().with_context(said)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        Ok((Self(path), last))
    }

    /// Keeps `epoch`, whole or not at all.
    pub(crate) fn keep(&mut self, epoch: u64) -> io::Result<()> {
        let new = self.0.with_extension("epoch.new");
        let mut file = File::create(&new)?;
        writeln!(file, "{epoch}")?;
        file.sync_all()?;
        fs::rename(&new, &self.0)
    }
}
