//! A dispatcher's persistent state: a file of its own, and an etcd if the config has one.

use skep_config::Config;
use skep_store::{Store, StoreSettings};

/// See the module.
pub(crate) struct Stores {
    /// A file of this machine: for what must be stored before it is used.
    pub(crate) local: Store,
    /// The store that dispatchers share: polled, not waited for.
    pub(crate) shared: Option<Store>,
}

impl Stores {
    /// Opens those of the dispatcher `name`.
    pub(crate) fn open(config: &Config, name: &str) -> anyhow::Result<Self> {
        let file = config.state_dir.join(format!("{name}.redb"));
        let local = Store::open(&StoreSettings::Embedded { file })?;
        let etcd = StoreSettings::Etcd {
            endpoints: config.etcd.endpoints.iter().map(|it| format!("http://{it}")).collect(),
            cluster: config.cluster.clone(),
        };
        let is_shared = config.store == skep_config::StoreKind::Etcd;
        let shared = is_shared.then(|| Store::open(&etcd)).transpose()?;
        Ok(Self { local, shared })
    }

    /// The greatest epoch in any of them; `None` if that of this machine cannot be read. An etcd that
    /// does not answer counts as 0: the other dispatchers' heartbeats have the epoch.
    pub(crate) fn last_epoch(&self) -> Option<u64> {
        let local = last_epoch(&self.local);
        let shared = self.shared.as_ref().and_then(last_epoch);
        local.map(|local| local.max(shared.unwrap_or(0)))
    }
}

fn last_epoch(store: &Store) -> Option<u64> {
    let epoch = store.last_epoch().wait();
    epoch.inspect_err(|error| tracing::warn!("the last epoch is not known: {error}")).ok()
}
