//! A `Cargo.toml` as seen by the layer rule: name, folder, dependencies.

use anyhow::{Context, Result};
use toml_edit::{Document, Item, TableLike};

use crate::repo::Page;

/// A crate of the repo.
pub(crate) struct Manifest {
    /// Path of the file relative to the root.
    pub(crate) path: String,
    /// Folder of the crate relative to the root.
    pub(crate) folder: String,
    /// Name of the package.
    pub(crate) name: String,
    /// Its dependencies, for any purpose and target.
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line of a manifest's dependency tables.
pub(crate) struct Dependency {
    /// Name of the package (not of a local alias).
    pub(crate) name: String,
    /// Line in the manifest, from 1.
    pub(crate) line: usize,
    /// Whether only tests and benchmarks use it.
    pub(crate) is_for_tests: bool,
}

impl Manifest {
    /// Parses a manifest; `None` if it is only a workspace.
    pub(crate) fn parse(page: &Page) -> Result<Option<Self>> {
        let document = Document::parse(page.text.as_str()).with_context(|| page.path.clone())?;
        let package = document.get("package").and_then(|package| package.get("name"));
        let Some(name) = package.and_then(Item::as_str) else { return Ok(None) };
        let mut dependencies = Vec::new();
        collect(document.as_table(), &page.text, &mut dependencies);
        let targets = document.get("target").and_then(Item::as_table_like);
        for (_, target) in targets.into_iter().flat_map(TableLike::iter) {
            if let Some(target) = target.as_table_like() {
                collect(target, &page.text, &mut dependencies);
            }
        }
        let folder = page.path.trim_end_matches("Cargo.toml").trim_end_matches('/');
        Ok(Some(Self {
            path: page.path.clone(),
            folder: folder.to_owned(),
            name: name.to_owned(),
            dependencies,
        }))
    }
}

fn collect(table: &dyn TableLike, text: &str, dependencies: &mut Vec<Dependency>) {
    for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let listed = table.get(kind).and_then(Item::as_table_like);
        for (key, item) in listed.into_iter().flat_map(TableLike::iter) {
            let renamed = item.get("package").and_then(Item::as_str);
            let span = listed.and_then(|listed| listed.key(key)).and_then(|key| key.span());
            let offset = span.map_or(0, |span| span.start);
            let line = 1 + text[..offset].matches('\n').count();
            let name = renamed.unwrap_or(key).to_owned();
            let is_for_tests = kind == "dev-dependencies";
            dependencies.push(Dependency { name, line, is_for_tests });
        }
    }
}
