//! The part of `deny.toml` that can be checked without `cargo-deny`.
//!
//! A rule that is weakened there is an error here: rules that only warn would be ignored.

use anyhow::{Context, Result, ensure};
use toml_edit::{Document, Item};

/// The parsed rules.
pub(crate) struct Rules {
    /// Target triples whose dependencies count.
    pub(crate) targets: Vec<String>,
    licences: Vec<String>,
    /// Crates, each with a licence that only it may have.
    exceptions: Vec<(String, String)>,
    /// Crates, each with a version that may coexist with another.
    skipped: Vec<(String, String)>,
    registries: Vec<String>,
}

impl Rules {
    /// Parses `deny.toml`; fails if it does not deny what is checked here.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let document = Document::parse(text).context("deny.toml")?;
        let at = |table: &str, key: &str| document.get(table).and_then(|table| table.get(key));
        for (table, key) in [
            ("bans", "multiple-versions"),
            ("sources", "unknown-registry"),
            ("sources", "unknown-git"),
        ] {
            let value = at(table, key).and_then(Item::as_str);
            ensure!(value == Some("deny"), "deny.toml: {table}.{key} must be \"deny\"");
        }
        Ok(Self {
            targets: strings(at("graph", "targets")),
            licences: strings(at("licenses", "allow")),
            exceptions: exceptions(at("licenses", "exceptions")),
            skipped: skipped(at("bans", "skip"))?,
            registries: strings(at("sources", "allow-registry")),
        })
    }

    /// Whether the package `name` may have `licence`.
    pub(crate) fn allows(&self, name: &str, licence: &str) -> bool {
        let excepted = |(who, what): &(String, String)| who == name && what == licence;
        self.licences.iter().any(|allowed| allowed == licence)
            || self.exceptions.iter().any(excepted)
    }

    /// Whether this version may coexist with another of the same package.
    pub(crate) fn is_skipped(&self, name: &str, version: &str) -> bool {
        let covers = |wanted: &str| {
            let rest = version.strip_prefix(wanted);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.skipped.iter().any(|(who, wanted)| who == name && covers(wanted))
    }

    /// Whether cargo may fetch from `source`.
    pub(crate) fn is_known(&self, source: &str) -> bool {
        let registry = source.strip_prefix("registry+");
        registry.is_some_and(|registry| self.registries.iter().any(|known| known == registry))
    }
}

fn strings(item: Option<&Item>) -> Vec<String> {
    let values = item.and_then(Item::as_array).into_iter().flatten();
    values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

fn exceptions(item: Option<&Item>) -> Vec<(String, String)> {
    let mut exceptions = Vec::new();
    for value in item.and_then(Item::as_array).into_iter().flatten() {
        let Some(table) = value.as_inline_table() else { continue };
        let name = table.get("crate").and_then(|name| name.as_str()).unwrap_or_default();
        let allowed = table.get("allow").and_then(|allow| allow.as_array()).into_iter().flatten();
        exceptions.extend(
            allowed.filter_map(|value| Some((name.to_owned(), value.as_str()?.to_owned()))),
        );
    }
    exceptions
}

/// Parses `{ crate = "name@version", reason = "…" }`; the reason is required.
fn skipped(item: Option<&Item>) -> Result<Vec<(String, String)>> {
    let values = item.and_then(Item::as_array).into_iter().flatten();
    let read = |value: &toml_edit::Value| {
        let table = value.as_inline_table().context("deny.toml: bans.skip wants tables")?;
        let text = |key: &str| table.get(key).and_then(|value| value.as_str());
        let (name, version) = text("crate")
            .and_then(|spec| spec.split_once('@'))
            .context("deny.toml: bans.skip wants crate = \"name@version\"")?;
        ensure!(text("reason").is_some(), "deny.toml: bans.skip of {name} gives no reason");
        Ok((name.to_owned(), version.to_owned()))
    };
    values.map(read).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const STRICT: &str = "[bans]\nmultiple-versions = \"deny\"\n\
        [sources]\nunknown-registry = \"deny\"\nunknown-git = \"deny\"\n";

    #[test]
    fn rules_that_only_warn_are_refused() {
        assert!(Rules::parse(STRICT).is_ok());
        assert!(Rules::parse("").is_err());
        assert!(Rules::parse(&STRICT.replace("\"deny\"", "\"warn\"")).is_err());
    }

    #[test]
    fn an_exception_covers_its_version_and_gives_a_reason() {
        let with = |skip: &str| {
            Rules::parse(&STRICT.replace("[sources]", &format!("skip = [{skip}]\n[sources]")))
        };
        let rules = with("{ crate = \"a@1.2\", reason = \"r\" }").unwrap();
        assert!(rules.is_skipped("a", "1.2.3") && rules.is_skipped("a", "1.2"));
        assert!(!rules.is_skipped("a", "1.20.0") && !rules.is_skipped("b", "1.2.3"));
        assert!(with("{ crate = \"a@1.2\" }").is_err());
        assert!(with("{ crate = \"a\", reason = \"r\" }").is_err());
        assert!(with("\"a@1.2\"").is_err());
    }
}
