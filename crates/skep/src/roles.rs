//! The roles of a process in its cluster.

use skep_config::{Config, DispatcherConfig, NodeConfig};

#[derive(Clone, Debug)]
pub(crate) struct Roles {
    /// The name under which the process runs.
    pub(crate) name: String,
    /// The name of the node that it is, if it is one.
    pub(crate) node: Option<String>,
    /// Whether it dispatches the config's services.
    pub(crate) services: bool,
}

impl Roles {
    /// The entry of this process's node in the config.
    pub(crate) fn own_node<'a>(&self, config: &'a Config) -> Option<&'a NodeConfig> {
        config.node(self.node.as_deref()?)
    }

    /// The entry of this process's dispatcher in the config.
    pub(crate) fn own_dispatcher<'a>(&self, config: &'a Config) -> Option<&'a DispatcherConfig> {
        config.dispatcher(&self.name).filter(|_| self.services)
    }
}
