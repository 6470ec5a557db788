//! A dispatcher's persistent state: a file of its own, and an etcd if the config has one.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use skep_config::Config;
use skep_store::{Store, StoreOpenError, StoreSettings};

/// See the module.
pub(crate) struct Stores {
    /// A file of this machine: for what must be stored before it is used.
    pub(crate) local: Store,
    /// The store that dispatchers share: polled, not waited for.
    pub(crate) shared: Option<Store>,
    /// The file was damaged: what it held is lost.
    is_new: bool,
}

impl Stores {
    /// Opens those of the dispatcher `name`.
    pub(crate) fn open(config: &Config, name: &str) -> anyhow::Result<Self> {
        let file = config.state_dir.join(format!("{name}.redb"));
        let (local, is_new) = open_local(file)?;
        let etcd = StoreSettings::Etcd {
            endpoints: config.etcd.endpoints.iter().map(|it| format!("http://{it}")).collect(),
            cluster: config.cluster.clone(),
        };
        let is_shared = config.store == skep_config::StoreKind::Etcd;
        let shared = is_shared.then(|| Store::open(&etcd)).transpose()?;
        Ok(Self { local, shared, is_new })
    }

    /// The greatest epoch in any of them; `None` if that of this machine is lost. An etcd that does
    /// not answer counts as 0: the other dispatchers' heartbeats have the epoch.
    pub(crate) fn last_epoch(&self) -> Option<u64> {
        let local = last_epoch(&self.local).filter(|_| !self.is_new);
        let shared = self.shared.as_ref().and_then(last_epoch);
        local.map(|local| local.max(shared.unwrap_or(0)))
    }
}

/// Opens the file of this machine. Damage must not keep a dispatcher from serving: what is lost is
/// made good by what other machines know. Also returns whether the file was damaged.
fn open_local(file: PathBuf) -> anyhow::Result<(Store, bool)> {
    let settings = StoreSettings::Embedded { file: file.clone() };
    let damage = match Store::open(&settings) {
        Ok(store) => return Ok((store, false)),
        Err(damage @ StoreOpenError::Corrupt { .. }) => damage,
        Err(error) => return Err(error.into()),
    };
    let aside = file.with_extension("redb.damaged");
    fs::rename(&file, &aside)
        .with_context(|| format!("{damage}; it cannot be moved to {}", aside.display()))?;
    tracing::error!("{damage}: moved to {}, a new one is begun", aside.display());
    Ok((Store::open(&settings)?, true))
}

fn last_epoch(store: &Store) -> Option<u64> {
    let epoch = store.last_epoch().wait();
    epoch.inspect_err(|error| tracing::warn!("the last epoch is not known: {error}")).ok()
}
