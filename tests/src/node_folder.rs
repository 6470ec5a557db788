//! The folder, the config and the port of a node with its own config.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::port::FreePort;
use crate::site::Site;

/// The resources of a test with one configured node, besides the process.
#[derive(Debug)]
pub(crate) struct NodeFolder {
    folder: Site,
    /// Held so that no other test claims it.
    port: FreePort,
}

impl NodeFolder {
    pub(crate) fn new() -> Self {
        Self { folder: Site::new(), port: FreePort::claim() }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path("skep.toml")
    }

    /// Writes the config atomically: a reload never reads a partial file.
    pub(crate) fn write(&self, root: &Path, settings: &str) {
        self.write_site(&format!("root = \"{}\"\n{settings}", root.display()));
    }

    /// Gives the cluster a key that is the same in each test.
    pub(crate) fn with_key(self) -> Self {
        self.folder.write("key", [b'k'; 32]);
        let mode = Permissions::from_mode(0o600);
        fs::set_permissions(self.key(), mode).expect("a file of ours");
        self
    }

    fn key(&self) -> PathBuf {
        self.folder.path("key")
    }

    /// Returns the address of its node.
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Like [`Self::write`], with a site that is entirely in `settings`.
    pub(crate) fn write_site(&self, settings: &str) {
        let (folder, address) = (self.folder.root().display(), self.port.address());
        let key = self.key();
        let key = match key.exists() {
            true => format!("key_file = \"{}\"\n", key.display()),
            false => String::new(),
        };
        let text = format!(
            "{key}state_dir = \"{folder}\"\n\
             [admin]\nlisten = \"off\"\n\
             [[node]]\nname = \"n1\"\naddress = \"{address}\"\n\
             [[site]]\n{settings}\n"
        );
        self.folder.replace("skep.toml", text);
    }
}
