//! The folder, the config and the port of a node with a config of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::port::FreePort;
use crate::site::Site;

/// What a test of one configured node owns besides the process.
#[derive(Debug)]
pub(crate) struct NodeFolder {
    folder: Site,
    /// Held so that no other test takes it.
    port: FreePort,
}

impl NodeFolder {
    pub(crate) fn new() -> Self {
        Self { folder: Site::new(), port: FreePort::claim() }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path("skep.toml")
    }

    /// Writes the config in one step: a reload never reads half of it.
    pub(crate) fn write(&self, root: &Path, settings: &str) {
        self.write_site(&format!("root = \"{}\"\n{settings}", root.display()));
    }

    /// The address of its node.
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The same with a site that is all in `settings`.
    pub(crate) fn write_site(&self, settings: &str) {
        let (folder, address) = (self.folder.root().display(), self.port.address());
        let text = format!(
            "state_dir = \"{folder}\"\n\
             [admin]\nlisten = \"off\"\n\
             [[node]]\nname = \"n1\"\naddress = \"{address}\"\n\
             [[site]]\n{settings}\n"
        );
        self.folder.replace("skep.toml", text);
    }
}
