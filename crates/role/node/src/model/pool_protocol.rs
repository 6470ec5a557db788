//! The protocol of a pool's servers, as configured.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skep_config::{AjpConfig, FcgiConfig, PoolConfig, PoolProtocol, ScriptWord};
use skep_proxy::{AjpSpec, FcgiSpec, MemberProtocol, PingSettings, ScriptSpec, Secret};

use crate::limits::SECRET_BYTES_MAX;

/// A pool cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The secret is missing or not readable.
    #[error(
        "cannot read the secret of pool {pool:?} in {}: {cause}. Expected a file that this user may \
         read",
        path.display()
    )]
    SecretUnreadable { pool: String, path: PathBuf, cause: io::Error },
    /// All users of this machine may read it.
    #[error(
        "the secret of pool {pool:?} in {} can be read by everybody. Expected mode 0640 or less: \
         chmod o= {}",
        path.display(),
        path.display()
    )]
    SecretPublic { pool: String, path: PathBuf },
    /// It is empty or invalid.
    #[error(
        "no secret of pool {pool:?} in {}. Expected one line of 1 to {SECRET_BYTES_MAX} visible \
         characters",
        path.display()
    )]
    SecretMalformed { pool: String, path: PathBuf },
}

/// The protocol of the servers of `pool`.
///
/// # Errors
/// A secret cannot be read.
pub(crate) fn protocol(pool: &PoolConfig) -> Result<MemberProtocol, PoolError> {
    Ok(match pool.protocol {
        PoolProtocol::Http => MemberProtocol::Http,
        PoolProtocol::Fcgi => MemberProtocol::Fcgi(Arc::new(fcgi(&pool.fastcgi))),
        PoolProtocol::Ajp => MemberProtocol::Ajp(Arc::new(ajp(&pool.name, &pool.ajp)?)),
    })
}

/// The suffix of file names that `pool` runs as scripts.
pub(crate) fn scripts(pool: &PoolConfig) -> Option<Box<[u8]>> {
    let has_scripts =
        pool.protocol == PoolProtocol::Fcgi && pool.fastcgi.script != ScriptWord::Below;
    has_scripts.then(|| pool.fastcgi.extension.as_bytes().into())
}

fn fcgi(config: &FcgiConfig) -> FcgiSpec {
    let bytes = |text: &str| text.as_bytes().into();
    let root = config.root.as_deref().map_or(&b""[..], |root| root.as_os_str().as_bytes());
    FcgiSpec {
        root: root.strip_suffix(b"/").unwrap_or(root).into(),
        script: match config.script {
            ScriptWord::Extension => ScriptSpec::Extension {
                extension: bytes(&config.extension),
                index: bytes(&config.index),
            },
            ScriptWord::FrontController => ScriptSpec::FrontController {
                extension: bytes(&config.extension),
                front: bytes(&format!("/{}", config.index)),
            },
            ScriptWord::Always => ScriptSpec::Always(bytes(&format!("/{}", config.index))),
            ScriptWord::Below => ScriptSpec::Below {
                mount: bytes(config.mount.as_deref().unwrap_or_default().trim_end_matches('/')),
            },
        },
        params: config
            .params
            .iter()
            .cloned()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        software: concat!("skep/", env!("CARGO_PKG_VERSION")).as_bytes().into(),
        keep_conn: config.keep_conn,
        collect_bytes_max: config.collect_bytes_max.unwrap_or(u64::MAX),
    }
}

fn ajp(pool: &str, config: &AjpConfig) -> Result<AjpSpec, PoolError> {
    let secret = config.secret_file.as_deref().map(|path| read_secret(pool, path)).transpose()?;
    let ping = PingSettings { idle_ms: config.ping_idle_ms, timeout_ms: config.ping_timeout_ms };
    Ok(AjpSpec { packet_bytes_max: config.packet_bytes_max as usize, secret, ping })
}

fn read_secret(pool: &str, path: &Path) -> Result<Secret, PoolError> {
    read_line(pool, path).map(|line| Secret::new(line.as_bytes()))
}

/// Reads the only line of a file that must not be readable by all users.
///
/// # Errors
/// [`PoolError`].
pub(crate) fn read_line(pool: &str, path: &Path) -> Result<String, PoolError> {
    let (pool, path) = (pool.to_owned(), path.to_owned());
    let read = std::fs::metadata(&path)
        .and_then(|data| Ok((data.permissions().mode(), std::fs::read_to_string(&path)?)));
    let (mode, text) = match read {
        Ok(read) => read,
        Err(cause) => return Err(PoolError::SecretUnreadable { pool, path, cause }),
    };
    if mode & 0o007 != 0 {
        return Err(PoolError::SecretPublic { pool, path });
    }
    let secret = text.trim_end_matches(['\n', '\r']);
    let is_secret = (1..=SECRET_BYTES_MAX).contains(&secret.len())
        && !secret.bytes().any(|byte| byte.is_ascii_control());
    match is_secret {
        true => Ok(secret.to_owned()),
        false => Err(PoolError::SecretMalformed { pool, path }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_secret_is_one_line_that_not_everybody_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let read = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read_secret("app", &path)
        };
        assert_eq!(read("not known\n", 0o640).unwrap(), Secret::new(b"not known"));
        assert!(!format!("{:?}", read("not known", 0o600).unwrap()).contains("known"));
        let public = read("a", 0o644).unwrap_err().to_string();
        assert!(public.contains("\"app\"") && public.contains("chmod o="), "{public}");
        for text in ["", "\n", "a\nb", "a\0"] {
            assert!(
                matches!(read(text, 0o600), Err(PoolError::SecretMalformed { .. })),
                "{text:?}"
            );
        }
        let missing = read_secret("app", Path::new("/nowhere/secret"));
        assert!(matches!(missing, Err(PoolError::SecretUnreadable { .. })));
    }
}
