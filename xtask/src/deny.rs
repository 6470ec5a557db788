//! `cargo xtask deny`: checks licences, duplicate versions and sources of dependencies, by the rules of
//! `deny.toml`.
//!
//! Uses `cargo-deny` if it is installed. Building that takes minutes, so otherwise the same three checks run
//! here, over `cargo metadata`. The output states which of the two was used. Advisories need a database from
//! the network and are not included: `cargo deny check advisories`.

mod licence;
mod rules;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use rules::Rules;

/// Checks the dependencies of the workspace below `root`.
pub(crate) fn run(root: &Path) -> Result<()> {
    let installed = Command::new("cargo-deny").arg("--version").output();
    if installed.is_ok_and(|output| output.status.success()) {
        println!("deny: with cargo-deny");
        return run_cargo_deny(root);
    }
    println!("deny: cargo-deny is not installed, checking deny.toml's rules without it");
    let text = std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let rules = Rules::parse(&text)?;
    let packages = packages(root, &rules.targets)?;
    let faults = faults(&packages, &rules);
    for fault in &faults {
        println!("deny: {fault}");
    }
    ensure!(faults.is_empty(), "deny: {} faults", faults.len());
    println!(
        "deny: {} packages, licences, versions and sources are as they should be",
        packages.len()
    );
    Ok(())
}

fn run_cargo_deny(root: &Path) -> Result<()> {
    let mut command = Command::new("cargo-deny");
    command.args(["check", "bans", "licenses", "sources"]).current_dir(root);
    ensure!(command.status()?.success(), "cargo-deny has found faults");
    Ok(())
}

/// A package that the build may contain, ours or another's.
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    /// The source from which cargo gets it; `None` for a path in this repo.
    source: Option<String>,
}

/// The packages that cargo would build for `targets`.
fn packages(root: &Path, targets: &[String]) -> Result<Vec<Package>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version=1", "--locked"]).current_dir(root);
    command.args(targets.iter().map(|target| format!("--filter-platform={target}")));
    let output = command.output().context("cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    parse_metadata(&serde_json::from_slice(&output.stdout)?)
}

fn parse_metadata(metadata: &Value) -> Result<Vec<Package>> {
    let listed = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let package = |value: &Value| {
        Some(Package {
            name: text(&value["name"])?,
            version: text(&value["version"])?,
            licence: text(&value["license"]),
            source: text(&value["source"]),
        })
    };
    let packages: Option<Vec<Package>> = listed.iter().map(package).collect();
    packages.context("cargo metadata has a package without name or version")
}

/// One line for each violation of a rule.
fn faults(packages: &[Package], rules: &Rules) -> Vec<String> {
    let mut faults: Vec<String> =
        packages.iter().flat_map(|package| faults_of(package, rules)).collect();
    faults.extend(duplicates(packages, rules));
    faults
}

fn faults_of(package: &Package, rules: &Rules) -> Vec<String> {
    let who = format!("{} {}", package.name, package.version);
    let mut faults = Vec::new();
    match &package.licence {
        None => faults.push(format!("{who} names no licence")),
        Some(licence) => match licence::is_allowed(licence, |id| rules.allows(&package.name, id)) {
            Ok(true) => {}
            Ok(false) => faults.push(format!("{who}: licence {licence} is not in the list")),
            Err(error) => faults.push(format!("{who}: licence {licence}: {error}")),
        },
    }
    if let Some(source) = package.source.as_ref().filter(|source| !rules.is_known(source)) {
        faults.push(format!("{who} comes from {source}"));
    }
    faults
}

/// Packages that would be built in two versions, without an exception.
fn duplicates(packages: &[Package], rules: &Rules) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in
        packages.iter().filter(|package| !rules.is_skipped(&package.name, &package.version))
    {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
        .iter()
        .map(|(name, versions)| {
            format!("{name} in versions {}: choose one, or say why not", versions.join(", "))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const RULES: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        [licenses]
        allow = ["MIT"]
        exceptions = [{ crate = "odd", allow = ["Zlib"] }]
        [bans]
        multiple-versions = "deny"
        skip = [{ crate = "old@1.2", reason = "why" }]
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
        allow-registry = ["https://example.org/index"]
    "#;

    const INDEX: &str = "registry+https://example.org/index";

    fn check(packages: &[(&str, &str, &str, &str)]) -> Vec<String> {
        let package = |&(name, version, licence, source): &(&str, &str, &str, &str)| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            licence: (!licence.is_empty()).then(|| licence.to_owned()),
            source: (!source.is_empty()).then(|| source.to_owned()),
        };
        let packages: Vec<Package> = packages.iter().map(package).collect();
        faults(&packages, &Rules::parse(RULES).unwrap())
    }

    #[test]
    fn a_good_graph_has_no_faults() {
        let faults = check(&[
            ("ours", "0.1.0", "MIT", ""),
            ("theirs", "1.0.0", "Zlib OR MIT", INDEX),
            ("odd", "1.0.0", "Zlib", INDEX),
            ("old", "1.2.9", "MIT", INDEX),
            ("old", "2.0.0", "MIT", INDEX),
        ]);
        assert!(faults.is_empty(), "{faults:?}");
    }

    #[test]
    fn each_rule_has_its_fault() {
        for (package, word) in [
            (("a", "1.0.0", "Zlib", INDEX), "not in the list"),
            (("a", "1.0.0", "", INDEX), "no licence"),
            (("a", "1.0.0", "MIT OR", INDEX), "ends too early"),
            (("a", "1.0.0", "MIT", "git+https://example.org/a"), "comes from"),
            (("a", "1.0.0", "MIT", "registry+https://elsewhere.example"), "comes from"),
        ] {
            let faults = check(&[package]);
            assert!(faults.len() == 1 && faults[0].contains(word), "{package:?}: {faults:?}");
        }
        let faults = check(&[("a", "1.0.0", "MIT", INDEX), ("a", "2.0.0", "MIT", INDEX)]);
        assert!(faults[0].contains("1.0.0, 2.0.0"), "{faults:?}");
    }

    #[test]
    fn metadata_is_read_or_refused() {
        let one = serde_json::json!({"packages": [
            {"name": "a", "version": "1.0.0", "license": null, "source": null}]});
        let packages = parse_metadata(&one).unwrap();
        assert!(packages[0].licence.is_none() && packages[0].source.is_none());
        assert!(parse_metadata(&serde_json::json!({})).is_err());
        assert!(parse_metadata(&serde_json::json!({"packages": [{}]})).is_err());
    }
}
