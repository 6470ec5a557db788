//! Reads the config of processes that may do more than the serving user, who must not decide what it says.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use skep_cli::load_real_config;
use skep_config::Config;
use skep_guard::{User, trust};

/// A config that a user could not change when it was read, nor what its path names.
pub(crate) struct TrustedConfig {
    pub(crate) config: Config,
    /// Where it was read: no link is on this path.
    pub(crate) real: PathBuf,
    /// That user; `None`: there is nobody whom it has to be kept from.
    pub(crate) user: Option<User>,
}

impl TrustedConfig {
    /// Reads `file`, which `what` names in messages. `user_of` says for a config whom it has to be kept from.
    ///
    /// What it is checked for is what is read: a link may lead elsewhere a moment later, and a path that is checked cannot.
    pub(crate) fn load(
        what: &'static str,
        file: &Path,
        user_of: impl Fn(&Config) -> anyhow::Result<Option<User>>,
    ) -> anyhow::Result<Self> {
        let real = fs::canonicalize(file)
            .with_context(|| format!("cannot read config file {}", file.display()))?;
        let config = load_real_config(&real, file)?;
        let Some(user) = user_of(&config)? else {
            return Ok(Self { config, real, user: None });
        };
        trust::check_unchangeable(what, &real, &user)?;
        // What was read before may not have been there any more.
        let config = load_real_config(&real, file)?;
        ensure!(user_of(&config)?.as_ref() == Some(&user), "{what} was changed while it was read");
        Ok(Self { config, real, user: Some(user) })
    }
}
