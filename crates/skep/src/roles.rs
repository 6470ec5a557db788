//! The roles of a process in its cluster.

use skep_config::{Config, DispatcherConfig, NodeConfig};

#[derive(Clone, Debug)]
pub(crate) struct Roles {
    /// The name it runs as.
    pub(crate) name: String,
    /// Name of the node it is.
    pub(crate) node: Option<String>,
    /// Whether it dispatches the config's services.
    pub(crate) services: bool,
}

impl Roles {
    /// The node of the config that this process is.
    pub(crate) fn own_node<'a>(&self, config: &'a Config) -> Option<&'a NodeConfig> {
        config.node(self.node.as_deref()?)
    }

    /// The dispatcher of the config that this process is.
    pub(crate) fn own_dispatcher<'a>(&self, config: &'a Config) -> Option<&'a DispatcherConfig> {
        config.dispatcher(&self.name).filter(|_| self.services)
    }
}
