//! Ports on this machine that are ours for as long as a cluster lives.
//!
//! A port can't be kept by holding it, since the child is to bind it; so a
//! locked file stands for it among the clusters of one user, and a look
//! whether it is free is enough for the rest.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::limits::PORTS;

/// Gives out ports.
pub(super) struct Ports {
    folder: PathBuf,
    next: u16,
}

/// A port that is ours until this is dropped.
pub(super) struct Claim {
    address: SocketAddr,
    _lock: File,
}

impl Claim {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Ports {
    /// Ports whose claims are kept below `base`.
    pub(super) fn new(base: &Path) -> anyhow::Result<Self> {
        let folder = base.join("ports");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // Clusters start at different places, so that ports are not reused at
        // once: a browser may remember what it saw there.
        let count = PORTS.end() - PORTS.start() + 1;
        let offset = std::process::id() % u32::from(count);
        Ok(Self { folder, next: PORTS.start() + u16::try_from(offset).unwrap_or(0) })
    }

    /// A free port of `ip`.
    pub(super) fn any(&mut self, ip: IpAddr) -> anyhow::Result<Claim> {
        for _ in PORTS {
            let address = SocketAddr::new(ip, self.next);
            self.next = if self.next == *PORTS.end() { *PORTS.start() } else { self.next + 1 };
            if let Some(claim) = self.exactly(address)? {
                return Ok(claim);
            }
        }
        bail!("no free port from {} to {} on {ip}", PORTS.start(), PORTS.end());
    }

    /// This address, or `None` if it is not to be had.
    pub(super) fn exactly(&self, address: SocketAddr) -> anyhow::Result<Option<Claim>> {
        let path = self.folder.join(address.port().to_string());
        let lock = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let is_ours = lock.try_lock().is_ok() && skep_serve::bind(address, 1).is_ok();
        Ok(is_ours.then_some(Claim { address, _lock: lock }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn a_port_is_given_once_and_again_when_it_came_back() {
        let base = tempfile::tempdir().unwrap();
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut ports = Ports::new(base.path()).unwrap();
        let claims: Vec<Claim> = (0..20).map(|_| ports.any(localhost).unwrap()).collect();
        let mut numbers: Vec<u16> = claims.iter().map(|claim| claim.address().port()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 20);
        assert!(numbers.iter().all(|port| PORTS.contains(port)));

        let address = claims[0].address();
        assert!(ports.exactly(address).unwrap().is_none());
        drop(claims);
        let claim = ports.exactly(address).unwrap();
        assert_eq!(claim.unwrap().address(), address);
        let _other = TcpListener::bind(address).unwrap();
        assert!(ports.exactly(address).unwrap().is_none());
    }
}
