//! Reads the config of processes that have more rights than the serving user, who must not control its content.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use skep_cli::load_real_config;
use skep_config::Config;
use skep_guard::{User, trust};

/// A config that a certain user could neither change nor replace when it was read.
pub(crate) struct TrustedConfig {
    pub(crate) config: Config,
    /// Where it was read: this path contains no links.
    pub(crate) real: PathBuf,
    /// That user; `None`: no check was needed.
    pub(crate) user: Option<User>,
}

impl TrustedConfig {
    /// Reads `file`, called `what` in messages. `user_of` returns the user who must not be able to change a config.
    ///
    /// The file that is read is the file that was checked: a link may change between the two, a checked real path cannot.
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
        // The file may have changed between the first reading and the check.
        let config = load_real_config(&real, file)?;
        ensure!(user_of(&config)?.as_ref() == Some(&user), "{what} was changed while it was read");
        Ok(Self { config, real, user: Some(user) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::cell::Cell;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn write(file: &Path, service: &str) {
        let text = format!(
            "[[dispatcher]]\nname = 'd1'\n[[node]]\nname = 'n1'\naddress = '127.0.0.1:8001'\n\
             [[service]]\nname = '{service}'\nlisten = '127.0.0.1:9001'\n[[site]]\nroot = 'site'\n"
        );
        fs::write(file, text).unwrap();
    }

    #[test]
    fn a_link_that_leads_elsewhere_during_the_check_changes_nothing() {
        let top = tempfile::tempdir().unwrap();
        let [safe, open] = ["safe", "open"].map(|name| top.path().join(name));
        for (folder, mode) in [(&safe, 0o755), (&open, 0o777)] {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        let [good, evil, link] =
            [safe.join("skep.toml"), open.join("evil.toml"), open.join("skep.toml")];
        write(&good, "good");
        write(&evil, "evil");
        symlink(&good, &link).unwrap();
        let user = User { name: "s".into(), uid: 70_000, gid: 70_000, groups: vec![] };
        let is_first = Cell::new(true);
        let load = || {
            TrustedConfig::load("the config", &link, |_| {
                if is_first.replace(false) {
                    fs::remove_file(&link).unwrap();
                    symlink(&evil, &link).unwrap();
                }
                Ok(Some(user.clone()))
            })
        };
        let loaded = load().unwrap();
        assert_eq!(loaded.config.services[0].name, "good");
        assert_eq!(loaded.real, fs::canonicalize(&good).unwrap());
        // Where the daemon, which knows the link alone, takes them to be.
        assert_eq!(
            loaded.config.sites[0].backend.root.as_deref(),
            Some(open.join("site").as_path())
        );
        assert!(load().is_err(), "it leads to what that user could have written");
    }
}
