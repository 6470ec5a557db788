//! The work tree as seen by the checks: Rust sources, manifests, pages.
//!
//! It is read once, then passed to the rules, which do no I/O of their own. Paths are relative to the root
//! and use `/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::source::Source;

/// Folders without files of the project: build output, and the corpora of fuzzers.
const SKIPPED: &[&str] = &["target", ".git", "corpus", "artifacts"];

/// A text file that is not Rust source.
pub(crate) struct Page {
    /// Path relative to the root.
    pub(crate) path: String,
    /// The whole file.
    pub(crate) text: String,
}

/// All files that some rule reads.
pub(crate) struct Repo {
    /// The root folder of the tree.
    pub(crate) root: PathBuf,
    /// All `.rs` files.
    pub(crate) sources: Vec<Source>,
    /// All `Cargo.toml` files.
    pub(crate) manifests: Vec<Page>,
    /// All `.md` files.
    pub(crate) pages: Vec<Page>,
}

impl Repo {
    /// Reads the tree from which this program was built.
    pub(crate) fn load() -> Result<Self> {
        let root = root();
        let mut repo =
            Self { root: root.clone(), sources: vec![], manifests: vec![], pages: vec![] };
        repo.read_folder(&root)?;
        Ok(repo)
    }

    fn read_folder(&mut self, folder: &Path) -> Result<()> {
        let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
                self.read_folder(&path)?;
            } else if path.is_file() {
                self.read_file(&path, &name)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, path: &Path, name: &str) -> Result<()> {
        let is_manifest = name == "Cargo.toml";
        let is_source = name.ends_with(".rs");
        let is_page = name.ends_with(".md");
        if !(is_manifest || is_source || is_page) {
            return Ok(());
        }
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let path = path.strip_prefix(&self.root)?.to_string_lossy().replace('\\', "/");
        if is_source {
            self.sources.push(Source::new(path, text));
        } else if is_manifest {
            self.manifests.push(Page { path, text });
        } else {
            self.pages.push(Page { path, text });
        }
        Ok(())
    }
}

/// The root of the work tree: the folder above this crate.
pub(crate) fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
