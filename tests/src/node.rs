//! A node with its own config, for settings that `skep serve` has no option for.

use std::fs;
use std::path::Path;

use crate::node_folder::NodeFolder;
use crate::process::{Finished, Skep, run_to_end};

impl Skep {
    /// Runs `skep run` with a config of one node, `n1`, and one site of `root`. `settings` are lines of TOML
    /// that follow `root` in the site's table.
    #[track_caller]
    pub fn node(root: &Path, settings: &str) -> Self {
        Self::node_of(&format!("root = \"{}\"\n{settings}", root.display()))
    }

    /// Like [`Self::node`], with a site that is entirely in `settings`.
    #[track_caller]
    pub fn node_of(settings: &str) -> Self {
        Self::node_in(NodeFolder::new(), settings)
    }

    /// Like [`Self::node_of`], with a fixed cluster key: keyed hashes are the same in each run.
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

    /// Rewrites the config of [`Self::node`]; takes effect with SIGHUP.
    pub fn reconfigure(&self, root: &Path, settings: &str) {
        self.folder.as_ref().expect("started by `node`").write(root, settings);
    }

    /// Rewrites the config of [`Self::node_of`].
    pub fn reconfigure_of(&self, settings: &str) {
        self.folder.as_ref().expect("started by `node_of`").write_site(settings);
    }

    /// Runs `skep ARGUMENTS` against this node until it ends.
    #[track_caller]
    pub fn command(&self, arguments: &[&str]) -> Finished {
        let folder = self.folder.as_ref().expect("started by `node`");
        let config = folder.config();
        let config = ["--config", config.to_str().expect("temporary paths are UTF-8")];
        run_to_end(&[arguments, &config].concat())
    }

    /// Replaces the config of [`Self::node`] with `text`.
    pub fn reconfigure_raw(&self, text: &str) {
        let folder = self.folder.as_ref().expect("started by `node`");
        fs::write(folder.config(), text).expect("the folder is ours");
    }
}
