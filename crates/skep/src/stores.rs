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

    /// The greatest epoch in any of them. An etcd that does not answer counts as 0: the other
    /// dispatchers' heartbeats have the epoch.
    pub(crate) fn last_epoch(&self) -> u64 {
        let asked = [Some(&self.local), self.shared.as_ref()];
        let epochs = asked.into_iter().flatten().map(|store| {
            store.last_epoch().wait().unwrap_or_else(|error| {
                tracing::warn!("the last epoch is not known: {error}");
                0
            })
        });
        epochs.max().unwrap_or(0)
    }
}
