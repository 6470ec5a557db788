//! A dispatcher's persistent state: a separate file, and an etcd if the config has one.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use skep_config::Config;
use skep_store::{Store, StoreOpenError, StoreSettings};

pub(crate) struct Stores {
    /// A file of this machine, for what must be stored before it is used.
    pub(crate) local: Store,
    /// The store that dispatchers share: polled, never waited for.
    pub(crate) shared: Option<Store>,
}

impl Stores {
    /// Opens the stores of the dispatcher `name`.
    pub(crate) fn open(config: &Config, name: &str) -> anyhow::Result<Self> {
        let file = config.state_dir.join(format!("{name}.redb"));
        let local = open_local(file)?;
        let etcd = StoreSettings::Etcd {
            endpoints: config.etcd.endpoints.iter().map(|it| format!("http://{it}")).collect(),
            cluster: config.cluster.clone(),
        };
        let is_shared = config.store == skep_config::StoreKind::Etcd;
        let shared = is_shared.then(|| Store::open(&etcd)).transpose()?;
        Ok(Self { local, shared })
    }

    /// The greatest epoch in any store, or 0. A store that does not answer also counts as 0: the other
    /// machines' heartbeats carry the epoch, and each process skips some.
    pub(crate) fn last_epoch(&self) -> u64 {
        let local = last_epoch(&self.local);
        local.max(self.shared.as_ref().map_or(0, last_epoch))
    }
}

/// Opens the file of this machine. A damaged file must not keep a dispatcher from serving: what is lost is
/// restored from what other machines have.
fn open_local(file: PathBuf) -> anyhow::Result<Store> {
    let settings = StoreSettings::Embedded { file: file.clone() };
    let damage = match Store::open(&settings) {
        Ok(store) => return Ok(store),
        Err(damage @ StoreOpenError::Corrupt { .. }) => damage,
        Err(error) => return Err(error.into()),
    };
    let aside = file.with_extension("redb.damaged");
    fs::rename(&file, &aside)
        .with_context(|| format!("{damage}; it cannot be moved to {}", aside.display()))?;
    tracing::error!("{damage}: moved to {}, a new one is begun", aside.display());
    Ok(Store::open(&settings)?)
}

fn last_epoch(store: &Store) -> u64 {
    let epoch = store.last_epoch().wait();
    epoch.unwrap_or_else(|error| {
        tracing::warn!("the last epoch is not known: {error}");
        0
    })
}
