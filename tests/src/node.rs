//! A node with a config of its own: for what `skep serve` has no option for.

use std::fs;
use std::path::Path;

use crate::node_folder::NodeFolder;
use crate::process::{Finished, Skep, run_to_end};

impl Skep {
    /// `skep run` of a config with one node, `n1`, and one site of `root`.
    /// `settings` are lines of TOML that follow `root` in the site's table.
    #[track_caller]
    pub fn node(root: &Path, settings: &str) -> Self {
        Self::node_of(&format!("root = \"{}\"\n{settings}", root.display()))
    }

    /// The same with a site that is all in `settings`.
    #[track_caller]
    pub fn node_of(settings: &str) -> Self {
        Self::node_in(NodeFolder::new(), settings)
    }

    /// The same with a cluster's key: what is hashed under it has the same hash in each run.
    pub fn node_with_key_of(settings: &str) -> Self {
        Self::node_in(NodeFolder::new().with_key(), settings)
    }

    fn node_in(folder: NodeFolder, settings: &str) -> Self {
        folder.write_site(settings);
        let address = folder.address();
        let mut skep = Self::run(&folder.config(), &["--as", "n1"], address);
        skep.folder = Some(folder);
        skep
    }

    /// Writes the config of [`Self::node`] anew; SIGHUP makes it known.
    pub fn reconfigure(&self, root: &Path, settings: &str) {
        self.folder.as_ref().expect("started by `node`").write(root, settings);
    }

    /// Writes the config of [`Self::node_of`] anew.
    pub fn reconfigure_of(&self, settings: &str) {
        self.folder.as_ref().expect("started by `node_of`").write_site(settings);
    }

    /// `skep ARGUMENTS` on this node, to its end.
    #[track_caller]
    pub fn command(&self, arguments: &[&str]) -> Finished {
        let folder = self.folder.as_ref().expect("started by `node`");
        let config = folder.config();
        let config = ["--config", config.to_str().expect("temporary paths are UTF-8")];
        run_to_end(&[arguments, &config].concat())
    }

    /// Writes `text` in the place of the config of [`Self::node`].
    pub fn reconfigure_raw(&self, text: &str) {
        let folder = self.folder.as_ref().expect("started by `node`");
        fs::write(folder.config(), text).expect("the folder is ours");
    }
}
