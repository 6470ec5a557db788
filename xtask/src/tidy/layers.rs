//! The arrows between layers, as found in the manifests.
//!
//! `base <- core | edge <- role <- cli <- skep`: cores and edges never depend on each other; only roles
//! combine them. Crates of one layer do not depend on each other either, except for the arrows that the table
//! lists. A crate's folder determines its layer, so moving it changes what it may use.

use std::collections::BTreeMap;

use anyhow::Result;

use super::Finding;
use super::manifest::{Dependency, Manifest};
use crate::repo::Page;

/// What the crates below a folder may depend on.
struct Layer {
    folder: &'static str,
    /// Folders of ours, each including everything below it.
    may_use: &'static [&'static str],
    /// Packages of others that this layer must not use.
    banned: &'static [&'static str],
}

/// Packages that do I/O, read clocks, provide randomness, start threads or run futures.
const IMPURE: &[&str] = &[
    "async-std",
    "axum",
    "crossbeam-channel",
    "futures",
    "getrandom",
    "hyper",
    "hyper-util",
    "inotify",
    "libc",
    "mio",
    "nix",
    "notify",
    "rand",
    "rayon",
    "reqwest",
    "rustix",
    "socket2",
    "tempfile",
    "tokio",
    "tracing",
    "tracing-subscriber",
];

/// Packages for interfaces to people or to management, which the data path never has.
const OUTERMOST: &[&str] =
    &["anyhow", "axum", "clap", "crossterm", "hyper", "hyper-util", "ratatui", "utoipa"];

/// The table of allowed arrows; the first row that matches a crate applies.
const LAYERS: &[Layer] = &[
    Layer { folder: "crates/base", may_use: &["crates/base/units"], banned: IMPURE },
    // Replies of application servers are converted to HTTP's types, and validated by its rules.
    Layer {
        folder: "crates/core/ajp",
        may_use: &["crates/base", "crates/core/http"],
        banned: IMPURE,
    },
    Layer {
        folder: "crates/core/fastcgi",
        may_use: &["crates/base", "crates/core/http"],
        banned: IMPURE,
    },
    // The codings are those that HTTP's fields name.
    Layer {
        folder: "crates/core/coding",
        may_use: &["crates/base", "crates/core/http"],
        banned: IMPURE,
    },
    // The caching rules concern HTTP's fields, dates and conditions.
    Layer {
        folder: "crates/core/httpcache",
        may_use: &["crates/base", "crates/core/http"],
        banned: IMPURE,
    },
    Layer { folder: "crates/core", may_use: &["crates/base"], banned: IMPURE },
    // A connection to a node is a worker's connection like any other, with the same deadlines and buffers,
    // and one to another cache is pooled in the same way: the only arrows between crates of this layer.
    Layer {
        folder: "crates/edge/upstream",
        may_use: &["crates/base", "crates/edge/serve"],
        banned: OUTERMOST,
    },
    Layer {
        folder: "crates/edge/peer",
        may_use: &["crates/base", "crates/edge/serve", "crates/edge/upstream"],
        banned: OUTERMOST,
    },
    Layer { folder: "crates/edge", may_use: &["crates/base"], banned: OUTERMOST },
    Layer {
        folder: "crates/role/console",
        may_use: &["crates/base", "crates/core", "crates/edge", "crates/role/engine"],
        banned: &["clap", "crossterm", "ratatui"],
    },
    Layer {
        folder: "crates/role/node",
        may_use: &[
            "crates/base",
            "crates/core",
            "crates/edge",
            "crates/role/engine",
            "crates/role/origin",
            "crates/role/proxy",
            "crates/role/segments",
        ],
        banned: OUTERMOST,
    },
    // Nodes of a service and servers of a pool are the same: members, to one of which each request is sent.
    Layer {
        folder: "crates/role/dispatcher",
        may_use: &[
            "crates/base",
            "crates/core",
            "crates/edge",
            "crates/role/engine",
            "crates/role/proxy",
        ],
        banned: OUTERMOST,
    },
    // Nodes, drains, weights and policies of a service are the same in all modes of dispatch.
    Layer {
        folder: "crates/role/steering",
        may_use: &["crates/base", "crates/core", "crates/edge", "crates/role/dispatcher"],
        banned: OUTERMOST,
    },
    Layer {
        folder: "crates/role/segments",
        may_use: &["crates/base", "crates/core", "crates/edge"],
        banned: OUTERMOST,
    },
    // A client: it must not share the engine and proxy of the servers that it measures. Recorders add to the
    // same file.
    Layer {
        folder: "crates/role/probe",
        may_use: &["crates/base", "crates/edge/database"],
        banned: &["anyhow", "axum", "clap", "crossterm", "ratatui", "utoipa"],
    },
    // Another client, with the same URLs and redirects.
    Layer {
        folder: "crates/role/load",
        may_use: &["crates/base", "crates/core/workload", "crates/role/probe"],
        banned: &["anyhow", "axum", "clap", "crossterm", "ratatui", "utoipa"],
    },
    // It simulates a site: the live policies and cache, under a virtual clock and without any I/O. Nothing
    // that serves may use that.
    Layer {
        folder: "crates/role/advise",
        may_use: &["crates/base", "crates/core/policy", "crates/core/workload", "sim/site"],
        banned: OUTERMOST,
    },
    Layer {
        folder: "crates/role",
        may_use: &["crates/base", "crates/core", "crates/edge", "crates/role/engine"],
        banned: OUTERMOST,
    },
    // It queries running processes, and starts some; it composes none.
    Layer {
        folder: "crates/cli",
        // The table of policies is what it explains.
        may_use: &["crates/base", "crates/core/policy", "crates/edge", "crates/role", "testbed"],
        banned: &[],
    },
    Layer {
        folder: "crates/skep",
        may_use: &["crates/base", "crates/core", "crates/edge", "crates/role", "crates/cli"],
        banned: &["clap", "crossterm", "ratatui"],
    },
    Layer { folder: "xtask", may_use: &["crates/base", "crates/role/console"], banned: &[] },
    Layer {
        folder: "bench",
        may_use: &["crates/base", "crates/core", "testbed", "testclient"],
        banned: &[],
    },
    Layer {
        folder: "tests",
        may_use: &["crates/base", "testbed", "testclient", "lab"],
        banned: &[],
    },
    // The model of the packet programs: as pure as a core.
    Layer { folder: "bpf/steer", may_use: &["crates/base"], banned: IMPURE },
    Layer { folder: "bpf", may_use: &["crates/base", "bpf/steer"], banned: &[] },
    // Not a layer of the product: serving code must not be able to use it, only what starts clusters on one
    // machine.
    Layer { folder: "testbed", may_use: &["crates/base"], banned: OUTERMOST },
    // It judges what Skep sends, so it must not use anything of Skep.
    Layer { folder: "testclient", may_use: &[], banned: OUTERMOST },
    // It measures transports of handoff messages alone, with the product's socket and timers, and compares
    // them with TCP. It also compares policies on simulated sites.
    Layer {
        folder: "lab",
        may_use: &[
            "crates/base",
            "crates/core/handoff",
            "crates/core/workload",
            "crates/edge/peer",
            "sim/site",
            "testbed",
            "testclient",
        ],
        banned: &[],
    },
    // It runs the policies, the cache and elasticity together, as roles do.
    Layer {
        folder: "sim/site",
        may_use: &[
            "crates/base",
            "crates/core/cache",
            "crates/core/cluster",
            "crates/core/policy",
            "crates/core/workload",
        ],
        banned: IMPURE,
    },
    Layer { folder: "sim", may_use: &["crates/base"], banned: IMPURE },
    // It puts known bugs back, as simulations do.
    Layer { folder: "fuzz/differential", may_use: &["crates/base", "sim"], banned: &[] },
    Layer { folder: "fuzz", may_use: &["crates/base", "crates/core"], banned: &[] },
];

/// What only the tests of a crate may use in addition: a simulation combines cores, as roles do, and uses the
/// common base of simulations; servers are queried by the client of all tests.
const IN_TESTS: &[(&str, &str)] = &[
    ("crates/core/cluster", "sim"),
    ("crates/core/directory", "crates/core/cache"),
    ("crates/core/directory", "sim"),
    ("crates/core/handoff", "sim"),
    ("crates/role/console", "testclient"),
    ("crates/role/dispatcher", "testclient"),
    ("crates/role/engine", "testclient"),
];

/// Finds arrows that are not in the table.
pub(crate) fn check(pages: &[Page]) -> Result<Vec<Finding>> {
    let parsed = pages.iter().map(Manifest::parse).collect::<Result<Vec<_>>>()?;
    let manifests: Vec<Manifest> = parsed.into_iter().flatten().collect();
    let ours: BTreeMap<&str, &str> = manifests
        .iter()
        .map(|manifest| (manifest.name.as_str(), manifest.folder.as_str()))
        .collect();
    Ok(manifests.iter().flat_map(|manifest| check_one(manifest, &ours)).collect())
}

fn check_one(manifest: &Manifest, ours: &BTreeMap<&str, &str>) -> Vec<Finding> {
    let finding = |line, what| Finding::new(&manifest.path, line, "layer", what);
    let layer = LAYERS.iter().find(|layer| is_below(&manifest.folder, layer.folder));
    let Some(layer) = layer else {
        let what = "no layer for this folder: give it a row in xtask/src/tidy/layers.rs";
        return vec![finding(1, what.to_owned())];
    };
    let judge = |dependency: &Dependency| {
        let what = match ours.get(dependency.name.as_str()) {
            Some(folder) if dependency.is_for_tests && in_tests(&manifest.folder, folder) => None,
            Some(folder) => judge_ours(layer, folder),
            None => judge_theirs(layer, &dependency.name),
        };
        what.map(|what| finding(dependency.line, what))
    };
    manifest.dependencies.iter().filter_map(judge).collect()
}

fn judge_ours(layer: &Layer, folder: &str) -> Option<String> {
    let is_allowed = layer.may_use.iter().any(|allowed| is_below(folder, allowed));
    (!is_allowed).then(|| {
        let (from, allowed) = (layer.folder, layer.may_use.join(", "));
        format!("{from} must not use {folder}, only {allowed}: let a role join them")
    })
}

fn in_tests(from: &str, to: &str) -> bool {
    IN_TESTS.contains(&(from, to))
}

fn judge_theirs(layer: &Layer, name: &str) -> Option<String> {
    layer.banned.contains(&name).then(|| {
        let from = layer.folder;
        format!("{from} must do without `{name}`: move what needs it to the layer that may")
    })
}

fn is_below(folder: &str, ancestor: &str) -> bool {
    folder == ancestor || folder.strip_prefix(ancestor).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// A crate in `folder`, with a name derived from it and dependency lines.
    fn page(folder: &str, dependencies: &str) -> Page {
        let name = folder.replace("crates/", "").replace('/', "-");
        let text = format!("[package]\nname = \"{name}\"\n\n[dependencies]\n{dependencies}\n");
        Page { path: format!("{folder}/Cargo.toml"), text }
    }

    /// The number of findings for a crate in `folder` that depends on the crate in `on`.
    fn arrow(folder: &str, on: &str) -> usize {
        let dependency =
            format!("{}.workspace = true", on.replace("crates/", "").replace('/', "-"));
        check(&[page(folder, &dependency), page(on, "")]).unwrap().len()
    }

    #[test]
    fn arrows_point_inwards_only() {
        for (folder, on, count) in [
            ("crates/base/config", "crates/base/units", 0),
            ("crates/base/units", "crates/base/config", 1),
            ("crates/base/units", "crates/core/http", 1),
            ("crates/core/http", "crates/base/units", 0),
            ("crates/core/http", "crates/edge/serve", 1),
            ("crates/core/http", "crates/core/cache", 1),
            ("crates/core/http", "crates/core/ajp", 1),
            ("crates/core/ajp", "crates/core/http", 0),
            ("crates/core/fastcgi", "crates/core/http", 0),
            ("crates/core/fastcgi", "crates/core/ajp", 1),
            ("crates/edge/serve", "crates/core/http", 1),
            ("crates/edge/serve", "crates/edge/telemetry", 1),
            ("crates/edge/serve", "crates/edge/upstream", 1),
            ("crates/edge/upstream", "crates/edge/serve", 0),
            ("crates/edge/peer", "crates/edge/upstream", 0),
            ("crates/edge/upstream", "crates/edge/peer", 1),
            ("crates/role/node", "crates/edge/serve", 0),
            ("crates/role/node", "crates/role/engine", 0),
            ("crates/role/node", "crates/role/origin", 0),
            ("crates/role/dispatcher", "crates/role/origin", 1),
            ("crates/role/probe", "crates/base/units", 0),
            ("crates/role/probe", "crates/edge/database", 0),
            ("crates/role/probe", "crates/edge/serve", 1),
            ("crates/role/probe", "crates/core/http", 1),
            ("crates/role/probe", "crates/role/engine", 1),
            ("crates/role/advise", "sim/site", 0),
            ("crates/role/advise", "crates/edge/serve", 1),
            ("crates/role/node", "sim/site", 1),
            ("crates/cli", "sim/site", 1),
            ("crates/role/dispatcher", "crates/role/coordinator", 1),
            ("crates/role/dispatcher", "crates/role/steering", 1),
            ("crates/role/steering", "crates/role/dispatcher", 0),
            ("crates/role/steering", "crates/role/coordinator", 1),
            ("crates/role/node", "crates/role/dispatcher", 1),
            ("crates/skep", "crates/role/node", 0),
            ("crates/role/node", "crates/skep", 1),
            ("crates/skep", "crates/cli", 0),
            ("crates/cli", "crates/role/console", 0),
            ("crates/cli", "crates/skep", 1),
            ("crates/role/node", "crates/cli", 1),
            ("crates/role/node", "testbed", 1),
            ("crates/edge/netif", "testbed", 1),
            ("crates/cli", "testbed", 0),
            ("crates/cli", "lab", 1),
            ("crates/skep", "testbed", 1),
            ("lab", "testbed", 0),
            ("lab", "testclient", 0),
            ("testclient", "crates/core/http", 1),
            ("crates/skep", "testclient", 1),
            ("crates/core/cluster", "sim", 1),
            ("sim", "crates/core/cluster", 1),
            ("tests", "crates/role/node", 1),
        ] {
            assert_eq!(arrow(folder, on), count, "{folder} on {on}");
        }
    }

    #[test]
    fn tests_may_join_cores_where_the_table_says_so() {
        let findings = |table: &str| {
            let from = "crates/core/directory";
            let text = format!(
                "[package]\nname = \"core-directory\"\n[{table}]\ncore-cache.workspace = true\n"
            );
            let page = |text| Page { path: format!("{from}/Cargo.toml"), text };
            check(&[page(text), self::page("crates/core/cache", "")]).unwrap().len()
        };
        assert_eq!((findings("dev-dependencies"), findings("dependencies")), (0, 1));
    }

    #[test]
    fn every_dependency_table_counts_and_lines_are_named() {
        let manifest = "[package]\nname = \"x\"\n[dev-dependencies]\ntokio = \"1\"\n\
             [target.'cfg(unix)'.dependencies]\nsys = { package = \"libc\", version = \"1\" }\n\
             [build-dependencies]\nrand = \"1\"\n[dependencies.mio]\nversion = \"1\"\n";
        let page = Page { path: "crates/core/x/Cargo.toml".to_owned(), text: manifest.to_owned() };
        let mut lines: Vec<_> = check(&[page]).unwrap().into_iter().map(|f| f.line).collect();
        lines.sort();
        assert_eq!(lines, [4, 6, 8, 9]);
    }

    #[test]
    fn packages_of_others_are_banned_by_layer() {
        for (folder, dependency, count) in [
            ("crates/core/http", "tokio = \"1\"", 1),
            ("crates/core/http", "httparse = \"1\"", 0),
            ("crates/edge/serve", "tokio = \"1\"", 0),
            ("crates/edge/serve", "axum = \"1\"", 1),
            ("crates/role/console", "axum = \"1\"", 0),
            ("crates/role/node", "axum = \"1\"", 1),
            ("crates/cli", "clap = \"1\"", 0),
            ("crates/skep", "clap = \"1\"", 1),
        ] {
            let found = check(&[page(folder, dependency)]).unwrap();
            assert_eq!(found.len(), count, "{folder} on {dependency}");
        }
    }

    #[test]
    fn an_unknown_folder_needs_a_row_and_a_workspace_is_no_crate() {
        assert_eq!(check(&[page("crates/new/thing", "")]).unwrap().len(), 1);
        let workspace = Page { path: "Cargo.toml".to_owned(), text: "[workspace]\n".to_owned() };
        assert!(check(&[workspace]).unwrap().is_empty());
        let broken = Page { path: "x/Cargo.toml".to_owned(), text: "[package".to_owned() };
        assert!(check(&[broken]).is_err());
    }
}
